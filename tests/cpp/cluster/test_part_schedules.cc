// Several policy servers and their workers without sockets, by schedules drawn from seeds: frames
// come late, connections of workers and between servers end, workers die or are silent for longer
// than a term. The first must decide as one server that hears the same; the others make its updates
// of what came to them, and nobody waits for ever. All of them are brought to a cut, die, and go on
// from there; or one alone is killed, the first among them, which has a journal.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "asked.h"
#include "cluster/parts_rows.h"
#include "cluster/policy_world.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/cluster/part_service.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"

using namespace leashed;

namespace {

constexpr std::size_t kWhole = PolicyWorld::kDimension;
constexpr std::uint64_t kPartBatch = 4, kPartExamples = 80;

struct PartsSetting {
  Choice mode;
  std::uint32_t workers = 3;
  std::size_t servers = 3;
  double term_ns = 0;
  int faults = 0;     // at most
  bool rows = false;  // of tables, too
  int restarts = 0;   // of all from a cut
  int kills = 0;      // of one behind the first, which goes on from what it had kept
  int ends = 0;       // of the first, which goes on from that and its journal
  std::uint64_t updates = StopRules::kNone;  // so many end it
};

class PartsWorld {
 public:
  PartsWorld(PartsSetting setting, std::uint32_t seed)
      : setting_(std::move(setting)),
        random_(seed),
        shards_(
            mode_shards(setting_.mode.name, memorywise(kWhole, setting_.servers).shards, kWhole)),
        // (A backup that is behind looks up at some servers before a round's end and at others
        // after it, so each counts the look-ups of a row that is not there yet by itself.)
        rows_(setting_.rows ? std::make_unique<PartsRows>(
                                  setting_.servers,
                                  setting_.mode.name == "hop_bw" && setting_.workers > 1 ? 1 : 2)
                            : nullptr),
        plain_(modes::make_server_policy(choice()), context(initial_, kWhole),
               rows_ ? rows_->all() : nullptr),
        faults_left_(setting_.faults),
        restarts_left_(setting_.restarts),
        kills_left_(setting_.kills),
        ends_left_(setting_.ends),
        before_(setting_.servers),
        kept_(setting_.servers),
        ever_(setting_.servers),
        lost_(setting_.servers) {
    for (std::size_t s = 0; s < servers(); ++s) {
      auto& part = parts_.emplace_back(shards_.size(s));
      shards_.gather(s, initial_.data(), part.data());
      posts_.emplace_back();
    }
    others_.resize(servers() - 1);
    if (setting_.ends > 0) journal_.emplace(journal_path(), false);
    begun_.resize(servers());
    for (std::size_t s = 0; s < servers(); ++s) {
      begin(s, context(parts_[s], shards_.size(s)), nullptr);
    }
    cables_.resize(servers());
    for (std::uint32_t w = 0; w < setting_.workers; ++w) {
      Worker& worker = workers_.emplace_back();
      worker.client = 100 + w;
      worker.at.resize(servers());
    }
  }

  void run() {
    int idle = 0;
    while (!over()) {
      REQUIRE(++steps_ < 400'000);  // it stands still
      const bool did = random_() % 3 == 0 ? told(1 + below(servers() - 1))
                                          : step(workers_[below(workers_.size())]);
      idle = did ? 0 : idle + 1;
      cut();
      kill();
      end_first();
      if (below(20) == 0 && all_done()) let_end();
      if (below(6) == 0 || idle > 60) pass(1 + std::int64_t(below(idle > 60 ? 500 : 60)));
    }
    compare();
  }
  std::uint64_t missing = 0, cuts = 0, row_updates = 0, restarts = 0, waiting = 0;
  std::uint64_t kills = 0, lost = 0, ends = 0;

 private:
  struct At {  // a worker, at one server
    Peer peer = 0;
    bool welcome = false, fresh = false, wants_pull = false, asked = false, left = false;
    std::uint64_t ticket = 0;
    std::vector<float> theta;
    std::deque<std::pair<std::uint64_t, Bytes>> parts;  // to be sent: ticket, and what
    // Rows: they are to be asked for; they were; they are there.
    bool asks = false, looks_up = false, looked = false;
    std::vector<float> rows;
  };
  struct Worker {
    std::uint64_t client = 0, life = 1;
    std::vector<At> at;
    std::optional<GrantHead> lease;
    bool asked_rows = false;
    Ids ids;                           // of the lease
    std::vector<float> row_gradients;  // as one server has them
    ModeWelcome welcome{};
    bool ended = false;
    std::int64_t silent_until = 0;
  };
  struct Kept {
    TakenMode taken;
    Archived served;
    std::size_t nodes;
    std::uint64_t examples, line = 0;
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
                          {"batch", double(kPartBatch)},
                          {"examples", double(kPartExamples)},
                          {"term_ns", setting_.term_ns}});
    return made;
  }
  DisciplineContext context(const std::vector<float>& theta, std::size_t size) const {
    return {theta.data(), size, setting_.workers, 3, *rule_};
  }
  Service& service(std::size_t s) {
    return s == 0 ? static_cast<Service&>(*first_) : static_cast<Service&>(*others_[s - 1]);
  }

