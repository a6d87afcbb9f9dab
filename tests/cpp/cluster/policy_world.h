// A policy server without sockets, and workers that are delayed, cut off, started again, silent, or
// say what does not belong there, by a schedule drawn from a seed. Whatever its machine hears is
// told to a second server directly: what the workers are sent must be what that one says.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/row_frames.h"
#include "leashed/base/error.h"
#include "leashed/cluster/policy_service.h"
#include "leashed/server/row_holder.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

namespace leashed {

inline Bytes mode_hello(std::uint64_t run, std::uint64_t client, std::uint64_t life,
                        std::uint64_t terms) {
  Bytes bytes;
  put(bytes, ModeHello{run, client, life, terms});
  return bytes;
}

// What is sent lies where it lay until it is taken.
class HeldPost final : public Post {
 public:
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> head,
            Connection::Parts parts, std::shared_ptr<const void> keeps) noexcept override {
    const auto box = boxes.find(to);
    if (box == boxes.end()) return;
    if (box->second.size() > kBacklog) return refuse(to);
    box->second.push_back(
        {header, {head.begin(), head.end()}, {parts.begin(), parts.end()}, std::move(keeps)});
  }
  void refuse(Peer peer) noexcept override {
    const auto box = boxes.find(peer);
    if (box == boxes.end()) return;
    box->second.clear();
    refused.insert(peer);
  }
  void wake(std::int64_t ns) noexcept override { wake_at = std::min(wake_at, ns); }
  std::int64_t now() const noexcept override { return time; }

  std::pair<FrameHeader, Bytes> take(Peer peer) {
    Letter letter = std::move(boxes.at(peer).front());
    boxes.at(peer).pop_front();
    Bytes bytes = letter.head;
    for (const auto& part : letter.parts) bytes.insert(bytes.end(), part.begin(), part.end());
    return {letter.header, bytes};
  }

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  struct Letter {
    FrameHeader header;
    Bytes head;
    std::vector<std::span<const std::byte>> parts;
    std::shared_ptr<const void> keeps;
  };
  std::map<Peer, std::deque<Letter>> boxes;
  std::set<Peer> refused;
  std::int64_t time = 1'000'000, wake_at = kNever;
};

// Hands frames in, and nothing else.
struct Frames {
  explicit Frames(PolicyService& s) : service(s) { service.open(post); }
  Peer come() {
    service.come(++last);
    post.boxes[last];
    return last;
  }
  void say(Peer peer, std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service.place(peer, header);
    REQUIRE(place.size() == payload.size());
    if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
    service.frame(peer, header, none);
  }
  void close(Peer peer) {
    post.boxes.erase(peer);
    post.refused.erase(peer);
    service.gone(peer);
  }
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };
  PolicyService& service;
  HeldPost post;
  None none;
  Peer last = 0;
};

class PolicyWorld {
 public:
  static constexpr std::size_t kDimension = 19;
  static constexpr std::uint64_t kRun = 5, kTerms = 6, kBoot = 7;

  struct Setting {
    Choice mode;
    std::uint32_t workers = 3;
    std::uint64_t examples = 60, batch = 4;
    double term_ns = 400;
    Choice rule = {"momentum", {{"lr", 0.05}, {"momentum", 0.9}}};
    Choice staleness = {"none"};
    int faults = 1000;  // at most
    bool rows = false;  // of two tables too, of which one grows
  };
  struct Happened {
    std::uint64_t cuts = 0, restarts = 0, replaced = 0, strange = 0, not_finite = 0, left = 0,
                  late = 0, commands = 0, ends = 0, grants = 0, lookups = 0, rows = 0,
                  strange_lookups = 0;
  };

