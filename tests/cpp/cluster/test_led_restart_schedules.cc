// The only policy server of workers who sum among themselves is killed, again and again, and goes
// on from what it has kept, without sockets, by schedules drawn from seeds: connections of workers
// end, workers die, leave, or do not come back, the mode switches, grants are held for a cut. Sums
// are known by their epochs alone, as between workers, who are connected whatever becomes of the
// server. All that the server hears is told to one that sums, which goes back with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
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
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/server/weighted_mean.h"

using namespace leashed;

namespace {

constexpr std::size_t kSize = 19;
constexpr std::uint64_t kLease = 4, kData = 120;

struct RestartSetting {
  Choice mode;
  std::uint32_t workers = 3;
  double term_ns = 0;
  int faults = 0, kills = 0;  // at most
  bool rows = false;
};

// What the server was told, in its order: an event, or, of no event, a look-up of rows.
struct Line {
  modes::Event event{};
  Time at{0};
  std::uint64_t examples = 0;
  std::vector<float> gradient{}, of_rows{};
  std::optional<std::uint64_t> looked_up{};  // a ticket
  Ids ids{};
};

// One server that sums what it is told.
class Plain final : Sink {
 public:
  Plain(const modes::ServerPolicy& machine, const DisciplineContext& context, RowHolder* rows)
      : rows_(rows), server_(machine, context, rows) {}

  // Of a look-up, the rows.
  std::vector<float> hear(const Line& line) {
    if (line.looked_up) return look_up(*line.looked_up, line.ids);
    AlignedArray<float> values(kSize), of_rows;
    std::copy(line.gradient.begin(), line.gradient.end(), values.data());
    Payload payload{&values, line.examples};
    const bool is_push = line.event.kind == modes::Event::Kind::push;
    RowKeys* const keys = is_push && rows_ ? &keys_[line.event.ticket] : nullptr;
    if (keys) {
      of_rows = kept(*keys, line.of_rows);
      payload.rows = keys;
      payload.row_gradients = &of_rows;
    }
    server_.handle(line.event, is_push ? &payload : nullptr, line.at, *this);
    if (keys) rows_->release(*keys);
    return {};
  }
  std::vector<float> theta() {
    const ParameterVector::Pin latest = server_.holder().pull();
    return {latest.data(), latest.data() + kSize};
  }

 private:
  std::vector<float> look_up(std::uint64_t ticket, const Ids& ids) {
    if (const auto found = keys_.find(ticket); found != keys_.end()) rows_->release(found->second);
    std::vector<std::vector<float>> each;
    std::vector<float*> to;
    std::vector<std::span<const std::uint64_t>> spans(ids.begin(), ids.end());
    for (std::size_t t = 0; t < ids.size(); ++t) {
      to.push_back(each.emplace_back(ids[t].size() * rows_->tables()[t]->dim() + 1).data());
    }
    rows_->pull(spans, keys_[ticket], to);
    std::vector<float> all;
    for (const auto& of : each) all.insert(all.end(), of.begin(), of.end() - 1);
    return all;
  }
  // Gradients as a server keeps them.
  AlignedArray<float> kept(const RowKeys& keys, const std::vector<float>& gradients) const {
    std::size_t floats = 0;
    for (std::size_t t = 0; t < rows_->tables().size(); ++t) {
      floats += rows_->gradients_of(t, keys.parts[t].count);
    }
    AlignedArray<float> kept(floats);
    std::fill_n(kept.data(), floats, 0.0f);
    float* to = kept.data();
    const float* from = gradients.data();
    for (std::size_t t = 0; t < rows_->tables().size(); ++t) {
      const Table& table = *rows_->tables()[t];
      for (std::size_t i = 0; i < keys.parts[t].count; ++i, from += table.dim()) {
        std::copy_n(from, table.dim(), to + i * table.gradient_stride());
      }
      to += rows_->gradients_of(t, keys.parts[t].count);
    }
    return kept;
  }
  void grant(Grant) override {}
  void wake(Time) override {}
  void meet(std::span<const modes::Node>, modes::Node) override {}
  void end(modes::Node) override {}
  void settled(modes::Node, const Publication&) override {}