  void begin(std::size_t s, const DisciplineContext& of, const BegunMode* begun,
             bool again = false) {
    RowHolder* const rows = rows_ ? rows_->of(s) : nullptr;
    const std::uint64_t boot = 30 + s + 100 * restarts;
    if (s == 0) {
      PolicyService::Run its{1, 2, boot, servers() - 1, shards_.by == Deciding::alike};
      its.ever = ever_[0];
      its.journal = journal_ ? &*journal_ : nullptr;
      its.again = ends_here_;
      its.updates = setting_.updates;
      its.holds_end = setting_.ends > 0;
      first_ = std::make_unique<PolicyService>(
          modes::make_server_policy(choice()), of, its,
          [this](const modes::Event& event, Time at) { heard(event, at); }, nullptr, begun, rows);
      return first_->open(posts_[0]);
    }
    others_[s - 1] = std::make_unique<PartService>(
        choice(), of, PartService::Run{1, 2, boot, s, ever_[s], again}, rows, begun);
    others_[s - 1]->open(posts_[s]);
  }

  // Now and then all are to rest, and then die and go on from what they have come to; or, as where
  // that is given up, go on as they are.
  void cut() {
    if (restarts_left_ == 0 || std::ranges::any_of(workers_, &Worker::ended)) {
      return first_->hold(false);
    }
    if (!holds_) {
      if ((holds_ = below(80) == 0)) first_->hold(true);
      return;
    }
    if (below(400) == 0) return first_->hold(holds_ = false);
    if (!first_->at_rest()) return;
    if (!std::ranges::all_of(others_, [](const auto& one) { return one->at_rest(); })) return;
    std::vector<TakenMode> taken{first_->take({})};
    const std::uint64_t line = first_->position();
    bool together = true;
    for (const auto& one : others_) {
      taken.push_back(one->take());
      together = together && one->position() == line;
      if (shards_.by == Deciding::alike) together = together && taken.back().held == taken[0].held;
    }
    holds_ = false;
    if (!together) return first_->hold(false);
    --restarts_left_;
    ++restarts;
    for (const TakenMode& one : taken) waiting += one.held.size() - std::ranges::count(one.held, 0);
    restart(taken);
  }
  void restart(const std::vector<TakenMode>& taken) {
    if (journal_) journal_.emplace(journal_path(), false);
    ends_here_ = 0;
    for (std::size_t s = 0; s < servers(); ++s) {
      lost += std::exchange(lost_[s], 0);
      ever_[s] = {};
      ParameterServer& server = s == 0 ? first_->server() : others_[s - 1]->server();
      add(before_[s], server.counts());
      const std::size_t nodes = server.nodes();
      posts_[s].boxes.clear();
      posts_[s].refused.clear();
      posts_[s].wake_at = HeldPost::kNever;
      s == 0 ? first_.reset() : others_[s - 1].reset();
      kept_[s].reset();
      begun_[s] = Kept{taken[s], {}, nodes, 0};
      begin_from(s, *begun_[s], false);
    }
    cables_.assign(servers(), {});
    for (Worker& worker : workers_) {
      worker.at.assign(servers(), {});
      worker.lease.reset();
      worker.asked_rows = false;
      ++worker.life;
    }
  }
  // Now and then one behind the first is kept, or dies, and goes on from what was kept last.
  void kill() {
    if (kills_left_ == 0 || below(40) != 0) return;
    const std::size_t s = 1 + below(servers() - 1);
    PartService& server = *others_[s - 1];
    if (below(2) == 0) {
      kept_[s] =
          Kept{server.take(), server.served(), server.server().nodes(), server.used().second};
      server.kept(server.position());
      return;
    }
    --kills_left_;
    ++kills;
    lost_[s] += server.counters().examples - (kept_[s] ? kept_[s]->examples : 0);
    posts_[s].boxes.clear();
    posts_[s].refused.clear();
    posts_[s].wake_at = HeldPost::kNever;
    others_[s - 1].reset();
    cables_[s].other = 0;
    begin_again(s);
  }
  // From what it has kept, or where the run began.
  void begin_again(std::size_t s) {
    if (kept_[s]) return begin_from(s, *kept_[s], true);
    if (begun_[s]) return begin_from(s, *begun_[s], true);
    begin(s, context(parts_[s], shards_.size(s)), nullptr, true);
  }
  void begin_from(std::size_t s, const Kept& from, bool again) {
    DisciplineContext of = context(parts_[s], shards_.size(s));
    of.workers = from.nodes;
    const Checkpoint& state = from.taken.state;
    const Resumed resumed(state, Updater(of).layout(), no_staleness_policy(), of);
    const Archived* const served = kept_[s] ? &from.served : nullptr;
    const BegunMode begun{state.mode, setting_.workers, false, served, from.line};
    begin(s, of, &begun, again);
  }
  void keep_first() {
    const std::uint64_t line = first_->cut_journal();
    kept_[0] = Kept{first_->take({}), first_->served(), first_->server().nodes(),
                    first_->counters().pushed_examples, line};
    if (below(2) == 0) first_->kept(line);
  }
  // Now and then the first is kept, or dies, as the others do above.
  void end_first() {
    if (ends_left_ == 0 || below(40) != 0) return;
    if (below(2) == 0) return keep_first();
    --ends_left_;
    ++ends;
    ++ends_here_;
    lost_[0] += first_->counters().pushed_examples - (kept_[0] ? kept_[0]->examples : 0);
    posts_[0].boxes.clear();
    posts_[0].refused.clear();
    posts_[0].wake_at = HeldPost::kNever;
    first_.reset();
    journal_.emplace(journal_path(), true);
    holds_ = false;
    for (Cable& cable : cables_) cable.first = 0;
    begin_again(0);
  }
  std::string journal_path() const { return files_.path / ("journal-" + std::to_string(restarts)); }
  // Who was started again has had, or counts as missing, all that is done, and nothing else.
  void check_had(std::size_t s) {
    const ParameterServer& first = first_->server();
    const std::uint64_t next = (first.examples_leased() + kPartBatch - 1) / kPartBatch;
    for (std::uint64_t number = 0; number < next; ++number) {
      const bool open = std::ranges::any_of(
          first.unfinished(), [&](const modes::Lease& lease) { return lease.number == number; });
      const auto& all = others_[s - 1]->server().machine().had();
      const bool had = std::ranges::any_of(all, [&](const modes::LeaseList::Span& span) {
        return span.first <= number && number <= span.last;
      });
      CHECK((had || open));
    }
  }
  static void add(ModeCounts& to, const ModeCounts& more) {
    to.applied += more.applied;
    to.stale += more.stale;
    to.straggler += more.straggler;
    to.missing += more.missing;
    to.late += more.late;
    to.exchanges += more.exchanges;
  }

