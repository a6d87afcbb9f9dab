// A mode's server (modes/mode_server.h) that lies on another machine: a policy server
// (cluster/policy_server.h), which holds all parameters, or leads others, which have the rest of
// them (remote_parts.h).
//
// Each lane has a connection of its own, on which its thread says what the worker asks, and hears
// the grant into the lane's memory, which gradients are taken on. Connections come and go: whoever
// makes them looks at `missing`. Where one has ended the lease of its lane is the server's again,
// who gives it to another, and a gradient of it that was not sent whole is left out and counted;
// over the next connection the lane says hello, and asks anew. Whether a push that was sent whole
// still reached the server, that one counts.
//
// A server that says nothing for `patience` while something is waited for, though it is asked
// whether it is there, has hung, and its connection is closed. One that has said nothing for twice
// as long, over any connection, ends the run; and so does one that was started again, which knows
// nothing of this run.
//
// Of a model that reads tables a lane asks for its batch's rows once it has its grant, of all
// servers, and waits for them with it: where its connection ends before they have come, it asks for
// another lease.
//
// The data must be there to be read again, by any worker, since leases go from one to another: in
// memory, or at readers, which send what a lease names (data/sent_rows.h).
// Nobody pauses here for a checkpoint.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "leashed/cluster/asked_rows.h"
#include "leashed/cluster/lane_rounds.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/remote_parts.h"
#include "leashed/engine/stop.h"
#include "leashed/modes/mode_server.h"
#include "leashed/net/conversation.h"

namespace leashed {

class RemoteServer final : public ModeServer {
 public:
  struct Settings {
    // What both have alike, as ModeHello has it.
    std::uint64_t run, terms;
    std::uint64_t client;  // of the first lane; those of the others follow it
    std::uint64_t life;
    double patience = 300;  // seconds
    ModeShards shards{};    // empty: one server has all
    // Of an all-reduce what lanes have replicas of, whose rule must stay; null: the server sums.
    const DisciplineContext* replica = nullptr;
    std::uint64_t updates = StopRules::kNone;  // by whose number the run ends
  };
  // Of as many lanes, with `models` where the rule's workers have their own; null: they have none.
  // tables: whose rows the server has; null: of none. What is given must stay.
  RemoteServer(StopFlag& stop, const BatchSource& batches, const modes::WorkerRule& rule,
               OwnModels* models, std::size_t dimension, std::size_t lanes,
               const Settings& settings, const ServedTables* tables = nullptr);

  // Takes a connection of that lane with the server over, in place of the one that it has, from any
  // thread; where that throws, it stays the caller's. Not over the socket alone: waits some seconds
  // for the other side to agree.
  void adopt(std::size_t lane, int socket, bool checked, Transport wish = Transport::tcp,
             std::size_t server = 0);
  // From any thread: whether the lane has no connection with that server and has use for one.
  bool missing(std::size_t lane, std::size_t server = 0) const;

  // Of an all-reduce, from any thread: of each lane the others, by client, that it is to call; and
  // the connection of a lane with another one, as above.
  std::vector<std::pair<std::size_t, std::uint64_t>> wanted() const;
  void adopt_sum(std::size_t lane, std::uint64_t client, int socket, bool checked, Transport wish,
                 Role role);

  // For any thread.
  struct Counters {
    std::uint64_t grants = 0, pushes = 0;
    std::uint64_t cut = 0;       // connections that ended before their lane had come to its end
    std::uint64_t hung = 0;      // of these, because the server said nothing for so long
    std::uint64_t strange = 0;   // of these, because it said what was not asked
    std::uint64_t left_out = 0;  // examples of gradients that were not sent whole
    std::uint64_t split = 0;     // of gradients that were sent whole to the first server alone
    std::uint64_t examples = 0;  // of those that were
    std::uint64_t lookups = 0;   // of rows, that were answered
    Traffic traffic;
    std::optional<Traffic> kernel;  // as WireCount has it
  };
  Counters counters() const;
  // By lane, likewise.
  std::vector<std::uint64_t> examples() const;

