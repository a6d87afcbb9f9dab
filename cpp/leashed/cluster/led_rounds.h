// A policy server's part in rounds of all-reduce (server/reduced_rounds.h), while its mode is in
// Sync: whoever pulls then is a member, and is told a round in place of a grant. The mode decides
// as ever: it leases what members compute, and hears what they push once their sum counts, in the
// order of batches. What it leases in Sync goes to nobody but by a round.
//
// The parameters come home where somebody looks at them, comes new, or the mode is another one:
// between two rounds one member that has them sends them with the rule's state. Those that begin a
// round without them take them from here. Where all who had an update are gone, it is lost, and
// counted.
//
// Of several servers it leads, those behind it have parts of the parameters as this one has. Here
// these are whole while there are rounds (cluster/led_replica.h): who takes them takes them here,
// and what comes home goes to the others with the log's line that says so.
//
// Epochs and bases of a server that was started again are above all of those before it: what is
// still on its way between members, or computed by one, is of none of its rounds.
//
// A member that has lost its lease, for its term is over, is refused, and may come back. Where
// members have other sums than others, nothing of it is applied, and the mode can go on no more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/archive.h"
#include "leashed/cluster/led_replica.h"
#include "leashed/cluster/round_messages.h"
#include "leashed/net/service.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/reduced_rounds.h"

namespace leashed {

// What rounds ask of who serves.
class RoundDesk {
 public:
  virtual ~RoundDesk() = default;
  virtual void tell_mode(const modes::Event& event) = 0;
  // What that member has pushed is in a sum that counts, and its rows' gradients are here.
  virtual void tell_summed(Peer peer, const modes::Event& push, std::uint64_t examples) = 0;
  // Who has that node; `life` as ModeHello has it.
  virtual RoundSeat seat(modes::Node node) const = 0;
  // Whoever waits is granted the lease that the node has, with the parameters of now.
  virtual void grant_leased(modes::Node node) = 0;
  virtual void refuse_member(Peer peer) = 0;
  // The parameters are here.
  virtual void came_home() = 0;
  virtual void fail_rounds(const char* why) = 0;
  // Of several servers: where the log is; one of those behind this one is to send its part, as it
  // is there; they are told that so many updates have come home, and have their parts of that, and
  // that all others are lost.
  virtual std::uint64_t log_position() const = 0;
  virtual void ask_part(std::uint64_t server, std::uint64_t position) = 0;
  virtual void tell_home(std::uint64_t updates, std::vector<ToldLog::Part> parts) = 0;
  virtual void tell_lost(std::uint64_t examples) = 0;
};

class LedRounds final : private RoundHost {
 public:
  // shards: of several servers what each has, which must stay; null: there is one. again: how many
  // processes of the server there were in its run. Throws Error where the mode has no rounds, there
  // are too many workers to be connected with each other, or θ and states fit in no frame.
  LedRounds(RoundDesk& desk, ParameterServer& server, const ModeShards* shards,
            std::uint64_t again);

  void open(Post& post) { post_ = &post; }
  // Whether what the mode grants goes to nobody.
  bool holds() const { return in_rounds_ || in_sync(); }
  // Whether the parameters are elsewhere.
  bool away() const { return server_.reduced() > 0; }
  // Whether nobody computes for a round, and the parameters are here.
  bool rests() const { return !leader_.running() && !away(); }