  void heard(const modes::Event& event, Time at) {
    AlignedArray<float> values(kWhole);
    std::copy(in_hand_.begin(), in_hand_.end(), values.data());
    Payload payload{&values, in_hand_examples_};
    const bool is_push = event.kind == modes::Event::Kind::push;
    AlignedArray<float> row_gradients;
    if (is_push && rows_) {
      row_gradients = rows_->kept(event.ticket, in_hand_rows_);
      payload.rows = &rows_->keys(event.ticket);
      payload.row_gradients = &row_gradients;
    }
    Nothing sink;
    plain_.handle(event, is_push ? &payload : nullptr, at, sink);
    if (is_push && rows_) rows_->all()->release(rows_->keys(event.ticket));
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

  bool there(std::size_t s, const At& at) const { return posts_[s].boxes.contains(at.peer); }

  // A life is over: all of its connections end, one after the other.
  void lose(Worker& worker) {
    ++cuts;
    for (std::size_t s = 0; s < servers(); ++s) {
      At& at = worker.at[s];
      if (at.peer != 0 && there(s, at)) end(s, at.peer);
      at = {};
    }
    end_refused();
    worker.lease.reset();
    worker.asked_rows = false;
  }

  bool step(Worker& worker) {
    if (worker.ended || worker.silent_until > posts_[0].time) return false;
    if (faulty(60)) {
      const std::size_t s = below(servers());
      if (worker.at[s].peer != 0 && there(s, worker.at[s])) end(s, worker.at[s].peer);
      if (below(3) == 0) ++worker.life;  // it was the process
      return true;                       // and is noticed when it goes on
    }
    for (std::size_t s = 0; s < servers(); ++s) {
      if (worker.at[s].peer != 0 && !there(s, worker.at[s])) return lose(worker), true;
    }
    const bool over = std::any_of(worker.at.begin() + 1, worker.at.end(),
                                  [](const At& at) { return at.left && !at.asked; });
    if (over && worker.lease) return lose(worker), true;  // which is another's by now
    const std::size_t s = below(servers());
    return s == 0 ? at_first(worker) : at_other(worker, s);
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
    if (!at.parts.empty()) {
      const auto [ticket, bytes] = std::move(at.parts.front());
      at.parts.pop_front();
      in_hand_.resize(kWhole);
      std::memcpy(in_hand_.data(), bytes.data(), kWhole * sizeof(float));
      in_hand_examples_ = worker.lease->count;
      in_hand_rows_ = worker.row_gradients;
      worker.lease.reset();
      worker.asked_rows = false;
      Bytes part(shards_.size(0) * sizeof(float));
      shards_.gather(0, in_hand_.data(), reinterpret_cast<float*>(part.data()));
      part.insert(part.end(), bytes.begin() + kWhole * sizeof(float), bytes.end());
      at.asked = true;
      say(0, at.peer, kModePushPull, ticket, part);
      return true;
    }
    if (!at.asked && !worker.lease) {
      at.asked = true;
      say(0, at.peer, kModePull, 0, {});
      return true;
    }
    if (std::exchange(at.asks, false)) return look_up(worker, 0), true;
    return compute(worker);
  }

  void look_up(Worker& worker, std::size_t s) {
    At& at = worker.at[s];
    const Ids its = rows_->of(s, worker.ids);
    at.rows.assign(rows_->floats(s, its), 0);
    at.looks_up = true;
    if (s == 0) rows_->pull(worker.ids, at.ticket);
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
    if (header.kind == kModeWelcome) {
      worker.welcome = got<ModeWelcome>(bytes);
      at.welcome = true;
      for (At& one : worker.at) one.wants_pull = shards_.by == Deciding::itself;
      return;
    }
    if (header.kind == kModeEnd) {
      at.left = true;
      return;
    }
    if (header.kind == kRows) return hear_rows(at, header, bytes);
    REQUIRE(header.kind == kGrant);
    const auto head = got<GrantHead>(Bytes(bytes.begin(), bytes.begin() + sizeof(GrantHead)));
    if (head.count == 0) return;
    at.asked = false;
    worker.lease = head;
    at.ticket = head.ticket;
    at.fresh = true;
    at.theta = floats(bytes);
    if (shards_.by == Deciding::by_first) {
      for (At& one : worker.at) one.wants_pull = true;
    }
    worker.silent_until = posts_[0].time + std::int64_t(below(80));
    if (setting_.term_ns > 0 && faulty(10)) worker.silent_until += 9000;
  }

  bool at_other(Worker& worker, std::size_t s) {
    At& at = worker.at[s];
    if (!worker.at[0].welcome) return false;
    if (at.peer == 0) {
      if (others_[s - 1]->asks()) return false;
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
      if (header.kind == kGrant) {
        at.ticket = header.correlation;
        at.theta = floats(bytes);
        at.fresh = true;
      }
      finish(worker);
      return true;
    }
    if (!at.welcome) return false;
    if (!at.parts.empty()) {
      const auto [ticket, bytes] = std::move(at.parts.front());
      at.parts.pop_front();
      say(s, at.peer, shards_.by == Deciding::itself ? kPartPull : kPart, ticket, bytes);
      return true;
    }
    if (std::exchange(at.asks, false)) return look_up(worker, s), true;
    if (std::exchange(at.wants_pull, false)) return say(s, at.peer, kModePull, 0, {}), true;
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

  // Where all have granted what the first has.
  bool compute(Worker& worker) {
    if (!worker.lease || worker.at[0].left) return false;  // a grant may have the end behind it
    const bool alike = shards_.by == Deciding::alike;
    for (const At& at : worker.at) {
      if (!at.fresh || !at.parts.empty() || (alike && at.ticket != worker.lease->ticket)) {
        return false;
      }
    }
    if (rows_ && !std::exchange(worker.asked_rows, true)) {
      worker.ids = rows_->drawn(worker.lease->number);
      for (At& at : worker.at) {
        at.asks = true;
        at.looked = false;
      }
      return true;
    }
    if (rows_ && !std::ranges::all_of(worker.at, &At::looked)) return false;
    std::vector<std::vector<float>> row_gradients(servers());
    for (std::size_t s = 0; s < servers(); ++s) {
      const auto number = static_cast<float>(worker.lease->number % 5);
      for (const float value : worker.at[s].rows) {
        row_gradients[s].push_back(value + 0.01f * number);
      }
    }
    if (rows_) worker.row_gradients = rows_->joined(worker.ids, row_gradients);
    std::vector<float> theta(kWhole), values(kWhole);
    for (std::size_t s = 0; s < servers(); ++s) {
      shards_.scatter(s, worker.at[s].theta.data(), theta.data());
    }
    for (std::size_t i = 0; i < kWhole; ++i) {
      const auto number = static_cast<float>((worker.lease->number + i) % 7);
      values[i] = 0.3f * theta[i] + 0.01f * number;
    }
    for (std::size_t s = 0; s < servers(); ++s) {
      At& at = worker.at[s];
      at.fresh = false;
      Bytes bytes;
      if (s == 0) {
        put(bytes, values);
      } else {
        std::vector<float> part(shards_.size(s));
        shards_.gather(s, values.data(), part.data());
        put(bytes, part);
        const GrantHead& l = *worker.lease;
        put(bytes, PartTail{l.number, l.first, l.count, l.token});
      }
      put(bytes, row_gradients[s]);
      at.parts.emplace_back(at.ticket, std::move(bytes));
    }
    return true;
  }

  static std::vector<float> floats(const Bytes& bytes) {
    std::vector<float> found((bytes.size() - sizeof(GrantHead)) / sizeof(float));
    std::memcpy(found.data(), bytes.data() + sizeof(GrantHead), found.size() * sizeof(float));
    return found;
  }

  // One thing between the first and another.
  bool told(std::size_t s) {
    Cable& cable = cables_[s];
    if (faulty(40)) {
      if (cable.first != 0) end(0, cable.first);
      if (cable.other != 0) end(s, cable.other);
      end_refused();
      return true;
    }
    if (cable.first == 0 || cable.other == 0) {
      if (cable.first != 0) end(0, cable.first);
      if (cable.other != 0) end(s, cable.other);
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
    if (header.kind == kToldDone) check_had(s);
    return true;
  }

  bool over() {
    if (!std::ranges::all_of(workers_, &Worker::ended)) return false;
    const std::uint64_t end = position();
    return std::ranges::all_of(others_, [&](const auto& one) { return one->position() == end; });
  }
  // Of the first's log, as who looks on is told it.
  std::uint64_t position() {
    const Peer peer = come(0);
    say(0, peer, kModeLook, 0, mode_hello(1, 99, 1, 2));
    const auto [header, bytes] = posts_[0].take(peer);
    end(0, peer);
    return got<ModeLooked>(Bytes(bytes.begin(), bytes.begin() + sizeof(ModeLooked))).position;
  }

  // As who keeps the first: nobody is told before that is kept.
  bool all_done() {
    ParameterServer& server = first_->server();
    if (server.updates() >= setting_.updates) return true;
    return server.examples_leased() == kPartExamples && server.unfinished().empty();
  }
  void let_end() {
    if (setting_.ends == 0) return;
    keep_first();
    first_->let_end();
  }

  void compare() {
    for (const auto& one : others_) CHECK(one->failure() == "");
    CHECK(first_->failure() == "");
    if (setting_.updates != StopRules::kNone) {
      CHECK(all_done());  // (Of parts that are missing there may be too few for so many.)
      CHECK(ever_[0][1] == first_->counters().pushed_examples + lost_[0]);
      return;
    }
    const auto theta_of = [](ParameterServer& server) {
      const ParameterVector::Pin latest = server.holder().pull();
      return std::vector<float>(latest.data(), latest.data() + server.holder().dimension());
    };
    const std::vector<float> whole = theta_of(plain_);
    std::vector<float> part(shards_.size(0));
    shards_.gather(0, whole.data(), part.data());
    if (ends == 0) CHECK((theta_of(first_->server()) == part));
    ModeCounts first = first_->server().counts();
    add(first, before_[0]);
    const ModeCounts& alone = plain_.counts();
    const std::uint64_t moved = kPartBatch * (alone.exchanges - first.exchanges);
    CHECK(first.applied + first.missing == alone.applied + moved);
    if (ends == 0) CHECK(first.missing == 0);
    if (first.exchanges == 0) {
      const std::uint64_t told = first.applied + first.missing + first.stale + first.straggler;
      CHECK(told == kPartExamples);
    }
    if (setting_.ends > 0) {
      CHECK(ever_[0][1] == first_->counters().pushed_examples + lost_[0]);
      CHECK(first_->counters().strange == 0);
      lost += lost_[0];
    }
    CHECK(first_->failure() == "");
    if (rows_ && ends == 0) CHECK(rows_->alike(0));
    row_updates = first.rows.applied;
    for (std::size_t s = 1; s < servers(); ++s) {
      CAPTURE(s);
      ParameterServer& server = others_[s - 1]->server();
      ModeCounts here = server.counts();
      add(here, before_[s]);
      CHECK(others_[s - 1]->failure() == "");
      CHECK(others_[s - 1]->counters().strange == 0);
      missing += here.missing;
      lost += lost_[s];
      if (setting_.kills > 0) {
        CHECK(ever_[s][1] == others_[s - 1]->counters().examples + lost_[s]);
        const std::uint64_t told =
            here.applied + here.stale + here.straggler + here.missing + here.exchanges * kPartBatch;
        CHECK(told <= kPartExamples);
        CHECK(told + cuts * kPartBatch >= kPartExamples);  // what was on its way at each
      }
      row_updates += here.rows.applied;
      if (shards_.by == Deciding::alike) {
        CHECK(here.applied + here.missing == first.applied + first.missing);
      } else if (first.exchanges == 0) {
        CHECK(here.applied + here.stale + here.straggler <= kPartExamples);
        const bool whole_run = cuts == 0 && setting_.term_ns == 0;
        if (whole_run) CHECK(here.applied + here.stale == kPartExamples);
      }
      if (cuts > 0 || setting_.term_ns > 0) continue;
      CHECK(here.missing + here.late == 0);
      if (shards_.by != Deciding::alike && setting_.workers > 1) continue;
      part.resize(shards_.size(s));
      shards_.gather(s, whole.data(), part.data());
      CHECK((theta_of(server) == part));
      if (rows_) CHECK(rows_->alike(s));
    }
    if (rows_ && cuts == 0 && setting_.term_ns == 0 &&
        (shards_.by == Deciding::alike || setting_.workers == 1)) {
      CHECK(row_updates == alone.rows.applied);
    }
  }

  const PartsSetting setting_;
  std::mt19937 random_;
  const ModeShards shards_;
  const std::unique_ptr<const Rule> rule_ =
      make_rule({"momentum", {{"lr", 0.05}, {"momentum", 0.9}}});
  const std::vector<float> initial_ = std::vector<float>(kWhole, 0.5f);
  const std::unique_ptr<PartsRows> rows_;  // null: there are no tables
  ParameterServer plain_;
  // A folder of the world's own.
  struct Files {
    Files() {
      static int made = 0;
      path = std::filesystem::temp_directory_path() /
             ("leashed-parts-" + std::to_string(::getpid()) + "-" + std::to_string(++made));
      std::filesystem::create_directory(path);
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;
    ~Files() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  };

  int faults_left_, restarts_left_, kills_left_, ends_left_;
  const Files files_;
  std::optional<Journal> journal_;
  bool holds_ = false;
  std::vector<ModeCounts> before_;                 // by server, of those that have died
  std::vector<std::optional<Kept>> kept_, begun_;  // by server; of a run that goes on
  std::uint64_t ends_here_ = 0;                    // since the run began, or went on
  std::vector<std::array<std::uint64_t, 2>> ever_;
  std::vector<std::uint64_t> lost_;  // examples
  std::vector<std::vector<float>> parts_;
  std::deque<HeldPost> posts_;  // by server
  std::unique_ptr<PolicyService> first_;
  std::vector<std::unique_ptr<PartService>> others_;
  std::vector<Cable> cables_;  // by server behind the first
  None none_;
  std::deque<Worker> workers_;
  std::vector<float> in_hand_, in_hand_rows_;
  std::uint64_t in_hand_examples_ = 0;
  Peer last_peer_ = 0;
  int steps_ = 0;
};

const std::vector<Choice> kSeveral = {
    {"sync"},
    {"hop_bw", {{"b3", 1}}},
    {"local_sgd", {{"h", 2}}},
    {"switching", {{"m", 3}}},
    {"gba", {{"m", 2}, {"iota", 2}}},
    {"asp"},
    {"bsp", {{"b2", 3}}},
    {"ssp", {{"s", 1}}},
    {"hop_bs", {{"b1", 1}, {"m", 2}}},
    {"easgd", {{"alpha", 0.5}}},
    {"shat"},
};

}  // namespace

TEST_CASE("several servers decide and update as one, whatever comes when") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 8);
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      for (const std::uint32_t workers : {1, 4}) {
        PartsWorld world({mode, workers, 2 + seed % 3}, seed);
        world.run();
      }
    }
  }
}

