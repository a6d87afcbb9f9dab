#include "leashed/cluster/part_service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/ever_told.h"
#include "leashed/update/kernels.h"

namespace leashed {

using modes::Node;
using PartEvent = modes::Event::Kind;

namespace {

constexpr std::size_t kPartTailFloats = sizeof(PartTail) / sizeof(float);

// Beside what is under way to each worker and what is kept for it one is pinned for an update.
DisciplineContext with_kept(DisciplineContext context, std::size_t lanes) {
  context.readers += 2 + lanes;
  return context;
}

template <class T>
T frame_of(std::span<const std::byte> bytes, std::size_t length, const char* what) {
  T found;
  if (length != sizeof found) throw Error(what);
  std::memcpy(&found, bytes.data(), sizeof found);
  return found;
}

}  // namespace

PartService::PartService(const Choice& mode, const DisciplineContext& context, Run run,
                         RowHolder* rows, const BegunMode* begun)
    : run_(run),
      alike_(deciding(mode.name) == Deciding::alike),
      rule_(context.rule),
      policy_(context.staleness),
      server_(modes::make_server_policy(
                  begun && begun->leads && !alike_ ? mode : following(mode, deciding(mode.name))),
              with_kept(context, std::max(context.workers, begun ? begun->lanes : 0)), rows),
      holder_(rows),
      seats_(std::max(context.workers, begun ? begun->lanes : 0)),
      block_(sizeof(BlockHead) + kMostBlock) {
  require_parts(context.rule, context.staleness, "policy_servers");
  if (context.dimension > kMostParameters) {
    throw Error("a policy server holds " + std::to_string(kMostParameters) +
                " parameters at most, and this one's part has " +
                std::to_string(context.dimension) +
                "; take more policy_servers, or shards=\"memorywise\"");
  }
  if (run.reduces && !alike_) throw Error("this mode has no rounds of all-reduce");
  if (run.recorded && (run.reduces || !alike_)) {
    throw Error("a record of several policy servers is of a log that is of events alone");
  }
  asks_.store(run.again, kRelaxed);
  Sink& sink = *this;
  if (alike_) follower_.emplace(server_, sink, seats_.size(), rows);
  if (alike_ && run.recorded) follower_->note_missed(kMostMissed + 1);
  if (rows) rows_.emplace(*rows, bytes_);
  if (begun) begin(*begun);
}

void PartService::open(Post& post) noexcept {
  post_ = &post;
  start_ = post.now();
}

std::span<std::byte> PartService::place(Peer peer, const FrameHeader& header) {
  Link& link = links_.at(peer);
  if (header.kind == kTold) {
    if (peer != first_) throw Error("a log that is not the first server's");
    return std::span(block_).first(header.length);
  }
  if (header.kind == kToldDone) {
    if (peer != first_ || !asks()) throw Error("what is done, and was not asked for");
    done_.resize(header.length / sizeof(std::uint64_t));
    if (done_.empty() || header.length != done_.size() * sizeof(std::uint64_t)) {
      throw Error("what is done, as nobody says it");
    }
    return std::as_writable_bytes(std::span(done_));
  }
  if (header.kind == kPart || header.kind == kPartPull) return place_part(link, header);
  if (header.kind == kRoundRows) return place_round_rows(link, header);
  if (header.kind == kRoundState) return place_home(peer, header.length);
  if (header.kind == kLookup) {
    check_lookup(link, header);
    return rows_->place(link.rows, header.length);
  }
  if (header.kind == kModeRead) {
    if (!rows_) throw Error("a read at a server without rows");
    return rows_->place(link.rows, header.length);
  }
  if (header.length > link.small.size()) throw Error("a frame for which there is no memory");
  return std::span(link.small).first(header.length);
}

void PartService::frame(Peer peer, const FrameHeader& header, Outbox&) {
  Link& link = links_.at(peer);
  if (!failure_.empty()) throw Error(failure_);
  switch (header.kind) {
    case kProbe:
      return post_->send(peer, {.kind = kProbe}, std::span(link.small).first(header.length), {},
                         nullptr);
    case kPartHello:
      return hello(peer, link, header.length);
    case kPartLook:
      return look(link, header.length);
    case kTold:
    case kToldAt:
      return told(peer, header);
    case kToldDone:
      return hear_done(done_);
    case kRoundState:
      return carry_out([&] { follower_->bring_home(header.correlation, std::move(home_)); });
    case kRoundTake:
      if (peer != first_) throw Error("somebody takes parameters who is not the first server");
      takes_ = frame_of<RoundEpoch>(link.small, header.length, "a position that is none").epoch;
      return answer_take();
    case kToldEnd:
      return end_asked(peer, header);
    case kModeRead:
      return read(peer, link, header);
    default:
      break;
  }
  if (!link.said) throw Error("a frame before a hello");
  switch (header.kind) {
    case kModePull:
      break;
    case kLookup:
      return look_up(peer, link, header);
    case kPart:
      return part(link, header);
    case kRoundRows:
      return round_rows(peer, link, header);
    case kPartPull:
      part(link, header);
      break;
    case kModeLeave:
      leave(link);
      end_of(peer);
      return end_if_over();
    default:
      throw Error("a frame of a kind that no worker sends");
  }
  if (alike_) throw Error("a pull, where the first server alone is asked");
  if (ended_) return end_of(peer);
  link.there = true;
  tell({PartEvent::pull, link.said->node});
}

void PartService::hello(Peer peer, Link& link, std::size_t length) {
  const auto said = frame_of<PartHello>(link.small, length, "a hello that is none");
  if (link.said || said.run != run_.run) throw Error("a worker of another run");
  if (said.terms != run_.terms) {
    throw Error("a worker of another model, rule or mode than this server has");
  }
  if (said.node >= seats_.size()) throw Error("more lanes than this server has room for");
  Seat& seat = seats_[said.node];
  if (said.node_life < seat.life) throw Error("a hello of a life that is over");
  if (seat.peer != 0) {
    replaced_.fetch_add(1, kRelaxed);
    leave(links_.at(seat.peer));
    links_.at(seat.peer).said.reset();
    post_->refuse(seat.peer);
  }
  if (!std::exchange(seat.came, true)) lanes_.fetch_add(1, kRelaxed);
  seat.peer = peer;
  seat.life = said.node_life;
  link.said = said;
  link.there = true;
  const ModeWelcome welcome{run_.boot, server_.holder().dimension(), server_.largest_lease(),
                            said.node, said.node_life};
  post_->send(peer, {.kind = kModeWelcome}, std::as_bytes(std::span(&welcome, 1)), {}, nullptr);
  if (seat.pulled) send(seat);
}

void PartService::part(Link& link, const FrameHeader& header) {
  check_part(link, header);  // unasked it may have been granted another lease since place()
  const std::uint64_t ticket = header.correlation;
  link.granted.reset();
  ++link.parts;
  Seat& seat = seats_[link.said->node];
  if (seat.head.ticket == ticket) seat.pulled.reset();
  pushes_.fetch_add(1, kRelaxed);
  const std::size_t dimension = server_.holder().dimension();
  PartTail tail;
  std::memcpy(&tail, link.values.data() + dimension, sizeof tail);
  const auto finite_from = [&](std::size_t begin, std::size_t floats) {
    return update_kernels().first_not_finite(link.values.data() + begin, floats) == floats;
  };
  const bool finite =
      finite_from(0, dimension) && finite_from(dimension + kPartTailFloats, link.rows.floats);
  if (!finite) not_finite_.fetch_add(1, kRelaxed);
  if (tail.count > server_.largest_lease()) throw Error("a part of more examples than a lease has");
  examples_.fetch_add(tail.count, kRelaxed);
  count_ever(run_.ever, tail.count);
  if (alike_) return part_of_log(link, ticket, tail, finite);
  if (ended_) return;
  RowPush rows;
  if (rows_) take_rows(link, dimension + kPartTailFloats, rows);
  Payload payload{finite ? &link.values : nullptr, tail.count};
  if (rows_ && finite) {
    payload.rows = &rows.keys;
    payload.row_gradients = &rows.gradients;
  }
  modes::Event event{PartEvent::push, link.said->node, ticket, link.version};
  event.lease = {ticket, tail.number, tail.first, tail.count, tail.token};
  tell(event, &payload);
  if (rows_) let_go_rows(link, rows);
}

void PartService::part_of_log(Link& link, std::uint64_t ticket, const PartTail& tail, bool finite) {
  const auto [node, life] = std::pair(link.said->node, std::uint64_t{link.said->node_life});
  RowPush rows;
  if (rows_) take_rows(link, server_.holder().dimension() + kPartTailFloats, rows);
  carry_out([&] {
    if (!finite) {
      follower_->lose(node, life, ticket);
    } else if (!follower_->take(node, life, ticket, tail.count, link.values,
                                rows_ ? &rows : nullptr)) {
      late_parts_.fetch_add(1, kRelaxed);
    }
  });
  if (rows_) let_go_rows(link, rows);
  answer_looks();
}

void PartService::look(Link& link, std::size_t length) {
  const auto said = frame_of<PartLook>(link.small, length, "a look that is none");
  if (said.run != run_.run || said.terms != run_.terms) {
    throw Error("somebody of another run, model, rule or mode looks");
  }
  link.looks = said.position;
  answer_looks();
}

// A copy: who does not read it must not keep a version from going.
void PartService::answer_looks() {
  answer_take();
  answer_end();
  std::shared_ptr<const std::vector<float>> copy;
  for (auto& [peer, link] : links_) {
    if (!link.looks || *link.looks > position()) continue;
    link.looks.reset();
    looks_.fetch_add(1, kRelaxed);
    const std::size_t dimension = server_.holder().dimension();
    const ParameterVector::Pin latest = server_.holder().pull();
    if (!copy) {
      copy = std::make_shared<const std::vector<float>>(latest.data(), latest.data() + dimension);
    }
    const ModeCounts& counts = server_.counts();
    const ModeLooked looked{
        run_.boot, latest.t(), counts.applied,   counts.late, counts.stale, counts.straggler,
        0,         0,          counts.exchanges, dimension,   position(),   counts.rows};
    const auto theta = std::as_bytes(std::span(*copy));
    post_->send(peer, {.kind = kModeLooked}, std::as_bytes(std::span(&looked, 1)), {&theta, 1},
                copy);
  }
}

void PartService::told(Peer peer, const FrameHeader& header) {
  if (links_.at(peer).said) throw Error("a worker is no policy server");
  if (header.kind == kToldAt) {
    const auto said =
        frame_of<ToldAt>(links_.at(peer).small, header.length, "a position that is none");
    if (first_boot_ != 0 && said.boot != first_boot_) {
      failure_ = "the first policy server was started again; start the run again";
      throw Error(failure_);
    }
    first_boot_ = said.boot;
    if (asks() && !alike_) heard_ = said.position;
    if (asks() && alike_) {
      carry_out([&] { follower_->comes_from_line(said.position); });
      asks_.store(false, kRelaxed);
    }
    // (What it was saying comes no more: parameters that come have one place.)
    if (first_ != 0 && first_ != peer) post_->refuse(first_);
    first_ = peer;
    follows_.store(true, kRelaxed);
    return;
  }
  carry_out([&] {
    if (read_.read(std::span(block_).first(header.length)) != header.length) {
      throw Error("a block of the first server's log is not whole");
    }
    if (!run_.reduces && std::ranges::any_of(read_.lines, [](const LogLine& line) {
          return line.note != LogLine::Note::none;
        })) {
      throw Error("the first server tells of sums of workers, and this one does not");
    }
    alike_ ? follower_->hear(read_) : hear_first();
  });
  const std::uint64_t heard = alike_ ? follower_->heard() : heard_;
  const bool keeps = alike_ && !run_.ever.empty();
  const ToldAt at{heard, run_.boot, keeps ? kept_ : heard};
  post_->send(peer, {.kind = kToldAt}, std::as_bytes(std::span(&at, 1)), {}, nullptr);
  end_if_over();
  answer_looks();
}

void PartService::hear_first() {
  for (const LogLine& line : std::span(read_.lines)) {
    const modes::Event& event = line.event;
    if (event.kind == PartEvent::data_end) over_ = true;
    if (event.kind != PartEvent::push) continue;
    if (event.node >= seats_.size()) throw Error("a node for which this server has no room");
    Seat& seat = seats_[event.node];
    seat.rest_life = event.version;
    seat.rest_pushes = event.ticket;
  }
  heard_ = std::max(heard_, read_.first + read_.lines.size());
}

void PartService::hear_done(std::span<const std::uint64_t> words) {
  const std::uint64_t leased = words[0], batch = server_.largest_lease();
  const std::uint64_t next = (leased + batch - 1) / batch;
  std::vector<std::uint64_t> unfinished(words.begin() + 1, words.end());
  std::ranges::sort(unfinished);
  const std::vector<modes::LeaseList::Span> had = server_.machine().had();
  auto span = had.begin();
  for (std::uint64_t number = 0; number < next; ++number) {
    while (span != had.end() && span->last < number) ++span;
    if (span != had.end() && span->first <= number) {
      number = span->last;
    } else if (!std::ranges::binary_search(unfinished, number)) {
      miss(number, leased);
    }
  }
  asks_.store(false, kRelaxed);
}

// As a push that is lost with its worker; nobody has come yet, so it is anybody's. Whatever is as
// stale as it may be counts as stale, and this as missing: its token is the last.
void PartService::miss(std::uint64_t number, std::uint64_t leased) {
  constexpr Node kAnybody = 0;
  const std::uint64_t batch = server_.largest_lease(), first = number * batch;
  tell({PartEvent::pull, kAnybody});
  const GrantHead head = seats_[kAnybody].head;
  const std::uint64_t count = std::min(batch, leased - first);
  modes::Event event{PartEvent::push, kAnybody, head.ticket, head.version};
  event.lease = {head.ticket, number, first, count, std::numeric_limits<std::uint64_t>::max()};
  const Payload lost{nullptr, count};
  tell(event, &lost);
  tell({PartEvent::leave, kAnybody});
  seats_[kAnybody].pulled.reset();
}

void PartService::leave(Link& link) {
  link.granted.reset();
  if (rows_) rows_->let_go(link.rows);
  if (!std::exchange(link.there, false)) return;
  if (!alike_) {
    seats_[link.said->node].pulled.reset();
    if (!ended_) tell({PartEvent::leave, link.said->node});
    return;
  }
  carry_out([&] {
    constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
    follower_->comes_from(link.said->node, link.said->node_life, kNone);
  });
  answer_looks();
}

void PartService::gone(Peer peer) noexcept {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  Link& link = found->second;
  try {
    if (link.said) {
      seats_[link.said->node].peer = 0;
      if (failure_.empty()) leave(link);
    }
    if (peer == first_ || first_ == 0) {
      first_ = 0;
      takes_.reset();  // and is asked anew
      end_asked_.reset();
      follows_.store(false, kRelaxed);
    }
    if (rows_) rows_->let_go(link.rows);
    bytes_.fetch_sub(link.values.size() * sizeof(float) + link.rows.bytes(), kRelaxed);
    links_.erase(found);
    if (failure_.empty()) end_if_over();
  } catch (const std::exception&) {  // carry_out() keeps why
    links_.erase(peer);
  }
}

ToldHello PartService::follow() {
  follows_.store(true, kRelaxed);
  return {run_.run, run_.terms, run_.boot, alike_ ? follower_->heard() : heard_, asks()};
}

void PartService::follows_none() { follows_.store(first_ != 0, kRelaxed); }

void PartService::let_go(std::uint64_t first_client, std::uint64_t clients) {
  for (const Seat& seat : seats_) {
    if (seat.peer == 0) continue;
    const std::uint64_t client = links_.at(seat.peer).said->client;
    if (client >= first_client && client - first_client < clients) post_->refuse(seat.peer);
  }
}

std::uint64_t PartService::position() const {
  if (alike_) return follower_->position();
  return over_ && !ended_ ? 0 : heard_;
}

void PartService::end_if_over() {
  if (alike_ || !over_ || ended_) return;
  if (std::ranges::any_of(links_, [](const auto& one) { return one.second.there; })) return;
  for (Node node = 0; node < seats_.size(); ++node) tell({PartEvent::leave, node});
  tell({PartEvent::data_end});
  ended_ = true;
  answer_looks();
}

void PartService::tell(modes::Event event, const Payload* payload) {
  carry_out([&] { server_.handle(event, payload, Time{post_->now() - start_}, *this); });
}

void PartService::carry_out(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    failure_ = error.what();
    for (const auto& [peer, link] : links_) post_->refuse(peer);
    throw;
  }
}

