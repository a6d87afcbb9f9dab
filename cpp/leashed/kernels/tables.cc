#include "leashed/base/isa_table.h"
#include "leashed/kernels/activation.h"
#include "leashed/kernels/attention.h"
#include "leashed/kernels/candidates.h"
#include "leashed/kernels/dense.h"
#include "leashed/kernels/elementwise.h"
#include "leashed/kernels/embedding.h"
#include "leashed/kernels/factors.h"
#include "leashed/kernels/field_factors.h"
#include "leashed/kernels/gated.h"
#include "leashed/kernels/interaction.h"
#include "leashed/kernels/normalise.h"
#include "leashed/kernels/sparse.h"
#include "leashed/kernels/sparse_product.h"
#include "leashed/kernels/spatial.h"

namespace leashed {

LEASHED_ISA_TABLE(DenseKernels, dense_kernels)
LEASHED_ISA_TABLE(ActivationKernels, activation_kernels)
LEASHED_ISA_TABLE(CandidateKernels, candidate_kernels)
LEASHED_ISA_TABLE(EmbeddingKernels, embedding_kernels)
LEASHED_ISA_TABLE(InteractionKernels, interaction_kernels)
LEASHED_ISA_TABLE(ElementwiseKernels, elementwise_kernels)
LEASHED_ISA_TABLE(NormaliseKernels, normalise_kernels)
LEASHED_ISA_TABLE(SparseKernels, sparse_kernels)
LEASHED_ISA_TABLE(SparseProductKernels, sparse_product_kernels)
LEASHED_ISA_TABLE(FactorKernels, factor_kernels)
LEASHED_ISA_TABLE(FieldFactorKernels, field_factor_kernels)
LEASHED_ISA_TABLE(AttentionKernels, attention_kernels)
LEASHED_ISA_TABLE(GatedKernels, gated_kernels)
LEASHED_ISA_TABLE(SpatialKernels, spatial_kernels)

}  // namespace leashed
