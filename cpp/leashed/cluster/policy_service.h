// What a policy server answers (cluster/mode_messages.h): it leads a mode
// (policy/server_machine.h), whose machine is told what comes over connections, and carries out
// what that decides on the parameters that it holds (server/parameter_server.h). Many workers pull
// and push, at their own pace: a grant is an answer to whoever waits, by what another has said.
//
// Each connection is one node for as long as it is there. Where it ends, the mode is told that the
// node has left, and its lease goes to another; the next connection of the same lane is the same
// node again. So nothing that was under way over a connection outlives it, and what was pushed
// under a lease is known once or lost with it. A worker that hangs has its lease until its term
// (`term_ns` of the mode), and what it pushes behind that is late.
//
// What a push stands for is what was granted to its connection last: its ticket is only compared.
// One under another ticket is refused with its connection. One whose values are not finite is
// counted, and goes to the mode as one that was lost on the way.
//
// Where it has rows of tables (cluster/lane_rows.h), a lane looks up those of its lease, as they
// are then: of modes that wait for all that is granted no update comes between its grant and that.
//
// For a checkpoint it holds: what its mode grants meanwhile goes to nobody, until all that workers
// have has come, or their leases are over. Then the state is of one moment, with gradients of
// updates that are not full, and leases that nobody has heard of. A server that goes on from there
// may have other numbers of workers: the first that come are the nodes of then, who gets a node
// that has such a lease is granted it again, nodes for which nobody is to come have left, and who
// comes beyond those of then joins. Models of the workers' own begin anew, with what is granted
// first.
//
// A server that was killed, and is started again in its own run, goes on from what it had kept at
// some moment, whatever was under way then: its lanes are the same nodes, who had a lease is
// granted it again, and its counts are those of then. All that it heard since is undone, and
// nothing of that can come any more: a push is of the connection over which its lease was granted.
// While workers sum, such a moment is between two rounds, when the parameters have come here.
//
// The first of several has a journal (server/journal.h), since the others go on meanwhile: started
// again, it goes on from what it had kept, and then hears all once more that it had heard since. So
// it decides as it had, and tells those who follow it one log. Parts of its own of pushes since
// then are lost, and count as missing. Whoever may have been there has left, with his lease.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/lane_rows.h"
#include "leashed/cluster/led_rounds.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/cluster/part_ends.h"
#include "leashed/cluster/policy_checkpoint.h"
#include "leashed/cluster/told_log.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/engine/stop.h"
#include "leashed/modes/mode_state.h"
#include "leashed/net/service.h"
#include "leashed/server/event_log.h"
#include "leashed/server/journal.h"
#include "leashed/server/parameter_server.h"

namespace leashed {

static_assert(sizeof(ToldHello) >= sizeof(ModeHello));

class PolicyService final : public Service, private Sink, private RoundDesk {
 public:
  // What makes it this run's, as ModeHello and ModeWelcome have it.
  struct Run {
    std::uint64_t run, terms, boot;
    // Of several servers, of which it is the first, and its parameters a part: those behind it, and
    // whether they are told all that its machine hears, rather than the end alone.
    std::size_t followers = 0;
    bool alike = false;
    bool reduces = false;  // while the mode is in Sync its workers sum among themselves
    std::uint64_t updates = StopRules::kNone;  // with so many here it is over
    // Two numbers that outlive the process: pushes that the mode was ever told of, in sums of
    // others and undone ones among them, and their examples. Empty: nobody asks for them.
    std::span<std::uint64_t> ever{};
    // Nobody is told the end before let_end(): who has been would train nothing once more.
    bool holds_end = false;
    // Of the first of several, which must stay; null: it goes on from nothing.
    Journal* journal = nullptr;
    std::uint64_t again = 0;  // processes of it that there were before this one in the run
    ModeShards shards{};      // of several that reduce: what each has
  };
  // Is told what the machine hears, in that order, before it acts.
  // Of a push whose values are not finite the version is kNoValues (server/event_log.h).
  using Heard = std::function<void(const modes::Event& event, Time at)>;
  // Is told what no event tells. Of workers' own models, before the next event of the node: it has
  // stepped on the lease that it has lost, or is another process, whose model begins anew. And that
  // a node has looked up the rows of its lease, before anything else happens.
  using Noted = std::function<void(modes::Node node, LogLine::Note note)>;
  using Begun = BegunMode;
  // `context.workers` lanes may ever come. Throws Error where no server takes what the mode's
  // workers have: they meet among themselves, or sum over a ring; or what it goes on from is
  // damaged. rows: of tables that gradients are of too, which must stay; null: of none.
  PolicyService(const modes::ServerPolicy& machine, const DisciplineContext& context, Run run,
                Heard heard = nullptr, Noted noted = nullptr, const Begun* begun = nullptr,
                RowHolder* rows = nullptr);

