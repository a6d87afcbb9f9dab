// Embedding servers over sockets: trainers that are cut off again and again have each push in the
// rows once, and whoever saves finds rows and numbers of one moment.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "cluster/row_frames.h"
#include "cluster/wires.h"
#include "leashed/cluster/row_server.h"

using namespace leashed;

namespace {

constexpr std::size_t kDim = 4, kCount = 200;
const RowPlacement kPlacement({{false, 0}}, RowPlacement::evenly(1));

// Whose rows are how often they were updated, by pushes of −1.
std::shared_ptr<Table> counting() {
  return std::make_shared<Table>(Table::Settings{.name = "a",
                                                 .dim = kDim,
                                                 .rows = kCount,
                                                 .initial = {"zeros"},
                                                 .rule = {"sgd", {{"lr", 1}}},
                                                 .staleness = {"none"}});
}
std::uint64_t digest() {
  RowDigest digest;
  digest.add(0, {"a", kDim, kCount}, kPlacement.shards(0, 0));
  return digest.value();
}
float updates_of(Table& table, std::uint64_t id) {
  float values[kDim];
  table.lookup(&id, 1, values, nullptr);
  return values[0];
}
// Counted by its version: loops that update a row at once may lose values.
std::uint64_t pushes_of(Table& table, std::uint64_t id) {
  float values[kDim];
  std::uint32_t version;
  table.lookup(&id, 1, values, &version);
  return version / RowHead::kUpdate;
}

std::unique_ptr<Connection> connect(RowServer& server, Transport wish) {
  const auto [one, other] = pair_of_sockets();
  std::jthread accepts([&, socket = one] { server.adopt(socket, true, wish); });
  return connected(other, kRowLimits, true, wish, Role::offers);
}

void say(Connection& connection, std::uint16_t kind, std::uint64_t ticket, const Bytes& bytes) {
  const std::span<const std::byte> all(bytes);
  connection.send({.kind = kind, .correlation = ticket}, {&all, 1}, Deadline::in(kLong));
}
Bytes hear(Connection& connection, std::uint16_t kind) {
  Bytes payload;
  const FrameHeader header = connection.receive(
      [&payload](const FrameHeader& h) {
        payload.resize(h.length);
        return std::span(payload);
      },
      Deadline::in(kLong));
  CHECK(header.kind == kind);
  return payload;
}

// A trainer's thread: each of its pushes is one update of its own row, and of one that all have.
void train(RowServer& server, std::uint64_t client, std::uint64_t pushes, Transport wish) {
  std::mt19937 random(static_cast<std::uint32_t>(client));
  const Ids ids{{client, kCount - 1}};
  const Bytes lookup = lookup_of(ids, true);
  std::uint64_t settled = 0, ticket = 0;
  bool kept = false;  // the next push, whose answer has not come
  while (settled < pushes) {
    const auto connection = connect(server, wish);
    say(*connection, kRowHello, 0, hello_of(client, 5, digest()));
    const auto welcome = got<RowWelcome>(hear(*connection, kRowWelcome));
    REQUIRE(welcome.applied <= settled + (kept ? 1 : 0));
    REQUIRE(welcome.applied >= settled);
    if (welcome.applied > settled) kept = false;
    settled = welcome.applied;
    while (settled < pushes) {
      const Bytes push = push_of(settled + 1, std::vector<float>(2 * kDim, -1));
      if (!kept) {
        say(*connection, kLookup, ++ticket, lookup);
        if (random() % 50 == 0) break;
        const Bytes rows = hear(*connection, kRows);
        REQUIRE(rows.size() == 2 * kDim * sizeof(float));
        float own;
        std::memcpy(&own, rows.data(), sizeof own);
        REQUIRE(own == static_cast<float>(settled));
      }
      kept = true;
      if (random() % 50 == 0) break;
      say(*connection, kPushRows, ticket, push);
      if (random() % 20 == 0) break;  // it arrives, or not
      settled = got<Settled>(hear(*connection, kSettled)).applied;
      kept = false;
    }
  }
}

}  // namespace

