// A sum over members who are all connected with each other, in an order that they are told: each
// sends part p of its vector to member p, who adds them in that order and sends the sum to all.
// Over a network that is two steps of latency, and as many bytes as around a ring.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/net/conversation.h"

namespace leashed {

// A sum that did not come about, and because of whom: who is gone, or sent what it may not, or is
// being waited for when the deadline passes. Of one that was called off, nobody.
class NoSum : public ConnectionError {
 public:
  NoSum(Reason why, const std::string& what, std::vector<std::size_t> who)
      : ConnectionError(why, what), members(std::move(who)) {}
  const std::vector<std::size_t> members;
};

// One member's side. A member is a number, the same for all; its connections outlive sums, and
// members may be other ones each time.
//
// A sum that has ended by NoSum, or is left for another, is begun again under a later epoch, by
// fewer members or by the same. What is still on its way of an older epoch is recognised and
// dropped. Some may have had the older sum while others did not: which one counts is agreed on by
// other means.
class DirectReduce {
 public:
  // The most bytes that a frame has.
  static constexpr std::size_t kFragment = std::size_t{256} << 10;
  static constexpr std::uint64_t kLastEpoch = (std::uint64_t{1} << 44) - 1;

  // The kinds of its frames: parts of vectors, and of sums.
  struct Kinds {
    std::uint16_t given, summed;
  };
  // Members have numbers below `all`; this one's is `self`.
  DirectReduce(std::size_t self, std::size_t all, Kinds kinds);

  // From any thread: the connection with a member, from the next epoch on.
  void adopt(std::size_t member, std::unique_ptr<Connection> connection) {
    lanes_.adopt(member, std::move(connection));
  }
  // From any thread: bytes so far, as of the last sum that has ended.
  const WireCount& traffic() const { return lanes_.traffic(); }

  // What follows is for one thread, between two sums or within one.

  // Whether there is a connection with the member, one that has come meanwhile included.
  bool has(std::size_t member) { return there(member); }
  // It is of no more use; a sum with that member has none.
  void drop(std::size_t member);

  // sum[i] ← what is made of vectors[0][i], vectors[1][i], …, of each i in [begin, end). It has the
  // same bits wherever it is called.
  using Add = std::function<void(float* sum, std::span<const float* const> vectors,
                                 std::size_t begin, std::size_t end)>;
  // The same for all members, but for `add`, which does the same.
  struct Round {
    std::uint64_t epoch;                   // later than all before, and at most kLastEpoch
    std::span<const std::size_t> members;  // this one among them; first those who give a vector,
    std::size_t giving;                    // so many, at least one, in the order of their batches
    std::size_t dimension;                 // floats of a vector
    Add add;
  };
  // Whether two of so many members have anything for each other, by their places among these: who
  // adds nothing, of few values, has nothing for who adds nothing.
  static bool exchange(std::size_t dimension, std::size_t members, std::size_t one,
                       std::size_t other);
  // Begins one. The vector, of the round's dimension where this member gives one, else empty, stays
  // as it is until the sum is there, there is none, or the next begins. Throws Error where the
  // round is none, and NoSum where there is no connection with a member that is wanted.
  void begin(Round round, std::span<const float> vector);
  // Goes on without waiting, up to some megabytes with each member; true when the sum is there, and
  // all that others need of this member has gone. Throws NoSum.
  bool step();
  // Until step() has something to do. Throws NoSum.
  void wait(const Deadline& deadline);
  // The sum, once step() has said that it is there; until the next begins.
  std::span<const float> sum() const { return {memory_->data(), dimension_}; }
  // Of the sum, so that members can find out whether theirs are the same.
  std::uint32_t checksum() const;
  // Between two sums: whether another member has begun the next, or is gone.
  bool called();
  // Adds what has gone since it was called last, over the connections that there are.
  void count(WireCount& traffic);

 private:
  struct Part {
    std::size_t begin = 0, size = 0;  // floats
    std::size_t fragments() const { return (size + kFloats - 1) / kFloats; }
    Part fragment(std::size_t number) const {
      const std::size_t at = number * kFloats;
      return {begin + at, std::min(kFloats, size - at)};
    }
  };
  // What is written to by frames that come: a slot for each member, where first its vector's part
  // comes that this member adds, and then, in the place of what was added, its part of the sum.
  // Frames of an older epoch, where they have begun to come, have the older memory.
  using Memory = AlignedArray<float>;
  struct Lane {
    bool gives = false;
    Part part;  // that it adds
    float* slot = nullptr;
    std::size_t gone = 0;    // fragments: of the vector, then of the sum
    std::size_t vector = 0;  // fragments that have come of its vector,
    std::size_t summed = 0;  // and of its part of the sum
    // Over epochs.
    WireCount::Seen seen;
    std::shared_ptr<Memory> into;        // of a frame that is coming
    std::vector<std::byte> aside;        // one of another epoch
    std::optional<FrameHeader> waiting;  // it has come, of a later one: nothing more is read
  };

  static constexpr std::size_t kFloats = kFragment / sizeof(float);

  std::size_t room() const;
  Part part(std::size_t place) const;
  template <class Do>
  void with(std::size_t member, const Do& act);
  void leave();
  bool there(std::size_t member);
  bool send(std::size_t member);
  bool hear(std::size_t member);
  void add();
  void came(std::size_t member, const FrameHeader& header);
  float* place_of(const Lane& lane, const FrameHeader& header) const;
  std::size_t to_send(const Lane& lane) const;
  bool has_all(const Lane& lane) const;
  bool has_vector(const Lane& lane) const;
  bool hears(const Lane& lane) const;
  bool busy(std::size_t member) const;

  const std::size_t self_;
  const Kinds kinds_;
  Conversation lanes_;
  std::vector<Lane> state_;  // of all members
  std::shared_ptr<Memory> memory_;
  // Of the round.
  std::uint64_t epoch_ = 0;
  std::size_t dimension_ = 0;
  std::vector<std::size_t> others_;  // from the one behind this on
  std::span<const float> vector_;
  Add add_;
  Part own_;
  std::size_t added_ = 0;  // fragments of the own part
  std::vector<const float*> vectors_;
  std::vector<std::size_t> hearing_, saying_;  // have room for all
  std::vector<pollfd> waiting_;                // likewise
};

}  // namespace leashed
