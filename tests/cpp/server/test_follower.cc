// Servers that follow a leader's log: whatever comes when, each makes the leader's updates of its
// own part of the parameters, and several have the bits of one.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "asked.h"
#include "leashed/base/error.h"
#include "leashed/server/follower.h"
#include "leashed/update/registry.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

using Kind = Event::Kind;
constexpr std::uint32_t kNodes = 4;
constexpr std::size_t kDimension = 24;

// One server of one part of the parameters, and what it granted last to each node.
struct PartServer final : Sink {
  PartServer(const Choice& mode, const Rule& rule, std::size_t size, RowHolder* rows = nullptr)
      : initial(size, 0.5f),
        server(make_server_policy(mode), {initial.data(), size, kNodes, kNodes + 2, rule}, rows) {}

  void grant(Grant grant) override {
    const auto node = grant.node;
    granted[node] = std::move(grant);
  }
  void wake(Time) override {}
  void meet(std::span<const Node>, Node) override {}
  void end(Node) override {}
  void settled(Node, const Publication&) override {}
  std::vector<float> theta() {
    const ParameterVector::Pin latest = server.holder().pull();
    return {latest.data(), latest.data() + initial.size()};
  }
  std::uint64_t updates() { return server.holder().pull().t(); }

  const std::vector<float> initial;
  ParameterServer server;
  std::optional<Grant> granted[kNodes];
};

// A leader, who has the first part, its log, and followers, who have the others; beside them one
// server of all parameters, which hears what the leader hears.
struct World {
  World(std::size_t servers, std::uint64_t seed)
      : random(static_cast<std::mt19937::result_type>(seed)),
        mode{"sync", {{"workers", kNodes}, {"batch", 3}, {"examples", 3 * 40}}},
        whole(mode, *rule, kDimension) {
    for (std::size_t s = 0; s < servers; ++s) {
      parts.push_back(std::make_unique<PartServer>(mode, *rule, kDimension / servers));
      if (s > 0) followers.emplace_back(parts[s]->server, *parts[s], kNodes);
    }
    heard.resize(servers);
  }

  bool chance(unsigned one_in) { return random() % one_in == 0; }
  void lead(const Event& event, const Payload* payload = nullptr, const Payload* all = nullptr) {
    ++ns;
    log.append(event, {ns});
    parts[0]->server.handle(event, payload, {ns}, *parts[0]);
    whole.server.handle(event, all, {ns}, whole);
  }
  void tell(std::size_t s) {
    log.close();
    for (const EventLog::Block& block : log.from(heard[s])) {
      ReadBlock read;
      REQUIRE(read.read(*block) == block->size());
      followers[s - 1].hear(read);
      heard[s] = followers[s - 1].heard();
      if (chance(2)) break;
    }
  }
  std::size_t size() const { return parts.size(); }

  const std::unique_ptr<const Rule> rule =
      make_rule({"momentum", {{"lr", 0.1}, {"momentum", 0.9}}});
  std::mt19937 random;
  const Choice mode;
  PartServer whole;
  std::vector<std::unique_ptr<PartServer>> parts;
  std::deque<Follower> followers;
  std::vector<std::uint64_t> heard;  // by follower
  EventLog log;
  std::int64_t ns = 0;
};

struct Worker {
  bool pulled = false;
  std::optional<Lease> lease;  // while its gradient is being sent
  std::uint64_t version = 0;
  std::vector<bool> sent;  // by server
  std::vector<float> gradient;
};

