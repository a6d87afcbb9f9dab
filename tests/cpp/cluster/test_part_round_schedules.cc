// Workers who sum among themselves where there are several policy servers, without sockets, by
// schedules drawn from seeds: frames come late, connections of workers and between servers end,
// workers die, leave, or are silent for longer than a term, the mode switches, somebody looks, and
// all are brought to a cut, die, and go on from there. Whatever the first hears is told to one
// server that sums: where nothing is lost, its parameters and rows are those of the several.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "asked.h"
#include "cluster/parts_rows.h"
#include "cluster/policy_world.h"
#include "leashed/base/crc32c.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/cluster/part_service.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/server/weighted_mean.h"

using namespace leashed;

namespace {

constexpr std::size_t kAll = PolicyWorld::kDimension;
constexpr std::uint64_t kLease = 4, kData = 120;

struct RoundsSetting {
  Choice mode;
  std::uint32_t workers = 3;
  std::size_t servers = 2;
  double term_ns = 0;
  int faults = 0;  // at most
  bool rows = false;
  int restarts = 0;  // of all from a cut
};

class RoundsWorld {
 public:
  RoundsWorld(RoundsSetting setting, std::uint32_t seed)
      : setting_(std::move(setting)),
        random_(seed),
        shards_(mode_shards(setting_.mode.name, memorywise(kAll, setting_.servers).shards, kAll)),
        rows_(setting_.rows
                  ? std::make_unique<PartsRows>(setting_.servers, setting_.faults > 0 ? 1 : 2)
                  : nullptr),
        updater_(context(initial_, kAll)),
        plain_(modes::make_server_policy(choice()), context(initial_, kAll),
               rows_ ? rows_->all() : nullptr),
        faults_left_(setting_.faults),
        restarts_left_(setting_.restarts),
        lag_(seed % 3 == 2 && setting_.term_ns == 0 ? 60 : 3) {
    for (std::size_t s = 0; s < servers(); ++s) {
      shards_.gather(s, initial_.data(), parts_.emplace_back(shards_.size(s)).data());
      posts_.emplace_back();
    }
    others_.resize(servers() - 1);
    cables_.resize(servers());
    for (std::size_t s = 0; s < servers(); ++s) {
      begin(s, context(parts_[s], shards_.size(s)), nullptr);
    }
    for (std::uint32_t w = 0; w < setting_.workers; ++w) {
      Worker& worker = workers_.emplace_back();
      worker.client = 100 + w;
      worker.at.resize(servers());
      worker.replica.resize(kStateFloats + updater_.layout().length());
    }
    thetas_[0] = initial_;
  }

  void run() {
    int idle = 0;
    while (!over()) {
      REQUIRE(++steps_ < 400'000);  // it stands still
      const bool did = below(idle > 60 ? 3 : lag_) == 0 ? told(1 + below(servers() - 1))
                                                        : step(workers_[below(workers_.size())]);
      idle = did ? 0 : idle + 1;
      if (did) look();
      cut();
      if (setting_.mode.name == "switching" && below(20 * lag_) == 0) first_->command(below(2));
      if (below(6) == 0 || idle > 60) pass(1 + std::int64_t(below(idle > 60 ? 500 : 60)));
    }
    compare();
  }
  std::uint64_t sums = 0, homes = 0, lost = 0, pushes = 0, cuts = 0, restarts = 0, looks = 0,
                alike = 0, missing = 0;

 private:
  struct At {  // a worker, at one server
    Peer peer = 0;
    bool welcome = false, fresh = false, asked = false, left = false;
    std::uint64_t ticket = 0;
    std::vector<float> theta;
    std::deque<std::pair<std::uint64_t, Bytes>> parts;
    bool asks = false, looks_up = false, looked = false;
    std::vector<float> rows, gradients;  // of rows
    bool gives = false;
    int gave = 0;  // not acknowledged yet
  };
  struct Worker {
    std::uint64_t client = 0, life = 1;
    std::vector<At> at;
    std::optional<GrantHead> lease;
    bool asked_rows = false;
    Ids ids;
    ModeWelcome welcome{};
    bool ended = false;
    std::int64_t silent_until = 0;
    // Rounds.
    RoundMember member;
    RoundHead head{};
    std::vector<std::uint32_t> nodes;
    std::vector<float> replica, gradient, sum;  // StateHead, θ and states
    std::array<std::uint64_t, 3> shown{};
    bool takes = false, home = false;
    std::optional<RoundMember::Vote> vote;
  };
  struct Cable {
    Peer first = 0, other = 0;
  };
  struct Nothing final : Sink {
    void grant(Grant) override {}
    void wake(Time) override {}
    void meet(std::span<const modes::Node>, modes::Node) override {}
    void end(modes::Node) override {}
    void settled(modes::Node, const Publication&) override {}
  };
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };
  struct Looker {
    std::vector<Peer> peers;
    std::vector<bool> there;
    std::uint64_t updates = 0;
  };

