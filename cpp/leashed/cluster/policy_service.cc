#include "leashed/cluster/policy_service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/server/shared_moment.h"
#include "leashed/update/kernels.h"

namespace leashed {

using modes::Node;

namespace {

// Beside what is under way to each worker, one is pinned for an update and one for a grant.
DisciplineContext with_room(DisciplineContext context) {
  context.readers += 2;
  return context;
}

}  // namespace

PolicyService::PolicyService(const modes::ServerPolicy& machine, const DisciplineContext& context,
                             Run run, Heard heard)
    : run_(run),
      heard_(std::move(heard)),
      most_lanes_(context.workers),
      server_(machine, with_room(context)),
      peers_(context.workers) {
  if (!server_.holds()) {
    throw Error(
        "in this mode the workers' models meet each other, and no policy server has any; take a "
        "mode with a server, or local_sgd");
  }
  if (server_.rule().reduces) {
    throw Error(
        "in this mode the workers sum their gradients over a ring, and no policy server takes "
        "them; take sync, which is the same by a server");
  }
  if (context.dimension > kMostParameters) {
    throw Error("a policy server holds " + std::to_string(kMostParameters) +
                " parameters at most, and the model has " + std::to_string(context.dimension));
  }
}

void PolicyService::open(Post& post) noexcept {
  post_ = &post;
  start_ = post.now();
}

void PolicyService::come(Peer peer) { links_.try_emplace(peer); }

std::span<std::byte> PolicyService::place(Peer peer, const FrameHeader& header) {
  Link& link = links_.at(peer);
  if (header.kind != kModePush && header.kind != kModePushPull) {
    if (header.length > link.small.size()) throw Error("a frame for which there is no memory");
    return {link.small.data(), header.length};
  }
  const std::size_t dimension = server_.holder().dimension();
  const bool leased = link.leased && link.leased->ticket == header.correlation;
  if (!leased || header.length != dimension * sizeof(float)) {
    strange_.fetch_add(1, kRelaxed);
    throw Error(leased ? "a push of other parameters than the model has"
                       : "a push under another ticket than was granted to it");
  }
  if (link.values.size() < dimension) {
    link.values = AlignedArray<float>(dimension);
    bytes_.fetch_add(header.length, kRelaxed);
  }
  return std::as_writable_bytes(std::span(link.values.data(), dimension));
}

void PolicyService::frame(Peer peer, const FrameHeader& header, Outbox&) {
  Link& link = links_.at(peer);
  if (!failure_.empty()) throw Error(failure_);
  if (header.kind == kProbe) {
    return post_->send(peer, {.kind = kProbe}, {link.small.data(), header.length}, {}, nullptr);
  }
  if (header.kind == kModeHello) return hello(peer, link, header.length);
  if (header.kind == kModeLook) return look(peer, link, header.length);
  if (!link.node) throw Error("a frame before a hello");
  switch (header.kind) {
    case kModePull:
      link.ended = false;
      return pull(peer, link);
    case kModePush:
      return push(link);
    case kModePushPull:
      push(link);
      return pull(peer, link);
    case kModeLeave:
      return leave(link);
    case kModeCommand: {
      ModeCommand said;
      if (header.length != sizeof said) throw Error("a command that is none");
      std::memcpy(&said, link.small.data(), sizeof said);
      return command(said.argument);
    }
    default:
      throw Error("a frame of a kind that no worker sends");
  }
}

ModeHello PolicyService::said_by(const Link& link, std::size_t length) const {
  ModeHello said;
  if (length != sizeof said) throw Error("a hello that is none");
  std::memcpy(&said, link.small.data(), sizeof said);
  if (said.run != run_.run) throw Error("a worker of another run");
  if (said.terms != run_.terms) {
    throw Error("a worker of another model, rule or mode than this server has");
  }
  return said;
}

// A copy: who does not read it must not keep a version from going.
void PolicyService::look(Peer peer, const Link& link, std::size_t length) {
  said_by(link, length);
  looks_.fetch_add(1, kRelaxed);
  const ModeCounts& counts = server_.counts();
  const std::size_t dimension = server_.holder().dimension();
  const ParameterVector::Pin latest = server_.holder().pull();
  const auto copy =
      std::make_shared<const std::vector<float>>(latest.data(), latest.data() + dimension);
  const ModeLooked looked{
      run_.boot,        latest.t(),       counts.applied,       counts.late,
      counts.stale,     counts.straggler, lost_.load(kRelaxed), departures_.load(kRelaxed),
      counts.exchanges, dimension};
  const auto theta = std::as_bytes(std::span(*copy));
  post_->send(peer, {.kind = kModeLooked}, std::as_bytes(std::span(&looked, 1)), {&theta, 1}, copy);
}

void PolicyService::hello(Peer peer, Link& link, std::size_t length) {
  if (link.node) throw Error("a hello that is none");
  const ModeHello said = said_by(link, length);
  const auto found = lanes_.find(said.client);
  if (found == lanes_.end()) {
    if (lanes_.size() == most_lanes_) throw Error("more lanes than this server has room for");
    const auto node = static_cast<Node>(lanes_.size());
    lanes_.emplace(said.client, Lane{node, said.life, 0});
    lanes_count_.fetch_add(1, kRelaxed);
  }
  Lane& lane = lanes_.at(said.client);
  if (said.life < lane.life) throw Error("a hello of a life that is over");
  if (const Peer before = peers_[lane.node]; before != 0) {
    replaced_.fetch_add(1, kRelaxed);
    leave(links_.at(before));
    links_.at(before).node.reset();
    post_->refuse(before);
  }
  lane.life = said.life;
  peers_[lane.node] = peer;
  link.node = lane.node;
  link.there = true;
  const ModeWelcome welcome{run_.boot, server_.holder().dimension(), server_.largest_lease(),
                            lane.node};
  post_->send(peer, {.kind = kModeWelcome}, std::as_bytes(std::span(&welcome, 1)), {}, nullptr);
}

void PolicyService::pull(Peer peer, Link& link) {
  pulls_.fetch_add(1, kRelaxed);
  if (finished_) return end_of(peer);
  link.there = link.waits = true;
  tell({modes::Event::Kind::pull, *link.node});
}

void PolicyService::push(Link& link) {
  const modes::Lease lease = *link.leased;  // as place() has found
  link.leased.reset();
  pushes_.fetch_add(1, kRelaxed);
  const std::size_t dimension = server_.holder().dimension();
  const bool finite = update_kernels().first_not_finite(link.values.data(), dimension) == dimension;
  if (!finite) not_finite_.fetch_add(1, kRelaxed);
  if (finished_) {
    unused_.fetch_add(lease.count, kRelaxed);
    return;
  }
  const Payload payload{finite ? &link.values : nullptr, lease.count};
  tell({modes::Event::Kind::push, *link.node, lease.ticket, link.version}, &payload);
}

void PolicyService::leave(Link& link) {
  link.waits = false;
  if (!std::exchange(link.there, false)) return;
  if (!link.ended) departures_.fetch_add(1, kRelaxed);
  if (const auto leased = std::exchange(link.leased, std::nullopt)) {
    // One whose term is over has gone to another already.
    if (server_.lease(*link.node)) lost_.fetch_add(leased->count, kRelaxed);
  }
  if (!finished_) tell({modes::Event::Kind::leave, *link.node});
}

void PolicyService::gone(Peer peer) noexcept {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.node) {
    peers_[*link.node] = 0;
    try {
      if (failure_.empty()) leave(link);
    } catch (const std::exception&) {  // tell() keeps why
    }
  }
  bytes_.fetch_sub(link.values.size() * sizeof(float), kRelaxed);
  links_.erase(peer);
}

