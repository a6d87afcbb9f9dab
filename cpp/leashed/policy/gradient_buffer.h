// Gradients, or models, that are held until they are applied together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "leashed/policy/server_machine.h"

namespace leashed::modes {

class GradientBuffer {
 public:
  std::size_t size() const { return held_.size(); }
  bool empty() const { return held_.empty(); }

  void hold(const Lease& lease, Out& out) {
    const auto slot = static_cast<std::uint32_t>(held_.size());
    held_.push_back({lease.number, lease.token, lease.ticket, slot});
    out.add(Action::Kind::hold).slot = slot;
  }

  // There are never so many as `full`. Who has what is held expects it by the batches' numbers.
  void visit(Archive& archive, std::size_t full) {
    archive(held_);
    archive.require(held_.size() < full);
    std::vector<std::uint64_t> numbers;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      archive.require(held_[i].slot == i);
      numbers.push_back(held_[i].number);
    }
    archive.expect(std::move(numbers));
  }

  // Step k (gba, eq. 1): what is at most `iota` steps stale is applied, the rest dropped; of
  // nothing there is no version. A token ahead of k is fresh. In order of batch number, since float
  // addition knows an order. divisor = 0: as many as are kept; else it is that, whatever is left
  // out of them.
  void flush(std::uint64_t k, std::uint64_t iota, std::uint64_t divisor, std::uint64_t& version,
             Out& out) {
    std::sort(held_.begin(), held_.end(),
              [](const Held& a, const Held& b) { return a.number < b.number; });
    const auto fresh = [&](const Held& h) { return h.token >= k || k - h.token <= iota; };
    const auto kept = static_cast<std::uint64_t>(std::count_if(held_.begin(), held_.end(), fresh));
    if (kept > 0) {
      Action& action = out.apply(++version, k);
      action.divisor = static_cast<float>(divisor == 0 ? kept : divisor);
      action.keeps_divisor = divisor != 0;
      for (const Held& h : held_) {
        if (fresh(h)) out.list(Slot{h.slot, 1});
      }
    }
    for (const Held& h : held_) {
      if (fresh(h)) continue;
      Action& action = out.add(Action::Kind::drop);
      action.ticket = h.ticket;
      action.why = Why::stale;
    }
    held_.clear();
  }

  void apply_all(std::uint64_t k, std::uint64_t& version, Out& out) {
    flush(k, std::numeric_limits<std::uint64_t>::max(), 0, version, out);
  }

 private:
  struct Held {
    std::uint64_t number, token, ticket;
    std::uint32_t slot;

    void visit(Archive& archive) { archive(number, token, ticket, slot); }
  };
  std::vector<Held> held_;
};

}  // namespace leashed::modes
