// Ids drawn at random for a batch, which sampled losses take for what was not chosen: they depend
// on (seed, place) alone, whoever asks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

struct Negatives {
  // log_uniform: P(id) = log((id + 2) / (id + 1)) / log(below + 1), for ids by falling frequency.
  enum class Sampling { uniform, log_uniform };

  std::size_t count = 0;    // of a batch, with repetition; 0: none
  std::uint64_t below = 1;  // at most 2^32
  Sampling sampling = Sampling::uniform;

  // Writes `count` ids. place: of the batch's first example in the stream of examples.
  void draw(std::uint64_t seed, std::uint64_t place, std::uint64_t* ids) const;
  // log(count · P(id)), the logarithm of how often an id is expected among them.
  double log_expected(std::uint64_t id) const;
};

}  // namespace leashed