  std::size_t servers() const { return setting_.servers; }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool faulty(std::uint64_t one_in) {
    if (faults_left_ == 0 || steps_ > 40'000 || below(one_in) != 0) return false;
    --faults_left_;
    return true;
  }
  Choice choice() const {
    Choice made = setting_.mode;
    made.settings.insert({{"workers", double(setting_.workers)},
                          {"batch", double(kLease)},
                          {"examples", double(kData)},
                          {"term_ns", setting_.term_ns}});
    return made;
  }
  DisciplineContext context(const std::vector<float>& theta, std::size_t size) const {
    return {theta.data(), size, setting_.workers, 3, *rule_};
  }
  Service& service(std::size_t s) {
    return s == 0 ? static_cast<Service&>(*first_) : static_cast<Service&>(*others_[s - 1]);
  }
  void begin(std::size_t s, const DisciplineContext& of, const BegunMode* begun) {
    RowHolder* const rows = rows_ ? rows_->of(s) : nullptr;
    const std::uint64_t boot = 30 + s + 100 * restarts;
    if (s == 0) {
      PolicyService::Run its{1, 2, boot, servers() - 1, true, true};
      its.shards = shards_;
      first_ = std::make_unique<PolicyService>(
          modes::make_server_policy(choice()), of, its,
          [this](const modes::Event& event, Time at) { heard(event, at); }, nullptr, begun, rows);
      return first_->open(posts_[0]);
    }
    PartService::Run its{1, 2, boot, s};
    its.reduces = true;
    others_[s - 1] = std::make_unique<PartService>(choice(), of, its, rows, begun);
    others_[s - 1]->open(posts_[s]);
  }

  void cut() {
    if (restarts_left_ == 0 || std::ranges::any_of(workers_, &Worker::ended)) {
      return first_->hold(holds_ = false);
    }
    if (!holds_) {
      if ((holds_ = below(80) == 0)) first_->hold(true);
      return;
    }
    if (below(400) == 0) return first_->hold(holds_ = false);
    if (!first_->at_rest()) return;
    if (!std::ranges::all_of(others_, [](const auto& one) { return one->at_rest(); })) return;
    std::vector<TakenMode> taken{first_->take({})};
    CHECK(first_->server().reduced() == 0);
    for (const auto& one : others_) {
      CHECK(one->server().reduced() == 0);
      taken.push_back(one->take());
      if (one->position() != first_->position() || taken.back().held != taken[0].held) {
        return first_->hold(holds_ = false);  // parts that are missing
      }
    }
    holds_ = false;
    --restarts_left_;
    ++restarts;
    add_counts();
    for (std::size_t s = 0; s < servers(); ++s) {
      ParameterServer& server = s == 0 ? first_->server() : others_[s - 1]->server();
      const std::size_t nodes = server.nodes();
      posts_[s].boxes.clear();
      posts_[s].refused.clear();
      posts_[s].wake_at = HeldPost::kNever;
      s == 0 ? first_.reset() : others_[s - 1].reset();
      DisciplineContext of = context(parts_[s], shards_.size(s));
      of.workers = nodes;
      const Checkpoint& state = taken[s].state;
      const Resumed resumed(state, Updater(of).layout(), no_staleness_policy(), of);
      const BegunMode begun{state.mode, setting_.workers};
      begin(s, of, &begun);
    }
    cables_.assign(servers(), {});
    looker_.reset();
    for (Worker& worker : workers_) {
      forget(worker);
      ++worker.life;
    }
  }
  void add_counts() {
    const PolicyService::Counters counted = first_->counters();
    sums += counted.rounds.updates;
    homes += counted.rounds.homes;
    lost += counted.rounds.lost_updates;
    lost_examples_ += counted.rounds.lost_examples;
    pushes += counted.pushes;
    CHECK(counted.strange == 0);
    first_counts_.push_back(first_->server().counts());
    for (std::size_t s = 1; s < servers(); ++s) {
      const ModeCounts& here = others_[s - 1]->server().counts();
      missing += here.missing;
      CHECK(others_[s - 1]->counters().strange == 0);
      CHECK(others_[s - 1]->failure() == "");
      const ModeCounts& first = first_->server().counts();
      CHECK(here.applied + here.missing == first.applied + first.missing);
      CHECK(here.stale == first.stale);
    }
    CHECK(first_->failure() == "");
  }

  // Parameters and rows as one server that sums makes them of what the first hears.
  void heard(const modes::Event& event, Time at) {
    const bool is_push = event.kind == modes::Event::Kind::push;
    AlignedArray<float> values(kAll), row_gradients;
    Payload payload{&values, 0};
    if (is_push) {
      const auto& [count, gradient, of_rows] = computed_.at(event.ticket);
      std::copy(gradient.begin(), gradient.end(), values.data());
      payload.examples = count;
      if (rows_) {
        row_gradients = rows_->kept(event.ticket, of_rows);
        payload.rows = &rows_->keys(event.ticket);
        payload.row_gradients = &row_gradients;
      }
    }
    Nothing sink;
    plain_.handle(event, is_push ? &payload : nullptr, at, sink);
    if (is_push && rows_) rows_->all()->release(rows_->keys(event.ticket));
    const ParameterVector::Pin latest = plain_.holder().pull();
    thetas_[latest.t()].assign(latest.data(), latest.data() + kAll);
  }

  Peer come(std::size_t s) {
    service(s).come(++last_peer_);
    posts_[s].boxes[last_peer_];
    return last_peer_;
  }
  void say(std::size_t s, Peer peer, std::uint16_t kind, std::uint64_t correlation,
           const Bytes& payload) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service(s).place(peer, header);
    REQUIRE(place.size() == payload.size());
    if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
    service(s).frame(peer, header, none_);
    end_refused();
  }
  void end(std::size_t s, Peer peer) {
    posts_[s].boxes.erase(peer);
    posts_[s].refused.erase(peer);
    service(s).gone(peer);
    for (Cable& cable : cables_) {
      if (s == 0 && cable.first == peer) cable.first = 0;
      if (s > 0 && cable.other == peer) cable.other = 0;
    }
  }
  void end_refused() {
    for (std::size_t s = 0; s < servers(); ++s) {
      while (!posts_[s].refused.empty()) end(s, *posts_[s].refused.begin());
    }
  }
  void pass(std::int64_t ns) {
    for (std::size_t s = 0; s < servers(); ++s) {
      posts_[s].time += ns;
      if (posts_[s].wake_at > posts_[s].time) continue;
      posts_[s].wake_at = HeldPost::kNever;
      service(s).woken();
    }
    end_refused();
  }
  bool there(std::size_t s, Peer peer) const { return posts_[s].boxes.contains(peer); }

