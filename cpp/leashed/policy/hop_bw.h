// Rounds without the slowest (gba, 5.1, Hop-BW; Luo et al., "Hop", ASPLOS 2019): a round is over
// when at most b3 of the nodes that are there have still to give their gradient; what these push
// later is dropped, and their examples with it.
//
// With b3 = 0 it is Sync, the barrier: an update is the mean over all that are there, each computed
// on the vector before it. With own models and local steps that is local SGD.
#pragma once

#include <cstdint>

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"
#include "leashed/policy/round.h"

namespace leashed::modes {

class HopBw : public Coordinated<HopBw> {
 public:
  HopBw(const Job& job, std::uint32_t b3, WorkerRule rule) : Coordinated(job, rule), b3_(b3) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) {
    round_.visit(archive, [this](Node node) { return present(node); });
    buffer_.visit(archive, round_.given() + 1);
    archive.require(buffer_.size() == round_.given() &&
                    (buffer_.empty() || round_.awaited(n_) > b3_));
  }
  bool admits(Node node) const { return !round_.has(node); }
  std::uint64_t token() const { return version_; }
  bool arrived(Node node, const LeaseList::Taken& taken, Time, Out& out) {
    if (taken.version < version_) {
      Action& action = out.add(Action::Kind::drop);
      action.ticket = taken.lease.ticket;
      action.why = Why::straggler;
      return false;
    }
    buffer_.hold(taken.lease, out);
    round_.give(node);
    return close(out);
  }
  void entered(Node node) { round_.enter(node); }
  void departed(Node node, Out& out) {
    round_.depart(node);
    close(out);
  }
  void finish(Out& out) {
    buffer_.apply_all(version_, version_, out);
    round_.begin();
  }

  bool close(Out& out) {
    if (buffer_.empty() || round_.awaited(n_) > b3_) return false;
    finish(out);
    return true;
  }

  std::uint32_t b3_;
  GradientBuffer buffer_;
  Round round_;
};

}  // namespace leashed::modes
