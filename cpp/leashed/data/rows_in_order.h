// Rows of a dataset as they follow each other, for who walks over all of them once: evaluation.
#pragma once

#include "leashed/data/batch_source.h"

namespace leashed {

// Makes it rows [first, first + count), of whatever kind of data.
void fill_in_order(const DatasetView& data, std::size_t first, std::size_t count, Batch& batch);

}  // namespace leashed
