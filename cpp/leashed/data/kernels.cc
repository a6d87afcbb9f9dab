#include "leashed/data/kernels.h"

#include "leashed/base/isa_table.h"

namespace leashed {

LEASHED_ISA_TABLE(ScanKernels, scan_kernels)
LEASHED_ISA_TABLE(ScoreKernels, score_kernels)

}  // namespace leashed
