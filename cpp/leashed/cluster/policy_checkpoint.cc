#include "leashed/cluster/policy_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/base/relaxed.h"
#include "leashed/cluster/part_service.h"
#include "leashed/cluster/policy_service.h"
#include "leashed/discipline/context.h"
#include "leashed/discipline/observed.h"
#include "leashed/server/own_models.h"
#include "leashed/staleness/statistics.h"

namespace leashed {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 62;  // nanoseconds that runs may have taken

void visit_told(Archive& archive, std::int64_t& ns, std::vector<DueEvent>& due) {
  std::uint64_t layout = kModeLayout;
  archive(layout);
  archive.require(layout == kModeLayout);
  archive(ns, due);
  archive.require(ns >= 0 && ns <= kMost);
}

// Whoever goes on on threads begins with models that have taken nothing yet.
void visit_workers(Archive& archive, ParameterServer& server, const Rule& rule,
                   const StalenessPolicy& policy) {
  const std::size_t nodes = server.nodes();
  const Holder& holder = server.holder();
  OwnModels models(server, {holder.held(), holder.dimension(), nodes, 1, rule, policy});
  std::vector<WorkerState> workers(nodes);
  archive(models);
  for (WorkerState& worker : workers) archive(worker);
}

}  // namespace

TakenMode take_mode(std::int64_t ns, std::vector<DueEvent> due, ParameterServer& server,
                    const Rule& rule, const StalenessPolicy& policy) {
  TakenMode taken;
  taken.state.position.updates = server.holder().pull().t();
  const Holder& holder = server.holder();
  taken.state.assign({holder.held(), taken.state.position.updates}, holder.updater().layout());
  Archived& mode = taken.state.mode;
  Archive archive(mode);
  visit_told(archive, ns, due);
  std::size_t at = mode.words.size();
  archive(server);
  const std::vector<std::uint64_t> numbers = archive.expected();
  taken.rows_end = mode.words.size();
  visit_workers(archive, server, rule, policy);
  // As ParameterServer::visit has it: the machine, of each node two words, of each slot six.
  Archived machine;
  modes::ServerPolicy decides = server.machine();
  Archive counted(machine);
  counted(decides);
  at += machine.words.size();
  at += 1 + 2 * mode.words[at];
  const std::size_t slots = mode.words[at++];
  for (std::size_t slot = 0; slot < slots; ++slot, at += 6) {
    const bool lost = mode.words[at + 5] != 0;
    taken.held.push_back(lost || slot >= numbers.size() ? 0 : numbers[slot] + 1);
  }
  taken.rows_begin = at;
  for (const modes::Lease& lease : decides.unfinished()) {
    taken.unfinished.emplace_back(lease.number, lease.count);
  }
  for (const modes::LeaseList::Span& span : decides.had()) {
    taken.had.emplace_back(span.first, span.last);
  }
  return taken;
}

std::vector<DueEvent> begin_mode(const BegunMode& begun, ParameterServer& server, Sink& sink,
                                 const Rule& rule, const StalenessPolicy& policy,
                                 std::int64_t& ns) {
  // Nodes beyond those that the mode begins with have joined since.
  for (modes::Node node = 0; node < server.nodes(); ++node) {
    server.handle({modes::Event::Kind::join, node}, nullptr, Time{0}, sink);
  }
  Archive archive(begun.mode);
  std::vector<DueEvent> due;
  visit_told(archive, ns, due);
  archive(server);
  visit_workers(archive, server, rule, policy);
  archive.finish();
  return due;
}

void leave_beyond(std::size_t lanes, ParameterServer& server, Sink& sink, std::int64_t ns) {
  for (auto node = static_cast<modes::Node>(lanes); node < server.nodes(); ++node) {
    server.handle({modes::Event::Kind::leave, node}, nullptr, Time{ns}, sink);
  }
}

void PolicyService::hold(bool holds) {
  if (std::exchange(holds_, holds) == holds) return;
  told_rest_ = false;
  if (holds) {
    if (rounds_) rounds_->hold(true);
    return;
  }
  for (auto& [peer, link] : links_) {
    if (auto kept = std::exchange(link.kept, std::nullopt)) send(peer, std::move(*kept));
  }
  if (rounds_) rounds_->hold(false);  // who has been granted something waits for no round
}