// Steps until every batch is done and every follower has got as far. dies: workers leave, some
// between two parts of a push.
void play(World& world, bool dies) {
  Worker workers[kNodes];
  const std::size_t servers = world.size(), size = kDimension / servers;
  std::uint64_t lost_parts = 0;
  for (std::uint64_t step = 0; step < 200'000; ++step) {
    const auto node = static_cast<Node>(world.random() % kNodes);
    Worker& worker = workers[node];
    if (servers > 1 && world.chance(2)) {
      world.tell(1 + world.random() % (servers - 1));
      continue;
    }
    if (dies && world.chance(60)) {
      lost_parts += worker.lease && worker.sent[0];
      world.lead({Kind::leave, node});
      worker = {};
      for (auto& part : world.parts) part->granted[node].reset();
      continue;
    }
    if (!worker.pulled) {
      world.lead({Kind::pull, node});
      worker.pulled = true;
      continue;
    }
    if (!worker.lease) {  // all have granted the same
      const std::optional<Grant>& first = world.parts[0]->granted[node];
      bool all = first.has_value();
      for (auto& part : world.parts) {
        const std::optional<Grant>& one = part->granted[node];
        all = all && one && one->lease.ticket == first->lease.ticket;
      }
      if (!all) continue;
      worker.lease = first->lease;
      worker.version = first->version;
      worker.sent.assign(servers, false);
      worker.gradient.clear();
      for (auto& part : world.parts) {
        REQUIRE(part->granted[node]->version == first->version);
        for (std::size_t i = 0; i < size; ++i) {
          const std::size_t place = worker.gradient.size();
          const float theta = part->granted[node]->pulled.data()[i];
          if (!dies) REQUIRE(theta == world.whole.granted[node]->pulled.data()[place]);
          const auto number = static_cast<float>(1 + worker.lease->number % 7);
          worker.gradient.push_back(theta * 0.37f + number / static_cast<float>(3 + place % 11));
        }
        part->granted[node].reset();
      }
      continue;
    }
    const std::size_t s = world.random() % servers;
    if (worker.sent[s]) continue;
    worker.sent[s] = true;
    AlignedArray<float> values(size), all(kDimension);
    std::copy_n(worker.gradient.data() + s * size, size, values.data());
    std::copy_n(worker.gradient.data(), kDimension, all.data());
    const Payload own{&values, worker.lease->count}, whole{&all, worker.lease->count};
    if (s == 0) {
      world.lead({Kind::push, node, worker.lease->ticket, worker.version}, &own, &whole);
    } else {
      Follower& of = world.followers[s - 1];
      const std::uint64_t life = of.life(node);
      of.take(node, life, worker.lease->ticket, worker.lease->count, values);
    }
    if (std::ranges::count(worker.sent, true) == static_cast<long>(servers)) worker = {};
    if (world.parts[0]->server.unfinished().empty() &&
        world.parts[0]->server.examples_leased() == 3 * 40) {
      break;
    }
  }
  REQUIRE(world.parts[0]->server.unfinished().empty());
  for (Node node = 0; node < kNodes; ++node) {  // what is on its way comes, or its worker leaves
    Worker& worker = workers[node];
    for (std::size_t s = 1; worker.lease && s < servers && !dies; ++s) {
      if (worker.sent[s]) continue;
      AlignedArray<float> values(size);
      std::copy_n(worker.gradient.data() + s * size, size, values.data());
      world.followers[s - 1].take(node, world.followers[s - 1].life(node), worker.lease->ticket,
                                  worker.lease->count, values);
    }
    if (dies) world.lead({Kind::leave, node});
  }
  for (std::size_t s = 1; s < servers; ++s) {
    while (world.heard[s] < world.log.next()) world.tell(s);
    const Follower& of = world.followers[s - 1];
    CHECK(of.waits() == nullptr);
    CHECK(of.position() == world.log.next());
    // One of which no part has come is none here.
    CHECK(world.parts[s]->updates() <= world.parts[0]->updates());
    if (!dies) CHECK(world.parts[s]->updates() == world.parts[0]->updates());
    const ModeCounts &counts = world.parts[s]->server.counts(),
                     &first = world.parts[0]->server.counts();
    CHECK(counts.applied + counts.missing == first.applied);
    CHECK(counts.late == first.late);
    if (!dies) CHECK(counts.missing == 0);
    CHECK(counts.missing <= 3 * lost_parts + 3 * kNodes);
  }
}

}  // namespace

TEST_CASE("Sync on one to four servers has the bits of one, whatever comes when") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 40);
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    for (const std::size_t servers : {1, 2, 3, 4}) {
      CAPTURE(seed);
      CAPTURE(servers);
      World world(servers, seed);
      play(world, false);
      std::vector<float> all;
      for (auto& part : world.parts) {
        const std::vector<float> one = part->theta();
        all.insert(all.end(), one.begin(), one.end());
      }
      CHECK(world.whole.updates() == 10);
      CHECK((all == world.whole.theta()));
    }
  }
}