TEST_CASE("cuts, deaths and silence cost parts, which are counted, and nobody waits for ever") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 20);
  std::uint64_t missing = 0, cuts = 0;
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      PartsWorld world({mode, 1 + seed % 4, 2 + seed % 3, seed % 2 ? 4000.0 : 0.0, 30}, seed);
      world.run();
      missing += world.missing;
      cuts += world.cuts;
    }
  }
  CHECK(missing > 0);
  CHECK(cuts > 0);
}

TEST_CASE("rows of tables on several servers are read and updated as on one, whatever comes when") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 8);
  std::uint64_t updates = 0, missing = 0, cuts = 0;
  for (const Choice& mode : kSeveral) {
    if (mode.name == "local_sgd" || mode.name == "easgd") continue;
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < 2 * schedules; ++seed) {
      CAPTURE(seed);
      const int faults = seed % 2 ? 30 : 0;
      const double term_ns = seed % 4 == 3 ? 4000 : 0;
      for (const std::uint32_t workers : {1, 4}) {
        PartsWorld world({mode, workers, 2 + seed % 3, term_ns, faults, true}, seed);
        world.run();
        updates += world.row_updates;
        missing += world.missing;
        cuts += world.cuts;
      }
    }
  }
  CHECK(updates > 0);
  CHECK(missing > 0);
  CHECK(cuts > 0);
}