bool PolicyService::at_rest() {
  const bool leased = std::ranges::any_of(links_, [this](const auto& one) {
    const Link& link = one.second;
    if (!link.node || !link.leased) return false;
    const auto its = server_.lease(*link.node);
    return its && its->lease.ticket == link.leased->ticket;
  });
  if (leased || (rounds_ && !rounds_->rests())) return false;
  if (told_ && holds_ && !run_.alike && !std::exchange(told_rest_, true)) tell_rest();
  return !told_ || told_->all_heard();
}

// Servers that decide by themselves have to know which parts are still to come to them.
void PolicyService::tell_rest() {
  for (const auto& [client, lane] : lanes_) {
    modes::Event line{modes::Event::Kind::push, lane.node, 0, lives_[lane.node]};
    if (const Peer peer = peers_[lane.node]; peer != 0) {
      line.ticket = links_.at(peer).pushes;
      line.version = links_.at(peer).life;
    }
    told_->append(line, Time{elapsed()});
  }
  told_->send(*post_);
}

TakenMode PolicyService::take(std::vector<DueEvent> commands) {
  for (const std::int64_t at : due_) commands.push_back({at});
  TakenMode taken = take_mode(elapsed(), std::move(commands), server_, rule_, policy_);
  if (const StalenessStatistics* const all = policy_.statistics()) {
    all->save(taken.state.staleness);
  }
  return taken;
}

std::uint64_t PolicyService::position() const { return told_ ? told_->position() : 0; }

void PolicyService::begin(const Begun& begun) {
  const auto still = begin_mode(begun, server_, *this, rule_, policy_, begun_ns_);
  due_.clear();
  for (const DueEvent& one : still) {
    if (one.event.kind == modes::Event::Kind::wake) due_.insert(one.ns);
  }
  awaited_.assign(server_.nodes(), true);
  if (rounds_) rounds_->begin(most_lanes_);
  if (begun.served) {
    Archive served(*begun.served);
    visit_served(served);
    served.finish();
  } else {
    leave_beyond(most_lanes_, server_, *this, begun_ns_);
  }
  // (Who has a lease is granted it again, and would make one update more.)
  if (run_.updates != StopRules::kNone && server_.updates() >= run_.updates) finish();
}

void PolicyService::let_go_absent() {
  for (modes::Node node = 0; node < awaited_.size() && !finished_; ++node) {
    if (awaited_[node]) tell({modes::Event::Kind::leave, node});
  }
  awaited_.clear();
}

Archived PolicyService::served() {
  Archived served;
  Archive archive(served);
  visit_served(archive);
  return served;
}

void PolicyService::visit_served(Archive& archive) {
  struct Known {
    std::uint64_t client = 0, life = 0;

    void visit(Archive& to) { to(client, life); }
  };
  std::vector<Known> known(lanes_.size());  // by node
  for (const auto& [client, lane] : lanes_) known[lane.node] = {client, lane.life};
  archive(known);
  archive.require(known.size() <= peers_.size());
  archive.of_each(lost_tickets_);
  archive.of_each(lives_);
  server_.visit_counts(archive);
  for (std::atomic<std::uint64_t>* const count :
       {&pulls_, &grants_, &pushes_, &not_finite_, &strange_, &replaced_, &departures_, &lost_,
        &unused_, &looks_, &commands_, &published_, &staleness_, &pushed_examples_}) {
    std::uint64_t value = count->load(kRelaxed);
    archive(value);
    if (archive.reads()) count->store(value, kRelaxed);
  }
  std::uint64_t last = last_command_;
  archive(last);
  if (rounds_) visit_rounds(archive);
  if (!archive.reads()) return;
  last_command_ = static_cast<std::uint32_t>(last);
  for (modes::Node node = 0; node < known.size(); ++node) {
    lanes_.emplace(known[node].client, Lane{node, known[node].life, 0});
  }
  archive.require(lanes_.size() == known.size());  // no two are alike
  lanes_count_.store(known.size(), kRelaxed);
}

void PolicyService::visit_rounds(Archive& archive) {
  std::uint64_t summed = summed_.load(kRelaxed), examples = summed_examples_.load(kRelaxed);
  archive(summed, examples);
  rounds_->visit(archive);
  summed_.store(summed, kRelaxed);
  summed_examples_.store(examples, kRelaxed);
}

void PolicyService::grant_again(modes::Node node) {
  const modes::LeaseList::Taken its = *server_.lease(node);
  ParameterVector::Pin latest = server_.holder().pull();
  const std::uint64_t t = latest.t();
  server_.pulled_again(node, t);
  grant({node, its.lease, its.version, 0, 0, std::move(latest), t});
}

