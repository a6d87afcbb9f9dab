// Who has had a batch of the present step, where a step is of a fixed number of batches: all get
// one before anybody gets a second, and a second is given only where too few are there for the
// step.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/policy/server_machine.h"

namespace leashed::modes {

class StepShare {
 public:
  void begin() {
    ++step_;
    count_ = 0;
  }
  void take(Node node) {
    if (node >= taken_.size()) taken_.resize(std::size_t{node} + 1, 0);
    if (taken_[node] == step_) return;
    taken_[node] = step_;
    ++count_;
  }
  void depart(Node node) {
    if (!has(node)) return;
    taken_[node] = 0;
    --count_;
  }
  // `missing` batches of the step nobody has; `present` nodes are there.
  bool admits(Node node, std::uint64_t missing, std::uint32_t present) const {
    return missing > 0 && (!has(node) || missing > present - count_);
  }

 private:
  bool has(Node node) const { return node < taken_.size() && taken_[node] == step_; }

  std::uint64_t step_ = 1;
  std::uint32_t count_ = 0;           // of the nodes that are there
  std::vector<std::uint64_t> taken_;  // the step of which the node had its last batch
};

}  // namespace leashed::modes
