#include "leashed/cluster/policy_service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/ever_told.h"
#include "leashed/server/shared_moment.h"
#include "leashed/update/kernels.h"

namespace leashed {

using modes::Node;

namespace {

// Beside what is under way to each worker, one is pinned for an update and one for a grant.
DisciplineContext with_room(DisciplineContext context, std::size_t lanes) {
  context.readers += 2 + lanes - std::min(lanes, context.workers);
  return context;
}

}  // namespace

PolicyService::PolicyService(const modes::ServerPolicy& machine, const DisciplineContext& context,
                             Run run, Heard heard, Noted noted, const Begun* begun, RowHolder* rows)
    : run_(run),
      heard_(std::move(heard)),
      noted_(std::move(noted)),
      most_lanes_(begun ? begun->lanes : context.workers),
      rule_(context.rule),
      policy_(context.staleness),
      server_(machine, with_room(context, most_lanes_), rows),
      peers_(std::max(most_lanes_, context.workers)),
      lost_tickets_(peers_.size()),
      lives_(peers_.size()),
      may_end_(!run.holds_end) {
  if (run.followers > 0) {
    const bool tells_journal = run.alike && run.journal;
    told_.emplace(run.followers, tells_journal ? run.journal->first() : first_told());
  }
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
  if (rows) rows_.emplace(*rows, bytes_);
  if (run.reduces) begin_rounds();
  if (begun) begin(*begun);
  if (run.journal) hear_again(begun && begun->served ? begun->line : 0);
}

void PolicyService::open(Post& post) noexcept {
  post_ = &post;
  start_ = post.now() - begun_ns_;
  if (rounds_) rounds_->open(post);
  if (!due_.empty()) post_->wake(start_ + *due_.begin());
}

void PolicyService::come(Peer peer) { links_.try_emplace(peer); }

std::span<std::byte> PolicyService::place(Peer peer, const FrameHeader& header) {
  Link& link = links_.at(peer);
  switch (header.kind) {
    case kModePush:
    case kModePushPull:
      return place_push(link, header);
    case kLookup:
      check_lookup(peer, link, header);
      return rows_->place(link.rows, header.length);
    case kRoundState:
      return place_state(peer, header.length);
    case kRoundRows:
      return place_round_rows(link, header);
    case kToldEnded:
      return part_ends_.place(peer, header.length);
    case kModeRead:
      if (!rows_) throw Error("a read at a server without rows");
      return rows_->place(link.rows, header.length);
    default:
      if (header.length > link.small.size()) throw Error("a frame for which there is no memory");
      return {link.small.data(), header.length};
  }
}

std::span<std::byte> PolicyService::place_push(Link& link, const FrameHeader& header) {
  check_push(link, header);
  return place_values(link, server_.holder().dimension() + link.rows.floats);
}

std::span<std::byte> PolicyService::place_values(Link& link, std::size_t floats) {
  if (link.values.size() < floats) {
    const std::size_t before = link.values.size();
    link.values = AlignedArray<float>(rows_ ? floats + floats / 8 : floats);
    bytes_.fetch_add((link.values.size() - before) * sizeof(float), kRelaxed);
  }
  return std::as_writable_bytes(std::span(link.values.data(), floats));
}

void PolicyService::check_push(const Link& link, const FrameHeader& header) {
  const std::size_t floats = server_.holder().dimension() + link.rows.floats;
  const bool leased = link.leased && link.leased->ticket == header.correlation;
  const bool there = !rows_ || link.rows.there;
  if (leased && there && header.length == floats * sizeof(float)) return;
  strange_.fetch_add(1, kRelaxed);
  if (!leased) throw Error("a push under another ticket than was granted to it");
  throw Error(there ? "a push of other parameters than the model has"
                    : "a push without the rows that it is of");
}

void PolicyService::frame(Peer peer, const FrameHeader& header, Outbox&) {
  Link& link = links_.at(peer);
  if (!failure_.empty()) throw Error(failure_);
  if (header.kind == kProbe) {
    return post_->send(peer, {.kind = kProbe}, {link.small.data(), header.length}, {}, nullptr);
  }
  if (header.kind == kModeHello) return hello(peer, link, header.length, header.correlation);
  if (header.kind == kModeLook) return look(peer, link, header.length);
  if (header.kind == kToldHello || header.kind == kToldAt) return followed(peer, link, header);
  if (header.kind == kToldEnded) return part_ends_.said(peer);
  if (header.kind == kModeRead) return read(peer, link, header);
  if (const auto server = part_of_round(peer, header)) {
    return rounds_->part_came(server, header.correlation);
  }
  if (!link.node) throw Error("a frame before a hello");
  switch (header.kind) {
    case kModePull:
      link.ended = false;
      return pull(peer, link);
    case kModePush:
      return push(link, header);
    case kModePushPull:
      push(link, header);
      return pull(peer, link);
    case kLookup:
      return look_up(peer, link, header);
    case kModeLeave:
      return leave(peer, link);
    case kRoundVote:
    case kRoundAgain:
    case kRoundTake:
    case kRoundState:
    case kRoundRows:
      return round(peer, link, header);
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
  if (rounds_ && rounds_->away()) {
    lookers_.push_back(peer);
    return rounds_->want_home();
  }
  looked_at(peer);
}

void PolicyService::looked_at(Peer peer) {
  looks_.fetch_add(1, kRelaxed);
  const ModeCounts& counts = server_.counts();
  const std::size_t dimension = server_.holder().dimension();
  const ParameterVector::Pin latest = server_.holder().pull();
  const auto copy =
      std::make_shared<const std::vector<float>>(latest.data(), latest.data() + dimension);
  const ModeLooked looked{run_.boot,
                          latest.t(),
                          counts.applied,
                          counts.late,
                          counts.stale,
                          counts.straggler,
                          lost_.load(kRelaxed),
                          departures_.load(kRelaxed),
                          counts.exchanges,
                          dimension,
                          told_ ? told_->position() : 0,
                          counts.rows};
  const auto theta = std::as_bytes(std::span(*copy));
  post_->send(peer, {.kind = kModeLooked}, std::as_bytes(std::span(&looked, 1)), {&theta, 1}, copy);
}

void PolicyService::followed(Peer peer, const Link& link, const FrameHeader& header) {
  if (!told_) throw Error("a policy server of several, and here is one");
  if (header.kind == kToldHello) {
    ToldHello said;
    if (header.length != sizeof said) throw Error("a hello that is none");
    std::memcpy(&said, link.small.data(), sizeof said);
    if (said.run != run_.run || said.terms != run_.terms) {
      throw Error("a policy server of another run, model, rule or mode");
    }
    // (What a process before this one had told him is over.)
    if (!run_.alike) said.heard = std::max(said.heard, first_told());
    const bool asks = said.again != 0 && !run_.alike;
    if (asks) said.heard = told_->position();
    if (told_->ahead(header.correlation, said)) {
      const std::string why =
          "policy server " + std::to_string(header.correlation) +
          " has heard more than this one's journal has, whose end a power cut has taken: they "
          "would not decide alike any more; start the run again";
      fail(why.c_str());
      throw Error(why);
    }
    told_->hello(peer, header.correlation, said, run_.boot, *post_);
    if (asks) tell_done(peer);
    if (rounds_) rounds_->follows(header.correlation);
  } else {
    ToldAt said;
    if (header.length != sizeof said) throw Error("a position that is none");
    std::memcpy(&said, link.small.data(), sizeof said);
    told_->heard(peer, said);
  }
  told_->send(*post_);
}

void PolicyService::tell_done(Peer peer) {
  const auto words = std::make_shared<std::vector<std::uint64_t>>(1, server_.examples_leased());
  for (const modes::Lease& lease : server_.unfinished()) words->push_back(lease.number);
  if (words->size() > 1 + kMostUnfinished) {
    throw Error(
        "more batches are under way than a policy server can be told that was started again");
  }
  const auto bytes = std::as_bytes(std::span<const std::uint64_t>(*words));
  post_->send(peer, {.kind = kToldDone}, {}, {&bytes, 1}, words);
  if (told_end_) told_->append({modes::Event::Kind::data_end}, Time{elapsed()});
}

void PolicyService::check_lookup(Peer peer, const Link& link, const FrameHeader& header) {
  const bool leased = has_lease(link, header.correlation);
  // What it has given is of the rows that it has: a sum may count at any moment.
  const bool gave = rounds_ && link.rows.given && rounds_->gives(peer);
  if (rows_ && leased && (!link.rows.there || rounds_) && !gave) return;
  strange_.fetch_add(1, kRelaxed);
  if (!rows_) throw Error("a lookup at a server without rows");
  if (gave) throw Error("a lookup under a lease whose gradients of rows have come");
  throw Error(leased ? "a second lookup under one lease"
                     : "a lookup under another ticket than was granted to it");
}

bool PolicyService::has_lease(const Link& link, std::uint64_t ticket) const {
  if (link.leased || !rounds_ || !link.node) return link.leased && link.leased->ticket == ticket;
  const auto its = server_.lease(*link.node);
  return its && its->lease.ticket == ticket;
}

void PolicyService::look_up(Peer peer, Link& link, const FrameHeader& header) {
  check_lookup(peer, link, header);
  // Behind the end nothing comes of them, and none is recorded: no id gets a row.
  const bool admits = !finished_ || rounds_;
  const auto rows = rows_->look_up(link.rows, 0, header.length, true, admits);
  if (noted_ && admits) noted_(*link.node, LogLine::Note::looked_up);
  link.rows.ticket = header.correlation;
  lookups_.fetch_add(1, kRelaxed);
  send_rows(peer, link, header.correlation, rows);
}

void PolicyService::read(Peer peer, Link& link, const FrameHeader& header) {
  const std::size_t hello = std::min<std::size_t>(header.length, sizeof(ModeHello));
  std::memcpy(link.small.data(), link.rows.asked.data(), hello);
  said_by(link, hello);
  const auto rows = rows_->look_up(link.rows, sizeof(ModeHello), header.length, false);
  reads_.fetch_add(1, kRelaxed);
  send_rows(peer, link, header.correlation, rows);
}

void PolicyService::send_rows(Peer peer, const Link& link, std::uint64_t correlation,
                              std::span<const std::byte> rows) {
  looked_up_.fetch_add(rows_->looked_up(), kRelaxed);
  post_->send(peer, {.kind = kRows, .correlation = correlation}, {}, {&rows, 1}, link.rows.reply);
}

void PolicyService::hello(Peer peer, Link& link, std::size_t length, std::uint64_t computed) {
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
    leave(before, links_.at(before));
    links_.at(before).node.reset();
    post_->refuse(before);
  }
  const bool anew = said.life != lane.life;
  const std::uint64_t lost = std::exchange(lost_tickets_[lane.node], 0);
  const bool own = server_.rule().model == modes::WorkerRule::Model::own;
  if (noted_ && own && !finished_ && (anew || (lost != 0 && lost == computed))) {
    noted_(lane.node, anew ? LogLine::Note::renewed : LogLine::Note::stepped);
  }
  lane.life = said.life;
  if (lane.node < awaited_.size()) awaited_[lane.node] = false;
  peers_[lane.node] = peer;
  link.node = lane.node;
  link.there = true;
  link.life = lives_[lane.node];
  const ModeWelcome welcome{run_.boot,
                            server_.holder().dimension(),
                            server_.largest_lease(),
                            lane.node,
                            link.life,
                            static_cast<std::uint32_t>(peers_.size())};
  post_->send(peer, {.kind = kModeWelcome}, std::as_bytes(std::span(&welcome, 1)), {}, nullptr);
}

void PolicyService::pull(Peer peer, Link& link) {
  pulls_.fetch_add(1, kRelaxed);
  if (finished_) return end_of(peer);
  link.there = link.waits = true;
  if (rounds_) return rounds_->pull(peer, *link.node);
  if (server_.lease(*link.node) && !link.leased && !link.kept) return grant_again(*link.node);
  tell({modes::Event::Kind::pull, *link.node});
}

void PolicyService::push(Link& link, const FrameHeader& header) {
  check_push(link, header);  // who had pulled may have another lease than when place() found it
  const modes::Lease lease = *link.leased;
  ++link.pushes;
  const std::size_t dimension = server_.holder().dimension();
  const std::size_t floats = dimension + link.rows.floats;
  const bool finite = update_kernels().first_not_finite(link.values.data(), floats) == floats;
  if (!finite) not_finite_.fetch_add(1, kRelaxed);
  if (finished_) {
    link.leased.reset();
    unused_.fetch_add(lease.count, kRelaxed);
    if (rows_) rows_->let_go(link.rows);
    return;
  }
  Payload payload{finite ? &link.values : nullptr, lease.count};
  RowKeys rows;  // (The lane may be granted another lease by its push.)
  if (rows_) {
    rows_->take(link.rows, link.values.data() + dimension, rows);
    payload.rows = finite ? &rows : nullptr;
    payload.row_gradients = &link.rows.gradients;
    rows_->let_go(link.rows);
  }
  link.leased.reset();  // (Where there was no memory it is lost with the connection.)
  const std::uint64_t version = finite ? link.version : kNoValues;
  pushes_.fetch_add(1, kRelaxed);
  pushed_examples_.fetch_add(lease.count, kRelaxed);
  count_ever(run_.ever, lease.count);
  tell({modes::Event::Kind::push, *link.node, lease.ticket, version}, &payload);
  if (rows_) rows_->let_go(link.rows, rows);
}

void PolicyService::leave(Peer peer, Link& link) {
  link.waits = link.ends = false;
  link.kept.reset();
  if (rows_) rows_->let_go(link.rows);
  if (!std::exchange(link.there, false)) return;
  if (!link.ended) departures_.fetch_add(1, kRelaxed);
  const bool in_rounds = rounds_ && !link.leased && rounds_->waits(peer);
  if (const auto its = server_.lease(*link.node); in_rounds && its) {
    lost_.fetch_add(its->lease.count, kRelaxed);
  }
  if (const auto leased = std::exchange(link.leased, std::nullopt)) {
    lost_tickets_[*link.node] = leased->ticket;
    // One whose term is over has gone to another already.
    if (server_.lease(*link.node)) lost_.fetch_add(leased->count, kRelaxed);
  }
  if (rounds_) return rounds_->gone(peer, *link.node, !finished_);
  if (!finished_) tell({modes::Event::Kind::leave, *link.node});
}

void PolicyService::gone(Peer peer) noexcept {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.node) {
    peers_[*link.node] = 0;
    try {
      if (failure_.empty()) leave(peer, link);
    } catch (const std::exception&) {  // tell() keeps why
    }
  }
  if (told_) told_->gone(peer);
  if (rows_) rows_->let_go(link.rows);
  bytes_.fetch_sub(link.values.size() * sizeof(float) + link.rows.bytes(), kRelaxed);
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
  if (finished_) return void(commands_.fetch_add(1, kRelaxed));  // it has heard, and does nothing
  if (told_ && !run_.alike) {
    throw Error(
        "this mode knows no commands where there are several policy servers, of which each would "
        "change by itself; take switching or automatic, or one server");
  }
  tell({.kind = modes::Event::Kind::command, .argument = argument});
  last_command_ = argument;
  commands_.fetch_add(1, kRelaxed);
}

