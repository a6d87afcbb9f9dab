// A trainer's threads whose rows are at embedding servers, over sockets that are cut, servers that
// are started again, and servers that say nothing: each push is in the rows once, or in the
// account.
#include <doctest/doctest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "asked.h"
#include "cluster/wires.h"
#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_server.h"

using namespace leashed;

namespace {

constexpr std::size_t kDim = 4;

// Whose rows are how often they were updated, by pushes of −1.
std::shared_ptr<Table> counting(std::uint64_t rows, const RowPlacement::Shards& shards) {
  return std::make_shared<Table>(Table::Settings{.name = "a",
                                                 .dim = kDim,
                                                 .rows = rows,
                                                 .initial = {"zeros"},
                                                 .rule = {"sgd", {{"lr", 1}}},
                                                 .staleness = {"none"},
                                                 .shards = shards});
}

// Servers of one table, a trainer, and who brings connections to each place that is in want of one.
class Run {
 public:
  struct Settings {
    std::size_t servers = 2, workers = 1, look_ahead = 1;
    std::uint64_t rows = 300;
    double timeout = kLong, patience = kLong;
    bool tight = false;  // the least buffers that the system allows
    Transport transport = Transport::tcp;
  };

  explicit Run(const Settings& settings)
      : settings_(settings),
        placement({{false, RowPlacement::kSpread}}, RowPlacement::evenly(settings.servers)),
        servers_(settings.servers),
        rows({{{"a", kDim, settings.rows}},
              {0},
              placement,
              settings.servers,
              settings.workers,
              1,
              100,
              7,
              settings.timeout,
              settings.patience,
              settings.look_ahead}) {
    for (std::size_t s = 0; s < settings.servers; ++s) start(s);
  }
  ~Run() {
    tending_ = {};
    for (const auto& [_, socket] : open_) close(socket);
  }