  void open(Post& post) noexcept override;
  void come(Peer peer) override;
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override;
  void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override;
  void gone(Peer peer) noexcept override;
  void woken() noexcept override;

  // What follows is for the thread that drives it, or while that holds.

  // Throws Error where the mode knows no such command, and does nothing then.
  void command(std::uint32_t argument);
  // Of lanes with these clients, whose process is gone or hangs as others know: their connections
  // are refused, and so their leases are others'. They may come back.
  void let_go(std::uint64_t first_client, std::uint64_t clients);
  // Nothing is granted any more: whoever pulls is told the end.
  void finish();
  // Nanoseconds, of the mode's time, which stands still until it is open.
  std::int64_t elapsed() const { return post_ ? post_->now() - start_ : begun_ns_; }
  // The mode's time when it began, or of the first line of what it has heard once more.
  std::int64_t heard_since() const { return since_ns_; }
  // Whether what is granted goes to nobody.
  void hold(bool holds);
  // That no worker has a lease, as far as it was told, and those behind it have heard all.
  // Where these decide by themselves, they are told at what they are to rest then.
  bool at_rest();
  // Lines of the log of what those behind it are told.
  std::uint64_t position() const;
  // Its state, while it holds and is at rest; with commands that are still to come.
  TakenMode take(std::vector<DueEvent> commands);
  // The parameters come here, and workers sum no others, for as long as that holds.
  void stay_home(bool stays) {
    if (rounds_) rounds_->stay_home(stays);
  }
  // That they have come, and are here for as long as they are to stay.
  bool is_home() const { return !rounds_ || rounds_->rests(); }
  // Its lanes and counts, of the moment of take(), for one that is started again. That may be taken
  // at any moment, with leases that workers have, at which the parameters are here.
  Archived served();
  // The journal's next line, which begins a file of it. 0: there is none.
  std::uint64_t cut_journal();
  // What goes before that line of the journal is kept.
  void kept(std::uint64_t line);
  // That all is trained is kept: who waits to hear of the end is told.
  void let_end();
  // Of several that decide alike, at the end of a run that is recorded: whether all those behind it
  // have said what they have of all that it has heard; asks whoever has not.
  bool ends_known() { return !told_ || (post_ && part_ends_.known(*told_, *post_)); }
  // What they have said, by server; they are told that nothing more is asked for.
  const std::vector<PartEnd>& take_ends();
  // Nodes of what it goes on from for which nobody has come are gone.
  void let_go_absent();
  const ParameterServer& server() const { return server_; }
  ParameterServer& server() { return server_; }
  // Why it serves nobody any more; empty: it does.
  const std::string& failure() const { return failure_; }
  // Null: it has none.
  Journal* journal() { return run_.journal; }
  // What the mode was told last, of its commands.
  std::uint32_t last_command() const { return last_command_; }