TEST_CASE("where workers die between two parts, each push has its part at a server or is missing") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", 60);
  std::uint64_t missing = 0;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    for (const std::size_t servers : {2, 4}) {
      CAPTURE(seed);
      CAPTURE(servers);
      World world(servers, seed);
      play(world, true);
      for (auto& part : world.parts) missing += part->server.counts().missing;
    }
  }
  CHECK(missing > 0);
}

namespace {

// A follower of asp, of which node 0 has been granted ticket 1.
struct Alone {
  Alone() { of.hear({Kind::pull, 0}, {1}); }
  AlignedArray<float> part() {
    AlignedArray<float> values(2);
    values[0] = values[1] = 1;
    return values;
  }
  const std::unique_ptr<const Rule> rule = make_rule({"sgd", {{"lr", 0.1}}});
  PartServer at{{"sync", {{"workers", 1}, {"batch", 3}}}, *rule, 2};
  Follower of{at.server, at, kNodes};
};

}  // namespace

TEST_CASE(
    "a push waits for its part, a leave that is heard ends that, and a late part is refused") {
  Alone alone;
  auto values = alone.part();
  alone.of.hear({Kind::push, 0, 1}, {2});
  REQUIRE(alone.of.waits() != nullptr);
  CHECK(alone.of.position() == 1);
  alone.of.hear({Kind::pull, 1}, {3});
  CHECK(alone.of.position() == 1);
  alone.of.hear({Kind::leave, 0}, {4});
  CHECK(alone.of.waits() == nullptr);
  CHECK(alone.at.server.counts().missing == 3);
  CHECK_FALSE(alone.of.take(0, 0, 1, 3, values));
  CHECK(values.size() == 2);
  CHECK(alone.of.life(0) == 1);
}

TEST_CASE("who says which parts come ends the wait for those before, and none comes twice") {
  Alone alone;
  auto values = alone.part();
  alone.of.hear({Kind::push, 0, 1}, {2});
  alone.of.comes_from(0, 0, 1);
  CHECK(alone.of.waits() != nullptr);
  CHECK(alone.of.take(0, 0, 1, 3, values));
  CHECK(alone.at.updates() == 1);
  auto again = alone.part();
  CHECK_FALSE(alone.of.take(0, 0, 1, 3, again));
  alone.of.hear({Kind::pull, 0}, {3});
  alone.of.hear({Kind::push, 0, 2}, {4});
  alone.of.comes_from(0, 0, 3);
  CHECK(alone.of.waits() == nullptr);
  CHECK(alone.at.server.counts().missing == 3);
  CHECK_FALSE(alone.of.take(0, 0, 2, 3, again));
}

TEST_CASE("a part that was given up is late, though its sender has it yet") {
  Alone alone;
  alone.of.hear({Kind::push, 0, 1}, {2});
  alone.of.give_up();
  CHECK(alone.at.server.counts().missing == 3);
  alone.of.comes_from(0, 0, 1);
  auto values = alone.part();
  CHECK_FALSE(alone.of.take(0, 0, 1, 3, values));
  CHECK(alone.of.take(0, 0, 2, 3, values));
}

TEST_CASE("a part of an earlier ticket is waited for behind a later one's") {
  Alone alone;
  alone.of.hear({Kind::pull, 1}, {2});   // ticket 2
  alone.of.hear({Kind::leave, 1}, {3});  // which comes back as 3
  alone.of.hear({Kind::push, 0, 1}, {4});
  auto values = alone.part();
  CHECK(alone.of.take(0, 0, 1, 3, values));
  alone.of.hear({Kind::push, 0, 9}, {5});
  values = alone.part();
  CHECK(alone.of.take(0, 0, 9, 3, values));
  alone.of.hear({Kind::push, 0, 5}, {6});
  CHECK(alone.of.waits() != nullptr);
  values = alone.part();
  CHECK(alone.of.take(0, 0, 5, 3, values));
  CHECK(alone.of.waits() == nullptr);
  alone.of.lose(0, 0, 8);
  alone.of.hear({Kind::push, 0, 8}, {7});
  CHECK(alone.of.waits() == nullptr);
  alone.of.hear({Kind::push, 0, 7}, {8});
  CHECK(alone.of.waits() != nullptr);
  alone.of.give_up();
  values = alone.part();
  CHECK_FALSE(alone.of.take(0, 0, 7, 3, values));
  CHECK_FALSE(alone.of.take(0, 0, 8, 3, values));
}

