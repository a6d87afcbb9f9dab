// How many batches each node has finished, and the least of it. Who enters begins at the least, so
// that nobody has to wait for it to catch up.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "leashed/policy/server_machine.h"

namespace leashed::modes {

class Clocks {
 public:
  std::uint64_t of(Node node) const { return clocks_[node]; }
  std::uint64_t ahead(Node node) const { return clocks_[node] - least_; }
  std::uint64_t least() const { return least_; }
  // The lowest number of those that are furthest behind; there is one at least.
  Node slowest() const {
    Node node = 0;
    while (clocks_[node] != least_) ++node;
    return node;
  }

  void enter(Node node) {
    if (node >= clocks_.size()) clocks_.resize(std::size_t{node} + 1, kAway);
    clocks_[node] = least_;
    ++at_least_;
  }
  // Whether the least has risen.
  bool leave(Node node) {
    const std::uint64_t was = clocks_[node];
    clocks_[node] = kAway;
    return was == least_ && left_behind();
  }
  bool tick(Node node) {
    const std::uint64_t was = clocks_[node]++;
    return was == least_ && left_behind();
  }

  template <class Present>
  void visit(Archive& archive, const Present& present) {
    archive.of_each(clocks_);
    archive(least_);
    for (Node node = 0; node < clocks_.size(); ++node) {
      const std::uint64_t clock = clocks_[node];
      archive.require(present(node) ? clock < kAway / 2 : clock == kAway);
    }
    if (archive.reads()) find_least();
  }

 private:
  static constexpr std::uint64_t kAway = std::numeric_limits<std::uint64_t>::max();

  // One look at n clocks, after each of which the least is higher by one at least, which takes n
  // ticks: a constant cost for each.
  bool left_behind() {
    if (--at_least_ > 0) return false;
    return find_least();
  }
  // Whether there is one.
  bool find_least() {
    std::uint64_t least = kAway;
    at_least_ = 0;
    for (const std::uint64_t clock : clocks_) {
      if (clock < least) {
        least = clock;
        at_least_ = 0;
      }
      at_least_ += clock == least && clock != kAway;
    }
    if (least == kAway) return false;  // nobody is there
    least_ = least;
    return true;
  }

  std::vector<std::uint64_t> clocks_;
  std::uint64_t least_ = 0;
  std::uint32_t at_least_ = 0;
};

}  // namespace leashed::modes