TEST_CASE(
    "trainers that are cut off have each push in the rows once, and a save is of one moment") {
  const auto serve = [](Transport wish, std::size_t loops) {
    constexpr std::uint64_t kClients = 4, kPushes = 400;
    const auto table = counting();
    RowServer server({table}, {0}, kPlacement, 0, 1, loops);
    std::atomic<std::uint64_t> going{kClients};
    std::vector<std::jthread> trainers;
    for (std::uint64_t client = 0; client < kClients; ++client) {
      trainers.emplace_back([&, client] {
        train(server, client, kPushes, wish);
        going.fetch_sub(1);
      });
    }
    std::uint64_t moments = 0, before = 0;
    while (going > 0) {
      server.quiet([&] {
        std::uint64_t all = 0;
        for (const RowServer::Applied& one : server.applied()) {
          CHECK(one.life == 5);
          CHECK(updates_of(*table, one.client) == static_cast<float>(one.number));
          CHECK(one.in_rows.pushes == one.number);
          all += one.number;
        }
        CHECK(pushes_of(*table, kCount - 1) == all);
        const std::uint64_t pushes = server.counters().pushes;
        CHECK(pushes == all);
        moments += pushes > before;
        before = pushes;
      });
      std::this_thread::yield();
    }
    trainers.clear();
    CHECK(moments > 5);
    for (std::uint64_t client = 0; client < kClients; ++client) {
      CHECK(updates_of(*table, client) == kPushes);
    }
    CHECK(pushes_of(*table, kCount - 1) == kClients * kPushes);
    if (loops == 1) CHECK(updates_of(*table, kCount - 1) == kClients * kPushes);
    CHECK(comes_true([&] { return server.counters().connections == 0; }));
    CHECK(server.counters().payload_bytes == 0);
    CHECK(server.counters().clients == kClients);
    CHECK(server.counters().refused == 0);
  };
  for (const Transport wish : {Transport::tcp, Transport::shm}) {
    for (const std::size_t loops : {1, 2, 5}) serve(wish, loops);
  }
}

TEST_CASE("of several loops each serves its clients, whichever has taken their connection") {
  constexpr std::size_t kLoops = 3;
  const auto table = counting();
  std::vector<RowServer::Applied> kept;
  {
    RowServer server({table}, {0}, kPlacement, 0, 1, kLoops);
    server.restore(std::vector<RowServer::Applied>{{0, 5, 7, {}, {6, 60}}, {1, 5, 8}, {5, 5, 9}},
                   24);
    CHECK(server.counters().pushes == 24);
    for (std::uint64_t client = 0; client < 7; ++client) {
      // Each time by another loop's turn, while the connection before is there, and in a new life.
      std::vector<std::unique_ptr<Connection>> connections;
      for (std::uint64_t turn = 0; turn < kLoops + 1; ++turn) {
        connections.push_back(connect(server, turn % 2 ? Transport::shm : Transport::tcp));
        say(*connections.back(), kRowHello, 0, hello_of(client, turn / 2 + 5, digest()));
        const auto welcome = got<RowWelcome>(hear(*connections.back(), kRowWelcome));
        const std::uint64_t restored = client == 0 ? 7 : client == 1 ? 8 : client == 5 ? 9 : 0;
        CHECK(welcome.applied == (turn < 2 ? restored + turn : turn - 2));
        if (client == 0 && turn == 0) CHECK(welcome.in_rows == InRows{6, 60});
        say(*connections.back(), kLookup, turn + 1, lookup_of({{client}}, true));
        hear(*connections.back(), kRows);
        say(*connections.back(), kPushRows, turn + 1,
            push_of(welcome.applied + 1, std::vector<float>(kDim, -1)));
        CHECK(got<Settled>(hear(*connections.back(), kSettled)).applied == welcome.applied + 1);
      }
      CHECK(updates_of(*table, client) == kLoops + 1);
      connections.pop_back();
      for (const auto& replaced : connections) {  // its place another has
        say(*replaced, kLookup, 100, lookup_of({{client}}, false));
        CHECK_THROWS_AS(hear(*replaced, kRows), ConnectionError);
      }
    }
    kept = server.applied();
    CHECK(server.counters().pushes == 24 + 7 * (kLoops + 1));
    CHECK_THROWS_AS(server.restore({}, 3), Error);
  }
  REQUIRE(kept.size() == 7);
  for (std::uint64_t client = 0; client < 7; ++client) {
    CHECK(kept[client].client == client);
    CHECK(kept[client].life == 6);
    CHECK(kept[client].number == 2);
  }
  CHECK(table->steps() == 7 * (kLoops + 1));
  CHECK_THROWS_AS(RowServer({table}, {0}, kPlacement, 0, 1, 0), Error);
}

