// A barrier: every update is of m gradients on the vector before it. With own models and local
// steps it is local SGD. m stays what it is, and with it the global batch (gba, 4.1), whoever comes
// or goes: of too many some wait for the next step, of too few some compute twice.
#pragma once

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"
#include "leashed/policy/step_share.h"

namespace leashed::modes {

class Sync : public Coordinated<Sync> {
 public:
  Sync(const Job& job, std::uint32_t m, WorkerRule rule) : Coordinated(job, rule), m_(m) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  bool admits(Node node) const {
    const std::uint64_t taken = buffer_.size() + leases_.out();
    return taken < m_ && share_.admits(node, m_ - taken, n_);
  }
  std::uint64_t token() const { return leases_.next_number() / m_; }
  void granted(Node node) { share_.take(node); }
  bool arrived(Node, const LeaseList::Taken& taken, Time, Out& out) {
    buffer_.hold(taken.lease, out);
    if (buffer_.size() < m_) return false;
    finish(out);
    return true;
  }
  void departed(Node node, Out&) { share_.depart(node); }
  void finish(Out& out) {
    if (!buffer_.empty()) buffer_.flush(version_++, kAnyStaleness, 0, out);
    share_.begin();
  }

  std::uint32_t m_;
  GradientBuffer buffer_;
  StepShare share_;
};

}  // namespace leashed::modes