  RowHolder* const rows_;  // null: there are none
  ParameterServer server_;
  std::map<std::uint64_t, RowKeys> keys_;  // by ticket
};

class RestartWorld {
 public:
  RestartWorld(RestartSetting setting, std::uint32_t seed)
      : setting_(std::move(setting)),
        random_(seed),
        updater_(context(setting_.workers)),
        faults_left_(setting_.faults),
        kills_left_(setting_.kills) {
    make_rows();
    plain_ = std::make_unique<Plain>(machine(), context(setting_.workers), rows_of_plain());
    serve(nullptr, context(setting_.workers));
    for (std::uint32_t w = 0; w < setting_.workers; ++w) {
      Worker& worker = workers_.emplace_back();
      worker.client = 100 + w;
      worker.replica.resize(kStateFloats + updater_.layout().length());
    }
  }

  void run() {
    int idle = 0;
    while (!std::ranges::all_of(workers_, &Worker::ended)) {
      REQUIRE(++steps_ < 400'000);  // it stands still
      if (kills_left_ > 0 && below(150) == 0) kill();
      Worker& worker = workers_[below(workers_.size())];
      idle = step(worker) ? 0 : idle + 1;
      tend_snapshot();
      if (below(90) == 0) service_->hold(holds_ = !holds_);
      if (holds_ && below(20) == 0) service_->hold(holds_ = false);
      if (setting_.mode.name == "switching" && below(60) == 0) service_->command(below(2));
      if (kills > 0 && below(500) == 0) service_->let_go_absent();
      if (below(6) == 0 || idle > 60) pass(1 + std::int64_t(below(idle > 60 ? 500 : 60)));
    }
    compare();
  }

  std::uint64_t kills = 0, undone = 0, snapshots = 0, in_rounds = 0, sums = 0, pushes = 0, lost = 0,
                alike = 0, cuts = 0;
  std::vector<float> theta;

 private:
  struct Worker {
    std::uint64_t client = 0, life = 1;
    Peer peer = 0;
    modes::Node node = 0;
    bool welcome = false, asked = false, ended = false;
    std::int64_t silent_until = 0;
    // A lease of the server.
    std::optional<GrantHead> lease{};
    std::vector<float> granted{};
    // Rows of a lease.
    std::uint64_t ticket = 0;
    Ids ids{};
    std::vector<float> rows{}, row_gradients{};
    bool looks_up = false, looked = false, gives = false;
    // Rounds. What it computes outlives its connection with the server.
    RoundMember member{};
    RoundHead head{};
    std::vector<std::uint32_t> nodes{};
    std::vector<float> replica{}, gradient{}, sum{};  // StateHead, θ and states
    std::array<std::uint64_t, 3> asked_rows{}, computed{};
    bool takes = false, home = false;
  };
  struct Kept {
    TakenMode state;
    Archived served;
    std::size_t lines, nodes;
    std::uint64_t told;
  };
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool faulty(std::uint64_t one_in) {
    if (faults_left_ == 0 || steps_ > 40'000 || below(one_in) != 0) return false;
    --faults_left_;
    return true;
  }
  modes::ServerPolicy machine() const {
    Choice made = setting_.mode;
    made.settings.insert({{"workers", double(setting_.workers)},
                          {"batch", double(kLease)},
                          {"examples", double(kData)},
                          {"term_ns", setting_.term_ns}});
    return modes::make_server_policy(made);
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial_.data(), kSize, workers, 3, *rule_};
  }
  RowHolder* rows_of_plain() { return rows_ ? rows_->all() : nullptr; }
  RowHolder* rows_of_server() { return rows_ ? rows_->of(0) : nullptr; }
  void make_rows() {
    if (setting_.rows) rows_ = std::make_unique<PartsRows>(1, 2);
  }

  // The server.
  void serve(const BegunMode* begun, const DisciplineContext& of) {
    PolicyService::Run its{1, 2, 30};
    its.reduces = true;
    its.ever = ever_;
    its.holds_end = true;
    its.again = kills;
    service_ = std::make_unique<PolicyService>(
        machine(), of, its, [this](const modes::Event& event, Time at) { heard(event, at); },
        nullptr, begun, rows_of_server());
    service_->open(post_);
  }
  void heard(const modes::Event& event, Time at) {
    Line line{event, at};
    if (event.kind == modes::Event::Kind::push) {
      const Computed& found = computed_.at(event.ticket);
      line.examples = found.count;
      line.gradient = found.gradient;
      line.of_rows = found.rows;
      told_ += found.count;
    }
    tell(std::move(line));
  }
  std::vector<float> tell(Line line) {
    log_.push_back(std::move(line));
    return plain_->hear(log_.back());
  }
  bool is_done() const {
    return service_->server().unfinished().empty() && service_->server().examples_leased() == kData;
  }
  // Asks for the parameters, and keeps all when they are there; the end waits for that.
  void tend_snapshot() {
    const bool ends = !let_ && is_done();
    if (!asks_ && (ends || below(60) == 0)) {
      asks_ = true;
      came_ = false;
      asked_at_ = service_->server().updates();
      service_->stay_home(true);
    }
    if (!asks_) return;
    if (std::exchange(came_, service_->is_home())) CHECK(came_);  // they stay
    if (!came_ || below(3) != 0) return;
    const bool sums = setting_.mode.name == "sync" && setting_.faults == 0;
    if (sums) CHECK(service_->server().updates() <= asked_at_ + 1);  // that was under way
    CHECK(service_->server().reduced() == 0);
    kept_.emplace(service_->take({}), service_->served(), log_.size(), service_->server().nodes(),
                  told_);
    ++snapshots;
    in_rounds += service_->counters().rounds.updates > 0;
    if (whole()) CHECK((here() == plain_->theta()));
    if (rows_) CHECK(rows_->alike(0));
    const bool done = is_done();
    service_->stay_home(asks_ = false);
    if (!done || let_) return;
    let_ = true;
    service_->let_end();
  }
  void kill() {
    --kills_left_;
    ++kills;
    undone += told_ - (kept_ ? kept_->told : 0);
    told_ = kept_ ? kept_->told : 0;
    post_.boxes.clear();
    service_.reset();
    post_.refused.clear();
    post_.wake_at = HeldPost::kNever;
    asks_ = holds_ = let_ = false;
    log_.resize(kept_ ? kept_->lines : 0);
    plain_.reset();
    make_rows();
    plain_ = std::make_unique<Plain>(machine(), context(setting_.workers), rows_of_plain());
    // Rows of the server are those of then, too.
    Plain then(machine(), context(setting_.workers), rows_of_server());
    for (const Line& line : log_) {
      plain_->hear(line);
      if (rows_) then.hear(line);
    }
    if (!kept_) return serve(nullptr, context(setting_.workers));
    DisciplineContext of = context(kept_->nodes);
    const Checkpoint& state = kept_->state.state;
    const Resumed resumed(state, Updater(of).layout(), no_staleness_policy(), of);
    const BegunMode begun{state.mode, setting_.workers, false, &kept_->served};
    serve(&begun, of);
  }
  std::vector<float> here() {
    const ParameterVector::Pin latest = service_->server().holder().pull();
    return {latest.data(), latest.data() + kSize};
  }
  bool whole() const { return service_->counters().rounds.lost_updates == 0; }

  // Connections.
  bool there(Peer peer) const { return post_.boxes.contains(peer); }
  void say(Peer peer, std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service_->place(peer, header);
    REQUIRE(place.size() == payload.size());
    if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
    service_->frame(peer, header, none_);
    end_refused();
  }
  template <class T>
  void say_of(Peer peer, std::uint16_t kind, const T& what) {
    Bytes bytes;
    put(bytes, what);
    say(peer, kind, 0, bytes);
  }
  void end(Peer peer) {
    post_.boxes.erase(peer);
    post_.refused.erase(peer);
    service_->gone(peer);
  }
  void end_refused() {
    while (!post_.refused.empty()) end(*post_.refused.begin());
  }
  void pass(std::int64_t ns) {
    post_.time += ns;
    if (post_.wake_at > post_.time) return;
    post_.wake_at = HeldPost::kNever;
    service_->woken();
    end_refused();
  }

  // Workers.
  void forget(Worker& worker) {
    worker.peer = 0;
    worker.welcome = worker.asked = worker.looks_up = worker.looked = worker.gives = false;
    worker.takes = worker.home = false;
    worker.lease.reset();
    worker.asked_rows = {};
    worker.member.leave();
  }
  void lose(Worker& worker) {
    ++cuts;
    if (there(worker.peer)) end(worker.peer);
    end_refused();
    forget(worker);
  }
  bool step(Worker& worker) {
    if (worker.ended || worker.silent_until > post_.time) return false;
    if (faulty(60)) return suffer(worker), true;
    if (worker.peer != 0 && !there(worker.peer)) return forget(worker), true;
    if (worker.peer == 0) {
      worker.peer = ++last_peer_;
      service_->come(worker.peer);
      post_.boxes[worker.peer];
      say(worker.peer, kModeHello, 0, mode_hello(1, worker.client, worker.life, 2));
      return true;
    }
    if (!post_.boxes.at(worker.peer).empty()) return hear(worker), true;
    if (!worker.welcome) return false;
    if (std::exchange(worker.takes, false)) {
      return say_of(worker.peer, kRoundTake, RoundEpoch{worker.head.epoch}), true;
    }
    if (std::exchange(worker.home, false)) return send_home(worker), true;
    if (std::exchange(worker.gives, false)) {
      Bytes bytes;
      put(bytes, worker.row_gradients);
      return say(worker.peer, kRoundRows, worker.ticket, bytes), true;
    }
    if (!worker.asked && !worker.lease) {
      worker.asked = true;
      return say(worker.peer, kModePull, 0, {}), true;
    }
    return worker.lease ? push(worker) : go_on(worker);
  }
  void suffer(Worker& worker) {
    switch (below(5)) {
      case 0:  // in an orderly way
        leave(worker);
        return lose(worker);
      case 1: {
        const auto left = std::ranges::count(workers_, false, &Worker::ended);
        lose(worker);
        worker.ended = kept_ && left > 1 && below(3) == 0;  // for good
        return;
      }
      case 2:
        ++worker.life;
        worker.computed = {};
        return lose(worker);
      default:
        return lose(worker);
    }
  }
  void leave(Worker& worker) {
    const RoundMember& member = worker.member;
    if (!worker.welcome || !there(worker.peer)) return;
    if (!member.holds(member.round().epoch, member.version())) return;
    try {
      send_home(worker);
    } catch (const Error&) {  // rounds have ended, as it has not heard yet
    }
  }
  void send_home(Worker& worker) {
    const StateHead head{worker.head.epoch, worker.member.version(), {}};
    std::memcpy(worker.replica.data(), &head, sizeof head);
    say_of(worker.peer, kRoundState, worker.replica);
  }

  void hear(Worker& worker) {
    const auto [header, bytes] = post_.take(worker.peer);
    switch (header.kind) {
      case kModeWelcome:
        worker.node = got<ModeWelcome>(bytes).node;
        worker.welcome = true;
        return;
      case kModeEnd:
        worker.ended = true;
        return lose(worker);
      case kRows:
        REQUIRE(header.correlation == worker.ticket);
        REQUIRE(bytes.size() == worker.rows.size() * sizeof(float));
        if (!bytes.empty()) {
          CHECK(std::memcmp(bytes.data(), worker.rows.data(), bytes.size()) == 0);
        }
        worker.looks_up = false;
        worker.looked = true;
        return;
      case kRound:
        return hear_round(worker, bytes);
      case kRoundWant:
        if (worker.member.send_home(got<RoundEpoch>(bytes).epoch)) apply(worker);
        worker.home = true;
        worker.takes = false;
        return;
      case kRoundState: {
        StateHead head;
        std::memcpy(&head, bytes.data(), sizeof head);
        REQUIRE(bytes.size() == worker.replica.size() * sizeof(float));
        if (head.epoch != worker.head.epoch || head.version != worker.head.version) return;
        std::memcpy(worker.replica.data(), bytes.data(), bytes.size());
        worker.member.took(head.epoch);
        return;
      }
      default:
        break;
    }
    REQUIRE(header.kind == kGrant);
    GrantHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.count == 0) return;
    worker.member.leave();  // the server sums now
    worker.takes = worker.gives = worker.asked = worker.looked = false;
    worker.asked_rows = {};
    worker.lease = head;
    worker.granted.resize(kSize);
    std::memcpy(worker.granted.data(), bytes.data() + sizeof head, kSize * sizeof(float));
    be_silent(worker);
  }
  void be_silent(Worker& worker) {
    worker.silent_until = post_.time + std::int64_t(below(80));
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
    worker.nodes.clear();
    for (std::size_t i = 0; i < head.members; ++i) {
      RoundSeat seat;
      std::memcpy(&seat, bytes.data() + sizeof head + i * sizeof seat, sizeof seat);
      worker.nodes.push_back(seat.node);
    }
    worker.takes = worker.member.to_take();
    if (shown(worker) != worker.asked_rows) worker.gives = false;
    be_silent(worker);
  }
  static std::array<std::uint64_t, 3> shown(const Worker& worker) {
    return {worker.head.ticket, worker.head.version, worker.head.base};
  }
  void apply(Worker& worker) {
    updater_.apply_slice(worker.replica.data() + kStateFloats, worker.sum.data(), 0, kSize,
                         {.t = worker.member.version() - 1, .scale = 1});
  }

