// Stale synchronous parallel (Ho et al., NIPS 2013): a node begins a batch only while it is at most
// s clocks ahead of the slowest. Hop-BS (gba, 5.1) bounds the same gap by b1: it is this by another
// name. Every gradient is an update.
#pragma once

#include "leashed/policy/clocks.h"
#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Ssp : public Coordinated<Ssp> {
 public:
  Ssp(const Job& job, std::uint64_t s) : Coordinated(job, pulled_gradients()), s_(s) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  bool admits(Node node) const { return clocks_.ahead(node) <= s_; }
  bool arrived(Node node, const LeaseList::Taken&, Time, Out& out) {
    apply_alone(out);
    return clocks_.tick(node);
  }
  void entered(Node node) { clocks_.enter(node); }
  void departed(Node node, Out&) { clocks_.leave(node); }

  std::uint64_t s_;
  Clocks clocks_;
};

}  // namespace leashed::modes