  // Somebody looks at the first, and then at the others as of that position.
  void look() {
    if (!looker_) {
      if (below(50) != 0) return;
      looker_.emplace();
      looker_->peers.assign(servers(), 0);
      looker_->there.assign(servers(), false);
      looker_->peers[0] = come(0);
      say(0, looker_->peers[0], kModeLook, 0, mode_hello(1, 99, 1, 2));
    }
    for (std::size_t s = 0; s < servers(); ++s) {
      const Peer peer = looker_->peers[s];
      if (peer == 0 || looker_->there[s] || posts_[s].boxes.at(peer).empty()) continue;
      const auto [header, bytes] = posts_[s].take(peer);
      REQUIRE(header.kind == kModeLooked);
      const auto head = got<ModeLooked>(Bytes(bytes.begin(), bytes.begin() + sizeof(ModeLooked)));
      std::vector<float> part(shards_.size(s));
      std::memcpy(part.data(), bytes.data() + sizeof head, part.size() * sizeof(float));
      looker_->there[s] = true;
      if (s == 0) looker_->updates = head.updates;
      if (whole() && setting_.mode.name == "sync") {
        CHECK(head.updates >= looker_->updates);  // it may have come home once more
        std::vector<float> same(shards_.size(s));
        shards_.gather(s, thetas_.at(head.updates).data(), same.data());
        CHECK((part == same));
      }
      end(s, peer);
      if (s > 0) continue;
      for (std::size_t other = 1; other < servers(); ++other) {
        looker_->peers[other] = come(other);
        Bytes asked;
        put(asked, PartLook{1, 2, head.position});
        say(other, looker_->peers[other], kPartLook, 0, asked);
      }
    }
    if (std::ranges::count(looker_->there, false) > 0) return;
    ++looks;
    looker_.reset();
  }
  // Whether no server has ever missed a part, and no update was lost.
  bool whole() const {
    const bool parts = setting_.mode.name == "sync" || (cuts == 0 && setting_.term_ns == 0);
    return parts && lost + first_->counters().rounds.lost_updates == 0;
  }

  void forget(Worker& worker) {
    for (At& at : worker.at) at = {};
    worker.lease.reset();
    worker.asked_rows = worker.takes = worker.home = false;
    worker.vote.reset();
    worker.shown = {};
    worker.member.leave();
  }
  // A life is over: all of its connections end, one after the other.
  void lose(Worker& worker) {
    ++cuts;
    for (std::size_t s = 0; s < servers(); ++s) {
      At& at = worker.at[s];
      if (at.peer != 0 && there(s, at.peer)) end(s, at.peer);
    }
    end_refused();
    forget(worker);
  }

