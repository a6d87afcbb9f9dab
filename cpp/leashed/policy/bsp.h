// BSP as gba has it (5.1): b2 gradients are aggregated whatever their version, and nobody waits.
// b2 = 1 is ASP (Recht et al., "Hogwild", 2011): every gradient is an update.
#pragma once

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"

namespace leashed::modes {

class Bsp : public Coordinated<Bsp> {
 public:
  Bsp(const Job& job, std::uint32_t b2) : Coordinated(job, pulled_gradients()), b2_(b2) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) { buffer_.visit(archive, b2_); }
  std::uint64_t token() const { return leases_.next_number() / b2_; }
  bool arrived(Node, const LeaseList::Taken& taken, Time, Out& out) {
    buffer_.hold(taken.lease, out);
    if (buffer_.size() == b2_) finish(out);
    return false;
  }
  void finish(Out& out) { buffer_.apply_all(version_, version_, out); }

  std::uint32_t b2_;
  GradientBuffer buffer_;
};

}  // namespace leashed::modes
