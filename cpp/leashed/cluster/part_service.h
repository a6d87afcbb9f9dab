// What a policy server behind the first of several answers (cluster/part_messages.h): it has a part
// of the parameters, and of every push. Where servers decide alike it carries out the first's log
// (server/follower.h), and grants what that says to whoever has a connection by then, or has one
// next; else its own machine decides, which is told by the log when all is over, and applies what
// it holds once nobody is there any more who might send a part.
//
// A lane's connection is a life of its node, which the first's welcome has named. Where it ends no
// part of that life comes any more: such a push counts here as one that was lost on the way. A part
// that comes when its push has been carried out without it is dropped, and counted as late. One
// whose values are not finite is counted, and is as one that was lost.
//
// For a checkpoint it is at rest where all that it has heard is carried out, while the first grants
// nothing; or, where it decides by itself, has of each lane as many parts as the first has had
// pushes of it, which the log says, but of those whose connection has ended. One that goes on from
// there grants leases of then, which the first grants again, to whoever comes for their nodes; or,
// where it decides by itself, anew to whoever pulls.
//
// One that was killed, and is started again in its own run, goes on from what it had kept at some
// moment. What it heard since is lost for its part: nobody sends it again, since it is done
// elsewhere, so it counts as missing, by the first's log, or, where it decides by itself, by what
// the first says is done (part_messages.h). Nobody's connection is to be handed to it before it has
// heard that, or where the log is by now: while it `asks`.
//
// Where workers sum among themselves while the mode is in Sync (cluster/led_rounds.h), what its
// machine grants goes to the node as the lease alone, under which rows are looked up; with the
// parameters where the first's log says that it was granted. Gradients of rows of a sum come before
// it counts, and are acknowledged. The parameters come home over the connection to the first, which
// also asks for them.
//
// Of tables it may have rows (cluster/lane_rows.h), which are looked up and pushed under its own
// grants, as with one server.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/choice.h"
#include "leashed/cluster/lane_rows.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/policy_checkpoint.h"
#include "leashed/net/service.h"
#include "leashed/server/follower.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/shards.h"

namespace leashed {

class PartService final : public Service, private Sink {
 public:
  struct Run {
    std::uint64_t run, terms, boot;   // as of PolicyService
    std::uint64_t server;             // its number, from 1
    std::span<std::uint64_t> ever{};  // as of PolicyService
    bool again = false;               // it was started again, and asks
    bool reduces = false;             // as of PolicyService
    bool recorded = false;            // the first asks at the end what became of the log here
  };
  // mode: the first's; `context` is of this part, whose `workers` lanes may ever come; rows: of
  // tables, those that it has, which must stay; null: none. begun: what it goes on from; null: it
  // begins. Throws Error of modes of peers, and where what it goes
  // on from is damaged.
  PartService(const Choice& mode, const DisciplineContext& context, Run run,
              RowHolder* rows = nullptr, const BegunMode* begun = nullptr);

  void open(Post& post) noexcept override;
  void come(Peer peer) override { links_.try_emplace(peer); }
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override;
  void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override;
  void gone(Peer peer) noexcept override;

  // What follows is for the thread that drives it, or while that holds.

  // What it says first over a connection to the first; one is on its way from now on.
  ToldHello follow();
  // That one was not made.
  void follows_none();
  // As of PolicyService.
  void let_go(std::uint64_t first_client, std::uint64_t clients);
  const ParameterServer& server() const { return server_; }
  ParameterServer& server() { return server_; }
  const std::string& failure() const { return failure_; }
  // That all is carried out that the first has heard, once that was at rest.
  bool at_rest() const;
  // Its state, while it is at rest; or, for one that is started again, at any moment.
  TakenMode take();
  // Lives of lanes, counts, and how far the log is carried out, of that moment, for the latter.
  Archived served();
  // Pushes of whose parts something has become, and examples of these, for the latter as well.
  std::pair<std::uint64_t, std::uint64_t> used() const;
  // What is of that position of the log has been kept.
  void kept(std::uint64_t position) { kept_ = std::max(kept_, position); }
  // Lines of the log that are carried out.
  std::uint64_t position() const;

  // For any thread: whether it has a connection to the first, or one is on its way.
  bool follows() const { return follows_.load(std::memory_order_relaxed); }
  // Whether it was started again, and has not heard yet what it has to know.
  bool asks() const { return asks_.load(std::memory_order_relaxed); }
  // Whether the first has what it asks for at the end of a run that is recorded.
  bool end_known() const { return end_known_.load(std::memory_order_relaxed); }
  struct Counters {
    std::uint64_t grants = 0, pushes = 0;
    std::uint64_t examples = 0;       // of these
    std::uint64_t not_finite = 0;     // parts whose values are not
    std::uint64_t late_parts = 0;     // that came when their push had been carried out
    std::uint64_t strange = 0;        // refused, being under no lease of their connection
    std::uint64_t replaced = 0;       // connections whose node came with another
    std::uint64_t lanes = 0;          // nodes that have come
    std::uint64_t looks = 0;          // at the parameters
    std::uint64_t published = 0;      // gradients in updates
    std::uint64_t staleness = 0;      // of these, in all
    std::uint64_t payload_bytes = 0;  // of memory for what is pushed, and looked up
    std::uint64_t lookups = 0, reads = 0, looked_up = 0;  // as of PolicyService
    LaneRows::Moved rows_moved{};
  };
  Counters counters() const;

