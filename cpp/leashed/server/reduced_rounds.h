// How replicas are trained by all-reduce: who sums, of which version, and when a sum counts. No
// sockets, threads or clocks: whoever has these tells the two machines what has happened.
// models/ar_ps.pml has the rules, docs/transport.md tells them.
//
// A member that has the sum, and whose rows are where they belong, votes. When all have voted the
// update is in the leader's log; the next that the leader says has its version, and only by that a
// member knows that its sum counts, and applies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace leashed {

// A member's, for as long as it lives and is not taken for dead: who comes back has another.
using Life = std::uint64_t;

// A batch that is lent, once: it is lent again as another ticket, so that what is still on its way
// of the first is known.
struct RoundTicket {
  std::uint64_t number = 0, batch = 0;
  friend bool operator==(const RoundTicket&, const RoundTicket&) = default;
};

// What the leader says to each member: the same to all, but for the ticket.
struct ReducedRound {
  std::uint64_t epoch = 0;      // of the sum; grows
  std::uint64_t version = 0;    // that all begin from
  std::vector<Life> members{};  // first those who have tickets, in the order of their batches,
  std::size_t giving = 0;       // so many
  std::vector<Life> holders{};  // members that have the version; none: the server has it
  std::optional<RoundTicket> ticket{};
};

// What the leader asks of whoever has it, from within its own calls.
class RoundHost {
 public:
  virtual ~RoundHost() = default;
  // A ticket that was never lent, or nothing where no batch is left.
  virtual std::optional<RoundTicket> lend(Life life) = 0;
  // Its batch is to be lent again; rows of this ticket are refused from now on.
  virtual void give_back(const RoundTicket& ticket) = 0;
  // The log has the next version: that of these, in the order of their batches.
  virtual void update(std::span<const RoundTicket> tickets) = 0;
  virtual void say(Life life, const ReducedRound& round) = 0;
  // The replica of this version is wanted: RoundMember::send_home.
  virtual void want(Life life, std::uint64_t version) = 0;
  // The server has the version now, and all members leave. lost: so many of the last updates are
  // gone, with all who had them.
  virtual void came_home(std::uint64_t lost) = 0;
};

class RoundLeader {
 public:
  // epoch: that of its rounds is later, so that what is under way of a leader's before it is known.
  explicit RoundLeader(RoundHost& host, std::uint64_t epoch = 0) : host_(host), epoch_(epoch) {}

  // From the server, that has granted nothing which is out or held; those who have come are
  // members. Rounds go on until there is no batch left, or until the server is wanted.
  void begin(std::uint64_t version);
  // Somebody is there, from the next round on.
  void come(Life life);
  // Somebody is not, or is taken for dead: a new round begins from the same version.
  void gone(Life life);
  // A member has the sum of an epoch. Throws Error where two have another one: nothing of it
  // counts, and they may vote again, or be gone.
  void vote(Life life, std::uint64_t epoch, std::uint32_t checksum);
  // A member has no sum of that epoch, with nobody gone: it is begun again under a later one.
  void again(Life life, std::uint64_t epoch);
  // Who leaves has given its replica of a version; whether it is newer than what the server had,
  // who takes it then.
  bool left(Life life, std::uint64_t version);
  // Whether the server is to come next: when no ticket is out.
  void want_server(bool wanted) { wanted_ = wanted; }
  // The replica that was wanted has come, and the server has it. Throws Error where it is of
  // another version.
  void state(Life life, std::uint64_t version);

  bool running() const { return running_; }
  std::uint64_t version() const { return version_; }
  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Member {
    Life life;
    bool in_round = false, holds = false;
    std::optional<RoundTicket> ticket{};
    std::optional<std::uint32_t> vote{};  // a checksum
  };
  Member* find(Life life);
  void next();
  void say();
  void ask_holder();
  void commit();
  void end(std::uint64_t lost);

  RoundHost& host_;
  std::vector<Member> members_;  // all who are there
  bool running_ = false, wanted_ = false;
  std::optional<Life> asked_;  // for its replica
  std::uint64_t version_ = 0, at_server_ = 0, epoch_;
};

class RoundMember {
 public:
  struct Vote {
    std::uint64_t epoch;
    std::uint32_t checksum;
  };

  // A round. True: the sum that this one has voted for counts, and is to be applied before anything
  // else. What was given to an older sum, or has come of it, is worth nothing.
  bool hear(const ReducedRound& round);
  const ReducedRound& round() const { return round_; }

  // What it is to do, each until that is told: take the round's version from a holder, or from the
  // server; find the ticket's gradient, and send its rows' ones; give what it has found, if
  // anything, to the sum of the round's epoch.
  bool to_take() const { return in_round_ && !has_; }
  bool to_compute() const { return in_round_ && has_ && round_.ticket && !computed_; }
  bool to_give() const { return in_round_ && has_ && !given_ && (!round_.ticket || computed_); }
  void took(std::uint64_t epoch);
  void computed(const RoundTicket& ticket);
  void gave() { given_ = true; }
  // What is needed of others for a vote, in any order; of other epochs and tickets it is nothing.
  void rows_are_there(const RoundTicket& ticket);
  void summed(std::uint64_t epoch, std::uint32_t checksum);
  // Once, when all of it is there.
  std::optional<Vote> vote();

  // Whether its replica is what another member of this epoch is to take.
  bool holds(std::uint64_t epoch, std::uint64_t version) const {
    return in_round_ && has_ && round_.epoch == epoch && version_ == version;
  }
  // The leader wants its replica, of this version; true: as of hear(). It is in no round then.
  bool send_home(std::uint64_t version);
  std::uint64_t version() const { return version_; }
  // Rounds have ended: its replica is worth nothing any more.
  void leave();

 private:
  bool counts(std::uint64_t version);

  ReducedRound round_;
  bool in_round_ = false, has_ = false, computed_ = false, rows_ = false;
  bool given_ = false, voted_ = false;
  std::optional<std::uint32_t> sum_;
  std::uint64_t version_ = 0;
};

}  // namespace leashed