  bool step(Worker& worker) {
    if (worker.ended || worker.silent_until > posts_[0].time) return false;
    if (faulty(60)) {
      const std::size_t s = below(servers());
      if (below(4) == 0) return leave(worker), true;
      if (worker.at[s].peer != 0 && there(s, worker.at[s].peer)) end(s, worker.at[s].peer);
      if (below(3) == 0) {
        ++worker.life;
        lose(worker);
      }
      return true;  // and is noticed when it goes on
    }
    for (std::size_t s = 0; s < servers(); ++s) {
      if (worker.at[s].peer != 0 && !there(s, worker.at[s].peer)) return lose(worker), true;
    }
    const std::size_t s = below(servers());
    return s == 0 ? at_first(worker) : at_other(worker, s);
  }
  // In an orderly way.
  void leave(Worker& worker) {
    const At& at = worker.at[0];
    const RoundMember& member = worker.member;
    if (at.welcome && there(0, at.peer) && member.holds(member.round().epoch, member.version())) {
      try {
        send_home(worker);
      } catch (const Error&) {  // rounds have ended, as it has not heard yet
      }
    }
    lose(worker);
  }
  void send_home(Worker& worker) {
    const StateHead head{worker.head.epoch, worker.member.version(), {}};
    std::memcpy(worker.replica.data(), &head, sizeof head);
    Bytes bytes;
    put(bytes, worker.replica);
    say(0, worker.at[0].peer, kRoundState, 0, bytes);
  }

  bool at_first(Worker& worker) {
    At& at = worker.at[0];
    if (at.peer == 0) {
      at.peer = come(0);
      say(0, at.peer, kModeHello, 0, mode_hello(1, worker.client, worker.life, 2));
      return true;
    }
    if (!posts_[0].boxes.at(at.peer).empty()) return hear_first(worker), true;
    if (!at.welcome) return false;
    if (std::exchange(worker.takes, false)) return say_epoch(worker, kRoundTake), true;
    if (std::exchange(worker.home, false)) return send_home(worker), true;
    if (give_rows(worker, 0)) return true;
    if (!at.parts.empty()) {
      const auto [ticket, bytes] = std::move(at.parts.front());
      at.parts.pop_front();
      worker.lease.reset();
      worker.asked_rows = false;
      at.asked = true;
      say(0, at.peer, kModePushPull, ticket, bytes);
      return true;
    }
    if (!at.asked && !worker.lease) {
      at.asked = true;
      say(0, at.peer, kModePull, 0, {});
      return true;
    }
    if (std::exchange(at.asks, false)) return look_up(worker, 0), true;
    return worker.lease ? compute(worker) : go_on(worker);
  }
  void say_epoch(Worker& worker, std::uint16_t kind) {
    Bytes bytes;
    put(bytes, RoundEpoch{worker.head.epoch});
    say(0, worker.at[0].peer, kind, 0, bytes);
  }
  bool give_rows(Worker& worker, std::size_t s) {
    At& at = worker.at[s];
    if (!std::exchange(at.gives, false)) return false;
    if (s > 0) ++at.gave;
    Bytes bytes;
    put(bytes, at.gradients);
    say(s, at.peer, kRoundRows, at.ticket, bytes);
    return true;
  }
  void look_up(Worker& worker, std::size_t s) {
    At& at = worker.at[s];
    const Ids its = rows_->of(s, worker.ids);
    at.rows.assign(rows_->floats(s, its), 0);
    at.looks_up = true;
    if (s == 0) {
      if (pulled_.contains(at.ticket)) rows_->all()->release(rows_->keys(at.ticket));
      pulled_[at.ticket] = true;
      rows_->pull(worker.ids, at.ticket);
    }
    say(s, at.peer, kLookup, at.ticket, lookup_of(its, true));
  }
  static void hear_rows(At& at, const FrameHeader& header, const Bytes& bytes) {
    CHECK(header.correlation == at.ticket);
    REQUIRE(bytes.size() == at.rows.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(at.rows.data(), bytes.data(), bytes.size());
    REQUIRE(std::exchange(at.looks_up, false));
    at.looked = true;
  }

  void hear_first(Worker& worker) {
    At& at = worker.at[0];
    const auto [header, bytes] = posts_[0].take(at.peer);
    switch (header.kind) {
      case kModeWelcome:
        worker.welcome = got<ModeWelcome>(bytes);
        at.welcome = true;
        return;
      case kModeEnd:
        at.left = true;
        return;
      case kRows:
        return hear_rows(at, header, bytes);
      case kRound:
        return hear_round(worker, bytes);
      case kRoundWant:
        if (worker.member.send_home(got<RoundEpoch>(bytes).epoch)) apply(worker);
        worker.home = true;
        worker.takes = false;
        worker.vote.reset();
        return;
      case kRoundState: {
        StateHead head;
        std::memcpy(&head, bytes.data(), sizeof head);
        REQUIRE(bytes.size() == worker.replica.size() * sizeof(float));
        CHECK(worker.member.to_take());  // else a lane refuses it
        if (head.epoch != worker.head.epoch || head.version != worker.head.version) return;
        std::memcpy(worker.replica.data(), bytes.data(), bytes.size());
        worker.member.took(head.epoch);
        if (whole()) {  // what it takes is what one server has by then
          CHECK(
              std::equal(initial_.begin(), initial_.end(), worker.replica.data() + kStateFloats) ==
              (thetas_.at(head.version) == initial_));
          const std::vector<float>& plain = thetas_.at(head.version);
          CHECK(std::equal(plain.begin(), plain.end(), worker.replica.data() + kStateFloats));
        }
        return;
      }
      default:
        break;
    }
    REQUIRE(header.kind == kGrant);
    const auto head = got<GrantHead>(Bytes(bytes.begin(), bytes.begin() + sizeof(GrantHead)));
    if (head.count == 0) return;
    worker.member.leave();  // the servers sum now
    worker.vote.reset();
    worker.takes = false;
    worker.shown = {};
    for (At& one : worker.at) one.gives = one.asks = false;
    at.asked = false;
    worker.lease = head;
    worker.asked_rows = false;
    at.ticket = head.ticket;
    at.fresh = true;
    at.theta = floats(bytes);
    be_silent(worker);
  }
  void be_silent(Worker& worker) {
    worker.silent_until = posts_[0].time + std::int64_t(below(80));
    if (setting_.term_ns > 0 && faulty(10)) worker.silent_until += 9000;
  }
  void hear_round(Worker& worker, const Bytes& bytes) {
    RoundHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.base != worker.head.base) worker.member.leave();
    ReducedRound round{.epoch = head.epoch, .version = head.version, .giving = head.giving};
    if (head.ticket != 0) round.ticket = RoundTicket{head.ticket, head.number};
    if (worker.member.hear(round)) apply(worker);
    worker.head = head;
    worker.vote.reset();
    worker.nodes.clear();
    for (std::size_t i = 0; i < head.members; ++i) {
      RoundSeat seat;
      std::memcpy(&seat, bytes.data() + sizeof head + i * sizeof seat, sizeof seat);
      worker.nodes.push_back(seat.node);
    }
    worker.takes = worker.member.to_take();
    if (shown_now(worker) != worker.shown) {
      for (At& at : worker.at) at.gives = at.asks = false;
    }
    be_silent(worker);
  }
  static std::array<std::uint64_t, 3> shown_now(const Worker& worker) {
    return {worker.head.ticket, worker.head.version, worker.head.base};
  }
  void apply(Worker& worker) {
    float* const buffer = worker.replica.data() + kStateFloats;
    updater_.apply_slice(buffer, worker.sum.data(), 0, kAll,
                         {.t = worker.member.version() - 1, .scale = 1});
  }

