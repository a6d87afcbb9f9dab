// What a ring's sum is held against.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "leashed/net/codec.h"

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

// The same where each sends what it has encoded, with its errors, which become those of this time.
inline std::vector<float> encoded_sum_in_order(const Vectors& vectors, leashed::Codec codec,
                                               Vectors& errors) {
  const std::size_t members = vectors.size(), length = vectors[0].size();
  std::vector<float> result(length);
  for (std::size_t p = 0, begin = 0; p < members; ++p) {
    const std::size_t size = length / members + (p < length % members ? 1 : 0);
    const std::span<float> sum = std::span(result).subspan(begin, size);
    for (std::size_t k = 0; k < members; ++k) {
      const std::size_t member = (p + k) % members;
      const std::span<float> error = std::span(errors[member]).subspan(begin, size);
      std::vector<float> wanted(size);
      for (std::size_t i = 0; i < size; ++i) {
        wanted[i] = (vectors[member][begin + i] + sum[i]) + error[i];
      }
      std::vector<std::byte> bytes(leashed::encoded_size(codec, size));
      leashed::encode(codec, wanted, bytes.data());
      leashed::decode(codec, bytes.data(), sum);
      for (std::size_t i = 0; i < size; ++i) error[i] = wanted[i] - sum[i];
    }
    begin += size;
  }
  return result;
}
