#include "leashed/model/flat_batch.h"

#include <algorithm>
#include <numeric>

#include "leashed/base/aligned.h"
#include "leashed/table/kernels.h"

namespace leashed {

void NumberedExamples::number(const BatchView& batch, std::size_t features) {
  numbers.assign(batch.size, 0);
  base = *std::min_element(batch.rows, batch.rows + batch.size);
  if (features == 0) return;
  for (std::size_t i = 0; i < batch.size; ++i) {
    numbers[i] = (batch.rows[i] - base) / static_cast<std::ptrdiff_t>(features);
  }
}

void fetch_examples(const float* const* rows, std::size_t size, std::size_t features) {
  constexpr std::size_t kMost = std::size_t{384} << 10;
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  if (!rows || size * features * sizeof(float) > kMost) return;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < features; j += kLine) __builtin_prefetch(rows[i] + j, 0, 2);
  }
}

void FlatLayout::measure(const BatchView& batch) {
  batch_ = batch.size;
  entry_begins_.assign(1, 0);
  for (const IdColumn& column : batch.columns) {
    entry_begins_.push_back(entry_begins_.back() + column.end(batch.size - 1));
  }
  float_begins_.assign(1, 0);
  counts_.clear();
  for (const TableRows& table : batch.tables) {
    float_begins_.push_back(float_begins_.back() + table.count * table.dim);
    counts_.push_back(static_cast<std::int64_t>(table.count));
  }
}

void FlatLayout::copy(const BatchView& batch, std::span<const std::size_t> features_of_tables,
                      Counted counted, const FlatRows& to) const {
  const RowKernels& kernels = row_kernels();
  for (std::size_t t = 0; t < batch.tables.size(); ++t) {
    const TableRows& table = batch.tables[t];
    kernels.gather(to.values + float_begins_[t], table.values, table.count, table.dim);
  }
  const bool through = counted == Counted::through;
  std::int64_t* offset = to.offsets;
  for (std::size_t f = 0; f < batch.columns.size(); ++f) {
    const IdColumn& column = batch.columns[f];
    const std::size_t first = entry_begins_[f], count = entry_begins_[f + 1] - first;
    const std::size_t before = through ? first : 0;
    for (std::size_t i = 0; i < batch.size; ++i) {
      *offset++ = static_cast<std::int64_t>(before + column.begin(i));
    }
    *offset++ = static_cast<std::int64_t>(before + count);
    const std::size_t table = features_of_tables[f];
    const std::size_t begin = through ? float_begins_[table] : 0;
    const std::size_t step = through ? batch.tables[table].dim : 1;
    for (std::size_t e = 0; e < count; ++e) {
      to.places[first + e] = static_cast<std::int64_t>(begin + batch.places[f][e] * step);
    }
    if (column.weights) {
      std::copy_n(column.weights, count, to.weights + first);
    } else {
      std::fill_n(to.weights + first, count, 1.0f);
    }
  }
}

void add_row_gradients(const float* gradients, const BatchView& batch) {
  for (const TableRows& table : batch.tables) {
    for (std::size_t i = 0; i < table.count; ++i, gradients += table.dim) {
      float* const sum = table.gradient + i * table.stride;
      for (std::size_t j = 0; j < table.dim; ++j) sum[j] += gradients[j];
    }
  }
}

}  // namespace leashed