// A life that is over at the first server ends here too, and until then parts of it may come; one
// that has begun since had no part when the first was at rest. (What it has not heard yet, being
// started again, may be long done at the first.)
bool PartService::at_rest() const {
  if (asks()) return false;
  if (alike_) return follower_ && !follower_->waits();
  if (over_) return ended_;
  return std::ranges::none_of(seats_, [this](const Seat& seat) {
    if (seat.peer == 0 || seat.life > seat.rest_life) return false;
    return seat.life < seat.rest_life || links_.at(seat.peer).parts < seat.rest_pushes;
  });
}

// Its time, and what the mode is still to be told, are the first server's.
TakenMode PartService::take() { return take_mode(0, {}, server_, rule_, policy_); }

Archived PartService::served() {
  Archived served;
  Archive archive(served);
  visit_served(archive);
  return served;
}

// By the log, whose lease is over and who has not heard of that is told of it as well: he waits for
// it. (Leases that are not over begin() grants.)
void PartService::visit_granted(Archive& archive) {
  struct Told {
    std::uint64_t node = 0;
    GrantHead head{};

    void visit(Archive& to) {
      to(node, head.ticket, head.number, head.first, head.count, head.token, head.version, head.t);
      to(head.n, head.c);
    }
  };
  std::vector<Told> told;
  for (std::uint64_t node = 0; alike_ && node < seats_.size(); ++node) {
    if (seats_[node].pulled) told.push_back({node, seats_[node].head});
  }
  archive(told);
  if (!archive.reads()) return;
  for (const Told& one : told) {
    archive.require(one.node < seats_.size());
    if (server_.lease(static_cast<modes::Node>(one.node))) continue;
    Seat& seat = seats_[one.node];
    seat.head = one.head;
    seat.pulled = std::make_shared<const ParameterVector::Pin>(server_.holder().pull());
    seat.head.t = seat.pulled->t();
  }
}

std::pair<std::uint64_t, std::uint64_t> PartService::used() const {
  std::pair<std::uint64_t, std::uint64_t> there;
  if (follower_) there = follower_->there();
  return {pushes_.load(kRelaxed) - there.first, examples_.load(kRelaxed) - there.second};
}

void PartService::visit_served(Archive& archive) {
  if (follower_) archive(*follower_);
  if (follower_ && archive.reads()) kept_ = follower_->position();
  std::vector<std::uint64_t> lives;  // by node, and one more; 0: nobody has come
  for (const Seat& seat : seats_) lives.push_back(seat.came ? std::uint64_t{seat.life} + 1 : 0);
  archive.of_each(lives);
  server_.visit_counts(archive);
  for (std::atomic<std::uint64_t>* const count :
       {&grants_, &not_finite_, &late_parts_, &strange_, &replaced_, &lanes_, &looks_, &published_,
        &staleness_}) {
    std::uint64_t value = count->load(kRelaxed);
    archive(value);
    if (archive.reads()) count->store(value, kRelaxed);
  }
  auto [pushes, examples] = used();
  archive(pushes, examples);
  visit_granted(archive);
  if (!archive.reads()) return;
  pushes_.store(pushes, kRelaxed);
  examples_.store(examples, kRelaxed);
  for (modes::Node node = 0; node < seats_.size(); ++node) {
    seats_[node].came = lives[node] > 0;
    if (lives[node] > 0) seats_[node].life = static_cast<std::uint32_t>(lives[node] - 1);
  }
}

// Who has a lease is granted it again: the first server does so when its lane pulls.
void PartService::begin(const BegunMode& begun) {
  std::int64_t ns = 0;
  begin_mode(begun, server_, *this, rule_, policy_, ns);
  if (begun.served) {
    Archive served(*begun.served);
    visit_served(served);
    served.finish();
  }
  if (!alike_) {  // nobody is here yet, and who comes pulls
    if (begun.leads) server_.follow();
    return leave_beyond(0, server_, *this, ns);
  }
  if (!begun.served)
    leave_beyond(begun.lanes, server_, *this, ns);  // (else the log says who leaves)
  for (modes::Node node = 0; node < server_.nodes(); ++node) {
    const auto its = server_.lease(node);
    if (!its || seats_[node].pulled) continue;
    ParameterVector::Pin latest = server_.holder().pull();
    const std::uint64_t t = latest.t();
    server_.pulled_again(node, t);
    grant({node, its->lease, its->version, 0, 0, std::move(latest), t});
  }
}

}  // namespace leashed
