#include "leashed/table/kernels.h"

#include "leashed/base/isa_table.h"

namespace leashed {

LEASHED_ISA_TABLE(RowKernels, row_kernels)

}  // namespace leashed