  void tend() {
    tending_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
          for (std::size_t s = 0; s < servers_.size(); ++s) {
            if (rows.missing(slot, s)) connect(slot, s);
          }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  // The server begins anew, with rows that nobody has updated.
  void start(std::size_t s) {
    stop(s);
    const std::lock_guard lock(mutex_);
    tables.resize(servers_.size());
    tables[s] = counting(settings_.rows, placement.shards(0, s));
    servers_[s] = std::make_unique<RowServer>(std::vector{tables[s]}, std::vector<std::size_t>{0},
                                              placement, s, ++boots_);
  }
  void stop(std::size_t s) {
    const std::lock_guard lock(mutex_);
    servers_[s].reset();
    std::erase_if(open_, [s](const auto& each) {
      if (each.first != s) return false;
      shutdown(each.second, SHUT_RDWR);
      close(each.second);
      return true;
    });
  }
  void cut(std::mt19937& random) {
    const std::lock_guard lock(mutex_);
    if (open_.empty()) return;
    const std::size_t which = random() % open_.size();
    shutdown(open_[which].second, random() % 2 ? SHUT_RDWR : SHUT_WR);
    close(open_[which].second);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  float updates_of(std::uint64_t id) const {
    float values[kDim];
    tables[placement(0, id)]->lookup(&id, 1, values, nullptr);
    return values[0];
  }
  RowServer& server(std::size_t s) { return *servers_[s]; }

 private:
  void connect(std::size_t slot, std::size_t s) {
    const std::lock_guard lock(mutex_);
    if (!servers_[s]) return;
    const auto [one, other] = pair_of_sockets();
    for (const int socket : {one, other}) {
      const int least = 1;
      if (settings_.tight) {
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
        setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
      }
      open_.emplace_back(s, dup(socket));
    }
    std::jthread accepts([&, socket = one] {
      try {
        servers_[s]->adopt(socket, true, settings_.transport);
      } catch (const std::exception&) {
        close(socket);
      }
    });
    try {
      rows.adopt(slot, s, other, true, settings_.transport, 0);
    } catch (const std::exception&) {
      close(other);
    }
  }

  const Settings settings_;

 public:
  const RowPlacement placement;
  std::vector<std::shared_ptr<Table>> tables;  // by server

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<RowServer>> servers_;
  // Both ends of connections by server, beside who uses them.
  std::vector<std::pair<std::size_t, int>> open_;
  std::uint64_t boots_ = 0;

 public:
  RemoteRows rows;

 private:
  std::jthread tending_;
};

// What a worker thread does of the batches in hand; every gradient is −1.
class Worker {
 public:
  Worker(Run& run, std::size_t id) : run_(run), id_(id), hands_(run.rows.ahead() + 1) {
    for (Hand& each : hands_) each.rows = run.rows.make_batch();
  }

  void train(std::size_t batches, std::size_t size, std::uint64_t rows, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto fill = [&](Hand& hand) {
      hand.ids.resize(size);
      for (std::uint64_t& id : hand.ids) id = random() % rows;
      hand.ids[0] = 0;
      hand.ids[1] = 1;
      hand.column = {hand.ids.data()};
      hand.batch = {nullptr, {}, size};
      hand.batch.columns = {&hand.column, 1};
      run_.rows.prefetch(id_, hand.batch, *hand.rows);
    };
    const std::size_t ahead = hands_.size() - 1;
    for (std::size_t n = 0; n < std::min(ahead, batches); ++n) fill(hands_[n]);
    for (std::size_t n = 0; n < batches; ++n) {
      Hand& hand = hands_[n % hands_.size()];
      if (n + ahead < batches) fill(hands_[(n + ahead) % hands_.size()]);
      run_.rows.pull(id_, hand.batch, *hand.rows);
      const TableRows& table = hand.batch.tables[0];
      for (std::size_t i = 0; i < table.count * table.stride; ++i) table.gradient[i] = -1;
      std::map<std::uint64_t, bool> once;
      for (std::size_t i = 0; i < size; ++i) {
        const float value = table.values[hand.batch.places[0][i]][0];
        fits = fits && value >= 0 && value == static_cast<float>(static_cast<int>(value));
        once[hand.ids[i]] = true;
      }
      for (const auto& [id, _] : once) ++updates[id];
      staleness.add(run_.rows.push(id_, *hand.rows, {}));
    }
    staleness.add(run_.rows.leave(id_));
  }

  std::map<std::uint64_t, std::uint64_t> updates;  // by id, that were pushed
  RowPublication staleness;
  bool fits = true;  // values that were read are those of counts

 private:
  struct Hand {
    std::unique_ptr<BatchRows> rows;
    std::vector<std::uint64_t> ids;
    IdColumn column;
    BatchView batch{};
  };
  Run& run_;
  const std::size_t id_;
  std::vector<Hand> hands_;
};

void expect_once(const Run& run, const std::vector<std::unique_ptr<Worker>>& workers) {
  std::map<std::uint64_t, std::uint64_t> updates;
  for (const auto& worker : workers) {
    CHECK(worker->fits);
    for (const auto& [id, n] : worker->updates) updates[id] += n;
  }
  for (const auto& [id, n] : updates) {
    CAPTURE(id);
    CHECK(run.updates_of(id) == static_cast<float>(n));
  }
}

}  // namespace

TEST_CASE("workers whose connections are cut have each push in the rows once") {
  std::uint64_t cuts = 0;  // as many as a busy machine gets to
  for (const std::size_t look_ahead : {std::size_t{0}, std::size_t{1}, kMostAhead}) {
    for (const bool tight : {false, true}) {
      constexpr std::size_t kWorkers = 2, kBatches = 400;
      Run run({.workers = kWorkers, .look_ahead = look_ahead, .tight = tight});
      run.tend();
      std::atomic<std::size_t> going{kWorkers};
      std::vector<std::unique_ptr<Worker>> workers;
      for (std::size_t w = 0; w < kWorkers; ++w) {
        workers.push_back(std::make_unique<Worker>(run, w));
      }
      {
        std::vector<std::jthread> threads;
        for (std::size_t w = 0; w < kWorkers; ++w) {
          threads.emplace_back([&, w] {
            workers[w]->train(kBatches, tight ? 400 : 20, 300, w);
            going.fetch_sub(1);
          });
        }
        std::mt19937 random(1);
        while (going > 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 1500));
          run.cut(random);
        }
      }
      expect_once(run, workers);
      const RemoteRows::Counters counters = run.rows.counters();
      cuts += counters.cuts;
      CHECK(counters.pushes == kWorkers * kBatches);
      CHECK(counters.settled == 2 * counters.pushes);
      CHECK(counters.lost + counters.unsettled + counters.expired + counters.not_finite == 0);
    }
  }
  CHECK(cuts > 10);
}