void PolicyService::woken() noexcept {
  const std::int64_t now = elapsed();
  bool due = false;
  while (!due_.empty() && *due_.begin() <= now) {
    due_.erase(due_.begin());
    due = true;
  }
  try {
    if (due && !finished_ && failure_.empty()) tell({modes::Event::Kind::wake});
  } catch (const std::exception&) {
  }
  if (!due_.empty()) post_->wake(start_ + *due_.begin());
}

void PolicyService::command(std::uint32_t argument) {
  if (finished_) return;
  tell({.kind = modes::Event::Kind::command, .argument = argument});
}

void PolicyService::let_go(std::uint64_t first_client, std::uint64_t clients) {
  for (const auto& [client, lane] : lanes_) {
    const bool among = client >= first_client && client - first_client < clients;
    if (among && peers_[lane.node] != 0) post_->refuse(peers_[lane.node]);
  }
}

void PolicyService::finish() {
  if (std::exchange(finished_, true)) return;
  due_.clear();
  for (const Peer peer : peers_) {
    if (peer == 0) continue;
    if (links_.at(peer).waits) end_of(peer);  // others are told when they pull
  }
}

void PolicyService::tell(const modes::Event& event, const Payload* payload) {
  const Time at{elapsed()};
  try {
    if (heard_) heard_(event, at);
    server_.handle(event, payload, at, *this);
  } catch (const Error& error) {
    if (event.kind != modes::Event::Kind::command) fail(error.what());
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
}

void PolicyService::fail(const char* why) {
  failure_ = why;
  for (const Peer peer : peers_) {
    if (peer != 0) post_->refuse(peer);
  }
}

void PolicyService::grant(Grant grant) {
  const Peer peer = peers_[grant.node];
  const modes::Lease& lease = grant.lease;
  if (lease.count > 0) {
    Link& link = links_.at(peer);
    link.leased = lease;
    link.version = grant.version;
    link.waits = false;
  }
  const GrantHead head{lease.ticket,  lease.number, lease.first, lease.count, lease.token,
                       grant.version, grant.t,      grant.n,     grant.c};
  const auto pulled = std::make_shared<ParameterVector::Pin>(std::move(grant.pulled));
  const auto theta = std::as_bytes(std::span(pulled->data(), server_.holder().dimension()));
  grants_.fetch_add(1, kRelaxed);
  post_->send(peer, {.kind = kGrant, .correlation = lease.ticket},
              std::as_bytes(std::span(&head, 1)), {&theta, 1}, pulled);
}

void PolicyService::wake(Time at) {
  const std::int64_t ns = shared_moment(at, elapsed());
  if (due_.insert(ns).second && *due_.begin() == ns) post_->wake(start_ + ns);
}

void PolicyService::settled(Node, const Publication& publication) {
  if (!publication.published) return;
  published_.fetch_add(1, kRelaxed);
  staleness_.fetch_add(publication.staleness_compute + publication.staleness_schedule, kRelaxed);
}

void PolicyService::end(Node node) { end_of(peers_[node]); }

void PolicyService::end_of(Peer peer) {
  Link& link = links_.at(peer);
  link.waits = false;
  if (std::exchange(link.ended, true)) return;  // a push may bring it, and then its pull
  const ModeEnd end{server_.holder().pull().t()};
  post_->send(peer, {.kind = kModeEnd}, std::as_bytes(std::span(&end, 1)), {}, nullptr);
}

PolicyService::Counters PolicyService::counters() const {
  return {pulls_.load(kRelaxed),       grants_.load(kRelaxed),  pushes_.load(kRelaxed),
          not_finite_.load(kRelaxed),  strange_.load(kRelaxed), replaced_.load(kRelaxed),
          departures_.load(kRelaxed),  lost_.load(kRelaxed),    unused_.load(kRelaxed),
          lanes_count_.load(kRelaxed), looks_.load(kRelaxed),   published_.load(kRelaxed),
          staleness_.load(kRelaxed),   bytes_.load(kRelaxed)};
}

}  // namespace leashed
