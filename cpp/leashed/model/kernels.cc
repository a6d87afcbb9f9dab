#include "leashed/base/isa_table.h"
#include "leashed/model/kernels/activation.h"
#include "leashed/model/kernels/attention.h"
#include "leashed/model/kernels/candidates.h"
#include "leashed/model/kernels/dense.h"
#include "leashed/model/kernels/elementwise.h"
#include "leashed/model/kernels/embedding.h"
#include "leashed/model/kernels/factors.h"
#include "leashed/model/kernels/field_factors.h"
#include "leashed/model/kernels/gated.h"
#include "leashed/model/kernels/interaction.h"
#include "leashed/model/kernels/normalise.h"
#include "leashed/model/kernels/sparse.h"
#include "leashed/model/kernels/spatial.h"

namespace leashed {

LEASHED_ISA_TABLE(DenseKernels, dense_kernels)
LEASHED_ISA_TABLE(ActivationKernels, activation_kernels)
LEASHED_ISA_TABLE(CandidateKernels, candidate_kernels)
LEASHED_ISA_TABLE(EmbeddingKernels, embedding_kernels)
LEASHED_ISA_TABLE(InteractionKernels, interaction_kernels)
LEASHED_ISA_TABLE(ElementwiseKernels, elementwise_kernels)
LEASHED_ISA_TABLE(NormaliseKernels, normalise_kernels)
LEASHED_ISA_TABLE(SparseKernels, sparse_kernels)
LEASHED_ISA_TABLE(FactorKernels, factor_kernels)
LEASHED_ISA_TABLE(FieldFactorKernels, field_factor_kernels)
LEASHED_ISA_TABLE(AttentionKernels, attention_kernels)
LEASHED_ISA_TABLE(GatedKernels, gated_kernels)
LEASHED_ISA_TABLE(SpatialKernels, spatial_kernels)

}  // namespace leashed