void PartService::grant(Grant grant) {
  const modes::Lease& lease = grant.lease;
  if (lease.count == 0) return;  // the end comes
  Seat& seat = seats_.at(grant.node);
  seat.head = {lease.ticket,  lease.number, lease.first, lease.count, lease.token,
               grant.version, grant.t,      grant.n,     grant.c};
  seat.pulled = std::make_shared<const ParameterVector::Pin>(std::move(grant.pulled));
  seat.lease_alone = run_.reduces && !follower_->grants();
  if (seat.peer != 0) send(seat);
}

// (A lease alone, of which no rows are looked up, nobody waits for: it would only fill the way to
// who sums on while this server is behind.)
void PartService::send(const Seat& seat) {
  if (seat.lease_alone && !rows_) return;
  Link& link = links_.at(seat.peer);
  if (rows_ && link.rows.ticket != seat.head.ticket) rows_->let_go(link.rows);
  link.granted = seat.head.ticket;
  link.version = seat.head.version;
  const auto theta = std::as_bytes(std::span(seat.pulled->data(), server_.holder().dimension()));
  grants_.fetch_add(seat.lease_alone ? 0 : 1, kRelaxed);
  const std::size_t parts = seat.lease_alone ? 0 : 1;
  post_->send(seat.peer, {.kind = kGrant, .correlation = seat.head.ticket},
              std::as_bytes(std::span(&seat.head, 1)), {&theta, parts}, seat.pulled);
}