TEST_CASE("who dies at a cut goes on from there as if nothing had been, or parts are counted") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 12);
  std::uint64_t restarts = 0, waiting = 0, cuts = 0;
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      for (const std::uint32_t workers : {1, 4}) {
        const int faults = seed % 2 ? 20 : 0;
        const double term_ns = seed % 4 == 3 ? 4000 : 0;
        PartsWorld world({mode, workers, 2 + seed % 3, term_ns, faults, false, 3}, seed);
        world.run();
        restarts += world.restarts;
        waiting += world.waiting;
        cuts += world.cuts;
      }
    }
  }
  CHECK(restarts > schedules);
  CHECK(waiting > 0);
  CHECK(cuts > 0);
}

TEST_CASE("who is killed behind the first goes on from what it kept, and the rest is missing") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 12);
  std::uint64_t kills = 0, lost = 0, missing = 0;
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      for (const std::uint32_t workers : {1, 4}) {
        const int faults = seed % 2 ? 10 : 0;
        const double term_ns = seed % 4 == 3 ? 4000 : 0;
        PartsWorld world({mode, workers, 2 + seed % 3, term_ns, faults, false, 0, 6}, seed);
        world.run();
        kills += world.kills;
        lost += world.lost;
        missing += world.missing;
      }
    }
  }
  CHECK(kills > schedules);
  CHECK(lost > 0);
  CHECK(missing > 0);
}

