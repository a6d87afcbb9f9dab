#include "leashed/sparse/ordered_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/philox.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr std::size_t kSmall = 1 << 16;  // entries that one thread copies soon enough

std::string row_name(std::size_t row) { return "row " + std::to_string(row); }

// Nearly the logarithm: eight steps to an octave.
std::size_t magnitude(std::uint32_t count) {
  const auto bits = static_cast<std::size_t>(std::bit_width(count));
  return bits <= 3 ? count : (bits - 3) * 8 + ((count >> (bits - 4)) & 7);
}

// A permutation of [0, n), by Fisher and Yates.
std::vector<std::uint32_t> permutation(std::size_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = n; i > 1; --i) {
    const auto random = philox(seed, ~std::uint64_t{0}, i);
    const std::uint64_t wide = std::uint64_t{random[0]} << 32 | random[1];
    std::swap(order[i - 1], order[wide % i]);
  }
  return order;
}

}  // namespace

void check_rows(const SparseRows& sparse, std::size_t rows, std::size_t features,
                std::size_t entries) {
  if (sparse.offsets[0] != 0) {
    throw Error("indptr must start with 0, got " + std::to_string(sparse.offsets[0]));
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const std::int64_t begin = sparse.offsets[i], end = sparse.offsets[i + 1];
    if (end < begin || static_cast<std::size_t>(end) > entries) {
      throw Error("indptr must not fall and not pass the " + std::to_string(entries) +
                  " entries, but goes from " + std::to_string(begin) + " to " +
                  std::to_string(end) + " at " + row_name(i));
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int32_t column = sparse.columns[j];
      if (column < 0 || static_cast<std::size_t>(column) >= features) {
        throw Error("indices has " + std::to_string(column) + " in " + row_name(i) +
                    ", outside 0 to " + std::to_string(features - 1));
      }
      if (!std::isfinite(sparse.values[j])) {
        throw Error("data is NaN, infinite or beyond float32 in " + row_name(i) + " (column " +
                    std::to_string(column) + "); remove such rows or replace the values");
      }
    }
  }
  if (static_cast<std::size_t>(sparse.offsets[rows]) != entries) {
    throw Error("indptr must end with the number of entries, " + std::to_string(entries) +
                ", got " + std::to_string(sparse.offsets[rows]));
  }
}

OrderedRows::OrderedRows(const SparseRows& sparse, std::size_t rows, std::size_t features,
                         std::uint64_t seed)
    : rank_(features), from_(permutation(rows, seed)), offsets_(rows + 1) {
  number_columns(sparse, rows);
  copy(sparse);
  std::vector<double> squares(active_);  // a float would count no ones beyond 2²⁴
  for (std::int64_t j = 0; j < offsets_[rows]; ++j) {
    const double value = values_ ? values_[static_cast<std::size_t>(j)] : 1.0f;
    squares[static_cast<std::size_t>(columns_[static_cast<std::size_t>(j)])] += value * value;
  }
  mean_squares_.reserve(active_);
  for (const double sum : squares) {
    mean_squares_.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  }
}

OrderedRows::OrderedRows(std::size_t features)
    : rank_(features), active_(features), offsets_(std::size_t{1}) {
  std::iota(rank_.begin(), rank_.end(), 0);
  offsets_[0] = 0;
}

OrderedRows::OrderedRows(const SparseRows& sparse, std::size_t rows, const OrderedRows& like)
    : rank_(like.rank_), active_(like.active_), offsets_(rows + 1) {
  copy(sparse);
}

// A counting sort by magnitude, the columns of one magnitude in their own order.
void OrderedRows::number_columns(const SparseRows& sparse, std::size_t rows) {
  std::vector<std::uint32_t> counts(rank_.size());
  for (std::int64_t j = 0; j < sparse.offsets[rows]; ++j) {
    std::uint32_t& count = counts[static_cast<std::size_t>(sparse.columns[j])];
    count += count < ~std::uint32_t{0};
  }
  constexpr std::size_t kMagnitudes = 32 * 8;
  std::vector<std::size_t> sizes(kMagnitudes), begins(kMagnitudes);
  for (const std::uint32_t count : counts) ++sizes[magnitude(count)];
  std::size_t begin = 0;
  for (std::size_t m = kMagnitudes; m-- > 0;) {
    begins[m] = begin;
    begin += sizes[m];
  }
  active_ = begins[0];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    rank_[i] = static_cast<std::int32_t>(begins[magnitude(counts[i])]++);
  }
}

void OrderedRows::copy(const SparseRows& sparse) {
  const auto source = [&](std::size_t row) { return from_.empty() ? row : from_[row]; };
  offsets_[0] = 0;
  for (std::size_t i = 0; i < rows(); ++i) {
    const std::size_t row = source(i);
    offsets_[i + 1] = offsets_[i] + (sparse.offsets[row + 1] - sparse.offsets[row]);
  }
  const auto entries = static_cast<std::size_t>(offsets_[rows()]);
  columns_ = AlignedArray<std::int32_t>(std::max<std::size_t>(1, entries));
  const bool valued = sparse.values && std::any_of(sparse.values, sparse.values + entries,
                                                   [](float value) { return value != 1; });
  if (valued) values_ = AlignedArray<float>(entries);
  const auto part = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t row = source(i);
      std::int64_t to = offsets_[i];
      for (std::int64_t j = sparse.offsets[row]; j < sparse.offsets[row + 1]; ++j, ++to) {
        columns_[static_cast<std::size_t>(to)] = rank_[static_cast<std::size_t>(sparse.columns[j])];
        if (valued) values_[static_cast<std::size_t>(to)] = sparse.values[j];
      }
    }
  };
  const std::size_t parts = entries < kSmall ? 1 : processors();
  // Relaxed: distinct numbers are all that is asked of it; Team::run orders the rest.
  std::atomic<std::size_t> next{0};
  Team().run(parts - 1, [&] {
    for (std::size_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
      part(rows() * k / parts, rows() * (k + 1) / parts);
    }
  });
}

std::vector<float> OrderedRows::ordered(const float* theta, const ColumnShape& shape) const {
  const auto [width, intercepts] = shape;
  std::vector<float> result(shape.dimension(features()));
  std::copy_n(theta + features() * width, intercepts, result.begin());
  for (std::size_t i = 0; i < features(); ++i) {
    std::copy_n(theta + i * width, width,
                result.data() + intercepts + static_cast<std::size_t>(rank_[i]) * width);
  }
  return result;
}

std::vector<float> OrderedRows::original(const std::vector<float>& theta,
                                         const ColumnShape& shape) const {
  const auto [width, intercepts] = shape;
  std::vector<float> result(theta.size());
  std::copy_n(theta.begin(), intercepts, result.data() + features() * width);
  for (std::size_t i = 0; i < features(); ++i) {
    std::copy_n(theta.data() + intercepts + static_cast<std::size_t>(rank_[i]) * width, width,
                result.data() + i * width);
  }
  return result;
}

}  // namespace leashed
