// What is said of an id that no row of a table has.
#pragma once

#include <cstdint>
#include <string>

#include "leashed/base/error.h"

namespace leashed {

inline Error no_row(const std::string& table, std::uint64_t id, std::uint64_t rows) {
  return Error("id " + std::to_string(static_cast<std::int64_t>(id)) + " is no row of table '" +
               table + "', which has rows 0 to " + std::to_string(rows - 1));
}

}  // namespace leashed
