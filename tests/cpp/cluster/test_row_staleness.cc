// How stale updated rows are, by their versions, of workers that take turns.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <list>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_service.h"

using namespace leashed;

namespace {

constexpr std::size_t kIds = 2000, kSize = 64, kBatches = 1500;  // of all workers

struct Spoken final : Outbox {
  explicit Spoken(Connection& to) : connection(to) {}
  void send(const FrameHeader& header, Connection::Parts parts) override {
    connection.begin(header, parts);
  }
  Connection& connection;
};

// A server of one table, whose peers are answered when it is their turn.
class OneServer {
 public:
  OneServer()
      : service_({std::make_shared<Table>(Table::Settings{.name = "a",
                                                          .dim = 2,
                                                          .rows = kIds,
                                                          .initial = {"zeros"},
                                                          .rule = {"sgd", {{"lr", 0.1}}},
                                                          .staleness = {"none"}})},
                 {0}, placement(), 0, 1) {}
  static RowPlacement placement() { return {{{false, 0}}, RowPlacement::evenly(1)}; }

  void meet(RemoteRows& rows, Transport transport) {
    const auto [theirs, here] = pair_of_sockets();
    // Both at once: over shared memory each waits for the other to agree.
    auto come = std::async(std::launch::async, [transport, socket = here] {
      return connected(socket, kRowLimits, true, transport, Role::accepts);
    });
    rows.adopt(0, 0, theirs, true, transport, 0);
    peers_.push_back(come.get());
    service_.come(peers_.size());
  }
  // Until there is nothing to be answered.
  void serve() {
    for (bool something = true; something;) {
      something = false;
      Peer peer = 0;
      for (auto& connection : peers_) {
        ++peer;
        if (connection->sending() && !connection->flush()) continue;
        const auto header =
            connection->take([&](const FrameHeader& what) { return service_.place(peer, what); });
        if (!header) continue;
        Spoken spoken(*connection);
        service_.frame(peer, *header, spoken);
        if (connection->sending()) connection->flush();
        something = true;
      }
    }
  }

 private:
  RowService service_;
  std::list<std::unique_ptr<Connection>> peers_;
};

struct Turns {
  std::unique_ptr<RemoteRows> rows;
  explicit Turns(std::size_t at_once)
      : of(at_once), ids(at_once), columns(at_once), batches(at_once, {nullptr, {}, kSize}) {}
  std::vector<std::unique_ptr<BatchRows>> of;
  std::vector<std::vector<std::uint64_t>> ids;
  std::vector<IdColumn> columns;
  std::vector<BatchView> batches;
  std::size_t filled = 0, pulled = 0;
};

}  // namespace

TEST_CASE("rows are as stale as the batches under way, and how often a row is in two, make them") {
  std::vector<double> weights(kIds);
  for (std::size_t i = 0; i < kIds; ++i) weights[i] = std::pow(static_cast<double>(i + 1), -1.2);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double squares = 0, all = 0;
  for (const double weight : weights) {
    const double there = 1 - std::pow(1 - weight / sum, kSize);  // in a batch
    squares += there * there;
    all += there;
  }
  for (const auto& [workers, look_ahead] : {std::pair<std::size_t, std::size_t>{1, 0},
                                            {1, 1},
                                            {1, 2},
                                            {1, kMostAhead},
                                            {2, 0},
                                            {2, 1},
                                            {2, 2},
                                            {4, 0},
                                            {4, 1},
                                            {4, 2},
                                            {8, 1}}) {
    CAPTURE(workers);
    CAPTURE(look_ahead);
    std::mt19937_64 random(workers + look_ahead);
    std::discrete_distribution<std::uint64_t> zipf(weights.begin(), weights.end());
    OneServer server;
    const std::size_t at_once = std::max<std::size_t>(look_ahead, 1) + 1;
    std::vector<Turns> turns;
    for (std::size_t w = 0; w < workers; ++w) turns.emplace_back(at_once);
    RowPublication told;
    const auto fill = [&](Turns& one) {
      const std::size_t which = one.filled++ % at_once;
      one.ids[which].resize(kSize);
      for (std::uint64_t& id : one.ids[which]) id = zipf(random);
      one.columns[which] = {one.ids[which].data()};
      one.batches[which] = {nullptr, {}, kSize};
      one.batches[which].columns = {&one.columns[which], 1};
      one.rows->prefetch(0, one.batches[which], *one.of[which]);
      server.serve();
    };
    const auto pull = [&](Turns& one) {
      one.rows->pull(0, one.batches[one.pulled % at_once], *one.of[one.pulled % at_once]);
    };
    for (std::size_t w = 0; w < workers; ++w) {
      Turns& one = turns[w];
      one.rows = std::make_unique<RemoteRows>(RemotePlan{{{"a", 2, kIds}},
                                                         {0},
                                                         OneServer::placement(),
                                                         1,
                                                         1,
                                                         1,
                                                         1000 * w,
                                                         w + 1,
                                                         1e6,
                                                         1e6,
                                                         look_ahead,
                                                         [&server] { server.serve(); }});
      for (auto& batch : one.of) batch = one.rows->make_batch();
      server.meet(*one.rows, Transport::tcp);
      for (std::size_t ahead = 0; ahead <= look_ahead; ++ahead) fill(one);
      pull(one);
    }
    for (std::size_t n = 0; n < kBatches; ++n) {
      Turns& one = turns[n % workers];
      told.add(one.rows->push(0, *one.of[one.pulled % at_once], {}));
      ++one.pulled;
      server.serve();
      fill(one);
      pull(one);
    }
    for (Turns& one : turns) told.add(one.rows->leave(0));
    const double expected = squares / all * static_cast<double>(workers * (1 + look_ahead) - 1);
    const double mean = static_cast<double>(told.staleness) / static_cast<double>(told.applied);
    CHECK(mean == doctest::Approx(expected).epsilon(0.1));
  }
}

TEST_CASE("so long as rows ahead are there, whoever looks ahead needs no word of a server") {
  for (std::size_t look_ahead = 1; look_ahead <= kMostAhead; ++look_ahead) {
    CAPTURE(look_ahead);
    OneServer server;
    std::size_t waits = 0;
    Turns one(look_ahead + 1);
    const auto idle = [&] {
      ++waits;
      server.serve();
    };
    one.rows = std::make_unique<RemoteRows>(RemotePlan{
        {{"a", 2, kIds}}, {0}, OneServer::placement(), 1, 1, 1, 0, 1, 1e6, 1e6, look_ahead, idle});
    for (auto& batch : one.of) batch = one.rows->make_batch();
    server.meet(*one.rows, Transport::shm);  // what is sent is there
    const auto fill = [&] {
      const std::size_t which = one.filled++ % one.of.size();
      one.ids[which].assign(kSize, one.filled);
      one.columns[which] = {one.ids[which].data()};
      one.batches[which] = {nullptr, {}, kSize};
      one.batches[which].columns = {&one.columns[which], 1};
      one.rows->prefetch(0, one.batches[which], *one.of[which]);
    };
    for (std::size_t ahead = 0; ahead < look_ahead; ++ahead) fill();
    for (std::size_t n = 0; n < 20 * look_ahead; ++n) {
      const std::size_t which = n % one.of.size();
      fill();
      one.rows->pull(0, one.batches[which], *one.of[which]);
      one.rows->push(0, *one.of[which], {});
      // For its welcome, for the first rows, and once for as many as are ahead.
      CHECK(waits <= 2 + n / look_ahead);
    }
    one.rows->leave(0);
    CHECK(one.rows->counters().settled == 20 * look_ahead);
  }
}
