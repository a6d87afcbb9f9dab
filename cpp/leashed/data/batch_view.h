#pragma once

#include "leashed/data/dataset_view.h"

namespace leashed {

// One mini-batch: `size` pointers to rows of the dataset, or so many sparse rows that lie one after
// another, and what each is to give.
struct BatchView {
  const float* const* rows;
  Targets targets;
  std::size_t size;
  const float* const* next_rows = nullptr;  // of the batch after this one, to fetch meanwhile
  SparseRows sparse = {};
};

}  // namespace leashed
