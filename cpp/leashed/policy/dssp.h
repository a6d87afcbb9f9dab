// Dynamic SSP (Zhao et al., ICDCS 2019): SSP whose bound moves between `lower` and `upper`. The
// fastest node, when it is more than `lower` ahead, is given r more batches, where r is what brings
// a push of its own closest to one of the slowest node's, all predicted from the last two of each.
// Not verified: the paper itself was not at hand, and this is its rule as others tell it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "leashed/policy/clocks.h"
#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Dssp : public Coordinated<Dssp> {
 public:
  Dssp(const Job& job, std::uint64_t lower, std::uint64_t upper)
      : Coordinated(job, pulled_gradients()), lower_(lower), upper_(upper) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) {
    archive(most_);
    clocks_.visit(archive, [this](Node node) { return present(node); });
    archive.of_each(paces_);
  }

  // Of times: 10⁵ intervals of days, in nanoseconds, are beyond 64 bits.
  __extension__ using Wide = __int128;

  struct Pace {
    std::int64_t last = 0, interval = 0;
    std::uint64_t pushes = 0;
    std::uint64_t more = 0;  // batches that it may begin beyond `lower`, after this one
    bool goes_on = false;    // this one it may

    void visit(Archive& archive) { archive(last, interval, pushes, more, goes_on); }
  };

  bool admits(Node node) const { return paces_[node].goes_on || clocks_.ahead(node) <= lower_; }
  bool arrived(Node node, const LeaseList::Taken&, Time now, Out& out) {
    apply_alone(out);
    Pace& pace = paces_[node];
    if (pace.pushes++ > 0) pace.interval = now.ns - pace.last;
    pace.last = now.ns;
    const bool risen = clocks_.tick(node);
    most_ = std::max(most_, clocks_.of(node));
    if (pace.more == 0 && clocks_.ahead(node) > lower_ && clocks_.of(node) == most_) {
      pace.more = closest(pace, paces_[clocks_.slowest()], clocks_.ahead(node));
    }
    pace.goes_on = pace.more > 0;
    pace.more -= pace.goes_on;
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

  // r ≥ 0 with the least |fast.last + r fast.interval − (slow.last + k slow.interval)| over k ≥ 1,
  // the smallest of equals; r and k − 1 up to what is left to `upper`. 0 while a pace is unknown.
  std::uint64_t closest(const Pace& fast, const Pace& slow, std::uint64_t ahead) const {
    if (ahead > upper_ || fast.pushes < 2 || slow.pushes < 2) return 0;
    const std::uint64_t left = upper_ - ahead + 1;
    std::uint64_t best = 0;
    Wide least = -1;      // none yet
    std::uint64_t k = 1;  // the slowest one's push that is closest to r's; it only grows with r
    for (std::uint64_t r = 0; r <= left; ++r) {
      const auto apart = [&](std::uint64_t of_slow) {
        const Wide by =
            Wide{fast.last} - slow.last + Wide{r} * fast.interval - Wide{of_slow} * slow.interval;
        return by < 0 ? -by : by;
      };
      while (k < left + 1 && apart(k + 1) <= apart(k) && slow.interval > 0) ++k;
      if (least < 0 || apart(k) < least) {
        least = apart(k);
        best = r;
      }
    }
    return best;
  }

  std::uint64_t lower_, upper_;
  std::uint64_t most_ = 0;  // the fastest node's clock
  Clocks clocks_;
  std::vector<Pace> paces_;
};

}  // namespace leashed::modes