  // What a member does between two frames.
  bool go_on(Worker& worker) {
    RoundMember& member = worker.member;
    if (member.to_compute()) return compute(worker);
    if (member.to_give()) {
      if (worker.head.ticket != 0) sums_[worker.head.epoch][worker.node] = worker.gradient;
      member.gave();
      worker.sum.clear();
      return true;
    }
    if (member.to_take()) return false;
    if (worker.sum.empty() && sum_up(worker)) return true;
    if (worker.head.ticket != 0) {
      member.rows_are_there({worker.head.ticket, worker.head.number});
    }
    if (const auto vote = member.vote()) {
      say_of(worker.peer, kRoundVote, RoundVote{vote->epoch, vote->checksum});
      return true;
    }
    if (worker.head.epoch == 0 || !faulty(60)) return false;
    say_of(worker.peer, kRoundAgain, RoundEpoch{worker.head.epoch});
    return true;
  }
  // A gradient that it has already is that of what it is shown, if it is of the same.
  bool compute(Worker& worker) {
    if (rows_ && worker.asked_rows != shown(worker)) {
      if (worker.looks_up) return false;
      worker.asked_rows = shown(worker);
      look_up(worker, worker.head.ticket, worker.head.number);
      return true;
    }
    if (rows_ && !worker.looked) return false;
    if (worker.computed != shown(worker)) {
      worker.computed = shown(worker);
      worker.gradient = gradient_of(worker.replica.data() + kStateFloats, worker.head.number);
      worker.silent_until = post_.time + std::int64_t(below(80));
      return true;  // and may be cut off before it gives it
    }
    give_gradient(worker, worker.head.ticket, worker.head.number, worker.head.count);
    worker.gives = rows_ != nullptr;
    worker.member.computed({worker.head.ticket, worker.head.number});
    return true;
  }
  void give_gradient(Worker& worker, std::uint64_t ticket, std::uint64_t number,
                     std::uint64_t count) {
    worker.row_gradients.clear();
    for (const float value : worker.rows) {
      worker.row_gradients.push_back(value + 0.01f * static_cast<float>(number % 5));
    }
    computed_[ticket] = {count, worker.gradient, worker.row_gradients};
  }
  void look_up(Worker& worker, std::uint64_t ticket, std::uint64_t number) {
    worker.ticket = ticket;
    worker.ids = rows_->drawn(number);
    worker.looks_up = true;
    worker.looked = false;
    worker.rows = tell({.looked_up = ticket, .ids = worker.ids});
    say(worker.peer, kLookup, ticket, lookup_of(worker.ids, true));
  }
  bool sum_up(Worker& worker) {
    const auto& given = sums_[worker.head.epoch];
    std::vector<const float*> vectors;
    for (std::size_t i = 0; i < worker.head.giving; ++i) {
      const auto found = given.find(worker.nodes[i]);
      if (found == given.end()) return false;
      vectors.push_back(found->second.data());
    }
    if (vectors.empty()) return false;
    WeightedMean mean;
    mean.begin(std::vector<double>(vectors.size(), 1.0), double(vectors.size()));
    worker.sum.resize(kSize);
    mean.add(worker.sum.data(), vectors, 0, kSize);
    worker.member.summed(worker.head.epoch, crc32c(worker.sum.data(), kSize * sizeof(float)));
    return true;
  }
  // Of a lease of the server.
  bool push(Worker& worker) {
    const GrantHead head = *worker.lease;
    if (rows_ && !worker.looked) {
      if (worker.looks_up) return false;
      return look_up(worker, head.ticket, head.number), true;
    }
    worker.gradient = gradient_of(worker.granted.data(), head.number);
    give_gradient(worker, head.ticket, head.number, head.count);
    worker.lease.reset();
    worker.asked = true;
    worker.looked = false;
    Bytes bytes;
    put(bytes, worker.gradient);
    put(bytes, worker.row_gradients);
    say(worker.peer, kModePushPull, head.ticket, bytes);
    return true;
  }
  static std::vector<float> gradient_of(const float* theta, std::uint64_t number) {
    std::vector<float> values(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      values[i] = 0.3f * theta[i] + 0.01f * static_cast<float>((number + i) % 7);
    }
    return values;
  }