TEST_CASE("with the least buffers and large batches ahead nobody waits for ever") {
  for (const auto& [transport, look_ahead] : {std::pair<Transport, std::size_t>{Transport::tcp, 1},
                                              {Transport::tcp, 2},
                                              {Transport::shm, 1},
                                              {Transport::shm, 2}}) {
    constexpr std::uint64_t kRows = 100'000;
    Run run({.look_ahead = look_ahead, .rows = kRows, .tight = true, .transport = transport});
    run.tend();
    std::vector<std::unique_ptr<Worker>> workers;
    workers.push_back(std::make_unique<Worker>(run, 0));
    workers[0]->train(10, 4096, kRows, 3);
    expect_once(run, workers);
    CHECK(run.rows.counters().cuts == 0);
    std::uint64_t updated = 0;
    for (const auto& [_, n] : workers[0]->updates) updated += n;
    CHECK(workers[0]->staleness.applied == updated);
  }
}

TEST_CASE("no more batches are looked up ahead than servers have tickets for") {
  CHECK_THROWS_WITH_AS(Run({.look_ahead = kMostAhead + 1}),
                       "look_ahead must be at most 5 batches, got 6", Error);
  constexpr std::size_t kBatches = 50;
  Run run({.look_ahead = kMostAhead});
  run.tend();
  std::vector<std::unique_ptr<Worker>> workers;
  workers.push_back(std::make_unique<Worker>(run, 0));
  workers[0]->train(kBatches, 20, 300, 9);
  expect_once(run, workers);
  for (std::size_t s = 0; s < 2; ++s) CHECK(run.server(s).counters().expired == 0);
  const RemoteRows::Counters counters = run.rows.counters();
  CHECK(counters.lookups == kBatches);
  CHECK(counters.settled == 2 * kBatches);
}

TEST_CASE(
    "rows in hand are looked up once more where their server was started again, not oftener") {
  constexpr std::size_t kHands = 4;
  Run run({.servers = 1, .look_ahead = kHands - 1});
  run.tend();
  const std::vector<std::uint64_t> ids = {0, 1, 2};
  const IdColumn column{ids.data()};
  BatchView batches[kHands]{};
  std::vector<std::unique_ptr<BatchRows>> rows;
  for (BatchView& batch : batches) {
    batch = {nullptr, {}, ids.size()};
    batch.columns = {&column, 1};
    rows.push_back(run.rows.make_batch());
    run.rows.prefetch(0, batch, *rows.back());
  }
  for (std::size_t i = 0; i < kHands; ++i) run.rows.pull(0, batches[i], *rows[i]);
  run.start(0);
  for (const auto& each : rows) run.rows.push(0, *each, {});
  run.rows.leave(0);
  CHECK(run.rows.counters().settled == kHands);
  CHECK(run.server(0).counters().pushes == kHands);
  CHECK(run.server(0).counters().lookups == kHands);
}

TEST_CASE("what a server that was started again has lost is counted exactly") {
  constexpr std::size_t kBatches = 600, kSize = 20;
  Run run({});
  run.tend();
  std::vector<std::unique_ptr<Worker>> workers;
  workers.push_back(std::make_unique<Worker>(run, 0));
  std::atomic<bool> going{true};
  std::size_t restarts = 0;
  {
    const std::jthread thread([&] {
      workers[0]->train(kBatches, kSize, 300, 5);
      going = false;
    });
    while (going && restarts < 8) {
      const std::uint64_t before = run.rows.counters().pushes;
      comes_true([&] { return !going || run.rows.counters().pushes > before + 20; });
      if (!going) break;
      run.start(1);
      ++restarts;
    }
  }
  CHECK(restarts > 0);
  const RemoteRows::Counters counters = run.rows.counters();
  // Server 0 has all; of what server 1 has not, it was said so.
  CHECK(run.updates_of(0) == kBatches);
  CHECK(counters.lost > 0);
  CHECK(counters.lost < kBatches);
  CHECK(run.updates_of(1) == static_cast<float>(kBatches - counters.lost));
  CHECK(counters.lost_examples == counters.lost * kSize);
  CHECK(counters.settled == 2 * kBatches);
  CHECK(counters.unsettled == 0);
}

TEST_CASE("of pushes that are settled nothing stays, whatever they were and however many") {
  // Of sizes that change with each push, and every other one left out; a million by hand.
  const std::size_t pushes = asked_for("LEASHED_SCHEDULES", 4000);
  Run run({.servers = 1, .look_ahead = 0});
  run.tend();
  const std::vector<std::uint64_t> ids = {0, 1, 2, 3, 4, 5, 6, 7};
  const IdColumn column{ids.data()};
  const auto rows = run.rows.make_batch();
  const auto train = [&](std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) {
      BatchView batch{nullptr, {}, 1 + n % ids.size()};
      batch.columns = {&column, 1};
      run.rows.prefetch(0, batch, *rows);
      run.rows.pull(0, batch, *rows);
      std::fill_n(batch.tables[0].gradient, kDim,
                  n % 2 ? -1.0f : std::numeric_limits<float>::quiet_NaN());
      run.rows.push(0, *rows, {});
    }
  };
  train(100);
  const std::size_t before = mallinfo2().uordblks;
  train(pushes);
  // A chunk of every other push would be twice as much; what threads keep to use again is up to
  // 18,000 bytes. (A sanitizer's tells nothing.)
  CHECK(mallinfo2().uordblks < before + 32'000);
  const RemoteRows::Counters counters = run.rows.counters();
  CHECK(counters.not_finite == pushes / 2 + 50);
}

