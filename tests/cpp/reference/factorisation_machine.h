// A factorisation machine by its definition (Rendle 2010, eq. 1), pair by pair, in double
// precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/data/sparse_rows.h"

namespace reference {

struct FactorisationMachine {
  std::size_t k;
  std::vector<double> records;  // [columns][1 + k]
  double bias = 0;

  const double* record(std::int32_t column) const {
    return records.data() + static_cast<std::size_t>(column) * (1 + k);
  }
  static double value(const leashed::SparseRows& rows, std::int64_t j) {
    return rows.values ? double{rows.values[j]} : 1;
  }

  double output(const leashed::SparseRows& rows, std::size_t row) const {
    double sum = bias;
    for (std::int64_t i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
      const double* a = record(rows.columns[i]);
      sum += value(rows, i) * a[0];
      for (std::int64_t j = rows.offsets[row]; j < i; ++j) {
        const double* b = record(rows.columns[j]);
        for (std::size_t f = 1; f <= k; ++f) sum += value(rows, i) * value(rows, j) * a[f] * b[f];
      }
    }
    return sum;
  }

  // gradient [columns][1 + k] += scale · that of the row's output.
  void add_gradient(const leashed::SparseRows& rows, std::size_t row, double scale,
                    std::vector<double>& gradient) const {
    for (std::int64_t i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
      double* g = gradient.data() + static_cast<std::size_t>(rows.columns[i]) * (1 + k);
      g[0] += scale * value(rows, i);
      for (std::int64_t j = rows.offsets[row]; j < rows.offsets[row + 1]; ++j) {
        if (j == i) continue;
        const double* b = record(rows.columns[j]);
        for (std::size_t f = 1; f <= k; ++f) g[f] += scale * value(rows, i) * value(rows, j) * b[f];
      }
    }
  }
};

}  // namespace reference
