#pragma once

#include <span>

#include "leashed/data/dataset_view.h"
#include "leashed/data/drawing.h"

namespace leashed {

struct NumberScales;

// One mini-batch: `size` pointers to rows of the dataset, or so many sparse rows that lie one after
// another, and what each is to give.
struct BatchView {
  const float* const* rows;
  Targets targets;
  std::size_t size;
  const float* const* next_rows = nullptr;  // of the batch after this one, to fetch meanwhile
  SparseRows sparse = {};
  std::span<const IdColumn> columns = {};  // of each feature that is ids
  // The rows that these stand for, by table, and of each feature the places of its ids' rows among
  // those of its table.
  std::span<const TableRows> tables = {};
  const std::uint32_t* const* places = nullptr;
  // Where a source that gives logits writes each row's, [size][targets.width], as it evaluates them
  // and before it updates anything by them (one from outside only as it evaluates); null: nowhere.
  float* logits = nullptr;
  // What a source that has statistics normalises by; null: what the batch itself comes to, which
  // its gradient writes to own_statistics unless that is null.
  const float* statistics = nullptr;
  float* own_statistics = nullptr;
  // What a source that standardises what it evaluates does that by.
  const NumberScales* scales = nullptr;
  Drawing drawing = {};  // what its gradient draws depends on
};

}  // namespace leashed
