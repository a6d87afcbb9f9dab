// Rows of tables on a policy server: under schedules of workers that come and go, and over sockets,
// what they read and what their gradients do is what it is where all are in one process.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "asked.h"
#include "cluster/policy_world.h"
#include "cluster/row_served.h"
#include "cluster/tending.h"
#include "leashed/cluster/asked_rows.h"
#include "leashed/cluster/lane_rows.h"
#include "leashed/update/registry.h"
#include "modes/all_modes.h"
#include "modes/row_job.h"

using namespace leashed;

namespace {

Bytes floats(std::size_t n, float value = 0.5f) {
  Bytes bytes;
  put(bytes, std::vector<float>(n, value));
  return bytes;
}

// A service of one small table, and its frames.
struct Small {
  explicit Small(const TableSettings& settings, const Choice& mode = {"asp"}) {
    const auto table = std::make_shared<Table>(settings);
    holder = std::make_unique<RowHolder>(std::vector{table}, std::vector<std::size_t>());
    Choice choice = mode;
    choice.settings.insert({{"workers", 3.0}, {"batch", 4.0}, {"examples", 0.0}});
    const DisciplineContext context{initial.data(), kDimension, 3, 3, *rule};
    service = std::make_unique<PolicyService>(modes::make_server_policy(choice), context,
                                              PolicyService::Run{1, 2, 3}, nullptr, nullptr,
                                              nullptr, holder.get());
    frames = std::make_unique<Frames>(*service);
  }
  Table& table() { return *holder->tables()[0]; }
  // One that has a lease; its ticket.
  std::pair<Peer, std::uint64_t> granted(std::uint64_t client) {
    const Peer peer = frames->come();
    frames->say(peer, kModeHello, 0, mode_hello(1, client, 1, 2));
    frames->post.take(peer);
    frames->say(peer, kModePull, 0, {});
    return {peer, frames->post.take(peer).first.correlation};
  }
  std::vector<float> looked_up(Peer peer, std::uint64_t ticket, const Ids& ids) {
    frames->say(peer, kLookup, ticket, lookup_of(ids, true));
    const auto [header, bytes] = frames->post.take(peer);
    CHECK(header.kind == kRows);
    CHECK(header.correlation == ticket);
    std::vector<float> rows(bytes.size() / sizeof(float));
    std::memcpy(rows.data(), bytes.data(), bytes.size());
    return rows;
  }

  static constexpr std::size_t kDimension = 7;
  const std::vector<float> initial = std::vector<float>(kDimension, 1.0f);
  const std::unique_ptr<const Rule> rule = make_rule(row_job::kSgd);
  std::unique_ptr<RowHolder> holder;
  std::unique_ptr<PolicyService> service;
  std::unique_ptr<Frames> frames;
};

TableSettings fixed_table() {
  return {.name = "t",
          .dim = 3,
          .rows = 20,
          .initial = {"uniform", {{"bound", 0.5}}},
          .rule = row_job::kSgd,
          .staleness = {"none"},
          .seed = 1};
}

}  // namespace

TEST_CASE(
    "whatever becomes of workers, each reads and updates the rows that it would in one process") {
  PolicyWorld::Happened all;
  for (const Choice& mode : all_modes()) {
    if (!pushes_gradients(mode)) continue;
    for (std::size_t seed = 0; seed < asked_for("LEASHED_SCHEDULES", 30); ++seed) {
      CAPTURE(mode.name);
      CAPTURE(seed);
      PolicyWorld::Setting setting{.mode = mode, .rows = true};
      setting.workers = 1 + seed % 4;
      if (seed % 3 == 2) setting.term_ns = 0;
      if (seed % 2 == 1) setting.faults = 2;
      if (seed % 5 == 4) setting.staleness = {"power", {{"k", 0.5}}};
      PolicyWorld world(setting, static_cast<std::uint32_t>(seed));
      world.run();
      const PolicyWorld::Happened& one = world.happened();
      for (const auto sum :
           {&PolicyWorld::Happened::cuts, &PolicyWorld::Happened::lookups,
            &PolicyWorld::Happened::rows, &PolicyWorld::Happened::not_finite,
            &PolicyWorld::Happened::strange_lookups, &PolicyWorld::Happened::late}) {
        all.*sum += one.*sum;
      }
    }
  }
  CHECK(all.cuts > 0);
  CHECK(all.lookups > 0);
  CHECK(all.rows > 0);
  CHECK(all.not_finite > 0);
  CHECK(all.strange_lookups > 0);
  CHECK(all.late > 0);
}