  // All of these end by settle().
  void pull(Peer peer, modes::Node node);
  // It has left, which the mode is told where it is to be.
  void gone(Peer peer, modes::Node node, bool tells);
  void vote(Peer peer, const RoundVote& said);
  void again(Peer peer, const RoundEpoch& said);
  void take(Peer peer, const RoundEpoch& said);
  // Where θ and states go that a member sends; throws Error where it is none.
  std::span<std::byte> place(Peer peer, std::size_t length);
  void state(Peer peer);
  // The same of a server behind this one, by its number, that was asked for its part; and it has
  // another connection.
  std::span<std::byte> place_part(std::uint64_t server, std::size_t length);
  void part_came(std::uint64_t server, std::uint64_t position);
  void follows(std::uint64_t server);
  // The parameters are wanted.
  void want_home();
  // They are, and no round begins for as long as that holds; it is at rest then, and who pulls
  // waits.
  void hold(bool holds);
  // They are, and no round begins for as long as that holds, while all else goes on.
  void stay_home(bool stays);
  // The server goes on from another run's state: with which nodes, as many as may come.
  void begin(std::size_t lanes);
  // Who was there, and what was counted: of one that is started again in its own run.
  void visit(Archive& archive);
  // After anything that the mode was told by others.
  void settle();

  // Of the round that is under way.
  std::uint64_t epoch() const { return leader_.epoch(); }
  // Whether its gradient is to be in the sum of that.
  bool gives(Peer peer) const;
  // Whether it has pulled over that connection, and was not answered but by rounds.
  bool waits(Peer peer) const { return waiting_.contains(peer); }
  // What the mode does and hears, whoever has it do so: who of its nodes are there follows.
  void granted(modes::Node node);
  void told(const modes::Event& event);
  // It was granted what it has pulled, or told the end.
  void answered(Peer peer) { waiting_.erase(peer); }
  // The mode ends for the node; false: not yet, as the parameters are elsewhere.
  bool ends(modes::Node node);

  // For any thread.
  struct Counters {
    std::uint64_t rounds = 0, updates = 0;  // that were said, to a member each; of sums
    std::uint64_t homes = 0;                // times that the parameters came
    std::uint64_t lost_updates = 0, lost_examples = 0;
  };
  Counters counters() const;

 private:
  struct Waiting {
    modes::Node node;
    bool told = false;    // the mode has its pull
    bool member = false;  // of the rounds that are under way
    std::optional<RoundTicket> ticket{};
  };

  bool in_sync() const;
  void reach(modes::Node node);
  // Whether the parameters are to come between two rounds.
  bool wants() const;
  void tell_wish();
  // All of the mode's nodes are there, and somebody has a lease.
  bool may_begin() const;
  void tell_pull(Waiting& waiting);
  void grant_waiting();
  void refuse_expired();
  void send_state(Peer peer, const LedReplica::State& state);
  // Has what a member has sent, as so many updates behind those that were here have left it.
  void take_home(AlignedArray<float> came, std::uint64_t version, std::uint64_t newer);
  // Others' calls within one are told to the mode alone.
  template <class Do>
  void within(const Do& act);

  std::optional<RoundTicket> lend(Life life) override;
  void give_back(const RoundTicket&) override {}  // the mode knows
  void update(std::span<const RoundTicket> tickets) override;
  void say(Life life, const ReducedRound& round) override;
  void want(Life life, std::uint64_t version) override;
  void came_home(std::uint64_t lost) override;

  RoundDesk& desk_;
  ParameterServer& server_;
  Post* post_ = nullptr;
  RoundLeader leader_;
  const ModeShards* const shards_;
  std::optional<LedReplica> replica_;   // where there are several servers
  const std::size_t floats_;            // of θ and states
  std::vector<Peer> takers_;            // that wait for these, in this epoch
  std::map<Life, Waiting> waiting_;     // who has pulled over a connection, which is its life
  std::vector<bool> present_, leased_;  // by node
  std::map<Peer, AlignedArray<float>> coming_;
  std::vector<std::uint64_t> since_;  // examples of each update since the parameters were here
  std::vector<Life> came_;            // of whom the leader knows
  std::uint64_t base_;
  std::uint64_t home_ = 0;  // updates when the parameters came last
  bool in_rounds_ = false, wanted_ = false, holding_ = false, stays_ = false, busy_ = false;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> rounds_{0}, updates_{0}, homes_{0}, lost_updates_{0},
      lost_examples_{0};
};

}  // namespace leashed