  // For any thread.
  struct Counters {
    std::uint64_t pulls = 0, grants = 0;
    std::uint64_t pushes = 0;           // that came, and the mode was told of
    std::uint64_t pushed_examples = 0;  // of these
    std::uint64_t summed = 0;           // likewise, in sums that workers made
    std::uint64_t summed_examples = 0;
    std::uint64_t not_finite = 0;     // pushes whose values are not
    std::uint64_t strange = 0;        // refused, being under no lease of their connection
    std::uint64_t replaced = 0;       // connections whose lane came with another
    std::uint64_t departures = 0;     // of nodes that had said something, before their end
    std::uint64_t lost = 0;           // examples of leases that they had then
    std::uint64_t unused = 0;         // examples of pushes behind the run's end
    std::uint64_t lanes = 0;          // that have come
    std::uint64_t looks = 0;          // at the parameters
    std::uint64_t commands = 0;       // that the mode was told
    std::uint64_t published = 0;      // gradients in updates
    std::uint64_t staleness = 0;      // of these, in all
    std::uint64_t payload_bytes = 0;  // of memory for what is pushed, and looked up
    std::uint64_t lookups = 0;        // of rows, of leases
    std::uint64_t reads = 0;          // by who looks on
    std::uint64_t looked_up = 0;      // rows of both
    LaneRows::Moved rows_moved{};
    LedRounds::Counters rounds{};
  };
  Counters counters() const;

 private:
  struct Link {
    std::optional<modes::Node> node;     // once it has said hello
    std::optional<modes::Lease> leased;  // granted, and not pushed
    std::uint64_t version = 0;           // that was granted with it
    bool there = false;                  // it has not left, or has pulled since
    bool waits = false;                  // it has pulled, and was answered nothing
    bool ended = false;                  // it was told so
    std::uint64_t pushes = 0;            // that have come over it
    std::uint32_t life = 0;              // of the node, that this is
    bool ends = false;                   // it is to be, once that may be
    std::optional<Grant> kept;           // that it is not told of while this holds
    AlignedArray<float> values;
    LaneRows::Of rows;
    std::array<std::byte, sizeof(ToldHello)> small{};  // of any other frame
  };
  struct Lane {
    modes::Node node;
    std::uint64_t life;
    Peer peer;  // 0: it has no connection
  };

  // `computed`: the ticket of the lease that the lane has computed last; 0: none.
  void hello(Peer peer, Link& link, std::size_t length, std::uint64_t computed);
  void look(Peer peer, const Link& link, std::size_t length);
  // Of another server of several.
  void followed(Peer peer, const Link& link, const FrameHeader& header);
  // One that decides by itself, and was started again, is told what is done, and, if it is so, that
  // all is over.
  void tell_done(Peer peer);
  // Rows of a lease; or, of who looks on, any.
  void look_up(Peer peer, Link& link, const FrameHeader& header);
  void read(Peer peer, Link& link, const FrameHeader& header);
  void send_rows(Peer peer, const Link& link, std::uint64_t correlation,
                 std::span<const std::byte> rows);
  std::span<std::byte> place_push(Link& link, const FrameHeader& header);
  std::span<std::byte> place_values(Link& link, std::size_t floats);
  // Throw Error where such a frame is none of the lane's lease.
  void check_push(const Link& link, const FrameHeader& header);
  void check_lookup(Peer peer, const Link& link, const FrameHeader& header);
  // Whether the connection has that lease: it was granted it, or is to compute it in a round.
  bool has_lease(const Link& link, std::uint64_t ticket) const;
  void looked_at(Peer peer);
  // What somebody has said of himself, if he is of this run.
  ModeHello said_by(const Link& link, std::size_t length) const;
  void pull(Peer peer, Link& link);
  void push(Link& link, const FrameHeader& header);
  void leave(Peer peer, Link& link);
  void round(Peer peer, Link& link, const FrameHeader& header);
  // Of several servers, whose workers sum, the others are told what no event tells.
  void tell_note(LogLine::Note note, modes::Node node, std::uint64_t number = 0);
  void begin_rounds();
  // Of a member, or of a server behind this one.
  std::span<std::byte> place_state(Peer peer, std::size_t length);
  // By its number; 0: it is none of it.
  std::uint64_t part_of_round(Peer peer, const FrameHeader& header) const;
  std::span<std::byte> place_round_rows(Link& link, const FrameHeader& header);
  void check_round_rows(const Link& link, const FrameHeader& header);
  // Of a run that goes on: the lease that the node has.
  void grant_again(modes::Node node);
  void send(Peer peer, Grant grant);
  // Where those behind it decide by themselves, the number of the first line that this process
  // tells them: above all that one before it has told.
  std::uint64_t first_told() const { return run_.again << 32; }
  void begin(const Begun& begun);
  // Hears the journal once more, from that line on.
  void hear_again(std::uint64_t from);
  void hear_again(const LogLine& line);
  // The node leaves, and with it its lease, if it has one.
  void count_gone(modes::Node node);
  void visit_served(Archive& archive);
  void visit_rounds(Archive& archive);
  // Where the machine throws what is no answer to a command, all is over.
  void tell(const modes::Event& event, const Payload* payload = nullptr);
  // Who waits would wait for good, since the mode answers nothing any more.
  void fail(const char* why);
  void end_of(Peer peer);
  // Servers that decide by themselves are told that all is over, and how many pushes of each lane
  // have come here.
  void tell_end();
  void tell_rest();

