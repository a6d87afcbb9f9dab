// The distinct ids of each table's features in a batch, and the place of each entry's id among
// them.
#pragma once

#include <cstdint>
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

// Fills in places, entries, and of each table the ids that are to be located. Throws Error where
// the batch has another number of features.
void combine_batch(const std::vector<std::size_t>& features_of_tables, const BatchView& batch,
                   Combiner& combiner, FoundRows& found);
// The same, where the ids that only `later` features have, by feature, come behind the others.
// earlier: by table, how many these are.
void combine_batch(const std::vector<std::size_t>& features_of_tables, const BatchView& batch,
                   Combiner& combiner, FoundRows& found, const std::vector<bool>& later,
                   std::vector<std::size_t>& earlier);

}  // namespace leashed
