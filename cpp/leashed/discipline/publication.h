// What is read of the shared parameters, and what becomes of a gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leashed {

// What a gradient is computed on.
struct View {
  const float* theta;
  std::uint64_t t;  // version read
};

// A gradient in pieces, ascending: values[i] belongs to parameter begin + i. What no piece covers
// has none: those parameters and their state stay as they are (SWAP's accumulators decay).
struct GradientPiece {
  const float* values;
  std::size_t begin, end;
};
using Gradient = std::span<const GradientPiece>;

// One that is zero but at `size` parameters, ascending.
struct SparseGradient {
  const std::int64_t* indices;
  const float* values;
  std::size_t size;
};

// What became of a gradient. Staleness τ = τᶜ + τˢ counts the updates applied between the read and
// this one (docs/readings.md#words-that-differ): τᶜ until the worker was ready to update, τˢ after
// that.
struct Publication {
  bool published = false;
  bool abandoned = false;  // in lockstep, because the run is being stopped: as if never computed
  bool excluded = false;   // by the staleness policy; the rest is unset but for the times
  std::uint64_t t = 0;     // version replaced
  // What the staleness policy multiplied the gradient by; of a stage-aware policy, which has one a
  // variable, the largest.
  double factor = 1;
  // Where there is one a variable, each; until the thread's next publish.
  const double* factors = nullptr;
  std::uint64_t staleness_compute = 0;
  std::uint64_t staleness_schedule = 0;
  std::uint64_t tries = 0;  // failed attempts (CAS lost to another update)
  // Dropped after an attempt that was lost to a synchronisation, which is no update.
  bool lost_to_synchronisation = false;
  double update_seconds = 0;   // T_u: in the update itself, all attempts together
  double waiting_seconds = 0;  // for locks and barriers
};

}  // namespace leashed
