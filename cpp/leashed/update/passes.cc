#include "leashed/update/passes.h"

#include "leashed/base/isa_table.h"

namespace leashed {

LEASHED_ISA_TABLE(PassTable, pass_table)

}  // namespace leashed
