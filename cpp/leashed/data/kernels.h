// What looks at many bytes of text, or at many scored rows, at once; compiled for each instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct ScanKernels {
  // Writes the places of the bytes that are `separator` or a newline, in order, and returns how
  // many they are. 64 bytes behind the text may be read; `places` has room for `size` and 64 more.
  std::size_t (*separators)(const char* text, std::size_t size, char separator,
                            std::uint32_t* places);
};
const ScanKernels& scan_kernels(Isa isa);

// What scored rows add up to (click_metrics.h), with a row's logit z, e = e^−|z| and the
// probability p = 1 / (1 + e^−z): lanes that are added up at last.
struct ScoreSums {
  static constexpr std::size_t kLanes = 16;  // at most

  // Of rows that weigh 1: Π (1 + e) − 1, whose logarithm and the sum of p, which has this product
  // for its denominator, take one logarithm and one division for all.
  double product[kLanes] = {}, scaled[kLanes] = {};
  // The rest of their losses, which is 0 or |z|; of other rows all of it, and p.
  double loss[kLanes] = {}, expected[kLanes] = {};
  double clicks[kLanes] = {}, others[kLanes] = {};
  std::uint32_t blocks = 0;  // a bit for each of 32 of the bins that rows went to
};

struct ScoreKernels {
  std::size_t lanes;
  // Adds rows to `sums` and to their bins: 2 b + 1 of a click, 2 b of any other, where b is
  // the upper half of the logit's bits, turned so that larger logits have larger ones.
  void (*count)(const float* logits, const std::int32_t* labels, std::size_t rows,
                std::uint64_t* bins, ScoreSums& sums);
  // The same by their weights; of weight 0 they add nothing.
  void (*weigh)(const float* logits, const std::int32_t* labels, const float* weights,
                std::size_t rows, double* bins, ScoreSums& sums);
};
const ScoreKernels& score_kernels(Isa isa);

}  // namespace leashed