TEST_CASE("what was said of a later life stays known while one before it is carried out") {
  Alone alone;
  alone.of.hear({Kind::pull, 1}, {2});
  alone.of.hear({Kind::push, 1, 2}, {3});  // for whose part it waits
  alone.of.hear({Kind::push, 0, 1}, {4});
  auto values = alone.part();
  CHECK(alone.of.take(0, 0, 1, 3, values));
  alone.of.comes_from(0, 1, 9);  // before the leave is heard
  values = alone.part();
  CHECK(alone.of.take(1, 0, 2, 3, values));
  CHECK(alone.of.waits() == nullptr);
  alone.of.hear({Kind::leave, 0}, {5});
  alone.of.hear({Kind::pull, 0}, {6});
  alone.of.hear({Kind::push, 0, 8}, {7});
  CHECK(alone.of.waits() == nullptr);
}

TEST_CASE("lines that were heard are passed over, and a gap, a node or a second part is refused") {
  Alone alone;
  EventLog log;
  log.append({Kind::pull, 0}, {1});
  log.append({.kind = Kind::command, .argument = 1}, {2});  // sync knows none
  log.close();
  ReadBlock read;
  read.read(*log.from(0)[0]);
  alone.of.hear(read);
  CHECK(alone.of.heard() == 2);
  alone.of.hear(read);
  CHECK(alone.of.heard() == 2);
  read.first = 3;
  CHECK_THROWS_WITH_AS(alone.of.hear(read), doctest::Contains("only 2 lines"), Error);
  CHECK_THROWS_WITH_AS(alone.of.hear({Kind::pull, kNodes}, {3}), doctest::Contains("room for 4"),
                       Error);
  auto values = alone.part();
  CHECK(alone.of.take(0, 0, 1, 3, values));
  values = alone.part();
  CHECK_THROWS_AS(alone.of.take(0, 0, 2, 3, values), Error);
}

TEST_CASE("a follower that goes on from its snapshot knows who had left behind its position") {
  Alone alone;
  alone.of.hear({Kind::push, 0, 1}, {2});
  auto values = alone.part();
  CHECK(alone.of.take(0, 0, 1, 3, values));
  alone.of.hear({Kind::pull, 0}, {3});
  alone.of.hear({Kind::push, 0, 2}, {4});  // waits
  alone.of.hear({Kind::pull, 1}, {5});
  alone.of.hear({Kind::push, 1, 3}, {6});
  alone.of.hear({Kind::leave, 1}, {7});  // before it is carried out
  Archived kept;
  Archive to(kept);
  alone.of.visit(to);
  Follower again(alone.at.server, alone.at, kNodes);
  Archive from(std::as_const(kept));
  again.visit(from);
  from.finish();
  CHECK(again.position() == 3);
  CHECK(again.life(1) == 0);
  auto late = alone.part();
  CHECK_FALSE(again.take(1, 0, 3, 3, late));  // that life is over
  CHECK_FALSE(again.take(0, 0, 1, 3, late));  // that push is carried out
  CHECK(again.take(0, 0, 2, 3, late));
  late = alone.part();
  CHECK(again.take(1, 1, 9, 3, late));
}

namespace {

// With a table of four rows, of which node 0 has pulled the first, and given its gradient.
struct WithRows {
  WithRows() { at.server.handle({Kind::pull, 0}, nullptr, {1}, at); }
  RowPush pulled() {
    RowPush push;
    const std::uint64_t id = 0;
    const std::span<const std::uint64_t> ids(&id, 1);
    float value = 0;
    float* const to = &value;
    holder.pull({&ids, 1}, push.keys, {&to, 1});
    push.gradients = AlignedArray<float>(holder.gradients_of(0, 1));
    std::fill_n(push.gradients.data(), push.gradients.size(), 1.0f);
    return push;
  }
  float row() {
    const std::uint64_t id = 0;
    const std::span<const std::uint64_t> ids(&id, 1);
    float value = 0;
    float* const to = &value;
    holder.look({&ids, 1}, {&to, 1});
    return value;
  }

