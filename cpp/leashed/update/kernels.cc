#include "leashed/update/kernels.h"

#include "leashed/base/isa_table.h"

namespace leashed {

LEASHED_ISA_TABLE(UpdateKernels, update_kernels)

}  // namespace leashed
