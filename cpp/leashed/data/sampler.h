// Which rows make up batch k: a function of (seed, k) alone, whichever thread asks
// (docs/architecture.md, decision 9). The stream of examples is one pass over a random permutation
// of the rows after another, without replacement within a pass; batch k is its positions k·B to
// (k+1)·B − 1, so a batch may reach from one pass into the next.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

class Sampler {
 public:
  Sampler(std::uint64_t seed, std::size_t rows, std::size_t batch_size);

  // The pass over the data in which batch k begins.
  std::uint64_t pass(std::uint64_t k) const { return k * batch_size_ / rows_; }
  // Writes the batch_size row numbers of batch k.
  void batch(std::uint64_t k, std::size_t* rows) const { span(k * batch_size_, batch_size_, rows); }
  // The row numbers of that many positions of the stream.
  void span(std::uint64_t first, std::size_t count, std::size_t* rows) const;

 private:
  // A permutation of [0, rows) that is computed position by position, without a table: a Feistel
  // network on the smallest even number of bits that holds all rows, its rounds keyed by Philox
  // from (seed, pass), walked until it lands below `rows` (at most 4 steps on average). Of 3 to 64
  // rows it is a table, shuffled by Philox.
  class Permutation;

  const std::uint64_t seed_;
  const std::size_t rows_;
  const std::size_t batch_size_;
  const unsigned half_bits_;
};

}  // namespace leashed