TEST_CASE(
    "a trainer of one worker has the bits of one thread, of rows and what is evaluated by them") {
  for (const Choice& mode : all_modes()) {
    if (!pushes_gradients(mode)) continue;
    for (const row_job::Kind kind : {row_job::Kind::fixed, row_job::Kind::grows}) {
      CAPTURE(mode.name);
      Served served(mode, 1, kind);
      const auto [threads, rows] = served.on_threads(1, kind);
      ModeTrainer trainer(row_job::kFeatures, 1, kAlike, served.shapes);
      const Tending tending(*served.server, trainer);
      const ModeTrainResult found = served.train(trainer, 1);
      CHECK(found.training.reason == StopReason::epochs);
      CHECK(found.training.parameters == threads.training.parameters);
      CHECK(row_job::rows_of(served.tables, served.data) == rows);
      REQUIRE(found.training.evaluations.size() == threads.training.evaluations.size());
      for (std::size_t i = 0; i < found.training.evaluations.size(); ++i) {
        CHECK(found.training.evaluations[i].loss == threads.training.evaluations[i].loss);
      }
      CHECK(found.training.rows.applied == threads.training.rows.applied);
      CHECK(found.training.rows.unadmitted == threads.training.rows.unadmitted);
      CHECK(served.server->counters().lookups == served.server->counters().pushes);
      CHECK(served.server->counters().reads > 0);
      CHECK(trainer.counters().lookups == trainer.counters().pushes);
    }
  }
}

TEST_CASE("rounds of several workers over sockets have the bits of threads") {
  Served served({"sync"}, 3, row_job::Kind::fixed);
  const auto [threads, rows] = served.on_threads(3, row_job::Kind::fixed);
  ModeTrainer trainer(row_job::kFeatures, 3, kAlike, served.shapes);
  const Tending tending(*served.server, trainer);
  const ModeTrainResult found = served.train(trainer, 3);
  CHECK(found.training.parameters == threads.training.parameters);
  CHECK(row_job::rows_of(served.tables, served.data) == rows);
}

TEST_CASE("connections that are cut while rows are looked up cost gradients and no example") {
  for (const char* const name : {"asp", "sync", "gba"}) {
    CAPTURE(name);
    Served served({name}, 3, row_job::Kind::evicts, 10 * row_job::kExamples);
    ModeTrainer trainer(row_job::kFeatures, 3, kAlike, served.shapes);
    const Tending tending(*served.server, trainer, 60);
    const ModeTrainResult found = served.train(trainer, 3);
    CHECK(found.training.reason == StopReason::epochs);
    CHECK(found.counts.applied + found.counts.stale + found.counts.straggler ==
          10 * row_job::kExamples);
    CHECK(trainer.counters().cut > 0);
    CHECK(trainer.counters().lookups >= trainer.counters().pushes);
  }
}

TEST_CASE("a trainer of other tables than the server's is refused") {
  Served served({"asp"}, 1, row_job::Kind::fixed);
  served.shapes[1].dim += 1;
  ModeTrainer trainer(row_job::kFeatures, 1, kAlike, served.shapes);
  CHECK_THROWS_WITH_AS(served.train(trainer, 1), doctest::Contains("2 tables"), Error);
  served.shapes.pop_back();
  ModeTrainer fewer(row_job::kFeatures, 1, kAlike, served.shapes);
  CHECK_THROWS_WITH_AS(served.train(fewer, 1), doctest::Contains("1 tables"), Error);
}

TEST_CASE("an id of no row ends a training by name") {
  Served served({"asp"}, 1, row_job::Kind::fixed);
  for (ServedTable& one : served.shapes) one.rows = 5;
  ModeTrainer trainer(row_job::kFeatures, 1, kAlike, served.shapes);
  const Tending tending(*served.server, trainer);
  CHECK_THROWS_WITH_AS(served.train(trainer, 1), doctest::Contains("is no row of table"), Error);
}

