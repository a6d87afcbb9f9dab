// What a ring's sum is held against.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

using Vectors = std::vector<std::vector<float>>;

inline Vectors draw_vectors(std::size_t members, std::size_t length) {
  std::mt19937_64 random(members * 1000 + length);
  std::normal_distribution<float> normal;
  Vectors vectors(members, std::vector<float>(length));
  for (auto& vector : vectors) {
    for (float& value : vector) value = normal(random);
  }
  return vectors;
}

// Part p from member p on.
inline std::vector<float> sum_in_order(const Vectors& vectors) {
  const std::size_t members = vectors.size(), length = vectors[0].size();
  std::vector<float> sum(length);
  for (std::size_t p = 0, i = 0; p < members; ++p) {
    const std::size_t end = i + length / members + (p < length % members ? 1 : 0);
    for (; i < end; ++i) {
      sum[i] = vectors[p][i];
      for (std::size_t k = 1; k < members; ++k) sum[i] += vectors[(p + k) % members][i];
    }
  }
  return sum;
}
