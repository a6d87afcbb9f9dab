#include "leashed/data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <numeric>
#include <utility>

#include "leashed/base/philox.h"

namespace leashed {

class Sampler::Permutation {
 public:
  static constexpr std::size_t kTogether = 8;

  Permutation(std::uint64_t seed, std::uint64_t pass, std::size_t rows, unsigned half_bits)
      : rows_(rows),
        half_bits_(half_bits),
        mask_((std::uint64_t{1} << half_bits) - 1),
        keys_(philox(seed, pass, 0)) {
    if (is_shuffled()) shuffle(seed, pass);
  }

  // The rows of `count` positions, at most kTogether, whose rounds the processor works on at once.
  void operator()(std::size_t position, std::size_t count, std::size_t* rows) const {
    if (is_shuffled()) {
      std::copy_n(order_.begin() + static_cast<std::ptrdiff_t>(position), count, rows);
      return;
    }
    std::array<std::uint64_t, kTogether> values;
    for (std::size_t i = 0; i < kTogether; ++i) values[i] = encrypt(position + i);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t value = values[i];
      while (value >= rows_) value = encrypt(value);
      rows[i] = value;
    }
  }

 private:
  // Of few rows a network of four rounds has orders that come often, and others that hardly do. (Of
  // two it has both as often.)
  static constexpr std::size_t kShuffled = 64;
  bool is_shuffled() const { return rows_ > 2 && rows_ <= kShuffled; }
  // By Fisher and Yates.
  void shuffle(std::uint64_t seed, std::uint64_t pass) {
    std::iota(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(rows_), 0);
    std::array<std::uint32_t, 4> words = keys_;
    for (std::size_t drawn = 0; drawn + 1 < rows_; ++drawn) {
      if (drawn > 0 && drawn % 4 == 0) words = philox(seed, pass, drawn / 4);
      const std::uint64_t left = rows_ - drawn;
      std::swap(order_[left - 1], order_[words[drawn % 4] * left >> 32]);
    }
  }
  std::uint64_t encrypt(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask_;
    for (const std::uint32_t key : keys_) {
      const std::uint64_t mixed = left ^ (mix(right + key) & mask_);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }
  // The finaliser of MurmurHash3, of x < 2³³, for which its first step does nothing.
  static std::uint64_t mix(std::uint64_t x) {
    x *= 0xff51afd7ed558ccd;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
  }

  const std::size_t rows_;
  const unsigned half_bits_;
  const std::uint64_t mask_;
  const std::array<std::uint32_t, 4> keys_;
  std::array<std::uint8_t, kShuffled> order_;  // of the rows, where they are shuffled
};

Sampler::Sampler(std::uint64_t seed, std::size_t rows, std::size_t batch_size)
    : seed_(seed),
      rows_(rows),
      batch_size_(batch_size),
      half_bits_(static_cast<unsigned>(std::bit_width(rows > 1 ? rows - 1 : 1) + 1) / 2) {
  assert(rows > 0 && batch_size > 0);
}

void Sampler::span(std::uint64_t first, std::size_t count, std::size_t* rows) const {
  std::uint64_t pass = first / rows_;
  std::size_t position = first % rows_;
  for (std::size_t i = 0; i < count;) {
    const Permutation permutation(seed_, pass, rows_, half_bits_);
    while (i < count && position < rows_) {
      const std::size_t together = std::min({Permutation::kTogether, count - i, rows_ - position});
      permutation(position, together, rows + i);
      position += together;
      i += together;
    }
    position = 0;
    ++pass;
  }
}

}  // namespace leashed
