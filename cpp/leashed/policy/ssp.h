// Stale synchronous parallel (Ho et al., NIPS 2013): a node begins a batch only while it is at most
// s clocks ahead of the slowest. Every gradient is an update. Hop-BS (gba, 5.1) bounds the same gap
// by b1, but m gradients are one: updates of one each would be far staler than its Table 3 has it.
#pragma once

#include "leashed/policy/clocks.h"
#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"

namespace leashed::modes {

class Ssp : public Coordinated<Ssp> {
 public:
  Ssp(const Job& job, std::uint64_t s, std::uint32_t m = 1)
      : Coordinated(job, pulled_gradients()), s_(s), m_(m) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) {
    clocks_.visit(archive, [this](Node node) { return present(node); });
    buffer_.visit(archive, m_);
  }
  bool admits(Node node) const { return clocks_.ahead(node) <= s_; }
  std::uint64_t token() const { return leases_.next_number() / m_; }
  bool arrived(Node node, const LeaseList::Taken& taken, Time, Out& out) {
    buffer_.hold(taken.lease, out);
    if (buffer_.size() == m_) finish(out);
    return clocks_.tick(node);
  }
  void entered(Node node) { clocks_.enter(node); }
  void departed(Node node, Out&) { clocks_.leave(node); }
  void finish(Out& out) { buffer_.apply_all(version_, version_, out); }

  std::uint64_t s_;
  std::uint32_t m_;
  Clocks clocks_;
  GradientBuffer buffer_;
};

}  // namespace leashed::modes
