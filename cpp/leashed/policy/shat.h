// SHAT, Algorithm 1: every gradient is an update, and the grant that answers it says how many
// updates others made since this node's last, from which the worker finds the weight of the global
// model (worker_rule.h). SHAT-root, ENSEMBLE (weight 0) and plain ASP (weight 1) differ in that
// alone.
//
// Lines 13 to 23 count up for all other nodes at every push and zero one; the difference of one
// running count is the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Shat : public Coordinated<Shat> {
 public:
  Shat(const Job& job, Mixing mixing) : Coordinated(job, own_gradients(mixing)) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) { archive.of_each(own_); }

  struct Own {
    std::uint64_t last;  // the version that its last update made
    std::uint32_t c;     // updates by others between its last two, until it is told

    void visit(Archive& archive) { archive(last, c); }
  };

  bool arrived(Node node, const LeaseList::Taken&, Time, Out& out) {
    const auto c = static_cast<std::uint32_t>(version_ - own_[node].last);
    apply_alone(out);
    own_[node] = {version_, c};
    park(node);  // until the end of this very event: the reply is sent at once (line 22)
    return true;
  }
  std::uint32_t updates_by_others(Node node) { return std::exchange(own_[node].c, 0); }
  void entered(Node node) {
    if (node >= own_.size()) own_.resize(std::size_t{node} + 1);
    own_[node] = {version_, 0};
  }

  std::vector<Own> own_;
};

}  // namespace leashed::modes
