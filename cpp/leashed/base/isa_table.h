// LEASHED_ISA_TABLE(Table, table): declares table_<level> for each level of this build, defined by
// the kernel sources, and defines `const Table& table(Isa)` that chooses among them.
#pragma once

#include "leashed/base/isa.h"

// In a kernel source: the name of its level's table, e.g. LEASHED_ISA_NAME(update_kernels).
#define LEASHED_ISA_PASTE2(name, isa) name##_##isa
#define LEASHED_ISA_PASTE(name, isa) LEASHED_ISA_PASTE2(name, isa)
#define LEASHED_ISA_NAME(name) LEASHED_ISA_PASTE(name, LEASHED_ISA)

#if defined(LEASHED_ONE_ISA)
#define LEASHED_ISA_TABLE(Table, table)                         \
  extern const Table LEASHED_ISA_PASTE(table, LEASHED_ONE_ISA); \
  const Table& table(Isa) { return LEASHED_ISA_PASTE(table, LEASHED_ONE_ISA); }
#else
#define LEASHED_ISA_TABLE(Table, table) \
  extern const Table table##_v2;        \
  extern const Table table##_v3;        \
  extern const Table table##_v4;        \
  const Table& table(Isa isa) {         \
    switch (isa) {                      \
      case Isa::v4:                     \
        return table##_v4;              \
      case Isa::v3:                     \
        return table##_v3;              \
      default:                          \
        return table##_v2;              \
    }                                   \
  }
#endif
