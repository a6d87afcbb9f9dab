// Carries out what a synchroniser (policy/synchroniser.h) asks for, round after round, on one
// trainer's theta.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "leashed/base/aligned.h"
#include "leashed/cluster/partners.h"
#include "leashed/policy/synchroniser.h"

namespace leashed {

class Discipline;

// A synchroniser from outside: changes theta, a copy, by `other` and the number of members. What it
// has changed theta by is then added to what theta has become.
using CustomMix =
    std::function<void(float* theta, const float* other, std::size_t dimension, std::uint32_t n)>;

// How many rounds there were, and how they went. Relaxed counters: for whoever looks on.
struct RoundCounters {
  std::atomic<std::uint64_t> rounds{0};       // done, with all partners or some
  std::atomic<std::uint64_t> partial{0};      // those in which not all that was asked for has come
  std::atomic<std::uint64_t> failed{0};       // with none: too late, broken off, not finite
  std::atomic<std::uint64_t> not_finite{0};   // those of the last kind
  std::atomic<std::uint64_t> nanoseconds{0};  // in all of them
  std::atomic<std::uint64_t> floats{0};       // exchanged; a whole vector is `dimension`
};

class Round {
 public:
  // Either servers or members, as the synchroniser needs. What is referred to must outlive it.
  Round(const Synchroniser& machine, Servers* servers, Peers* peers, const CustomMix& custom,
        std::size_t dimension, RoundCounters& counters);

  // theta ← what the servers have, where they have something; in the part whose turn it is. What
  // does not come now becomes so in the first round in which it comes.
  void begin(Discipline& discipline, std::uint64_t turn, const Deadline& deadline);
  // theta, and the states, as the other members have them, where this one is new to them; false
  // where there are none now, or it has failed.
  bool join(Discipline& discipline, const Deadline& deadline);
  // One round; false where there was nobody to have it with, or it has failed. moved: whether theta
  // has, since the last. Where nobody owes anything, one with the other trainers leaves theta as it
  // is, and counts as none: block momentum does not go on without data, nor does a mean of which
  // theta takes a share (alpha below 1), though that would bring them closer. Throws nothing but
  // what memory and `custom` throw.
  bool run(Discipline& discipline, const Deadline& deadline, bool moved = true);
  // What trainers that sum have together beside theta, [k][dimension]: w^global and its velocity;
  // empty: nothing yet.
  std::span<const float> states() const {
    return {states_.data(), states_ ? shared_states(machine_) * dimension_ : 0};
  }
  // Before anything else: they are as another had them. Throws Error where they are of another
  // synchroniser, or of other parameters.
  void restore(std::span<const float> states);
  // With servers: whose turn it is of the parts.
  std::uint64_t turn() const { return turn_; }
  void go_on(std::uint64_t turn) { turn_ = turn; }
  // Whether there is a part that has been in no round since theta moved, or since one was lost.
  bool owes() const { return owed_ > 0; }
  // Whether the last was with the other trainers, and there were none.
  bool alone() const { return peers_ && count_ == 1; }

 private:
  enum class Outcome { done, failed, not_finite, nobody, still };
  Outcome round(Discipline& discipline, const Deadline& deadline);
  // Else than `done` where the round is over.
  Outcome carry_out(const Action& action, Discipline& discipline, const Deadline& deadline);
  Outcome exchange(Discipline& discipline, float alpha, bool old_reply, const Deadline& deadline);
  // keep: `copy_` is then theta as it went into the sum.
  Outcome reduce(Discipline& discipline, bool keep, const Deadline& deadline);
  bool finite() const;  // what has come
  void take_over(Discipline& discipline, const Deadline& deadline);
  void see(Discipline& discipline, std::span<float> theta);
  void begin_states(std::span<const float> theta);
  void advance(const Action& action);
  void mix(Discipline& discipline, const Covered& where, float alpha, bool difference = false);
  // What has come from the partners.
  const float* other() const { return servers_ ? servers_->other() : other_.data(); }
  void call(Discipline& discipline);

  Synchroniser machine_;
  Servers* const servers_;
  Peers* const peers_;
  const CustomMix& custom_;
  const std::size_t dimension_;
  RoundCounters& counters_;
  Out out_;
  Covered done_, first_;
  bool all_ = true;  // of what was asked for has come
  std::uint64_t turn_ = 0;
  std::uint32_t count_ = 1;  // of members, in the last sum
  std::size_t owed_ = 0;     // rounds, until each part has been in one
  AlignedArray<float> copy_;
  AlignedArray<float> other_;   // with members alone
  AlignedArray<float> states_;  // global and velocity, once it has joined, or a round has begun
};

}  // namespace leashed
