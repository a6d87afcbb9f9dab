// Where the rows of a batch are: the distinct ids of each table's features, and the place of each
// entry's id among them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leashed/data/batch_view.h"
#include "leashed/table/combine.h"
#include "leashed/table/table.h"

namespace leashed {

struct FoundRows {
  FoundRows(std::size_t tables, std::size_t features)
      : located(tables), entries(features), places(features) {}

  std::vector<Located> located;                     // by table
  std::vector<std::vector<std::uint32_t>> entries;  // by feature
  std::vector<const std::uint32_t*> places;
};

// Of each feature its table's number among `tables`; `seats` are of one thread's, by table. Throws
// Error where the batch has another number of features, or an id is no row of its table.
void find_rows(const std::vector<std::shared_ptr<Table>>& tables,
               const std::vector<std::size_t>& features_of_tables,
               std::span<const std::unique_ptr<Seat>> seats, const BatchView& batch, bool admits,
               Combiner& combiner, FoundRows& found);

}  // namespace leashed