void PolicyService::let_go(std::uint64_t first_client, std::uint64_t clients) {
  for (const auto& [client, lane] : lanes_) {
    const bool among = client >= first_client && client - first_client < clients;
    if (among && peers_[lane.node] != 0) post_->refuse(peers_[lane.node]);
  }
}

void PolicyService::finish() {
  if (rounds_ && rounds_->away()) {
    finishing_ = true;
    return rounds_->want_home();
  }
  if (std::exchange(finished_, true)) return;
  due_.clear();
  if (may_end_) tell_end();  // (Else who goes on from before makes updates more.)
  for (const Peer peer : peers_) {
    if (peer == 0) continue;
    if (links_.at(peer).waits) end_of(peer);  // others are told when they pull
  }
}

void PolicyService::tell(const modes::Event& event, const Payload* payload) {
  const Time at{elapsed()};
  try {
    if (run_.journal) run_.journal->append(event, at);
    if (heard_) heard_(event, at);
    const bool summed = payload && payload->reduced;
    const auto note = summed ? LogLine::Note::summed : LogLine::Note::none;
    if (told_ && run_.alike) told_->append({event, at, note});
    if (event.kind == modes::Event::Kind::leave) ++lives_[event.node];
    server_.handle(event, payload, at, *this);
    if (told_ && post_) told_->send(*post_);
    if (rounds_) rounds_->told(event);
    if (rounds_) rounds_->settle();
    if (run_.updates != StopRules::kNone && server_.updates() >= run_.updates) finish();
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
  if (rounds_) rounds_->granted(grant.node);
  const Peer peer = peers_[grant.node];
  if (peer == 0) return;  // of a run that goes on, where nobody has come for it yet
  if (rounds_ && rounds_->holds()) return;
  if (grant.lease.count > 0) tell_note(LogLine::Note::granted, grant.node);
  if (holds_ && grant.lease.count > 0) {
    links_.at(peer).kept.emplace(std::move(grant));
  } else {
    send(peer, std::move(grant));
  }
}

void PolicyService::send(Peer peer, Grant grant) {
  const modes::Lease& lease = grant.lease;
  if (lease.count > 0) {
    Link& link = links_.at(peer);
    if (rows_ && link.rows.ticket != lease.ticket) rows_->let_go(link.rows);
    link.leased = lease;
    link.version = grant.version;
    link.waits = link.ends = false;
    if (rounds_) rounds_->answered(peer);
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
  if (!post_) return void(due_.insert(at.ns));  // it is yet to begin
  const std::int64_t ns = shared_moment(at, elapsed());
  if (due_.insert(ns).second && *due_.begin() == ns) post_->wake(start_ + ns);
}

void PolicyService::settled(Node, const Publication& publication) {
  if (!publication.published) return;
  published_.fetch_add(1, kRelaxed);
  staleness_.fetch_add(publication.staleness_compute + publication.staleness_schedule, kRelaxed);
}

void PolicyService::tell_end() {
  if (!told_ || run_.alike || std::exchange(told_end_, true)) return;
  told_->append({modes::Event::Kind::data_end}, Time{elapsed()});
  if (post_) told_->send(*post_);  // a run that goes on may be at its end before it is open
}

void PolicyService::end(Node node) {
  if (rounds_ && !rounds_->ends(node)) return;
  tell_end();
  if (peers_[node] != 0) end_of(peers_[node]);
}

void PolicyService::end_of(Peer peer) {
  Link& link = links_.at(peer);
  if (!may_end_) {
    link.ends = true;
    return;
  }
  link.waits = false;
  if (rounds_) rounds_->answered(peer);
  if (std::exchange(link.ended, true)) return;  // a push may bring it, and then its pull
  const ModeEnd end{server_.holder().pull().t()};
  post_->send(peer, {.kind = kModeEnd}, std::as_bytes(std::span(&end, 1)), {}, nullptr);
}

void PolicyService::let_end() {
  may_end_ = true;
  if (finished_) tell_end();
  for (auto& [peer, link] : links_) {
    if (std::exchange(link.ends, false) && link.node) end_of(peer);
  }
}

const std::vector<PartEnd>& PolicyService::take_ends() {
  if (told_) part_ends_.let_go(*told_, *post_);
  return part_ends_.of();
}

PolicyService::Counters PolicyService::counters() const {
  return {pulls_.load(kRelaxed),
          grants_.load(kRelaxed),
          pushes_.load(kRelaxed),
          pushed_examples_.load(kRelaxed),
          summed_.load(kRelaxed),
          summed_examples_.load(kRelaxed),
          not_finite_.load(kRelaxed),
          strange_.load(kRelaxed),
          replaced_.load(kRelaxed),
          departures_.load(kRelaxed),
          lost_.load(kRelaxed),
          unused_.load(kRelaxed),
          lanes_count_.load(kRelaxed),
          looks_.load(kRelaxed),
          commands_.load(kRelaxed),
          published_.load(kRelaxed),
          staleness_.load(kRelaxed),
          bytes_.load(kRelaxed),
          lookups_.load(kRelaxed),
          reads_.load(kRelaxed),
          looked_up_.load(kRelaxed),
          rows_ ? rows_->moved() : LaneRows::Moved{},
          rounds_ ? rounds_->counters() : LedRounds::Counters{}};
}

}  // namespace leashed