  // What a member does between two frames.
  bool go_on(Worker& worker) {
    RoundMember& member = worker.member;
    if (member.to_compute() && show(worker)) return true;
    if (member.to_give()) {
      Sum& sum = sums_[{restarts, worker.head.epoch}];
      if (worker.head.ticket != 0) sum.given[worker.welcome.node] = worker.gradient;
      member.gave();
      worker.sum.clear();
      return true;
    }
    if (member.to_take() || member.to_compute()) return false;
    if (worker.sum.empty() && sum_up(worker)) return true;
    const auto owes = [](const At& at) { return at.gives || at.gave > 0; };
    if (worker.head.ticket != 0 && std::ranges::none_of(worker.at, owes)) {
      member.rows_are_there({worker.head.ticket, worker.head.number});
    }
    const auto vote = member.vote();
    if (!vote) {
      if (!faulty(60) || worker.head.epoch == 0) return false;
      say_epoch(worker, kRoundAgain);
      return true;
    }
    Bytes bytes;
    put(bytes, RoundVote{vote->epoch, vote->checksum});
    say(0, worker.at[0].peer, kRoundVote, 0, bytes);
    return true;
  }
  bool show(Worker& worker) {
    if (!rows_) return finish_gradient(worker), true;
    if (worker.shown != shown_now(worker)) {
      const auto busy = [](const At& at) { return at.looks_up || at.gives || at.gave > 0; };
      if (std::ranges::any_of(worker.at, busy)) return false;
      worker.shown = shown_now(worker);
      worker.ids = rows_->drawn(worker.head.number);
      worker.at[0].ticket = worker.head.ticket;
      for (At& at : worker.at) {
        at.asks = true;
        at.looked = false;
      }
      return true;
    }
    if (!std::ranges::all_of(worker.at, &At::looked)) return false;
    finish_gradient(worker);
    return true;
  }
  void finish_gradient(Worker& worker) {
    const std::vector<float> theta(worker.replica.begin() + kStateFloats,
                                   worker.replica.begin() + kStateFloats + kAll);
    worker.gradient = gradient_of(theta, worker.head.number);
    computed_[worker.head.ticket] = {worker.head.count, worker.gradient,
                                     gradients_of_rows(worker, worker.head.number)};
    for (At& at : worker.at) at.gives = rows_ != nullptr;
    worker.member.computed({worker.head.ticket, worker.head.number});
  }
  struct Sum {
    std::map<std::uint32_t, std::vector<float>> given;  // by node
  };
  bool sum_up(Worker& worker) {
    const Sum& sum = sums_[{restarts, worker.head.epoch}];
    std::vector<const float*> vectors;
    for (std::size_t i = 0; i < worker.head.giving; ++i) {
      const auto found = sum.given.find(worker.nodes[i]);
      if (found == sum.given.end()) return false;
      vectors.push_back(found->second.data());
    }
    if (vectors.empty()) return false;
    WeightedMean mean;
    mean.begin(std::vector<double>(vectors.size(), 1.0), double(vectors.size()));
    worker.sum.resize(kAll);
    mean.add(worker.sum.data(), vectors, 0, kAll);
    worker.member.summed(worker.head.epoch, crc32c(worker.sum.data(), kAll * sizeof(float)));
    return true;
  }

