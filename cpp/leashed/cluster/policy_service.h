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
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/net/service.h"
#include "leashed/server/parameter_server.h"

namespace leashed {

class PolicyService final : public Service, private Sink {
 public:
  // What makes it this run's, as ModeHello and ModeWelcome have it.
  struct Run {
    std::uint64_t run, terms, boot;
  };
  // Is told what the machine hears, in that order, before it acts.
  using Heard = std::function<void(const modes::Event& event, Time at)>;
  // `context.workers` lanes may ever come. Throws Error where no server takes what the mode's
  // workers have: they meet among themselves, or sum over a ring.
  PolicyService(const modes::ServerPolicy& machine, const DisciplineContext& context, Run run,
                Heard heard = nullptr);

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
  const ParameterServer& server() const { return server_; }
  ParameterServer& server() { return server_; }
  // Why it serves nobody any more; empty: it does.
  const std::string& failure() const { return failure_; }

  // For any thread.
  struct Counters {
    std::uint64_t pulls = 0, grants = 0, pushes = 0;
    std::uint64_t not_finite = 0;     // pushes whose values are not
    std::uint64_t strange = 0;        // refused, being under no lease of their connection
    std::uint64_t replaced = 0;       // connections whose lane came with another
    std::uint64_t departures = 0;     // of nodes that had said something, before their end
    std::uint64_t lost = 0;           // examples of leases that they had then
    std::uint64_t unused = 0;         // examples of pushes behind the run's end
    std::uint64_t lanes = 0;          // that have come
    std::uint64_t looks = 0;          // at the parameters
    std::uint64_t published = 0;      // gradients in updates
    std::uint64_t staleness = 0;      // of these, in all
    std::uint64_t payload_bytes = 0;  // of memory for what is pushed
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
    AlignedArray<float> values;
    std::array<std::byte, sizeof(ModeHello)> small{};  // of any other frame
  };
  struct Lane {
    modes::Node node;
    std::uint64_t life;
    Peer peer;  // 0: it has no connection
  };

  void hello(Peer peer, Link& link, std::size_t length);
  void look(Peer peer, const Link& link, std::size_t length);
  // What somebody has said of himself, if he is of this run.
  ModeHello said_by(const Link& link, std::size_t length) const;
  void pull(Peer peer, Link& link);
  void push(Link& link);
  void leave(Link& link);
  // Where the machine throws what is no answer to a command, all is over.
  void tell(const modes::Event& event, const Payload* payload = nullptr);
  // Who waits would wait for good, since the mode answers nothing any more.
  void fail(const char* why);
  void end_of(Peer peer);
  std::int64_t elapsed() const { return post_->now() - start_; }

  void grant(Grant grant) override;
  void wake(Time at) override;
  void meet(std::span<const modes::Node>, modes::Node) override {}  // of peers alone
  void end(modes::Node node) override;
  void settled(modes::Node node, const Publication& publication) override;

  const Run run_;
  const Heard heard_;
  const std::size_t most_lanes_;
  ParameterServer server_;
  Post* post_ = nullptr;
  std::int64_t start_ = 0;
  std::unordered_map<std::uint64_t, Lane> lanes_;  // by client
  std::vector<Peer> peers_;                        // by node; 0: it has no connection
  std::unordered_map<Peer, Link> links_;
  std::set<std::int64_t> due_;  // when the machine wants to be told the time
  bool finished_ = false;
  std::string failure_;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> pulls_{0}, grants_{0}, pushes_{0}, not_finite_{0}, strange_{0},
      replaced_{0}, departures_{0}, lost_{0}, unused_{0}, lanes_count_{0}, bytes_{0}, looks_{0},
      published_{0}, staleness_{0};
};

}  // namespace leashed
