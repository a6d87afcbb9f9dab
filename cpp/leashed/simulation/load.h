// The load of a cluster that others use too: what their work adds to the time of a worker's own.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/base/choice.h"

namespace leashed {

// Loads at given seconds, a line between one and the next; the last second is the first again. At a
// load L what takes one second alone takes 1 + L·x, where x is what this worker's machine has to
// bear: exponentially distributed of mean 1, anew every so many seconds, or 1 on all machines.
class Load {
 public:
  Load() = default;  // none
  // The tables `load` and `load_seconds`, which begins at 0 and rises; `load_every` seconds, or 0
  // for machines that bear the same.
  explicit Load(const Choice& choice);

  bool none() const { return loads_.empty(); }
  bool even() const { return every_ == 0; }
  // Which draw of x holds at that moment; `own`, in (0, 1), sets machines apart, or all would be
  // drawn at once.
  std::uint64_t spell(std::int64_t ns, double own) const;
  double factor(std::int64_t ns, double x) const { return 1 + at(ns) * x; }

 private:
  double at(std::int64_t ns) const;

  std::vector<std::int64_t> moments_;
  std::vector<double> loads_;
  std::int64_t every_ = 0;
};

}  // namespace leashed