TEST_CASE("a server that says nothing is named when there is no more patience") {
  for (const bool reached : {true, false}) {
    Run run({.timeout = 0.2, .patience = 0.7});
    const auto connect = [&](std::size_t s) {
      const auto [one, other] = pair_of_sockets();
      run.rows.adopt(0, s, other, true, Transport::tcp, 0);
      return one;
    };
    run.server(0).adopt(connect(0), true);
    const int silent = reached ? connect(1) : -1;
    Worker worker(run, 0);
    const double begin = now();
    std::string said;
    try {
      worker.train(5, 20, 300, 1);
    } catch (const Error& error) {
      said = error.what();
    }
    CAPTURE(said);
    const auto says = [&said](const char* words) { return said.find(words) != said.npos; };
    CHECK(says("embedding server 1"));
    CHECK(!says("embedding server 0"));
    CHECK(says(reached ? "silent" : "not been reached"));
    CHECK(now() - begin < 20);
    CHECK(run.rows.missing(0, 1));
    if (reached) close(silent);
  }
}

TEST_CASE("whoever waits for a server that is away goes on when the run is stopped") {
  Run run({});
  std::atomic<bool> stopped{false};
  run.rows.follow(stopped);
  run.stop(1);
  run.tend();
  Worker worker(run, 0);
  const std::jthread stops([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stopped = true;
  });
  const double begin = now();
  worker.train(3, 20, 300, 1);
  CHECK(now() - begin < kLong / 2);
  const RemoteRows::Counters counters = run.rows.counters();
  CHECK(counters.pushes == 3);
  CHECK(counters.settled + counters.unsettled == 6);
  CHECK(counters.unsettled >= 3);
}

TEST_CASE("pushes that are under way when the run is stopped are applied") {
  Run run({});
  std::atomic<bool> stopped{false};
  run.rows.follow(stopped);
  run.tend();
  std::vector<std::unique_ptr<Worker>> workers;
  workers.push_back(std::make_unique<Worker>(run, 0));
  workers[0]->train(1, 20, 300, 1);
  CHECK(run.rows.counters().settled == 2);
  expect_once(run, workers);
}

TEST_CASE("an id that is no row of its table is said to be none before anything is sent") {
  Run run({});
  Worker worker(run, 0);
  CHECK_THROWS_WITH_AS(worker.train(1, 20, 5000, 1), doctest::Contains("is no row of table 'a'"),
                       Error);
  CHECK(run.rows.counters().lookups == 0);
}

TEST_CASE("whoever evaluates admits nothing, and forgets what did not come") {
  Run run({.timeout = 0.2, .patience = 0.5});
  run.tend();
  auto batch = run.rows.make_batch();
  std::vector<std::uint64_t> ids{0, 1, 2, 1};
  const IdColumn column{ids.data()};
  BatchView view{nullptr, {}, ids.size()};
  view.columns = {&column, 1};
  run.rows.read(0, view, *batch);
  CHECK(view.tables[0].count == 3);
  CHECK(view.tables[0].gradient == nullptr);
  run.stop(1);
  CHECK_THROWS_WITH_AS(run.rows.read(0, view, *batch), doctest::Contains("embedding server 1"),
                       Error);
  batch = run.rows.make_batch();
  run.start(1);
  run.rows.read(0, view, *batch);
  CHECK(view.tables[0].count == 3);
  CHECK(run.rows.counters().lookups == 0);
}

TEST_CASE("whoever evaluates waits for a server that is away no longer than it is wanted") {
  Run run({});
  auto batch = run.rows.make_batch();
  std::vector<std::uint64_t> ids{0, 1};
  const IdColumn column{ids.data()};
  BatchView view{nullptr, {}, ids.size()};
  view.columns = {&column, 1};
  int asked = 0;
  run.rows.read(0, view, *batch, [&asked] { return ++asked < 5; });
  CHECK(asked == 5);
  CHECK(view.tables[0].values[1][0] == 0);
}