TEST_CASE("a lane has one lookup a lease, and pushes no other rows") {
  Small small(fixed_table());
  Frames& frames = *small.frames;
  const auto [peer, ticket] = small.granted(9);
  CHECK_THROWS_WITH_AS(frames.say(peer, kModePush, ticket, floats(Small::kDimension)),
                       doctest::Contains("without the rows"), Error);
  frames.close(peer);
  const auto [again, other] = small.granted(9);
  const std::vector<float> rows = small.looked_up(again, other, {{3, 7}});
  CHECK(rows.size() == 6);
  CHECK_THROWS_WITH_AS(frames.say(again, kLookup, other, lookup_of({{3}}, true)),
                       doctest::Contains("a second lookup"), Error);
  frames.close(again);
  const auto [third, last] = small.granted(9);
  small.looked_up(third, last, {{3, 7}});
  CHECK_THROWS_AS(frames.say(third, kModePush, last, floats(Small::kDimension + 3)), Error);
  frames.close(third);
  const auto [fourth, taken] = small.granted(9);
  CHECK(small.looked_up(fourth, taken, {{3, 7}}) == rows);
  frames.say(fourth, kModePush, taken, floats(Small::kDimension + 6));
  CHECK(small.service->server().counts().rows.applied == 2);
  CHECK(small.service->counters().strange == 3);
  const auto [fifth, next] = small.granted(8);
  const std::vector<float> now = small.looked_up(fifth, next, {{3, 7}});
  for (std::size_t i = 0; i < 6; ++i) CHECK(now[i] == doctest::Approx(rows[i] - 0.02 * 0.5));
}

TEST_CASE("what comes of a lease that is over when it is there is refused") {
  for (const std::uint16_t kind : {kModePush, kModePushPull, kLookup}) {
    CAPTURE(kind);
    Small small(fixed_table(), {"asp", {{"term_ns", 100.0}, {"examples", 4.0}}});
    Frames& frames = *small.frames;
    const auto [peer, ticket] = small.granted(9);
    if (kind != kLookup) small.looked_up(peer, ticket, {{3, 7}});
    const Peer other = frames.come();
    frames.say(other, kModeHello, 0, mode_hello(1, 8, 1, 2));
    frames.post.take(other);
    frames.say(other, kModePull, 0, {});
    frames.post.time += 110;
    small.service->woken();  // the first one's term is over, and the other has the batch
    REQUIRE(frames.post.boxes.at(other).size() == 1);
    frames.say(peer, kModePull, 0, {});
    const Bytes bytes = kind == kLookup ? lookup_of({{3, 7}}, true) : floats(Small::kDimension + 6);
    const FrameHeader header{.kind = kind, .length = bytes.size(), .correlation = ticket};
    std::memcpy(small.service->place(peer, header).data(), bytes.data(), bytes.size());
    frames.close(other);
    REQUIRE(frames.post.boxes.at(peer).size() == 1);
    CHECK(frames.post.take(peer).first.correlation != ticket);
    CHECK_THROWS_WITH_AS(small.service->frame(peer, header, frames.none),
                         doctest::Contains("under another ticket"), Error);
    CHECK(small.service->counters().strange == 1);
    CHECK(small.service->failure().empty());
    frames.close(peer);
  }
}

TEST_CASE("behind the end rows are looked up, and no id gets one by that") {
  TableSettings grows = fixed_table();
  grows.rows = 0;
  grows.max_bytes = 1 << 16;
  Small small(grows);
  const auto [peer, ticket] = small.granted(9);
  const auto [other, its] = small.granted(8);
  small.looked_up(peer, ticket, {{3, 7}});
  const std::size_t rows = small.table().growth().statistics().rows;
  small.service->finish();
  CHECK(small.looked_up(other, its, {{3, 11, 12}}).size() == 9);
  small.frames->say(other, kModePush, its, floats(Small::kDimension + 9));
  small.frames->say(peer, kModePush, ticket, floats(Small::kDimension + 6));
  CHECK(small.service->counters().unused == 8);
  CHECK(small.table().growth().statistics().rows == rows);
  CHECK(small.service->server().counts().rows.applied == 0);
}

