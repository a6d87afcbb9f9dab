// Backup workers (gba, 5.1, Hop-BW; Luo et al., "Hop", ASPLOS 2019): a round is over when all but
// b3 nodes have pushed; what the slowest push later is dropped, and their examples with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"

namespace leashed::modes {

class HopBw : public Coordinated<HopBw> {
 public:
  HopBw(const Job& job, std::uint32_t b3) : Coordinated(job, pulled_gradients()), b3_(b3) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  bool admits(Node node) const {
    return contributed_[node] != version_ + 1 && !leases_.has_of(node, version_);
  }
  std::uint64_t token() const { return version_; }
  bool arrived(Node node, const LeaseList::Taken& taken, Time, Out& out) {
    if (taken.version < version_) {
      Action& action = out.add(Action::Kind::drop);
      action.ticket = taken.lease.ticket;
      action.why = Why::straggler;
      return false;
    }
    buffer_.hold(taken.lease, node, out);
    contributed_[node] = version_ + 1;
    return close(out);
  }
  void entered(Node node) {
    if (node >= contributed_.size()) contributed_.resize(std::size_t{node} + 1, 0);
  }
  void departed(Node, Out& out) { close(out); }
  void finish(Out& out) {
    if (!buffer_.empty()) buffer_.flush(version_++, kAnyStaleness, 0, out);
  }

  bool close(Out& out) {
    const std::uint32_t enough = n_ > b3_ + 1 ? n_ - b3_ : 1;
    if (buffer_.size() < enough) return false;
    finish(out);
    return true;
  }

  std::uint32_t b3_;
  GradientBuffer buffer_;
  std::vector<std::uint64_t> contributed_;  // 1 + the round to which the node gave last
};

}  // namespace leashed::modes