  void compare() {
    const ModeCounts& counts = service_->server().counts();
    const PolicyService::Counters counted = service_->counters();
    CHECK(counts.applied + counts.stale + counts.straggler + counts.missing +
              counted.rounds.lost_examples ==
          kData);
    CHECK(counted.strange == 0);
    CHECK(service_->failure() == "");
    CHECK(service_->server().reduced() == 0);
    CHECK(counted.summed_examples + counted.pushed_examples == told_);
    CHECK(ever_[1] == told_ + undone);
    CHECK(let_);
    sums = counted.rounds.updates;
    pushes = counted.pushes;
    lost = counted.rounds.lost_updates;
    theta = here();
    if (!whole()) return;
    ++alike;
    CHECK((theta == plain_->theta()));
    if (rows_) CHECK(rows_->alike(0));
  }

  struct Computed {
    std::uint64_t count = 0;
    std::vector<float> gradient{}, rows{};
  };

  const RestartSetting setting_;
  std::mt19937 random_;
  const std::unique_ptr<const Rule> rule_ =
      make_rule({"momentum", {{"lr", 0.05}, {"momentum", 0.9}}});
  const std::vector<float> initial_ = std::vector<float>(kSize, 0.5f);
  const Updater updater_;
  std::unique_ptr<PartsRows> rows_;  // null: there are no tables
  std::unique_ptr<Plain> plain_;
  std::vector<Line> log_;
  std::map<std::uint64_t, Computed> computed_;                                 // by ticket
  std::map<std::uint64_t, std::map<std::uint32_t, std::vector<float>>> sums_;  // by epoch and node
  std::uint64_t ever_[2] = {0, 0};
  std::uint64_t told_ = 0;  // examples, as of what it has gone on from
  int faults_left_, kills_left_;
  bool asks_ = false, came_ = false, holds_ = false, let_ = false;
  std::uint64_t asked_at_ = 0;  // updates
  std::optional<Kept> kept_;
  std::unique_ptr<PolicyService> service_;
  HeldPost post_;  // what lies there goes before it
  None none_;
  std::vector<Worker> workers_;
  Peer last_peer_ = 0;
  int steps_ = 0;
};

const std::vector<Choice> kKilledModes = {
    {"sync"},
    {"switching", {{"m", 2}, {"iota", 1}}},
    {"switching", {{"m", 3}}},
    {"automatic", {{"m", 2}, {"window_ns", 800}, {"windows", 1}}},
};

struct Played {
  void add(const RestartWorld& world) {
    ++runs;
    kills += world.kills;
    undone += world.undone;
    snapshots += world.snapshots;
    in_rounds += world.in_rounds;
    sums += world.sums;
    pushes += world.pushes;
    lost += world.lost;
    cuts += world.cuts;
    alike += world.alike;
  }
  void tell() const {
    MESSAGE(runs, " runs: ", kills, " kills, ", undone, " examples undone, ", snapshots,
            " snapshots, ", in_rounds, " of them behind sums, ", sums, " sums, ", pushes,
            " pushes, ", cuts, " cuts, ", lost, " updates lost; ", alike,
            " have the bits of a server that sums");
  }
  std::uint64_t runs = 0, kills = 0, undone = 0, snapshots = 0, in_rounds = 0, sums = 0, pushes = 0,
                lost = 0, cuts = 0, alike = 0;
};

}  // namespace

