// Dynamic SSP (Zhao et al., ICDCS 2019): SSP whose bound moves between s and s + range. The fastest
// node, when it is more than s ahead, may begin r more batches, where r is what brings its push
// closest to the slowest one's next, each predicted from the times of its last two. Not verified:
// the paper itself was not at hand, and this is its rule as others tell it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "leashed/policy/clocks.h"
#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Dssp : public Coordinated<Dssp> {
 public:
  Dssp(const Job& job, std::uint64_t s, std::uint64_t range)
      : Coordinated(job, pulled_gradients()), s_(s), range_(range) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  struct Pace {
    std::int64_t last = 0, interval = 0;
    std::uint64_t pushes = 0;
    std::uint64_t more = 0;  // batches that it may begin beyond s
  };

  bool admits(Node node) const {
    const std::uint64_t ahead = clocks_.ahead(node) + leases_.held(node);
    return ahead <= s_ || (paces_[node].more > 0 && ahead <= s_ + range_);
  }
  // The lease that it has just got is among those held.
  void granted(Node node) {
    if (clocks_.ahead(node) + leases_.held(node) - 1 > s_) --paces_[node].more;
  }
  bool arrived(Node node, const LeaseList::Taken&, Time now, Out& out) {
    apply_alone(out);
    Pace& pace = paces_[node];
    if (pace.pushes++ > 0) pace.interval = now.ns - pace.last;
    pace.last = now.ns;
    const bool risen = clocks_.tick(node);
    most_ = std::max(most_, clocks_.of(node));
    if (clocks_.ahead(node) <= s_) {
      pace.more = 0;
    } else if (pace.more == 0 && clocks_.of(node) == most_) {
      pace.more = closest(pace, paces_[clocks_.slowest()]);
    }
    return risen;
  }
  void entered(Node node) {
    if (node >= paces_.size()) paces_.resize(std::size_t{node} + 1);
    paces_[node] = {};
    clocks_.enter(node);
  }
  void departed(Node node, Out&) {
    clocks_.leave(node);
    most_ = 0;
    for (Node other = 0; other < paces_.size(); ++other) {
      if (present(other)) most_ = std::max(most_, clocks_.of(other));
    }
  }

  // r in 0..range with the least |fast.last + r fast.interval − (slow.last + slow.interval)|, the
  // smallest of equals; 0 while a pace is unknown.
  std::uint64_t closest(const Pace& fast, const Pace& slow) const {
    if (fast.pushes < 2 || slow.pushes < 2) return 0;
    const std::int64_t wait = slow.last + slow.interval - fast.last;
    if (wait <= 0 || fast.interval <= 0) return 0;
    const std::int64_t r = wait / fast.interval, rest = wait % fast.interval;
    const bool up = rest > fast.interval - rest;
    return std::min(range_, static_cast<std::uint64_t>(r) + (up ? 1 : 0));
  }

  std::uint64_t s_, range_;
  std::uint64_t most_ = 0;  // the fastest node's clock
  Clocks clocks_;
  std::vector<Pace> paces_;
};

}  // namespace leashed::modes
