#include "leashed/cluster/led_rounds.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/net/direct_reduce.h"
#include "leashed/policy/automatic.h"
#include "leashed/policy/gba.h"
#include "leashed/policy/hop_bw.h"

namespace leashed {
namespace {

using modes::Node;

// Of the machines that have rounds, the one that it is.
template <class F>
auto of_machine(const modes::ServerPolicy& machine, const F& f) {
  if (const auto* const gba = machine.as<modes::Gba>()) return f(*gba);
  if (const auto* const own = machine.as<modes::Automatic>()) return f(*own);
  return f(*machine.as<modes::HopBw>());
}

bool has_rounds(const modes::ServerPolicy& machine) {
  const bool one =
      machine.as<modes::Gba>() || machine.as<modes::Automatic>() || machine.as<modes::HopBw>();
  return one && machine.rule().model != modes::WorkerRule::Model::own;
}

std::optional<LedReplica> replica_of(const ParameterServer& server, const ModeShards* shards) {
  if (!shards) return std::nullopt;
  const Layout own = server.holder().updater().layout();
  return LedReplica(*shards, {shards->dimension(), own.states});
}

constexpr int kOfProcess = 32;  // bits that count the epochs, and the bases, of one process

}  // namespace

LedRounds::LedRounds(RoundDesk& desk, ParameterServer& server, const ModeShards* shards,
                     std::uint64_t again)
    : desk_(desk),
      server_(server),
      leader_(*this, again << kOfProcess),
      shards_(shards),
      replica_(replica_of(server, shards)),
      floats_(replica_ ? replica_->floats() : server.holder().updater().layout().length()),
      present_(server.nodes(), true),
      leased_(server.nodes()),
      base_((again << kOfProcess) + 1) {
  if (!has_rounds(server.machine())) {
    throw Error("this mode has no rounds of all-reduce; take sync, switching or automatic");
  }
  if (again > DirectReduce::kLastEpoch >> kOfProcess) {
    throw Error("the policy server of an all-reduce is started again " +
                std::to_string(DirectReduce::kLastEpoch >> kOfProcess) +
                " times at most; go on from a checkpoint, or begin another run");
  }
  if (server.nodes() > kMostMembers) {
    throw Error("all-reduce is of at most " + std::to_string(kMostMembers) +
                " workers, each connected with each, and there are " +
                std::to_string(server.nodes()) + "; let the policy server sum");
  }
  if (floats_ > kMostParameters) {
    throw Error("all-reduce moves at most " + std::to_string(kMostParameters) +
                " parameters and states of a rule, and there are " + std::to_string(floats_) +
                "; let the policy server sum");
  }
}

bool LedRounds::in_sync() const {
  return of_machine(server_.machine(), [](const auto& machine) {
    if constexpr (requires { machine.mode(); }) return machine.mode() == modes::Gba::Mode::sync;
    return true;
  });
}

void LedRounds::reach(Node node) {
  if (node < present_.size()) return;
  present_.resize(std::size_t{node} + 1);
  leased_.resize(present_.size());
}

void LedRounds::granted(Node node) {
  reach(node);
  leased_[node] = true;
}

// (A lease that is over is another's, and its node is gone: who waits for a round enters anew.)
void LedRounds::told(const modes::Event& event) {
  reach(event.node);
  switch (event.kind) {
    case modes::Event::Kind::pull:
      present_[event.node] = true;
      break;
    case modes::Event::Kind::push:
      if (!server_.lease(event.node)) leased_[event.node] = false;
      break;
    case modes::Event::Kind::leave:
      present_[event.node] = leased_[event.node] = false;
      break;
    case modes::Event::Kind::wake:
      for (Node node = 0; node < leased_.size(); ++node) {
        if (!leased_[node] || server_.lease(node)) continue;
        present_[node] = leased_[node] = false;
        for (auto& one : waiting_ | std::views::values) one.told = one.told && one.node != node;
      }
      break;
    default:
      break;
  }
}

bool LedRounds::wants() const {
  if (wanted_ || holding_ || stays_ || !in_sync()) return true;
  return std::ranges::any_of(waiting_, [](const auto& one) { return !one.second.member; });
}

// What a member was leased meanwhile, as a batch that came back, is computed first: the mode waits
// for it.
void LedRounds::tell_wish() {
  const bool waits = in_sync() && std::ranges::any_of(waiting_, [&](const auto& each) {
                       const Waiting& one = each.second;
                       return one.member && !one.ticket && server_.lease(one.node);
                     });
  leader_.want_server(wants() && !waits);
}

bool LedRounds::may_begin() const {
  if (!in_sync()) return false;
  std::vector<bool> there(present_.size());
  bool leased = false;
  for (const auto& [life, one] : waiting_) {
    if (one.node < there.size()) there[one.node] = true;
    leased = leased || server_.lease(one.node);
  }
  for (Node node = 0; node < there.size(); ++node) {
    if (present_[node] && !there[node]) return false;
  }
  return leased;
}

template <class Do>
void LedRounds::within(const Do& act) {
  struct Busy {
    explicit Busy(bool& flag) : busy(flag) { busy = true; }
    ~Busy() { busy = false; }
    bool& busy;
  };
  {
    const Busy busy(busy_);
    tell_wish();
    act();
  }
  settle();
}

void LedRounds::pull(Peer peer, Node node) {
  const auto found = waiting_.find(peer);
  if (found != waiting_.end() && found->second.member) {
    throw Error("a pull of who is in a round");
  }
  waiting_.insert_or_assign(peer, Waiting{.node = node});
  settle();
}

void LedRounds::gone(Peer peer, Node node, bool tells) {
  coming_.erase(peer);
  waiting_.erase(peer);
  within([&] {
    if (tells) desk_.tell_mode({modes::Event::Kind::leave, node});
    tell_wish();
    leader_.gone(peer);
  });
}

void LedRounds::vote(Peer peer, const RoundVote& said) {
  within([&] {
    try {
      leader_.vote(peer, said.epoch, said.checksum);
    } catch (const Error& error) {
      desk_.fail_rounds(error.what());
      throw;
    }
  });
}

bool LedRounds::gives(Peer peer) const {
  const auto found = waiting_.find(peer);
  return found != waiting_.end() && found->second.ticket.has_value();
}

void LedRounds::again(Peer peer, const RoundEpoch& said) {
  within([&] { leader_.again(peer, said.epoch); });
}

void LedRounds::take(Peer peer, const RoundEpoch& said) {
  if (!leader_.running() || said.epoch != leader_.epoch()) return;  // it will hear of another
  const float* const held = server_.holder().held();
  if (!replica_) {
    auto copy = std::make_shared<AlignedArray<float>>(kStateFloats + floats_);
    std::copy_n(held, floats_, copy->data() + kStateFloats);
    return send_state(peer, copy);
  }
  const std::uint64_t version = leader_.version();
  if (const auto state = replica_->of(version)) return send_state(peer, state);
  if (std::ranges::count(takers_, peer) == 0) takers_.push_back(peer);
  const std::uint64_t position = desk_.log_position();
  if (!replica_->collect(version, position, held)) return;
  for (std::uint64_t s = 1; s < shards_->servers(); ++s) desk_.ask_part(s, position);
}

void LedRounds::send_state(Peer peer, const LedReplica::State& state) {
  const StateHead head{leader_.epoch(), leader_.version(), {}};
  const auto buffer = std::as_bytes(std::span<const float>(state->data() + kStateFloats, floats_));
  post_->send(peer, {.kind = kRoundState}, std::as_bytes(std::span(&head, 1)), {&buffer, 1}, state);
}

std::span<std::byte> LedRounds::place_part(std::uint64_t server, std::size_t length) {
  if (!replica_) throw Error("a part of a replica that is whole at one server");
  return replica_->place(server, length);
}

void LedRounds::part_came(std::uint64_t server, std::uint64_t position) {
  if (!replica_->came_of(server, position)) return;
  const auto state = replica_->of(leader_.version());
  for (const Peer peer : std::exchange(takers_, {})) {
    if (state) send_state(peer, state);
  }
}

void LedRounds::follows(std::uint64_t server) {
  const auto position = replica_ ? replica_->wanted(server) : std::nullopt;
  if (position) desk_.ask_part(server, *position);
}

std::span<std::byte> LedRounds::place(Peer peer, std::size_t length) {
  const std::size_t floats = kStateFloats + floats_;
  const auto found = waiting_.find(peer);
  if (found == waiting_.end() || !found->second.member || length != floats * sizeof(float)) {
    throw Error("θ and states of who is no member, or of another model");
  }
  AlignedArray<float>& to = coming_[peer];
  if (to.size() == 0) to = AlignedArray<float>(floats);
  return std::as_writable_bytes(std::span(to.data(), floats));
}

void LedRounds::state(Peer peer) {
  AlignedArray<float> came = std::move(coming_.at(peer));
  coming_.erase(peer);
  StateHead head;
  std::memcpy(&head, came.data(), sizeof head);
  within([&] {
    const std::uint64_t here = server_.updates() - server_.reduced();
    if (leader_.left(peer, head.version)) {
      take_home(std::move(came), head.version, head.version - here);
    }
    if (head.version == server_.updates()) leader_.state(peer, head.version);
  });
}

void LedRounds::take_home(AlignedArray<float> came, std::uint64_t version, std::uint64_t newer) {
  const float* const whole = came.data() + kStateFloats;
  const ToldLog::Part own = replica_ ? replica_->part(0, whole) : nullptr;
  server_.come_home(own ? own->data() : whole, newer);
  since_.erase(since_.begin(), since_.begin() + static_cast<std::ptrdiff_t>(newer));
  if (!replica_) return;
  std::vector<ToldLog::Part> others;
  for (std::size_t s = 1; s < shards_->servers(); ++s) others.push_back(replica_->part(s, whole));
  desk_.tell_home(newer, std::move(others));
  replica_->came(version, std::move(came));
}

void LedRounds::want_home() {
  wanted_ = true;
  settle();
}

void LedRounds::hold(bool holds) {
  holding_ = holds;
  settle();
}

void LedRounds::begin(std::size_t lanes) {
  present_.assign(server_.nodes(), false);
  leased_.assign(server_.nodes(), false);
  for (Node node = 0; node < present_.size(); ++node) {
    present_[node] = node < lanes;
    leased_[node] = server_.lease(node).has_value();
  }
}

void LedRounds::stay_home(bool stays) {
  stays_ = stays;
  settle();
}

void LedRounds::visit(Archive& archive) {
  archive(present_);
  present_.resize(std::max(present_.size(), leased_.size()));
  leased_.resize(present_.size());
  for (std::atomic<std::uint64_t>* const count :
       {&rounds_, &updates_, &homes_, &lost_updates_, &lost_examples_}) {
    std::uint64_t value = count->load(kRelaxed);
    archive(value);
    if (archive.reads()) count->store(value, kRelaxed);
  }
}

bool LedRounds::ends(Node node) {
  if (!in_rounds_) return true;
  for (auto& one : waiting_ | std::views::values) {
    if (one.node == node) one.told = false;  // and asks anew
  }
  return false;
}

void LedRounds::settle() {
  if (busy_) return;
  refuse_expired();
  if (leader_.running()) return tell_wish();
  wanted_ = false;
  if (holding_) return;
  grant_waiting();
  if (stays_ || !may_begin()) return;
  within([&] {
    in_rounds_ = true;
    for (const Life life : std::exchange(came_, {})) leader_.gone(life);
    for (auto& [life, one] : waiting_) {
      one.member = true;
      leader_.come(life);
      came_.push_back(life);
    }
    // A sum that somebody voted for, and that did not count, is not the update that was made here.
    if (std::exchange(home_, server_.updates()) != server_.updates()) ++base_;
    leader_.want_server(false);
    leader_.begin(server_.updates());
  });
}

void LedRounds::refuse_expired() {
  for (bool some = true; some && leader_.running();) {
    some = false;
    for (auto& [life, one] : waiting_) {
      if (!one.ticket) continue;
      const auto its = server_.lease(one.node);
      if (its && its->lease.ticket == one.ticket->number) continue;
      const Life over = life;
      waiting_.erase(over);
      desk_.refuse_member(over);
      busy_ = true;
      tell_wish();
      leader_.gone(over);
      busy_ = false;
      some = true;
      break;
    }
  }
}

// The parameters are here. (Whoever is answered waits no more.)
void LedRounds::grant_waiting() {
  busy_ = true;
  std::vector<Life> all;
  for (const auto& [life, one] : waiting_) all.push_back(life);
  for (const Life life : all) {
    const auto found = waiting_.find(life);
    if (found == waiting_.end()) continue;
    Waiting& one = found->second;
    if (!one.told && !server_.lease(one.node)) {
      tell_pull(one);
    } else if (!in_sync() && server_.lease(one.node)) {
      desk_.grant_leased(one.node);
    }
  }
  busy_ = false;
}

void LedRounds::tell_pull(Waiting& waiting) {
  waiting.told = true;
  desk_.tell_mode({modes::Event::Kind::pull, waiting.node});
}

std::optional<RoundTicket> LedRounds::lend(Life life) {
  Waiting& one = waiting_.at(life);
  if (!in_sync()) return std::nullopt;
  if (!one.told && !server_.lease(one.node) && !wants()) tell_pull(one);
  const auto its = server_.lease(one.node);
  if (!its || !in_sync()) return std::nullopt;
  one.ticket = RoundTicket{its->lease.ticket, its->lease.number};
  return one.ticket;
}

void LedRounds::update(std::span<const RoundTicket> tickets) {
  const std::uint64_t before = server_.reduced();
  std::uint64_t examples = 0;
  for (const RoundTicket& ticket : tickets) {
    const auto found = std::ranges::find_if(
        waiting_, [&](const auto& one) { return one.second.ticket == ticket; });
    Waiting& one = found->second;
    const modes::LeaseList::Taken its = *server_.lease(one.node);
    one.ticket.reset();
    one.told = false;
    examples += its.lease.count;
    desk_.tell_summed(found->first,
                      {modes::Event::Kind::push, one.node, its.lease.ticket, its.version},
                      its.lease.count);
  }
  if (server_.reduced() != before + 1) {
    throw Error("a sum of all members was no update of the mode");
  }
  since_.push_back(examples);
  updates_.fetch_add(1, kRelaxed);
  tell_wish();
}

// (Who has asked under an epoch before it asks anew.)
void LedRounds::say(Life life, const ReducedRound& round) {
  takers_.clear();
  rounds_.fetch_add(1, kRelaxed);
  const Waiting& one = waiting_.at(life);
  modes::Lease lease{};
  if (round.ticket) lease = server_.lease(one.node)->lease;
  const RoundHead head{round.epoch,
                       round.version,
                       base_,
                       lease.ticket,
                       lease.number,
                       lease.first,
                       lease.count,
                       lease.token,
                       static_cast<std::uint32_t>(round.members.size()),
                       static_cast<std::uint32_t>(round.giving)};
  const auto seats = std::make_shared<std::vector<RoundSeat>>();
  for (const Life member : round.members) {
    seats->push_back(desk_.seat(waiting_.at(member).node));
  }
  const auto bytes = std::as_bytes(std::span<const RoundSeat>(*seats));
  post_->send(life, {.kind = kRound}, std::as_bytes(std::span(&head, 1)), {&bytes, 1}, seats);
}

void LedRounds::want(Life life, std::uint64_t version) {
  const RoundEpoch head{version};
  post_->send(life, {.kind = kRoundWant}, std::as_bytes(std::span(&head, 1)), {}, nullptr);
}

LedRounds::Counters LedRounds::counters() const {
  return {rounds_.load(kRelaxed), updates_.load(kRelaxed), homes_.load(kRelaxed),
          lost_updates_.load(kRelaxed), lost_examples_.load(kRelaxed)};
}

void LedRounds::came_home(std::uint64_t lost) {
  in_rounds_ = false;
  takers_.clear();
  homes_.fetch_add(1, kRelaxed);
  for (auto& one : waiting_ | std::views::values) {
    one.member = false;
    one.ticket.reset();
  }
  if (lost > 0) {
    std::uint64_t examples = 0;
    for (const std::uint64_t of : since_) examples += of;
    server_.lose_reduced(examples);
    desk_.tell_lost(examples);
    lost_updates_.fetch_add(lost, kRelaxed);
    lost_examples_.fetch_add(examples, kRelaxed);
    ++base_;
  }
  since_.clear();
  home_ = server_.updates();
  desk_.came_home();
}

}  // namespace leashed