TEST_CASE("a server of workers who sum that is killed goes on from what it has kept") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 16);
  Played played;
  for (const Choice& mode : kKilledModes) {
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      for (const bool rows : {false, true}) {
        CAPTURE(mode.name);
        CAPTURE(seed);
        CAPTURE(rows);
        RestartWorld world({mode, 1 + seed % 4, 0, 0, 4, rows}, seed);
        world.run();
        played.add(world);
      }
    }
  }
  CHECK(played.kills > played.runs);
  CHECK(played.undone > 0);
  CHECK(played.in_rounds > 0);
  CHECK(played.pushes > 0);
  CHECK(played.lost == 0);
  CHECK(played.alike == played.runs);
  played.tell();
}

TEST_CASE("a server that is killed, and workers that die, lose no example that is not counted") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 16);
  Played played;
  for (const Choice& mode : kKilledModes) {
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      for (const bool rows : {false, true}) {
        CAPTURE(mode.name);
        CAPTURE(seed);
        CAPTURE(rows);
        const double term_ns = seed % 4 == 3 ? 4000 : 0;
        RestartWorld world({mode, 1 + seed % 4, term_ns, 20, 4, rows}, seed);
        world.run();
        played.add(world);
      }
    }
  }
  CHECK(played.lost > 0);
  CHECK(played.cuts > 0);
  CHECK(played.alike > 0);
  played.tell();
}

