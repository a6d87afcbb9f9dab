// A round in which every node that is there gives one gradient: who has, and how many are awaited.
// Who leaves and comes back meanwhile has still given its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "leashed/policy/server_machine.h"

namespace leashed::modes {

class Round {
 public:
  bool has(Node node) const { return given_[node] == round_; }
  std::uint32_t awaited(std::uint32_t present) const { return present - count_; }

  void begin() {
    ++round_;
    count_ = 0;
  }
  void give(Node node) {  // once
    given_[node] = round_;
    ++count_;
  }
  void enter(Node node) {
    if (node >= given_.size()) given_.resize(std::size_t{node} + 1, 0);
    count_ += has(node);
  }
  void depart(Node node) { count_ -= has(node); }

  // Also by nodes that are not there.
  std::size_t given() const { return static_cast<std::size_t>(std::ranges::count(given_, round_)); }

  template <class Present>
  void visit(Archive& archive, const Present& present) {
    archive(round_);
    archive.of_each(given_);
    archive.require(round_ >> 62 == 0);
    count_ = 0;
    for (Node node = 0; node < given_.size(); ++node) {
      archive.require(given_[node] <= round_);
      count_ += has(node) && present(node);
    }
  }

 private:
  std::uint64_t round_ = 1;
  std::uint32_t count_ = 0;           // of those that are there
  std::vector<std::uint64_t> given_;  // the round to which the node gave last
};

}  // namespace leashed::modes