  const std::unique_ptr<const Rule> rule = make_rule({"sgd", {{"lr", 0.5}}});
  RowHolder holder{{std::make_shared<Table>(TableSettings{.name = "a",
                                                          .dim = 1,
                                                          .rows = 4,
                                                          .initial = {"uniform", {{"bound", 0.5}}},
                                                          .rule = {"sgd", {{"lr", 0.5}}},
                                                          .staleness = {"none"},
                                                          .seed = 9})},
                   {}};
  PartServer at{{"sync", {{"workers", 1}, {"batch", 3}}}, *rule, 2, &holder};
  Follower of{at.server, at, kNodes, &holder};
};

LogLine noted(LogLine::Note note, std::uint64_t number = 0) {
  return {{Kind::push, 0, number}, {}, note};
}

}  // namespace

TEST_CASE("a sum is of rows that are here, and its update comes home with a line of the log") {
  WithRows with;
  with.of.hear({Kind::pull, 0}, {2});
  RowPush first = with.pulled(), again = with.pulled();
  CHECK(with.of.take_rows(0, 0, 1, first));
  std::fill_n(again.gradients.data(), again.gradients.size(), 0.5f);
  CHECK(with.of.take_rows(0, 0, 1, again));  // in place of those
  const float before = with.row();
  with.of.hear({{Kind::push, 0, 1}, {3}, LogLine::Note::summed});
  CHECK(with.row() == before - 0.25f);
  CHECK(with.at.updates() == 0);
  CHECK(with.at.server.updates() == 1);
  CHECK(with.at.server.counts().applied == 3);
  AlignedArray<float> home(2);
  std::fill_n(home.data(), 2, 7.0f);
  with.of.bring_home(with.of.heard(), std::move(home));
  with.of.hear(noted(LogLine::Note::home, 1));
  CHECK(with.at.updates() == 1);
  CHECK(with.at.theta() == std::vector<float>{7, 7});
  CHECK_FALSE(with.of.take_rows(0, 0, 1, first));  // it is carried out
}

TEST_CASE("sums whose rows are not here, or that come home without this part, end it by name") {
  WithRows with;
  with.of.hear({Kind::pull, 0}, {2});
  CHECK_THROWS_WITH_AS(with.of.hear({{Kind::push, 0, 1}, {3}, LogLine::Note::summed}),
                       doctest::Contains("before they had come"), Error);
  WithRows other;
  other.of.hear({Kind::pull, 0}, {2});
  RowPush rows = other.pulled();
  CHECK(other.of.take_rows(0, 0, 1, rows));
  other.of.hear({{Kind::push, 0, 1}, {3}, LogLine::Note::summed});
  CHECK_THROWS_WITH_AS(other.of.hear(noted(LogLine::Note::home, 1)),
                       doctest::Contains("not this policy server's part"), Error);
}

TEST_CASE("what is lost of sums is not applied, and rows of a sum are no push's") {
  WithRows with;
  with.of.hear({Kind::pull, 0}, {2});
  RowPush rows = with.pulled();
  CHECK(with.of.take_rows(0, 0, 1, rows));
  with.of.hear({{Kind::push, 0, 1}, {3}, LogLine::Note::summed});
  with.of.hear(noted(LogLine::Note::lost, 3));
  CHECK(with.at.server.counts().applied == 0);
  CHECK(with.at.server.updates() == 0);
  with.of.hear({Kind::pull, 0}, {4});
  with.of.hear(noted(LogLine::Note::granted));
  CHECK(with.at.granted[0]->lease.ticket == 2);
  rows = with.pulled();
  CHECK(with.of.take_rows(0, 0, 2, rows));
  with.of.hear({Kind::push, 0, 2}, {5});
  CHECK(with.of.waits() != nullptr);
  auto values = AlignedArray<float>(2);
  std::fill_n(values.data(), 2, 1.0f);
  rows = with.pulled();
  CHECK(with.of.take(0, 0, 2, 3, values, &rows));  // in place of those
  CHECK(with.of.waits() == nullptr);
  CHECK(with.at.updates() == 1);
}