TEST_CASE("the first that is killed goes on from what it kept and its journal, as it had decided") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 12);
  std::uint64_t ends = 0, kills = 0, lost = 0, missing = 0;
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      for (const std::uint32_t workers : {1, 4}) {
        const int faults = seed % 2 ? 10 : 0;
        const double term_ns = seed % 4 == 3 ? 4000 : 0;
        const int others = seed % 3 == 2 ? 4 : 0;
        PartsWorld world(
            {mode, workers, 2 + seed % 3, term_ns, faults, false, 0, others, 1 + int(seed % 5)},
            seed);
        world.run();
        ends += world.ends;
        kills += world.kills;
        lost += world.lost;
        missing += world.missing;
      }
    }
  }
  CHECK(ends > schedules);
  CHECK(kills > 0);
  CHECK(lost > 0);
  CHECK(missing > 0);
}

TEST_CASE("so does the first of a run that goes on, also before it has kept anything") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 8);
  std::uint64_t ends = 0, kills = 0, restarts = 0;
  for (const Choice& mode : kSeveral) {
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      const int faults = seed % 2 ? 10 : 0;
      const double term_ns = seed % 4 == 3 ? 4000 : 0;
      const int others = seed % 3 == 2 ? 4 : 0;
      PartsWorld world({mode, 1 + seed % 4, 2 + seed % 3, term_ns, faults, false, 2, others, 6},
                       seed);
      world.run();
      ends += world.ends;
      kills += world.kills;
      restarts += world.restarts;
    }
  }
  CHECK(ends > schedules);
  CHECK(kills > 0);
  CHECK(restarts > schedules);
}