  void grant(Grant grant) override;
  void wake(Time at) override;
  void meet(std::span<const modes::Node>, modes::Node) override {}  // of peers alone
  void end(modes::Node node) override;
  void settled(modes::Node node, const Publication& publication) override;

  void tell_mode(const modes::Event& event) override { tell(event); }
  void tell_summed(Peer peer, const modes::Event& push, std::uint64_t examples) override;
  RoundSeat seat(modes::Node node) const override;
  void grant_leased(modes::Node node) override { grant_again(node); }
  void refuse_member(Peer peer) override { post_->refuse(peer); }
  void came_home() override;
  void fail_rounds(const char* why) override { fail(why); }
  std::uint64_t log_position() const override { return position(); }
  void ask_part(std::uint64_t server, std::uint64_t position) override;
  void tell_home(std::uint64_t updates, std::vector<ToldLog::Part> parts) override;
  void tell_lost(std::uint64_t examples) override;

  const Run run_;
  const Heard heard_;
  const Noted noted_;
  const std::size_t most_lanes_;
  const Rule& rule_;
  const StalenessPolicy& policy_;
  ParameterServer server_;
  std::optional<ToldLog> told_;  // where there are several servers
  PartEnds part_ends_;
  bool told_end_ = false;
  std::optional<LaneRows> rows_;
  Post* post_ = nullptr;
  std::int64_t start_ = 0, begun_ns_ = 0;  // the time at the beginning
  std::int64_t since_ns_ = 0;
  bool holds_ = false;
  bool told_rest_ = false;                         // since it holds
  std::unordered_map<std::uint64_t, Lane> lanes_;  // by client
  std::vector<Peer> peers_;                        // by node; 0: it has no connection
  std::vector<std::uint64_t> lost_tickets_;        // by node: of the lease that it lost last
  std::vector<std::uint32_t> lives_;               // by node: how often it has left
  std::vector<bool> awaited_;  // by node: of what it goes on from, and nobody has come for it
  std::unordered_map<Peer, Link> links_;
  std::unique_ptr<LedRounds> rounds_;  // null: nobody sums but this
  std::vector<Peer> lookers_;          // who look at parameters that are elsewhere
  bool finishing_ = false;             // once they are here
  bool may_end_;
  std::set<std::int64_t> due_;  // when the machine wants to be told the time
  bool finished_ = false;
  std::string failure_;
  std::uint32_t last_command_ = 0;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> pulls_{0}, grants_{0}, pushes_{0}, not_finite_{0}, strange_{0},
      replaced_{0}, departures_{0}, lost_{0}, unused_{0}, lanes_count_{0}, bytes_{0}, looks_{0},
      commands_{0}, published_{0}, staleness_{0}, lookups_{0}, reads_{0}, looked_up_{0},
      pushed_examples_{0}, summed_{0}, summed_examples_{0};
};

}  // namespace leashed
