// A lane's part in rounds of all-reduce that a policy server leads (cluster/led_rounds.h): its
// replica of the parameters and of the rule's state, and its connections with other lanes, over
// which gradients are summed (net/direct_reduce.h), each part in the order of batches.
//
// Of several servers those behind the first have rows too: a sum is voted for when they have said
// that theirs are there.
//
// The replica changes only by a sum that counts, which the next word of the server says. Over
// another connection with the server it is a replica of nothing.
//
// Connections between lanes come and go: whoever makes them looks at `wanted`. Of two lanes the one
// with the smaller node calls. Where one is not there, or ends, the sum is begun again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/round_messages.h"
#include "leashed/discipline/updater.h"
#include "leashed/modes/mode_server.h"
#include "leashed/net/direct_reduce.h"
#include "leashed/server/reduced_rounds.h"
#include "leashed/server/weighted_mean.h"

namespace leashed {

class LaneRounds {
 public:
  // The rule of the context must stay; its parameters are nothing here.
  // patience: seconds for which another lane is waited for. reads_rows: the server has rows of
  // tables that the model reads, and their gradients go to it.
  LaneRounds(const DisciplineContext& context, double patience, bool reads_rows = false);

  // From any thread: lanes that are to be called.
  std::vector<std::uint64_t> wanted() const;
  // From any thread: the connection with another lane.
  void adopt(std::uint64_t client, std::unique_ptr<Connection> connection);
  // From any thread: bytes over all of them.
  const WireCount& traffic() const { return traffic_; }

  // What follows is for the lane's thread.

  // The server has said who this is.
  void welcome(const ModeWelcome& said);
  // The connection with the server is gone, or that sums by now: the replica is one of nothing.
  void forget();
  // Where a frame of a round goes; throws Error where it is none that may come.
  std::span<std::byte> place(const FrameHeader& header);
  // It has come.
  void understand(const FrameHeader& header);
  // Says something to the server, where there is something to say: the lane of the conversation is
  // free.
  bool say(Conversation& talk, std::size_t lane);
  // Goes on with its sum; whether it has done anything. Throws Error where another lane is not
  // reached for as long as it is waited for.
  bool step();
  // Whether it waits for other lanes; then wait() does, for a moment.
  bool sums() const { return summing_; }
  void wait();

  // It has a lease that is to be computed: of which, on what.
  bool to_compute() const { return member_.to_compute(); }
  void show(Lane& lane);
  // Whether what show() has shown is what is to be computed still.
  bool shows() const { return member_.to_compute() && shown_ == now_shown(); }
  // The gradient, and those of the rows that the server has, which stay as they are until another
  // lease is shown. elsewhere: others have rows too, whose gradients are on their way, until
  // rows_came(). Throws Error where they are not finite.
  void computed(const float* gradient, std::span<const std::span<const std::byte>> rows,
                bool elsewhere = false);
  void rows_came();
  // Examples of the leases whose sums have counted since this was asked last.
  std::uint64_t counted() { return std::exchange(counted_, 0); }
  // Before it leaves: whether what it has may be the last of it, and to say that to the server.
  bool leaves_something() const;
  void part(Conversation& talk, std::size_t lane);

 private:
  // Ticket, version, base.
  using Shown = std::array<std::uint64_t, 3>;
  Shown now_shown() const { return {head_.ticket, head_.version, base_}; }

  void hear();
  void apply();
  // Votes, if it may by now.
  void vote();
  // Whether all that there are to be are there.
  bool connect();
  void begin();
  void fail();

  const double patience_;
  const bool reads_rows_;
  const Updater updater_;
  const std::size_t dimension_;
  AlignedArray<float> replica_;         // StateHead, θ and states
  AlignedArray<float> coming_;          // likewise
  std::vector<std::byte> round_bytes_;  // RoundHead, then seats
  RoundEpoch small_{};                  // that comes, of RoundWant
  RoundHead head_{};
  std::vector<RoundSeat> seats_;
  RoundMember member_;
  std::uint32_t node_ = 0;
  std::uint64_t base_ = 0, at_server_ = 0;
  bool summing_ = false, summed_ = false;  // the round's sum: is under way; is there, and may count
  Shown shown_{};
  const float* gradient_ = nullptr;
  std::span<const std::span<const std::byte>> row_gradients_;
  bool says_rows_ = false;       // they are to be said, before anything else
  bool rows_elsewhere_ = false;  // others are not there yet
  std::uint64_t counted_ = 0;
  double since_ = 0;  // when it began to wait for connections; 0: it does not
  // Its sum.
  std::optional<DirectReduce> reduce_;
  std::vector<std::size_t> members_;
  std::vector<std::uint64_t> lives_;  // by node, of the connection that there is
  WeightedMean mean_;
  WireCount traffic_;
  // What is to be said.
  enum class Word { vote, again, take, state };
  std::vector<Word> words_;
  RoundVote vote_{};
  std::array<std::byte, sizeof(RoundVote)> said_{};  // until it has gone

  mutable std::mutex mutex_;
  std::vector<std::uint64_t> wanted_;                             // under the lock
  std::map<std::uint64_t, std::unique_ptr<Connection>> arrived_;  // under the lock, by client
};

}  // namespace leashed