TEST_CASE("one worker whose server is killed has the bits of one whose server lives") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 16);
  RestartWorld lives({{"sync"}, 1, 0, 0, 0}, 0);
  lives.run();
  std::uint64_t kills = 0;
  for (std::uint32_t seed = 0; seed < schedules; ++seed) {
    CAPTURE(seed);
    RestartWorld killed({{"sync"}, 1, 0, 0, 6}, seed);
    killed.run();
    kills += killed.kills;
    CHECK((killed.theta == lives.theta));
  }
  CHECK(kills > schedules);
}

TEST_CASE(
    "parameters that are to stay come once, and who has left before is waited for by nobody") {
  const auto rule = make_rule({"sgd", {{"lr", 0.5}}});
  const std::vector<float> initial(kSize, 0.5f);
  const modes::ServerPolicy machine = modes::make_server_policy(
      {"sync", {{"workers", 2}, {"batch", double(kLease)}, {"examples", double(kData)}}});
  DisciplineContext context{initial.data(), kSize, 2, 3, *rule};
  PolicyService::Run run{1, 2, 30};
  run.reduces = true;
  PolicyService before(machine, context, run);
  Frames frames(before);
  const auto begin = [](Frames& of, std::uint64_t client) {
    const Peer peer = of.come();
    of.say(peer, kModeHello, 0, mode_hello(1, client, 1, 2));
    of.post.take(peer);
    of.say(peer, kModePull, 0, {});
    return peer;
  };
  const auto round = [](Frames& of, Peer peer) {
    REQUIRE_FALSE(of.post.boxes.at(peer).empty());
    const auto [header, bytes] = of.post.take(peer);
    REQUIRE(header.kind == kRound);
    RoundHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    return head;
  };
  const Peer one = begin(frames, 0), other = begin(frames, 1);
  CHECK(round(frames, one).members == 2);
  frames.close(other);
  const RoundHead alone = round(frames, one);
  CHECK(alone.members == 1);
  before.stay_home(true);
  CHECK_FALSE(before.is_home());  // a sum is under way
  Bytes bytes;
  put(bytes, RoundVote{alone.epoch, 5});
  frames.say(one, kRoundVote, 0, bytes);
  CHECK(frames.post.take(one).first.kind == kRoundWant);
  CHECK_FALSE(before.is_home());
  bytes.clear();
  put(bytes, StateHead{alone.epoch, 1, {}});
  put(bytes, std::vector<float>(kSize, 2));
  frames.say(one, kRoundState, 0, bytes);
  CHECK(before.is_home());
  CHECK(frames.post.boxes.at(one).empty());
  const Checkpoint taken = before.take({}).state;
  const Archived served = before.served();
  before.stay_home(false);
  CHECK(round(frames, one).version == 1);
  CHECK(before.counters().summed_examples == kLease);

  const Resumed resumed(taken, Updater(context).layout(), context.staleness, context);
  const PolicyService::Begun begun{taken.mode, 2, false, &served};
  run.again = 1;
  PolicyService again(machine, context, run, nullptr, nullptr, &begun);
  Frames after(again);
  const RoundHead first = round(after, begin(after, 0));
  CHECK(first.members == 1);
  CHECK(first.version == 1);
  CHECK(first.epoch > alone.epoch + 1'000'000);
  CHECK(first.base > alone.base + 1'000'000);
  CHECK(*again.server().holder().pull().data() == 2);
  CHECK(again.counters().summed_examples == kLease);
  CHECK(again.counters().rounds.updates == 1);
  run.again = 4096;
  CHECK_THROWS_WITH_AS(PolicyService(machine, context, run), doctest::Contains("4095 times"),
                       Error);
}
