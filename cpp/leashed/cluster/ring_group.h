// The trainers that reduce together, as one of them sees them: a ring for each epoch of membership,
// and in it what sums for them. Peers change over to the next epoch's ring together, at a round's
// edge: every reduced vector carries one number more, the count of those who want to; from then on
// each part of the vector is in one more round. A round that breaks is lost for all, and so is its
// ring: each closes it, which the others notice, and waits for a later one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "leashed/cluster/collective.h"
#include "leashed/cluster/exact_count.h"
#include "leashed/net/wire_count.h"

namespace leashed {

class RingGroup final : public Peers {
 public:
  // A round takes one of `parts` parts of the vector after the other. With a codec, what is summed
  // is by how much the members' values differ from those that all had in common last: the first
  // ones, when the ring began, and then the mean of each round. What is lost by encoding therefore
  // vanishes with these differences; and each member keeps what its own sums have lacked, for its
  // next ones. Both begin anew with a ring. They are 2 * dimension floats.
  RingGroup(std::size_t dimension, std::size_t parts, Codec codec = Codec::none)
      : dimension_(dimension), parts_(parts), codec_(codec) {}

  struct Ring {
    std::uint64_t epoch = 0;
    std::size_t rank = 0;
    std::vector<bool> fresh;  // of each member: that it has nothing to go on with yet
    std::unique_ptr<Collective> collective;  // null where there is one member
  };
  // From any thread: a later ring, to change over to; closed where this member leaves. Throws Error
  // where the rank is none of its members'.
  void form(Ring ring);
  // From any thread: the members are to change over after the next round of each part; this one is
  // not in the ring that comes then.
  void want_to_leave();
  // For the reducing thread, or once it has ended: this member is in no ring any more, which the
  // others notice.
  void close();
  // Whether there is a later ring to change over to.
  bool pending() const { return pending_.load(std::memory_order_relaxed); }
  // For the reducing thread, between two rounds: whether another member is in one, or this one is
  // to change over to another ring; nothing where that cannot be told.
  std::optional<bool> called();
  // The epoch that has ended here, for whatever reason; a later one is wanted.
  std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  // The newest of which a round has broken here; else all have changed over together.
  std::uint64_t broken() const { return broken_.load(std::memory_order_relaxed); }
  // The epoch in which this member was last together with the others: it has what they have.
  std::uint64_t settled() const { return settled_.load(std::memory_order_relaxed); }
  // Whether this member is in no ring and none is to come.
  bool has_left() const {
    return leaving_.load(std::memory_order_relaxed) && !in_ring_.load(std::memory_order_relaxed);
  }

  Begin begin() override;
  std::size_t parts() const override { return parts_; }
  bool take(std::span<float> values, const Deadline& deadline) override;
  Sum sum(std::span<float> other, Covered& done, bool moved, const Deadline& deadline) override;

  const WireCount& traffic() const { return traffic_; }
  Transfers transfers() const;

 private:
  void count();
  void give_up();
  void break_off();
  // values ← their sum over all members; values[i] is the vector's `begin + i`.
  void sum_encoded(std::span<float> values, std::size_t begin, const Deadline& deadline);

  const std::size_t dimension_, parts_;
  const Codec codec_;
  std::mutex mutex_;
  // Under the lock.
  std::optional<Ring> coming_;
  std::uint64_t newest_ = 0;  // epoch that came: what is made at the same time may end in any order
  // The reducing thread's own.
  std::optional<Ring> ring_;
  bool copied_ = false;  // since the ring began
  std::uint32_t round_ = 0;
  std::size_t wished_ = 0;  // rounds in which somebody wanted to change over
  std::vector<float> part_;
  std::vector<float> common_, error_;  // with a codec
  // Relaxed: they tell other threads what to do next, and hand nothing over; what belongs to it is
  // under the lock.
  std::atomic<bool> leaving_{false}, in_ring_{false}, pending_{false};
  std::atomic<std::uint64_t> ended_{0}, broken_{0}, settled_{0};
  WireCount traffic_;
  ExactCount exact_;
};

}  // namespace leashed
