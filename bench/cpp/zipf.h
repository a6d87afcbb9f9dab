// Ids by Zipf's law, whose ranks lie scattered over a table's rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace bench {

class Zipf {
 public:
  Zipf(std::size_t rows, double exponent) : cumulative_(rows) {
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      cumulative_[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
    }
  }
  template <class Random>
  std::uint32_t operator()(Random& random) const {
    std::uniform_real_distribution<double> uniform(0, cumulative_.back());
    const auto found = std::lower_bound(cumulative_.begin(), cumulative_.end(), uniform(random));
    const auto rank = static_cast<std::uint64_t>(found - cumulative_.begin());
    return static_cast<std::uint32_t>(rank * 2654435761u % cumulative_.size());
  }

 private:
  std::vector<double> cumulative_;
};

}  // namespace bench