TEST_CASE("a run that so many updates end does so whenever its first is killed") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 20);
  for (const Choice& mode : kSeveral) {
    if (mode.name == "local_sgd") continue;
    CAPTURE(mode.name);
    for (std::uint32_t seed = 0; seed < schedules; ++seed) {
      CAPTURE(seed);
      const int faults = seed % 2 ? 10 : 0;
      PartsWorld world({mode, 1 + seed % 4, 2 + seed % 3, 0, faults, false, 0, 0, 6, 4}, seed);
      world.run();
    }
  }
}

TEST_CASE("frames that do not belong there end their connection, and nothing else") {
  const auto rule = make_rule({"sgd", {{"lr", 0.1}}});
  const std::vector<float> initial(5, 0.5f);
  std::mt19937 random(3);
  struct Outside final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  } none;
  const std::uint64_t peers = asked_for("LEASHED_FUZZ", 4000);  // three frames each, and a hello
  for (const auto& [name, reduces] :
       {std::pair{"sync", false}, std::pair{"sync", true}, std::pair{"asp", false}}) {
    CAPTURE(name);
    PartService::Run run{1, 2, 3, 1};
    run.reduces = reduces;
    PartService service({name, {{"workers", 2}, {"batch", 4}, {"examples", 80}}},
                        {initial.data(), 5, 2, 1, *rule}, run);
    HeldPost post;
    service.open(post);
    const std::uint16_t kinds[] = {kPartHello, kPart,      kPartPull,  kPartLook,  kModePull,
                                   kModeLeave, kTold,      kModeHello, kProbe,     kGrant,
                                   kToldDone,  kRoundRows, kRoundTake, kRoundState};
    const std::size_t sizes[] = {0, 1, 8, 20, 24, 32, 40, 52};
    std::uint64_t refused = 0;
    for (Peer peer = 1; peer < peers; ++peer) {
      service.come(peer);
      post.boxes[peer];
      try {
        if (random() % 2 == 0) {  // somebody of the run, who goes on with something else
          Bytes hello;
          put(hello, PartHello{1, 7, 1, 2, static_cast<std::uint32_t>(random() % 3),
                               static_cast<std::uint32_t>(peer)});
          const FrameHeader header{.kind = kPartHello, .length = hello.size()};
          std::memcpy(service.place(peer, header).data(), hello.data(), hello.size());
          service.frame(peer, header, none);
        }
        for (int i = 0; i < 3; ++i) {
          const std::uint16_t kind = kinds[random() % std::size(kinds)];
          const FrameHeader header{.kind = kind,
                                   .length = std::min<std::uint64_t>(
                                       sizes[random() % std::size(sizes)], kModeLimits[kind]),
                                   .correlation = random() % 4};
          for (std::byte& byte : service.place(peer, header)) byte = std::byte(random());
          service.frame(peer, header, none);
        }
      } catch (const Error&) {
        ++refused;
      }
      service.gone(peer);
      post.boxes.erase(peer);
      REQUIRE(service.failure() == "");
    }
    CHECK(refused > peers / 4);
    CHECK(post.refused.empty());
  }
}