  bool at_other(Worker& worker, std::size_t s) {
    At& at = worker.at[s];
    if (!worker.at[0].welcome) return false;
    if (at.peer == 0) {
      at.peer = come(s);
      Bytes hello;
      put(hello,
          PartHello{1, worker.client, worker.life, 2, worker.welcome.node, worker.welcome.life});
      say(s, at.peer, kPartHello, 0, hello);
      return true;
    }
    if (!posts_[s].boxes.at(at.peer).empty()) {
      const auto [header, bytes] = posts_[s].take(at.peer);
      if (header.kind == kModeWelcome) at.welcome = true;
      if (header.kind == kModeEnd) at.left = true;
      if (header.kind == kRows) hear_rows(at, header, bytes);
      if (header.kind == kRoundRows) REQUIRE(--at.gave >= 0);
      if (header.kind == kGrant) {
        at.ticket = header.correlation;
        at.fresh = bytes.size() > sizeof(GrantHead);
        if (at.fresh) at.theta = floats(bytes);
      }
      finish(worker);
      return true;
    }
    if (!at.welcome) return false;
    if (give_rows(worker, s)) return true;
    if (!at.parts.empty()) {
      const auto [ticket, bytes] = std::move(at.parts.front());
      at.parts.pop_front();
      say(s, at.peer, kPart, ticket, bytes);
      return true;
    }
    if (at.asks && at.ticket == worker.at[0].ticket) {
      at.asks = false;
      return look_up(worker, s), true;
    }
    if (worker.at[0].left && !std::exchange(at.asked, true)) {
      say(s, at.peer, kModeLeave, 0, {});
      return true;
    }
    return false;
  }
  void finish(Worker& worker) {
    if (std::ranges::all_of(worker.at, &At::left)) worker.ended = true;
    if (!worker.ended) return;
    for (std::size_t s = 0; s < servers(); ++s) end(s, worker.at[s].peer);
  }

