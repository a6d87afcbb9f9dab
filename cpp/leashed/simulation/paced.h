// Which worker of all trainers is to synchronise, by what it has done since it did so last.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/cluster/pace.h"
#include "leashed/simulation/virtual_clock.h"

namespace leashed {

class Paced {
 public:
  Paced(const Pace& pace, std::size_t workers) : pace_(pace), workers_(workers) {}

  bool background() const { return pace_.kind == Pace::Kind::background; }
  // The worker has had an iteration; whether it is due.
  bool stepped(std::uint32_t worker, std::int64_t now) {
    Progress& own = workers_[worker];
    ++own.iterations;
    const double gap = pace_.gap(own.iterations);
    if (pace_.kind == Pace::Kind::seconds) return in_seconds(now - own.last_ns) >= gap;
    return static_cast<double>(own.iterations - own.last) >= gap;
  }
  void synchronised(std::uint32_t worker, std::int64_t now) {
    workers_[worker].last = workers_[worker].iterations;
    workers_[worker].last_ns = now;
  }

 private:
  struct Progress {
    std::uint64_t iterations = 0, last = 0;  // so far, and at the last round
    std::int64_t last_ns = 0;
  };
  const Pace pace_;
  std::vector<Progress> workers_;
};

}  // namespace leashed