TEST_CASE("who was started again is not at rest before it has heard what it has to know") {
  const auto rule = make_rule({"sgd", {{"lr", 0.1}}});
  const std::vector<float> initial(5, 0.5f);
  struct Outside final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  } none;
  for (const char* const name : {"sync", "asp"}) {
    CAPTURE(name);
    PartService service({name, {{"workers", 2}, {"batch", 4}, {"examples", 80}}},
                        {initial.data(), 5, 2, 1, *rule}, {1, 2, 3, 1, {}, true});
    HeldPost post;
    service.open(post);
    service.come(1);
    post.boxes[1];
    const auto say = [&](std::uint16_t kind, const Bytes& bytes) {
      const FrameHeader header{.kind = kind, .length = bytes.size()};
      std::memcpy(service.place(1, header).data(), bytes.data(), bytes.size());
      service.frame(1, header, none);
    };
    CHECK(service.asks());
    CHECK_FALSE(service.at_rest());
    Bytes at, done;
    put(at, ToldAt{0, 9});
    say(kToldAt, at);
    if (std::string(name) == "asp") {
      CHECK_FALSE(service.at_rest());
      put(done, std::uint64_t{8});  // examples, all of which are done
      say(kToldDone, done);
      CHECK(service.server().counts().missing == 8);
    }
    CHECK(service.at_rest());
  }
}