  // A lease of the servers, where all have granted it.
  bool compute(Worker& worker) {
    for (const At& at : worker.at) {
      if (!at.fresh || !at.parts.empty() || at.ticket != worker.lease->ticket) return false;
    }
    if (rows_ && !worker.asked_rows) {
      if (std::ranges::any_of(worker.at, &At::looks_up)) return false;
      worker.asked_rows = true;
      worker.ids = rows_->drawn(worker.lease->number);
      for (At& at : worker.at) {
        at.asks = true;
        at.looked = false;
      }
      return true;
    }
    if (rows_ && !std::ranges::all_of(worker.at, &At::looked)) return false;
    std::vector<float> theta(kAll);
    for (std::size_t s = 0; s < servers(); ++s) {
      shards_.scatter(s, worker.at[s].theta.data(), theta.data());
    }
    const GrantHead& l = *worker.lease;
    const std::vector<float> values = gradient_of(theta, l.number);
    computed_[l.ticket] = {l.count, values, gradients_of_rows(worker, l.number)};
    for (std::size_t s = 0; s < servers(); ++s) {
      At& at = worker.at[s];
      at.fresh = false;
      std::vector<float> part(shards_.size(s));
      shards_.gather(s, values.data(), part.data());
      Bytes bytes;
      put(bytes, part);
      if (s > 0) put(bytes, PartTail{l.number, l.first, l.count, l.token});
      put(bytes, at.gradients);
      at.parts.emplace_back(at.ticket, std::move(bytes));
    }
    return true;
  }
  static std::vector<float> gradient_of(const std::vector<float>& theta, std::uint64_t number) {
    std::vector<float> values(kAll);
    for (std::size_t i = 0; i < kAll; ++i) {
      values[i] = 0.3f * theta[i] + 0.01f * static_cast<float>((number + i) % 7);
    }
    return values;
  }
  // As one server has them.
  std::vector<float> gradients_of_rows(Worker& worker, std::uint64_t number) {
    std::vector<std::vector<float>> all;
    for (At& at : worker.at) {
      at.gradients.clear();
      for (const float value : at.rows) {
        at.gradients.push_back(value + 0.01f * static_cast<float>(number % 5));
      }
      all.push_back(at.gradients);
    }
    return rows_ ? rows_->joined(worker.ids, all) : std::vector<float>();
  }
  static std::vector<float> floats(const Bytes& bytes) {
    std::vector<float> found((bytes.size() - sizeof(GrantHead)) / sizeof(float));
    std::memcpy(found.data(), bytes.data() + sizeof(GrantHead), found.size() * sizeof(float));
    return found;
  }

  // One thing between the first and another.
  bool told(std::size_t s) {
    Cable& cable = cables_[s];
    const auto cut_cable = [&] {
      if (cable.first != 0) end(0, cable.first);
      if (cable.other != 0) end(s, cable.other);
      end_refused();
    };
    if (faulty(40)) return cut_cable(), true;
    if (cable.first == 0 || cable.other == 0) {
      cut_cable();
      cable = {come(0), come(s)};
      Bytes hello;
      put(hello, others_[s - 1]->follow());
      say(0, cable.first, kToldHello, s, hello);
      return true;
    }
    const bool from_first = below(2) == 0;
    const std::size_t from = from_first ? 0 : s, to = from_first ? s : 0;
    const Peer sender = from_first ? cable.first : cable.other;
    const Peer taker = from_first ? cable.other : cable.first;
    if (posts_[from].boxes.at(sender).empty()) return false;
    const auto [header, bytes] = posts_[from].take(sender);
    say(to, taker, header.kind, header.correlation, bytes);
    return true;
  }

  bool over() {
    return std::ranges::all_of(workers_, &Worker::ended) &&
           std::ranges::all_of(
               others_, [&](const auto& one) { return one->position() == first_->position(); });
  }

  void compare() {
    add_counts();
    std::uint64_t applied = 0, other = 0, of_rows = 0;
    for (const ModeCounts& counts : first_counts_) {
      applied += counts.applied;
      other += counts.stale + counts.straggler + counts.missing;
      of_rows += counts.rows.applied + counts.rows.folded;
    }
    CHECK(applied + other + lost_examples_ == kData);
    CHECK(first_->server().reduced() == 0);
    std::vector<float> theta(kAll);
    for (std::size_t s = 0; s < servers(); ++s) {
      ParameterServer& server = s == 0 ? first_->server() : others_[s - 1]->server();
      CHECK(server.reduced() == 0);
      const ParameterVector::Pin latest = server.holder().pull();
      shards_.scatter(s, latest.data(), theta.data());
      if (setting_.mode.name == "sync") {
        CHECK(server.updates() == first_->server().updates());
        if (rows_) CHECK(rows_->alike(s));
      }
    }
    if (!whole()) return;
    ++alike;
    CHECK((theta == thetas_.rbegin()->second));
    // (In GBA each server's rows are as of when they are looked up there.)
    for (std::size_t s = 0; s < servers() && rows_ && (workers_.size() == 1 || pushes == 0); ++s) {
      CHECK(rows_->alike(s));
    }
  }

  struct Computed {
    std::uint64_t count = 0;
    std::vector<float> gradient{}, rows{};
  };