  PolicyWorld(const Setting& setting, std::uint32_t seed)
      : setting_(setting),
        random_(seed),
        rule_(make_rule(setting.rule)),
        staleness_(make_staleness(setting.staleness)),
        plain_staleness_(make_staleness(setting.staleness)),
        tables_(made_tables(setting.rows)),
        plain_tables_(made_tables(setting.rows)),
        plain_(made(), context(*plain_staleness_), plain_tables_.holder.get()),
        service_(
            made(), context(*staleness_), {kRun, kTerms, kBoot},
            [this](const modes::Event& event, Time at) { heard(event, at); }, nullptr, nullptr,
            tables_.holder.get()) {
    service_.open(post_);
    workers_.resize(setting.workers);
    for (std::uint64_t i = 0; i < workers_.size(); ++i) workers_[i].client = 100 + i;
  }

  // All of it. Who is cut off or hangs is so for a while; nobody stands still for ever.
  void run() {
    int idle = 0;
    while (std::ranges::any_of(workers_, [](const Worker& w) { return !w.ended; })) {
      faults_ = faults_left_ > 0 && steps_ < 40 * setting_.examples;
      REQUIRE(++steps_ < 1000 * setting_.examples + 100'000);  // it stands still
      Worker& worker = workers_[below(workers_.size())];
      idle = step(worker) ? 0 : idle + 1;
      if (one_in(6) || idle > 50) pass(1 + static_cast<std::int64_t>(below(idle > 50 ? 500 : 60)));
    }
    for (const auto& [peer, box] : post_.boxes) CHECK(box.empty());
    compare();
  }

  const Happened& happened() const { return happened_; }
  PolicyService& service() { return service_; }
  const ModeCounts& counts() const { return service_.server().counts(); }

 private:
  struct Worker {
    std::uint64_t client = 0, life = 1;
    Peer peer = 0;
    bool welcome = false, waits = false, ended = false;
    std::uint64_t ticket = 0, number = 0;
    std::vector<float> theta;
    std::int64_t silent_until = 0;
    bool looked = false;  // up the rows of its lease
    std::size_t row_floats = 0;
    std::vector<float> rows;  // that are to come
  };
  struct Tables {
    std::vector<std::shared_ptr<Table>> all;
    std::unique_ptr<RowHolder> holder;  // null: there are none
  };
  static constexpr std::uint64_t kIds = 30;
  // What a server says to a node.
  struct Said {
    bool end;
    GrantHead head;
    std::vector<float> theta;
    std::uint64_t updates;
  };
  struct PlainSink final : Sink {
    explicit PlainSink(PolicyWorld& of) : world(of) {}
    void grant(Grant grant) override {
      const modes::Lease& l = grant.lease;
      world.expect(grant.node, {false,
                                {l.ticket, l.number, l.first, l.count, l.token, grant.version,
                                 grant.t, grant.n, grant.c},
                                {grant.pulled.data(), grant.pulled.data() + kDimension},
                                0});
    }
    void wake(Time) override {}
    void meet(std::span<const modes::Node>, modes::Node) override { FAIL("peers"); }
    void end(modes::Node node) override {
      world.expect(node, {true, {}, {}, world.plain_.holder().pull().t()});
    }
    void settled(modes::Node, const Publication&) override {}
    PolicyWorld& world;
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  modes::ServerPolicy made() const {
    Choice choice = setting_.mode;
    choice.settings.insert({{"workers", static_cast<double>(setting_.workers)},
                            {"batch", static_cast<double>(setting_.batch)},
                            {"examples", static_cast<double>(setting_.examples)},
                            {"term_ns", setting_.term_ns}});
    return modes::make_server_policy(choice);
  }
  DisciplineContext context(const StalenessPolicy& staleness) const {
    return {initial_.data(), kDimension, setting_.workers, 3, *rule_, staleness};
  }

  static Tables made_tables(bool wanted) {
    Tables made;
    if (!wanted) return made;
    const TableSettings fixed{.name = "fixed",
                              .dim = 3,
                              .rows = kIds,
                              .initial = {"uniform", {{"bound", 0.5}}},
                              .rule = {"sgd", {{"lr", 0.05}}},
                              .staleness = {"power", {{"k", 0.5}}},
                              .seed = 9};
    TableSettings grows = fixed;
    grows.name = "grows";
    grows.dim = 5;
    grows.rows = 0;
    grows.max_bytes = std::size_t{1} << 20;
    grows.admit_after = 2;
    grows.number = 1;
    for (const TableSettings& one : {fixed, grows})
      made.all.push_back(std::make_shared<Table>(one));
    made.holder = std::make_unique<RowHolder>(made.all, std::vector<std::size_t>());
    return made;
  }

  void heard(const modes::Event& event, Time at) {
    REQUIRE(at.ns >= last_.ns);
    last_ = at;
    const bool is_push = event.kind == modes::Event::Kind::push;
    AlignedArray<float> values(kDimension);
    if (is_push) std::copy_n(in_hand_.begin(), kDimension, values.data());
    const bool finite =
        std::ranges::all_of(in_hand_, [](float value) { return std::isfinite(value); });
    Payload payload{finite ? &values : nullptr, in_hand_examples_};
    AlignedArray<float> row_gradients;
    RowKeys* const keys = is_push && plain_tables_.holder ? &plain_keys_[event.ticket] : nullptr;
    if (keys && finite) {
      row_gradients = as_kept(*keys, in_hand_.data() + kDimension);
      payload.rows = keys;
      payload.row_gradients = &row_gradients;
    }
    PlainSink sink(*this);
    plain_.handle(event, is_push ? &payload : nullptr, at, sink);
    if (keys) plain_tables_.holder->release(*keys);
  }
  // Gradients as a server keeps them.
  AlignedArray<float> as_kept(const RowKeys& keys, const float* pushed) const {
    const RowHolder& holder = *plain_tables_.holder;
    AlignedArray<float> kept(holder.gradients_of(0, keys.parts[0].count) +
                             holder.gradients_of(1, keys.parts[1].count));
    std::fill_n(kept.data(), kept.size(), 0.0f);
    float* to = kept.data();
    for (std::size_t t = 0; t < 2; ++t) {
      const Table& table = *plain_tables_.all[t];
      const std::size_t count = keys.parts[t].count;
      for (std::size_t i = 0; i < count; ++i, pushed += table.dim()) {
        std::copy_n(pushed, table.dim(), to + i * table.gradient_stride());
      }
      to += holder.gradients_of(t, count);
    }
    return kept;
  }
  // All rows, or what they would begin with.
  static std::vector<float> rows_of(const Tables& tables) {
    std::vector<std::uint64_t> ids(kIds);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> all(kIds * 8);
    const std::span<const std::uint64_t> of_both[] = {ids, ids};
    float* const to[] = {all.data(), all.data() + kIds * 3};
    tables.holder->look(of_both, to);
    return all;
  }
  void expect(modes::Node node, Said said) {
    REQUIRE(node < by_node_.size());
    REQUIRE(by_node_[node] != 0);
    expected_[by_node_[node]].push_back(std::move(said));
  }

  // Throws what the service does; then it has been told that the peer has gone.
  void say(Peer peer, std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
    try {
      const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
      const std::span<std::byte> place = service_.place(peer, header);
      REQUIRE(place.size() == payload.size());
      if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
      service_.frame(peer, header, none_);
    } catch (const Error&) {
      end(peer);
      throw;
    }
    end_refused();
  }
  Peer come() {
    service_.come(++last_peer_);
    post_.boxes[last_peer_];
    return last_peer_;
  }
  void end(Peer peer) {
    post_.boxes.erase(peer);
    post_.refused.erase(peer);
    const auto node = std::ranges::find(by_node_, peer);
    if (node != by_node_.end()) *node = 0;
    service_.gone(peer);
    expected_.erase(peer);
    end_refused();
  }
  void end_refused() {
    while (!post_.refused.empty()) end(*post_.refused.begin());
  }

  void pass(std::int64_t ns) {
    post_.time += ns;
    if (post_.wake_at > post_.time) return;
    post_.wake_at = HeldPost::kNever;
    service_.woken();
    end_refused();
  }

  // Whether it did anything.
  bool step(Worker& worker) {
    if (worker.ended) return false;
    if (worker.silent_until > post_.time) return false;
    if (faults_ && one_in(25) && disturb(worker)) {
      --faults_left_;
      return true;
    }
    if (worker.peer == 0) return connect(worker), true;
    if (!post_.boxes.at(worker.peer).empty()) return hear(worker), true;
    if (!worker.welcome || worker.waits) return false;
    if (worker.ticket != 0 && tables_.holder && !worker.looked) return look_up(worker), true;
    if (worker.ticket != 0) return push(worker), true;
    worker.waits = true;
    say(worker.peer, kModePull, 0, {});
    return true;
  }

  void connect(Worker& worker) {
    const Peer before = worker.peer;
    worker.peer = come();
    worker.welcome = worker.waits = false;
    worker.ticket = 0;
    // (By then nothing is to be said to whom it had before.)
    const auto node = nodes_.find(worker.client);
    const modes::Node of =
        node != nodes_.end() ? node->second : static_cast<modes::Node>(nodes_.size());
    nodes_[worker.client] = of;
    if (by_node_.size() <= of) by_node_.resize(of + 1);
    by_node_[of] = worker.peer;
    say(worker.peer, kModeHello, 0, mode_hello(kRun, worker.client, worker.life, kTerms));
    if (before != 0) CHECK_FALSE(post_.boxes.contains(before));
  }

  void hear(Worker& worker) {
    const auto [header, bytes] = post_.take(worker.peer);
    if (header.kind == kModeWelcome) {
      const auto welcome = got<ModeWelcome>(bytes);
      CHECK(welcome.boot == kBoot);
      CHECK(welcome.dimension == kDimension);
      CHECK(welcome.node == nodes_.at(worker.client));
      worker.welcome = true;
      return;
    }
    if (header.kind == kRows) {
      CHECK(header.correlation == worker.ticket);
      REQUIRE(bytes.size() == worker.rows.size() * sizeof(float));
      CHECK(std::memcmp(bytes.data(), worker.rows.data(), bytes.size()) == 0);
      worker.looked = true;
      ++happened_.lookups;
      return;
    }
    auto& queue = expected_[worker.peer];
    REQUIRE_FALSE(queue.empty());
    const Said said = std::move(queue.front());
    queue.pop_front();
    if (header.kind == kModeEnd) {
      REQUIRE(said.end);
      CHECK(got<ModeEnd>(bytes).updates == said.updates);
      worker.ended = true;
      ++happened_.ends;
      return;
    }
    REQUIRE(header.kind == kGrant);
    REQUIRE_FALSE(said.end);
    REQUIRE(bytes.size() == sizeof(GrantHead) + kDimension * sizeof(float));
    CHECK(std::memcmp(bytes.data(), &said.head, sizeof said.head) == 0);
    const std::byte* const theta = bytes.data() + sizeof said.head;
    CHECK(std::memcmp(theta, said.theta.data(), kDimension * sizeof(float)) == 0);
    CHECK(header.correlation == said.head.ticket);
    worker.waits = said.head.count == 0;  // the end comes
    if (said.head.count == 0) return;
    ++happened_.grants;
    worker.ticket = said.head.ticket;
    worker.looked = false;
    worker.row_floats = 0;
    worker.number = said.head.number;
    worker.theta = said.theta;
    granted_examples_[worker.ticket] = said.head.count;
    worker.silent_until = post_.time + static_cast<std::int64_t>(below(80));
    if (faults_ && one_in(15)) worker.silent_until += 2000;  // its term is over by then
  }

  // Of each table some, each once.
  Ids drawn_ids() {
    Ids ids(2);
    for (auto& of : ids) {
      for (std::uint64_t id = 0; id < kIds; ++id) {
        if (one_in(5)) of.push_back(id);
      }
    }
    return ids;
  }
  void look_up(Worker& worker) {
    const Ids ids = drawn_ids();
    worker.row_floats = ids[0].size() * 3 + ids[1].size() * 5;
    worker.rows.assign(worker.row_floats, 0);
    const std::span<const std::uint64_t> of_both[] = {ids[0], ids[1]};
    float* const to[] = {worker.rows.data(), worker.rows.data() + ids[0].size() * 3};
    plain_tables_.holder->pull(of_both, plain_keys_[worker.ticket], to);
    say(worker.peer, kLookup, worker.ticket, lookup_of(ids, true));
  }

  void push(Worker& worker) {
    std::vector<float> values(kDimension);
    for (std::size_t i = 0; i < kDimension; ++i) {
      values[i] = 0.3f * worker.theta[i] + 0.01f * static_cast<float>((worker.number + i) % 7);
    }
    for (std::size_t i = 0; i < worker.row_floats; ++i) {
      values.push_back(worker.rows[i] + 0.01f * static_cast<float>((worker.number + i) % 5));
    }
    if (faults_ && one_in(40)) {
      values[below(values.size())] = one_in(2) ? std::numeric_limits<float>::quiet_NaN()
                                               : std::numeric_limits<float>::infinity();
      ++happened_.not_finite;
    }
    const bool pulls = !one_in(4);
    const std::uint64_t ticket = std::exchange(worker.ticket, 0);
    in_hand_ = values;
    in_hand_examples_ = granted_examples_.at(ticket);
    Bytes bytes;
    put(bytes, values);
    worker.waits = pulls;
    say(worker.peer, pulls ? kModePushPull : kModePush, ticket, bytes);
    if (!pulls && !post_.boxes.at(worker.peer).empty()) worker.waits = true;  // it was answered
  }

  bool disturb(Worker& worker) {
    switch (below(6)) {
      case 0: {  // cut off
        if (worker.peer == 0) return false;
        ++happened_.cuts;
        end(std::exchange(worker.peer, 0));
        return true;
      }
      case 1: {  // started again
        ++worker.life;
        ++happened_.restarts;
        if (worker.peer != 0 && one_in(2)) end(std::exchange(worker.peer, 0));
        if (worker.peer != 0) ++happened_.replaced;
        connect(worker);
        return true;
      }
      case 2: {  // half open
        if (worker.peer == 0) return false;
        ++happened_.replaced;
        connect(worker);
        return true;
      }
      case 3: {
        if (worker.peer == 0 || !worker.welcome || worker.waits) return false;
        if (!post_.boxes.at(worker.peer).empty()) return false;
        ++happened_.left;
        worker.ticket = 0;
        say(worker.peer, kModeLeave, 0, {});
        return true;
      }
      case 4: {
        if (worker.peer == 0 || !worker.welcome || !post_.boxes.at(worker.peer).empty()) {
          return false;
        }
        if (setting_.mode.name != "gba" && setting_.mode.name != "switching") return false;
        ++happened_.commands;
        Bytes bytes;
        put(bytes, ModeCommand{static_cast<std::uint32_t>(below(2))});
        say(worker.peer, kModeCommand, 0, bytes);
        return true;
      }
      default:
        return strange(worker);
    }
  }

  // What is refused, with its connection.
  bool strange(Worker& worker) {
    if (tables_.holder && one_in(3)) return strange_lookup(worker);
    ++happened_.strange;
    Bytes values(kDimension * sizeof(float));
    const auto stranger = [&](const Bytes& hello) {
      const Peer peer = come();
      CHECK_THROWS_AS(say(peer, kModeHello, 0, hello), Error);
    };
    const std::size_t kind = below(9);
    switch (kind) {
      case 0:
        stranger(mode_hello(kRun + 1, worker.client, worker.life, kTerms));
        return true;
      case 1:
        stranger(mode_hello(kRun, worker.client, worker.life, kTerms + 1));
        return true;
      case 2:
        if (nodes_.size() < workers_.size()) return false;
        stranger(mode_hello(kRun, 99, 1, kTerms));
        return true;
      case 3:
        if (!nodes_.contains(worker.client) || !worker.welcome) return false;
        stranger(mode_hello(kRun, worker.client, worker.life - 1, kTerms));
        return true;
      case 4:
        stranger(Bytes(below(sizeof(ModeHello))));
        return true;
      case 5: {
        const Peer peer = come();
        const std::uint16_t any[] = {kModePull, kModeLeave, kModeCommand};
        CHECK_THROWS_AS(say(peer, any[below(3)], 0, {}), Error);
        return true;
      }
      case 6: {
        const Peer peer = come();
        CHECK_THROWS_AS(say(peer, kModePush, below(5), values), Error);
        return true;
      }
      default: {
        if (worker.peer == 0 || !worker.welcome || !post_.boxes.at(worker.peer).empty()) {
          return false;
        }
        const bool longer = one_in(2) && worker.ticket != 0;
        if (longer) values.resize(values.size() + (one_in(2) ? 4 : -4));
        const std::uint64_t ticket = longer ? worker.ticket : worker.ticket + 1 + below(9);
        const std::uint16_t kind_of = one_in(2) ? kModePush : kModePushPull;
        CHECK_THROWS_AS(say(worker.peer, kind_of, ticket, values), Error);
        worker.peer = 0;
        return true;
      }
    }
  }

  bool strange_lookup(Worker& worker) {
    if (worker.peer == 0 || !worker.welcome || !post_.boxes.at(worker.peer).empty()) return false;
    ++happened_.strange_lookups;
    Ids ids = drawn_ids();
    std::uint64_t ticket = worker.ticket;
    Bytes bytes = lookup_of(ids, true);
    switch (below(4)) {
      case 0:
        ticket += 1 + below(5);
        break;
      case 1:  // of no row, or one lookup too many
        ids[0].push_back(kIds + below(9));
        bytes = lookup_of(ids, true);
        break;
      case 2:
        bytes.resize(bytes.size() + (one_in(2) ? 8 : -4));
        break;
      default:
        bytes = lookup_of(ids, false);
    }
    CHECK_THROWS_AS(say(worker.peer, kLookup, ticket, bytes), Error);
    worker.peer = 0;
    return true;
  }

  void compare() {
    if (tables_.holder) {
      CHECK(rows_of(tables_) == rows_of(plain_tables_));
      CHECK(counts().rows.applied == plain_.counts().rows.applied);
      CHECK(counts().rows.unadmitted == plain_.counts().rows.unadmitted);
      CHECK(counts().rows.staleness == plain_.counts().rows.staleness);
      happened_.rows += counts().rows.applied;
    }
    const ParameterVector::Pin one = service_.server().holder().pull(),
                               other = plain_.holder().pull();
    CHECK(one.t() == other.t());
    CHECK(std::memcmp(one.data(), other.data(), kDimension * sizeof(float)) == 0);
    const ModeCounts &a = service_.server().counts(), &b = plain_.counts();
    CHECK(a.late == b.late);
    CHECK(a.applied == b.applied);
    CHECK(a.missing == b.missing);
    happened_.late += a.late;
    // Every example once.
    const std::uint64_t settled = a.applied + a.stale + a.straggler + a.missing;
    if (a.exchanges == 0) CHECK(settled == setting_.examples);
    const PolicyService::Counters counted = service_.counters();
    CHECK(counted.not_finite == happened_.not_finite);
    CHECK(counted.replaced <= happened_.replaced);
    CHECK(counted.lanes == workers_.size());
    CHECK(service_.failure().empty());
  }

  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };

  const Setting setting_;
  std::mt19937 random_;
  const std::unique_ptr<const Rule> rule_;
  const std::unique_ptr<const StalenessPolicy> staleness_, plain_staleness_;
  const std::vector<float> initial_ = std::vector<float>(kDimension, 0.5f);
  const Tables tables_, plain_tables_;
  std::map<std::uint64_t, RowKeys> plain_keys_;  // by ticket
  ParameterServer plain_;
  HeldPost post_;
  None none_;
  std::vector<Peer> by_node_;
  std::map<std::uint64_t, modes::Node> nodes_;  // by client
  std::map<Peer, std::deque<Said>> expected_;
  std::map<std::uint64_t, std::uint64_t> granted_examples_;
  std::vector<float> in_hand_;
  std::uint64_t in_hand_examples_ = 0;
  Peer last_peer_ = 0;
  Time last_{0};
  int faults_left_ = setting_.faults;
  bool faults_ = false;
  std::uint64_t steps_ = 0;
  Happened happened_;
  std::vector<Worker> workers_;
  PolicyService service_;
};

}  // namespace leashed