  void begin(Lane& lane) override;
  bool await(Lane& lane) override;
  void taken(Lane&) override {}  // what comes next is asked for with the push alone
  void read(Lane& lane, std::uint64_t first, std::size_t count) override;
  bool step(Lane& lane, bool last) override;
  void push(Lane& lane) override;
  void leave(Lane& lane) override;

 private:
  // A lane's; what is not said otherwise its thread alone touches.
  struct Seat {
    explicit Seat(const ModeShards& shards) : talk(shards.servers()), parts(talk, shards) {}

    Conversation talk;
    RemoteParts parts;
    std::unique_ptr<LaneRounds> rounds;  // null: the server sums
    bool in_round = false;               // what it has computed is a round's
    bool gives_rows = false;             // of that to servers behind the first
    ModeHello hello;
    ModeWelcome welcome{};
    AlignedArray<float> granted;                         // GrantHead, then the parameters
    AlignedArray<float> whole, first;                    // of several: all parameters, and its part
    std::vector<std::size_t> connected;                  // servers
    std::uint64_t pushed = 0;                            // examples of the last push
    std::vector<std::span<const std::byte>> sent;        // by the push
    std::optional<AskedRows> rows;                       // nothing: it reads none
    std::array<std::byte, sizeof(ModeWelcome)> small{};  // of any other frame
    bool known = false;                                  // has been welcomed over any connection
    // Of the connection that it has.
    bool greeted = false, welcomed = false;
    bool probes = false;  // a probe has not come back
    enum class Say { nothing, probe, pull, lookup, push } wish = Say::nothing;
    bool looks_up = false;              // rows are to come
    std::uint64_t lookup = 0;           // ticket of whose lease
    bool pushing = false;               // has not gone whole
    bool asked = false;                 // a grant is to come
    bool granted_now = false;           // and has, and nobody has seen it
    std::optional<GrantHead> leased{};  // until it has been pushed
    std::uint64_t computed = 0;         // ticket of the lease that it has computed last
    bool ended = false;                 // the server has said so
    std::uint64_t updates = 0;          // and how many it had then
    std::uint64_t bytes = 0;            // that had come and gone when it was looked at last
    double heard = 0;                   // when there was something over any connection
    double quiet = 0;                   // since when there has been nothing over this one
    // Relaxed: tells whoever makes connections that no other is wanted.
    std::atomic<bool> done{false};
    // Relaxed: a count for whoever looks on; it hands nothing over.
    std::atomic<std::uint64_t> examples{0};
  };

  // Has those examples; false: they do not come any more, and the run is stopped.
  bool fill(Lane& lane, std::uint64_t first, std::size_t count);
  // Has the rows of its lease; false: it has the lease no more, or the run has been stopped.
  bool look_up(Lane& lane, Seat& seat);
  static bool has_lease(const Seat& seat);
  // What it has computed, to a round.
  void give(Lane& lane, Seat& seat);
  // Goes on until that holds; false: the run has been stopped before.
  template <class Done>
  bool go_on(Seat& seat, const Done& done);
  // Whether it has said or heard anything, without waiting.
  bool turn(Seat& seat);
  bool say(Seat& seat);
  void say_wish(Seat& seat);
  std::optional<FrameHeader> hear(Seat& seat);
  // What was granted by all servers, for the lane.
  void take(Lane& lane, Seat& seat);
  void understand(Seat& seat, const FrameHeader& header);
  void welcome(Seat& seat);
  // Before it leaves.
  void part(Seat& seat);
  // Its connection is of no more use.
  void lose(Seat& seat, std::atomic<std::uint64_t>* why = nullptr);
  // What was under way over it is void.
  void forget(Seat& seat);
  void be_patient(Seat& seat);

  StopFlag& stop_;
  const BatchSource& batches_;
  const modes::WorkerRule rule_;
  OwnModels* const models_;
  const std::size_t dimension_;
  const double patience_;
  const std::uint64_t updates_;
  const ModeShards shards_;
  std::deque<Seat> seats_;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> grants_{0}, pushes_{0}, cut_{0}, hung_{0}, strange_{0}, left_out_{0},
      split_{0}, lookups_{0};
};

}  // namespace leashed