 private:
  struct Link {
    std::optional<PartHello> said;
    bool there = false;                    // its node is, over it
    std::optional<std::uint64_t> granted;  // the ticket, until it is pushed
    std::uint64_t version = 0;
    std::uint64_t parts = 0;             // that have come over it
    std::optional<std::uint64_t> looks;  // until the log has got there
    AlignedArray<float> values;          // a part, then its PartTail, then gradients of rows
    LaneRows::Of rows;
    std::array<std::byte, sizeof(PartHello)> small{};  // of any other frame
  };
  struct Seat {
    Peer peer = 0;  // 0: it has no connection
    std::uint32_t life = 0;
    bool came = false;
    // Where servers decide by themselves, of when the first was at rest last: the life that it knew
    // of, and how many pushes of that.
    std::uint64_t rest_life = 0, rest_pushes = 0;
    // What it was granted last, until that is pushed: another life of it is told once more, since
    // the one before may have had it.
    GrantHead head{};
    std::shared_ptr<const ParameterVector::Pin> pulled;  // null: nothing
    bool lease_alone = false;                            // without the parameters
  };

  void begin(const BegunMode& begun);
  void hello(Peer peer, Link& link, std::size_t length);
  std::span<std::byte> place_part(Link& link, const FrameHeader& header);
  // Throw Error where such a frame is none of what the lane was granted.
  void check_part(const Link& link, const FrameHeader& header);
  void check_lookup(const Link& link, const FrameHeader& header);
  void part(Link& link, const FrameHeader& header);
  // Gradients of rows of a sum, as a member sends them.
  std::span<std::byte> place_round_rows(Link& link, const FrameHeader& header);
  void check_round_rows(const Link& link, const FrameHeader& header);
  void round_rows(Peer peer, Link& link, const FrameHeader& header);
  std::span<std::byte> place_values(Link& link, std::size_t floats);
  // θ and the rule's state, that come and that are asked for, once the log is carried out as far.
  std::span<std::byte> place_home(Peer peer, std::size_t length);
  void answer_take();
  void part_of_log(Link& link, std::uint64_t ticket, const PartTail& tail, bool finite);
  // As of PolicyService.
  void look_up(Peer peer, Link& link, const FrameHeader& header);
  void read(Peer peer, Link& link, const FrameHeader& header);
  void send_rows(Peer peer, const Link& link, std::uint64_t correlation,
                 std::span<const std::byte> rows);
  // Has the rows of a part, behind so many floats, where they are to be, in `rows`; and has their
  // memory again.
  void take_rows(Link& link, std::size_t before, RowPush& rows);
  void let_go_rows(Link& link, RowPush& rows);
  void look(Link& link, std::size_t length);
  void answer_looks();
  void told(Peer peer, const FrameHeader& header);
  // What the first asks for at the end of a run that is recorded, once it is there.
  void end_asked(Peer peer, const FrameHeader& header);
  void answer_end();
  // What was read of the log of a server that decides by itself.
  void hear_first();
  // What is done at the first, as kToldDone has it, and was never here: it is lost on the way.
  void hear_done(std::span<const std::uint64_t> words);
  void miss(std::uint64_t number, std::uint64_t leased);
  void visit_served(Archive& archive);
  void visit_granted(Archive& archive);
  void leave(Link& link);
  // Applies what is held, once nobody is there any more.
  void end_if_over();
  void tell(modes::Event event, const Payload* payload = nullptr);
  void send(const Seat& seat);
  void end_of(Peer peer);
  // Whatever throws of what is carried out leaves it of no more use.
  void carry_out(const std::function<void()>& f);

  void grant(Grant grant) override;
  void wake(Time) override {}  // the first's log says when
  void meet(std::span<const modes::Node>, modes::Node) override {}
  void end(modes::Node node) override;
  void settled(modes::Node node, const Publication& publication) override;

  const Run run_;
  const bool alike_;
  const Rule& rule_;
  const StalenessPolicy& policy_;
  ParameterServer server_;
  std::optional<Follower> follower_;  // where servers decide alike
  RowHolder* const holder_;           // null: it has no rows
  std::optional<LaneRows> rows_;
  std::optional<std::uint64_t> end_asked_;  // a position, until it is answered
  Post* post_ = nullptr;
  std::int64_t start_ = 0;
  std::vector<Seat> seats_;  // by node
  std::unordered_map<Peer, Link> links_;
  Peer first_ = 0;                // the connection to the first server; 0: there is none
  std::uint64_t first_boot_ = 0;  // 0: it was never heard
  std::vector<std::byte> block_;
  std::vector<std::uint64_t> done_;  // as kToldDone has it
  ReadBlock read_;
  AlignedArray<float> home_;            // that comes
  std::optional<std::uint64_t> takes_;  // the first wants the parameters of that position
  std::uint64_t heard_ = 0;             // of the log of a server that decides by itself
  std::uint64_t kept_ = 0;              // a position of the log
  bool over_ = false;                   // it was told so
  bool ended_ = false;                  // what it held is applied
  std::string failure_;
  // Relaxed: counts for whoever looks on; they hand nothing over. (Lanes that are let in once it
  // asks no more are taken by the thread that has heard the answer.)
  std::atomic<bool> follows_{false}, asks_{false}, end_known_{false};
  std::atomic<std::uint64_t> grants_{0}, pushes_{0}, examples_{0}, not_finite_{0}, late_parts_{0},
      strange_{0}, replaced_{0}, lanes_{0}, looks_{0}, published_{0}, staleness_{0}, bytes_{0},
      lookups_{0}, reads_{0}, looked_up_{0};
};

}  // namespace leashed