  const RoundsSetting setting_;
  std::mt19937 random_;
  const ModeShards shards_;
  const std::unique_ptr<const Rule> rule_ =
      make_rule({"momentum", {{"lr", 0.05}, {"momentum", 0.9}}});
  const std::vector<float> initial_ = std::vector<float>(kAll, 0.5f);
  const std::unique_ptr<PartsRows> rows_;  // null: there are no tables
  const Updater updater_;
  ParameterServer plain_;
  std::map<std::uint64_t, std::vector<float>> thetas_;           // of that, by update
  std::map<std::uint64_t, Computed> computed_;                   // by ticket
  std::map<std::uint64_t, bool> pulled_;                         // likewise
  std::map<std::pair<std::uint64_t, std::uint64_t>, Sum> sums_;  // by restarts and epoch
  int faults_left_, restarts_left_;
  const std::uint64_t lag_;  // of the others behind the first
  bool holds_ = false;
  std::uint64_t lost_examples_ = 0;
  std::vector<ModeCounts> first_counts_;  // of each first that there was
  std::vector<std::vector<float>> parts_;
  std::unique_ptr<PolicyService> first_;
  std::vector<std::unique_ptr<PartService>> others_;
  std::deque<HeldPost> posts_;  // by server; what lies there goes before them
  std::vector<Cable> cables_;   // by server behind the first
  std::optional<Looker> looker_;
  None none_;
  std::deque<Worker> workers_;
  Peer last_peer_ = 0;
  int steps_ = 0;
};

const std::vector<Choice> kRoundModes = {
    {"sync"},
    {"switching", {{"m", 2}, {"iota", 1}}},
    {"switching", {{"m", 3}}},
    {"automatic", {{"m", 2}, {"window_ns", 800}, {"windows", 1}}},
};

// Of so many schedules of each mode.
struct Played {
  void play(const RoundsSetting& setting, std::uint32_t seed) {
    CAPTURE(setting.mode.name);
    CAPTURE(setting.workers);
    CAPTURE(setting.servers);
    CAPTURE(seed);
    RoundsWorld world(setting, seed);
    world.run();
    sums += world.sums;
    homes += world.homes;
    lost += world.lost;
    pushes += world.pushes;
    cuts += world.cuts;
    restarts += world.restarts;
    looks += world.looks;
    alike += world.alike;
    missing += world.missing;
    ++runs;
  }
  void tell() const {
    MESSAGE(runs, " runs: ", sums, " sums, ", pushes, " pushes, ", homes, " times at home, ", cuts,
            " cuts, ", restarts, " restarts, ", looks, " looks, ", lost, " updates lost; ", alike,
            " have the bits of a server that sums");
  }
  std::uint64_t runs = 0, sums = 0, homes = 0, lost = 0, pushes = 0, cuts = 0, restarts = 0,
                looks = 0, alike = 0, missing = 0;
};

}  // namespace

TEST_CASE("sums at several servers have the bits of one that sums, whatever comes when") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 8);
  Played played;
  for (const Choice& mode : kRoundModes) {
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      for (const bool rows : {false, true}) {
        for (const std::uint32_t workers : {1, 2, 4}) {
          played.play({mode, workers, 2 + seed % 2, 0, 0, rows}, seed);
        }
      }
    }
  }
  CHECK(played.alike == played.runs);
  CHECK(played.cuts == 0);  // nobody is sent more than he takes
  CHECK(played.looks > 0);
  CHECK(played.pushes > 0);
  CHECK(played.homes > played.runs);
  played.tell();
}

TEST_CASE("whoever dies or is cut off at several servers, no rows of a sum are missing") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 16);
  Played played;
  for (const Choice& mode : kRoundModes) {
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      for (const bool rows : {false, true}) {
        const double term_ns = seed % 4 == 3 ? 4000 : 0;
        played.play({mode, 1 + seed % 4, 2 + seed % 2, term_ns, 30, rows}, seed);
      }
    }
  }
  CHECK(played.lost > 0);
  CHECK(played.cuts > 0);
  CHECK(played.missing > 0);
  CHECK(played.alike > 0);
  played.tell();
}

TEST_CASE("several servers whose workers sum go on from a cut as if nothing had been") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 8);
  Played played;
  for (const Choice& mode : kRoundModes) {
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      for (const int faults : {0, 20}) {
        played.play({mode, 1 + seed % 4, 2 + seed % 2, 0, faults, false, 3}, seed);
      }
    }
  }
  CHECK(played.restarts > schedules);
  CHECK(played.alike > 0);
  played.tell();
}

TEST_CASE("where the first server has another connection the one before is heard no more") {
  const auto rule = make_rule({"sgd", {{"lr", 0.05}}});
  const std::vector<float> theta(8);
  PartService::Run run{1, 2, 31, 1};
  run.reduces = true;
  const Choice mode{"sync", {{"workers", 1}, {"batch", 4}, {"examples", 8}, {"term_ns", 0}}};
  PartService service(mode, {theta.data(), theta.size(), 1, 3, *rule}, run);
  HeldPost post;
  service.open(post);
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  } none;
  for (const Peer first : {1, 2}) {
    service.come(first);
    post.boxes[first];
    CHECK(post.refused.empty());
    const ToldAt at{0, 30};
    const FrameHeader header{.kind = kToldAt, .length = sizeof at};
    std::memcpy(service.place(first, header).data(), &at, sizeof at);
    service.frame(first, header, none);
  }
  CHECK(post.refused.contains(1));
  CHECK(post.refused.size() == 1);
}
