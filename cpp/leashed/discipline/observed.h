// What can be seen of a discipline from outside while workers run: the monitor's and a checkpoint's
// way to theta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "leashed/sparse/runs.h"

namespace leashed {

// The state of a discipline, which a run can go on from.
struct DisciplineState {
  const float* buffer;  // theta and the rule's state (update/layout.h)
  std::uint64_t t;      // its version
  Behind behind = {};   // to go on to the same bits
};

class Observed {
 public:
  virtual ~Observed() = default;

  // Calls f with a consistent theta and its version (Hogwild: as consistent as Hogwild is), while
  // workers run. One caller at a time.
  virtual void with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) = 0;
  // The same with the rule's state. Here: with_snapshot's theta is the start of the whole buffer.
  virtual void with_state(const std::function<void(const DisciplineState&)>& f) {
    with_snapshot([&f](const float* buffer, std::uint64_t t) { f({buffer, t}); });
  }
  // Updates applied so far; for that same caller.
  virtual std::uint64_t updates() {
    std::uint64_t t = 0;
    with_snapshot([&t](const float*, std::uint64_t now) { t = now; });
    return t;
  }
  // Whether any thread may ask for these at any time, without waiting.
  virtual bool counts_alone() const { return false; }
  // The parameters themselves where they lie in one place for good, else null.
  virtual float* memory() { return nullptr; }

  // Parameter vectors in use now, and the most that were ever needed at once; without gradients and
  // without the monitor's copy.
  virtual std::size_t live_vectors() const = 0;
  virtual std::size_t peak_vectors() const { return live_vectors(); }
};

}  // namespace leashed