TEST_CASE("rows of a push for which there is no memory are let go") {
  TableSettings wide = fixed_table();
  wide.dim = std::size_t{1} << 16;
  RowHolder holder({std::make_shared<Table>(wide)}, {});
  std::atomic<std::uint64_t> bytes{0};
  LaneRows rows(holder, bytes);
  LaneRows::Of of;
  const Bytes asked = lookup_of({{3, 7}}, true);
  std::memcpy(rows.place(of, asked.size()).data(), asked.data(), asked.size());
  rows.look_up(of, 0, asked.size(), true);
  of.keys.parts[0].count = std::numeric_limits<std::uint32_t>::max();  // more than there is
  RowKeys keys;
  CHECK_THROWS(rows.take(of, nullptr, keys));
  CHECK(keys.parts.empty());
  REQUIRE(of.keys.parts.size() == 1);
  of.keys.parts[0].count = 2;
  rows.let_go(of);
}

TEST_CASE("bytes of rows are counted beside the least of them") {
  RowHolder holder({std::make_shared<Table>(fixed_table())}, {});
  std::atomic<std::uint64_t> bytes{0};
  LaneRows rows(holder, bytes);
  LaneRows::Of of;
  const std::size_t floats = 2 * holder.tables()[0]->dim();
  const auto look = [&](bool trains) {
    const Bytes asked = lookup_of({{3, 7}}, trains);
    std::memcpy(rows.place(of, asked.size()).data(), asked.data(), asked.size());
    rows.look_up(of, 0, asked.size(), trains);
    return 2 * kFrameHeader + asked.size() + floats * sizeof(float);
  };
  std::uint64_t moved = look(true);
  CHECK(rows.moved().bytes == moved);
  CHECK(rows.moved().least == 2 * 8 + 2 * floats * sizeof(float));
  RowKeys keys;
  const std::vector<float> pushed(floats, 0.5f);
  rows.take(of, pushed.data(), keys);
  rows.let_go(of, keys);
  moved += floats * sizeof(float);
  CHECK(rows.moved().bytes == moved);
  rows.let_go(of);
  moved += look(false);
  CHECK(rows.moved().bytes == moved);
  CHECK(rows.moved().least == 4 * 8 + 3 * floats * sizeof(float));
}

TEST_CASE("evaluations of too large rows are refused by what they are") {
  const ServedTables served{{{"t", std::size_t{1} << 27, 10}}, {0}};
  const std::uint64_t id = 3;
  const IdColumn column{&id};
  const float* const row = nullptr;
  const BatchView batch{.rows = &row, .targets = {}, .size = 1, .columns = {&column, 1}};
  AskedRows trains(served, true), evaluates(served, false);
  CHECK_THROWS_WITH_AS(trains.combine(batch), doctest::Contains("give a smaller batch_size"),
                       Error);
  CHECK_THROWS_WITH_AS(evaluates.combine(batch),
                       doctest::Contains("whatever batch_size is: give smaller rows"), Error);
}

TEST_CASE("gradients of rows that are not finite change nothing, and are counted") {
  Small small(fixed_table());
  Frames& frames = *small.frames;
  const auto [peer, ticket] = small.granted(9);
  const std::vector<float> rows = small.looked_up(peer, ticket, {{3, 7}});
  std::vector<float> values(Small::kDimension + 6, 0.5f);
  values.back() = std::numeric_limits<float>::infinity();
  Bytes bytes;
  put(bytes, values);
  frames.say(peer, kModePush, ticket, bytes);
  CHECK(small.service->counters().not_finite == 1);
  CHECK(small.service->server().counts().missing == 4);
  CHECK(small.service->server().holder().pull().t() == 0);
  const auto [other, next] = small.granted(8);
  CHECK(small.looked_up(other, next, {{3, 7}}) == rows);
}