void PartService::settled(Node, const Publication& publication) {
  if (!publication.published) return;
  published_.fetch_add(1, kRelaxed);
  staleness_.fetch_add(publication.staleness_compute + publication.staleness_schedule, kRelaxed);
}

void PartService::end(Node node) {
  if (!alike_ && seats_.at(node).peer != 0) end_of(seats_[node].peer);
}

void PartService::end_of(Peer peer) {
  const ModeEnd end{server_.holder().pull().t()};
  post_->send(peer, {.kind = kModeEnd}, std::as_bytes(std::span(&end, 1)), {}, nullptr);
}

PartService::Counters PartService::counters() const {
  return {grants_.load(kRelaxed),     pushes_.load(kRelaxed),
          examples_.load(kRelaxed),   not_finite_.load(kRelaxed),
          late_parts_.load(kRelaxed), strange_.load(kRelaxed),
          replaced_.load(kRelaxed),   lanes_.load(kRelaxed),
          looks_.load(kRelaxed),      published_.load(kRelaxed),
          staleness_.load(kRelaxed),  bytes_.load(kRelaxed),
          lookups_.load(kRelaxed),    reads_.load(kRelaxed),
          looked_up_.load(kRelaxed),  rows_ ? rows_->moved() : LaneRows::Moved{}};
}

}  // namespace leashed