TEST_CASE("whoever says what does not belong there is closed and counted, and nobody else") {
  const auto table = counting();
  RowServer server({table}, {0}, kPlacement, 0, 1);
  const auto good = connect(server, Transport::tcp), bad = connect(server, Transport::tcp);
  for (const auto* connection : {&good, &bad}) {
    say(**connection, kRowHello, 0, hello_of(connection == &good ? 1 : 2, 5, digest()));
    CHECK(got<RowWelcome>(hear(**connection, kRowWelcome)).applied == 0);
  }
  say(*bad, kLookup, 1, lookup_of({{kCount}}, true));
  CHECK_THROWS_AS(hear(*bad, kRows), ConnectionError);
  CHECK(comes_true([&] { return server.counters().connections == 1; }));
  CHECK(server.counters().refused == 1);
  say(*good, kLookup, 1, lookup_of({{3}}, true));
  CHECK(hear(*good, kRows).size() == kDim * sizeof(float));
  server.expire();
  server.expire();
  say(*good, kPushRows, 1, push_of(1, std::vector<float>(kDim, -1)));
  CHECK(got<Settled>(hear(*good, kSettled)).settling == Settling::expired);
  CHECK(server.counters().expired == 1);
  CHECK(updates_of(*table, 3) == 0);
  CHECK_THROWS_AS(server.restore({}, 3), Error);
}

TEST_CASE("a server that ends while trainers push has whole updates, and tells each of its end") {
  for (int turn = 0; turn < 20; ++turn) {
    constexpr std::uint64_t kClients = 3;
    const auto table = counting();
    auto server = std::make_unique<RowServer>(std::vector{table}, std::vector<std::size_t>{0},
                                              kPlacement, 0, 1);
    std::atomic<std::uint64_t> told[kClients] = {};
    std::vector<std::jthread> trainers;
    for (std::uint64_t client = 0; client < kClients; ++client) {
      std::shared_ptr<Connection> connection = connect(*server, Transport::tcp);
      say(*connection, kRowHello, 0, hello_of(client, 5, digest()));
      hear(*connection, kRowWelcome);
      trainers.emplace_back([&, client, connection = std::move(connection)] {
        const Bytes lookup = lookup_of({{client, kCount - 1}}, true);
        const auto go_on = [&](std::uint64_t number) {
          say(*connection, kLookup, number, lookup);
          hear(*connection, kRows);
          say(*connection, kPushRows, number, push_of(number, std::vector<float>(2 * kDim, -1)));
          told[client] = got<Settled>(hear(*connection, kSettled)).applied;
        };
        CHECK_THROWS_AS(
            [&] {
              for (std::uint64_t n = 1;; ++n) go_on(n);
            }(),
            ConnectionError);
      });
    }
    CHECK(comes_true([&] { return server->counters().pushes > 30; }));
    std::vector<RowServer::Applied> saved;
    std::uint64_t rows = 0;
    server->quiet([&] {
      saved = server->applied();
      for (const auto& one : saved) {
        rows += static_cast<std::uint64_t>(updates_of(*table, one.client));
      }
    });
    std::uint64_t pushes = 0;
    for (const auto& one : saved) pushes += one.number;
    CHECK(rows == pushes);
    server.reset();
    trainers.clear();
    std::uint64_t all = 0;
    for (std::uint64_t client = 0; client < kClients; ++client) {
      const auto updates = static_cast<std::uint64_t>(updates_of(*table, client));
      CHECK(updates >= told[client]);
      CHECK(updates <= told[client] + 1);  // its answer may be lost
      all += updates;
    }
    CHECK(updates_of(*table, kCount - 1) == static_cast<float>(all));
    CHECK(table->steps() == all);
  }
}
