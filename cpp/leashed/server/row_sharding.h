// Which of several servers has which rows of tables: whole tables each, or every table's rows
// spread by a hash of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "leashed/table/id_index.h"

namespace leashed {

class RowSharding {
 public:
  // tables: of each its server's number; empty: by hash.
  explicit RowSharding(std::size_t servers, std::vector<std::uint32_t> tables = {})
      : servers_(servers), tables_(std::move(tables)) {}

  std::size_t servers() const { return servers_; }
  // An id without a row is the first's.
  std::size_t operator()(std::size_t table, std::uint32_t row) const {
    if (!tables_.empty()) return tables_[table];
    if (row == IdIndex::kNone) return 0;
    // The upper bits of a product by the golden ratio are those that are mixed.
    return ((row + 1) * std::uint64_t{0x9E3779B97F4A7C15} >> 32) * servers_ >> 32;
  }

 private:
  std::size_t servers_;
  std::vector<std::uint32_t> tables_;
};

}  // namespace leashed