TEST_CASE("rows of who is cut off make room for others'") {
  TableSettings few = fixed_table();
  few.rows = 0;
  few.evict = "age";
  few.max_bytes = std::size_t{1} << 14;
  Small small(few);
  Frames& frames = *small.frames;
  std::vector<std::uint64_t> ids(5000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const auto [peer, ticket] = small.granted(9);
  small.looked_up(peer, ticket, {ids});
  const std::uint64_t room = small.table().growth().statistics().rows;
  CHECK(room > 0);
  for (std::uint64_t& id : ids) id += 1'000'000;
  ids.resize(room / 2);
  const auto refused = [&](std::uint64_t client) {
    const auto [other, next] = small.granted(client);
    small.looked_up(other, next, {ids});
    const std::uint64_t before = small.service->server().counts().rows.refused;
    frames.say(other, kModePush, next, floats(Small::kDimension + 3 * ids.size()));
    frames.close(other);
    return small.service->server().counts().rows.refused - before;
  };
  CHECK(refused(8) == ids.size());  // who has them may push yet
  frames.close(peer);
  CHECK(refused(7) < ids.size() / 4);  // places in the index are few, too
}

TEST_CASE("who looks on reads rows of its run, and no id gets one by it") {
  TableSettings grows = fixed_table();
  grows.rows = 0;
  grows.max_bytes = std::size_t{1} << 20;
  Small small(grows);
  Frames& frames = *small.frames;
  const Peer peer = frames.come();
  Bytes asked = mode_hello(1, 50, 1, 2);
  const Bytes lookup = lookup_of({{5, 6}}, false);
  asked.insert(asked.end(), lookup.begin(), lookup.end());
  frames.say(peer, kModeRead, 77, asked);
  const auto [header, bytes] = frames.post.take(peer);
  CHECK(header.kind == kRows);
  CHECK(header.correlation == 77);
  CHECK(bytes.size() == 6 * sizeof(float));
  CHECK(small.service->counters().reads == 1);
  CHECK(small.service->counters().lanes == 0);
  const auto [other, ticket] = small.granted(9);
  std::vector<float> rows(6);
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  CHECK(small.looked_up(other, ticket, {{5, 6}}) == rows);
  Bytes strange = mode_hello(4, 50, 1, 2);
  strange.insert(strange.end(), lookup.begin(), lookup.end());
  CHECK_THROWS_WITH_AS(frames.say(peer, kModeRead, 78, strange), doctest::Contains("another run"),
                       Error);
}

TEST_CASE("lookups and pushes of any length and content change nothing that is not theirs") {
  Small small(fixed_table(), {"gba"});
  Frames& frames = *small.frames;
  std::mt19937 random(12);
  std::uint64_t refused = 0, looked = 0, pushed = 0;
  for (std::size_t i = 0; i < asked_for("LEASHED_FUZZ", 20'000); ++i) {
    auto [peer, ticket] = small.granted(random() % 3);
    frames.post.time += 10;
    Ids ids(1);
    for (std::uint64_t id = 0; id < 20; ++id) {
      if (random() % 3 == 0) ids[0].push_back(id);
    }
    const auto spoil = [&](Bytes bytes) {
      const auto at = [&] { return random() % std::max<std::size_t>(1, bytes.size()); };
      if (random() % 3 == 0 && !bytes.empty()) {
        bytes[std::min(at(), at())] = static_cast<std::byte>(random());
      }
      if (random() % 8 == 0) bytes.resize(bytes.size() + random() % 9 - 4);
      return bytes;
    };
    const auto say = [&](std::uint16_t kind, const Bytes& bytes) {
      const std::uint64_t under = random() % 10 == 0 ? random() : ticket;
      frames.say(peer, kind, under, bytes);
    };
    try {
      Bytes lookup = lookup_of(ids, true);
      if (random() % 8 == 0) {
        Bytes read = mode_hello(1, 50, 1, 2);
        lookup = lookup_of(ids, false);
        read.insert(read.end(), lookup.begin(), lookup.end());
        say(kModeRead, spoil(read));
      } else {
        say(kLookup, spoil(lookup));
        ++looked;
        frames.post.take(peer);
        say(kModePush, spoil(floats(Small::kDimension + 3 * ids[0].size(), 1e-3f)));
        ++pushed;
      }
    } catch (const Error&) {
      ++refused;
    }
    frames.close(peer);
    REQUIRE(small.service->failure().empty());
  }
  CHECK(refused > 0);
  CHECK(looked > pushed);
  CHECK(pushed > 0);
  CHECK(small.service->counters().lanes == 3);
  // Of gradients that wait for others, in two slots.
  CHECK(small.service->counters().payload_bytes < 4096);
}
