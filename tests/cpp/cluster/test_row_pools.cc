// Pools of rows that embedding servers make, beside those of the rows themselves: the same floats,
// the same updates, and fewer bytes where they are chosen.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/asked_pool.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_service.h"
#include "leashed/kernels/embedding.h"

using namespace leashed;

namespace {

using Random = std::mt19937_64;

// Bags of ids of one feature.
struct Bags {
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> offsets{0};
  std::vector<float> weights;

  void add(const std::vector<std::uint64_t>& bag) {
    ids.insert(ids.end(), bag.begin(), bag.end());
    offsets.push_back(static_cast<std::uint32_t>(ids.size()));
  }
  IdColumn column() const {
    return {ids.data(), offsets.data(), weights.empty() ? nullptr : weights.data()};
  }
};

Bags bags_of(Random& random, std::size_t examples, std::uint64_t rows, std::size_t most,
             bool weighted) {
  Bags bags;
  for (std::size_t i = 0; i < examples; ++i) {
    std::vector<std::uint64_t> bag(random() % (most + 1));
    for (std::uint64_t& id : bag) id = random() % rows;
    bags.add(bag);
  }
  if (weighted) {
    std::normal_distribution<float> weight(1, 0.5f);
    for (std::size_t e = 0; e < bags.ids.size(); ++e) bags.weights.push_back(weight(random));
  }
  return bags;
}

struct Answers final : Outbox {
  explicit Answers(Connection& to) : connection(to) {}
  void send(const FrameHeader& header, Connection::Parts parts) override {
    connection.begin(header, parts);
  }
  Connection& connection;
};

// Servers of one table, and who asks them, in one thread.
class Asked {
 public:
  struct Settings {
    std::size_t servers = 1;
    bool whole = true;
    std::uint64_t rows = 40;
    std::size_t dim = 5;
    std::vector<std::optional<Pooling>> features;
    PooledAt at = PooledAt::servers;
    const char* initial = "uniform";
  };

  explicit Asked(const Settings& settings)
      : placement_({{false, settings.whole ? static_cast<std::uint32_t>(settings.servers - 1)
                                           : RowPlacement::kSpread}},
                   RowPlacement::evenly(settings.servers)),
        servers_(settings.servers) {
    for (std::size_t s = 0; s < settings.servers; ++s) {
      if (!placement_.has(0, s)) continue;
      Server& server = servers_[s];
      const Choice initial = settings.initial == std::string("zeros")
                                 ? Choice{"zeros"}
                                 : Choice{"uniform", {{"bound", 1}}};
      server.table = std::make_shared<Table>(Table::Settings{.name = "a",
                                                             .dim = settings.dim,
                                                             .rows = settings.rows,
                                                             .initial = initial,
                                                             .rule = {"sgd", {{"lr", 0.5}}},
                                                             .staleness = {"none"},
                                                             .shards = placement_.shards(0, s)});
      server.service = std::make_unique<RowService>(
          std::vector{server.table}, std::vector<std::size_t>{0}, placement_, s, s + 1);
    }
    rows = std::make_unique<RemoteRows>(
        RemotePlan{{{"a", settings.dim, settings.rows}},
                   std::vector<std::size_t>(settings.features.size(), 0),
                   placement_,
                   settings.servers,
                   1,
                   1,
                   0,
                   1,
                   1e6,
                   1e6,
                   0,
                   [this] { serve(); },
                   settings.features,
                   settings.at});
    batch = rows->make_batch();
  }

  // Pulls a batch; what it shows is in view.
  void pull(const std::vector<Bags>& features) {
    columns_.clear();
    for (const Bags& of : features) columns_.push_back(of.column());
    view = {nullptr, {}, features[0].offsets.size() - 1};
    view.columns = columns_;
    rows->prefetch(0, view, *batch);
    rows->pull(0, view, *batch);
  }
  void lookup(std::uint64_t id, float* values) const {
    servers_[placement_(0, id)].table->lookup(&id, 1, values, nullptr);
  }
  void set(std::uint64_t id, const std::vector<float>& gradient) {
    servers_[placement_(0, id)].table->update(&id, 1, gradient.data(), nullptr);
  }

  std::unique_ptr<RemoteRows> rows;
  std::unique_ptr<BatchRows> batch;
  BatchView view{};

 private:
  struct Server {
    std::shared_ptr<Table> table;
    std::unique_ptr<RowService> service;
    std::unique_ptr<Connection> connections[2];  // of the worker, and of who evaluates
  };
  void serve() {
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      for (std::size_t slot = 0; slot < 2 && servers_[s].service; ++slot) serve(s, slot);
    }
  }
  void serve(std::size_t s, std::size_t slot) {
    Server& server = servers_[s];
    std::unique_ptr<Connection>& connection = server.connections[slot];
    const Peer peer = slot + 1;
    if (!connection) {
      const auto [theirs, here] = pair_of_sockets();
      connection = connected(here, kRowLimits, true, Transport::tcp, Role::accepts);
      server.service->come(peer);
      rows->adopt(slot, s, theirs, true, Transport::tcp, 0);
      return;
    }
    if (connection->sending() && !connection->flush()) return;
    const auto header = connection->take(
        [&](const FrameHeader& what) { return server.service->place(peer, what); });
    if (!header) return;
    Answers answers(*connection);
    server.service->frame(peer, *header, answers);
    connection->flush();
  }

  const RowPlacement placement_;
  std::vector<Server> servers_;
  std::vector<IdColumn> columns_;
};

// What one process makes of the table's rows as they are, and of gradients.
struct Alone {
  Alone(const Asked& asked, std::uint64_t rows, std::size_t width)
      : dim(width), values(rows * width), gradient(rows * width), pointers(rows) {
    for (std::uint64_t id = 0; id < rows; ++id) {
      asked.lookup(id, values.data() + id * dim);
      pointers[id] = values.data() + id * dim;
    }
  }
  PooledRows pooled(const Bags& bags, Pooling pooling) {
    places.assign(bags.ids.begin(), bags.ids.end());
    largest.resize((bags.offsets.size() - 1) * dim);
    return {pooling,       dim, 1, bags.column(), places.data(), 0, bags.offsets.size() - 1,
            largest.data()};
  }

  const std::size_t dim;
  std::vector<float> values, gradient;
  std::vector<const float*> pointers;
  std::vector<std::uint32_t> places, largest;
};

bool alike(float one, float other, bool exact) {
  if (one != one || other != other) return one != one && other != other;
  return exact ? one == other : std::abs(one - other) <= 1e-4f * (1 + std::abs(one));
}

// The same twice: pools are those of the rows, and rows come to what one process brings them to.
void expect_as_alone(const Asked::Settings& settings, const std::vector<Bags>& bags, bool exact,
                     Random& random) {
  Asked asked(settings);
  const EmbeddingKernels& kernels = embedding_kernels(default_isa());
  const std::size_t dim = settings.dim, size = bags[0].offsets.size() - 1;
  std::normal_distribution<float> some;
  for (int n = 0; n < 2; ++n) {
    Alone alone(asked, settings.rows, dim);
    asked.pull(bags);
    const TableRows& table = asked.view.tables[0];
    for (std::size_t f = 0; f < bags.size(); ++f) {
      const Pooling pooling = settings.features[f].value_or(Pooling::sum);
      std::vector<float> expected(size * dim), found(size * dim), d(size * dim);
      kernels.pool_racy(alone.pooled(bags[f], pooling), alone.pointers.data(), expected.data(),
                        dim);
      // As a model reads it.
      std::vector<std::uint32_t> largest(size * dim);
      const PooledRows shown{
          pooling, dim, 1, asked.view.columns[f], asked.view.places[f], 0, size, largest.data()};
      kernels.pool_racy(shown, table.values, found.data(), dim);
      for (std::size_t i = 0; i < size * dim; ++i) {
        if (!alike(expected[i], found[i], exact)) CAPTURE(i);
        CHECK(alike(expected[i], found[i], exact));
      }
      for (float& each : d) each = some(random);
      kernels.scatter(shown, d.data(), dim, table.gradient, table.stride);
      kernels.scatter(alone.pooled(bags[f], pooling), d.data(), dim, alone.gradient.data(), dim);
    }
    asked.rows->push(0, *asked.batch, {});
    asked.pull(bags);  // waits for it
    asked.rows->drop(0, *asked.batch);
    for (std::uint64_t id = 0; id < settings.rows; ++id) {
      std::vector<float> now(dim);
      asked.lookup(id, now.data());
      for (std::size_t k = 0; k < dim; ++k) {
        const std::size_t at = id * dim + k;
        CHECK(alike(now[k], alone.values[at] - 0.5f * alone.gradient[at], exact));
      }
    }
  }
  CHECK(asked.rows->counters().settled ==
        2 * static_cast<std::uint64_t>(settings.whole ? 1 : settings.servers));
}

constexpr Pooling kPoolings[] = {Pooling::sum, Pooling::mean, Pooling::max};

}  // namespace

TEST_CASE("pools of whole tables are those of their rows to the bit, and so are their updates") {
  Random random(1);
  for (const std::size_t servers : {1, 2, 3}) {
    for (const Pooling pooling : kPoolings) {
      for (const bool weighted : {false, true}) {
        for (const std::size_t most : {1, 6, 30}) {
          expect_as_alone({.servers = servers, .features = {pooling}},
                          {bags_of(random, 17, 40, most, weighted)}, true, random);
        }
      }
    }
  }
}

TEST_CASE(
    "pools of tables that are spread are those of their rows to rounding, maxima to the bit") {
  Random random(2);
  for (const std::size_t servers : {2, 3, 5}) {
    for (const Pooling pooling : kPoolings) {
      for (const bool weighted : {false, true}) {
        for (const char* const initial : {"uniform", "zeros"}) {  // of zeros all are equal
          expect_as_alone(
              {.servers = servers, .whole = false, .features = {pooling}, .initial = initial},
              {bags_of(random, 17, 40, 9, weighted)}, pooling == Pooling::max, random);
        }
      }
    }
  }
}

TEST_CASE("features that share a table are pooled, and read as rows, side by side") {
  Random random(3);
  for (const bool whole : {true, false}) {
    std::vector<Bags> bags{bags_of(random, 11, 40, 5, false), bags_of(random, 11, 40, 5, true),
                           bags_of(random, 11, 40, 5, false)};
    expect_as_alone(
        {.servers = 2, .whole = whole, .features = {Pooling::mean, std::nullopt, Pooling::max}},
        bags, false, random);
  }
}

TEST_CASE("batches whose bags are all empty have pools of zeros, and update nothing") {
  Random random(4);
  for (const bool whole : {true, false}) {
    for (const Pooling pooling : kPoolings) {
      expect_as_alone({.servers = 2, .whole = whole, .features = {pooling}},
                      {bags_of(random, 5, 40, 0, false)}, true, random);
    }
  }
}

TEST_CASE("a place in more than 65,536 ids, and a bag of more, are wide") {
  Random random(5);
  Bags many, large;
  std::vector<std::uint64_t> bag(70'000);
  for (std::size_t i = 0; i < bag.size(); ++i) bag[i] = i;
  many.add(bag);
  large.add(std::vector<std::uint64_t>(70'000, 7));
  for (const bool whole : {true, false}) {
    for (const Bags& bags : {many, large}) {
      expect_as_alone(
          {.servers = 2, .whole = whole, .rows = 70'000, .dim = 2, .features = {Pooling::max}},
          {bags}, true, random);
    }
  }
}

TEST_CASE("a maximum with an entry that is no number is none, wherever that is") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t servers : {1, 2, 3}) {
    Asked asked({.servers = servers, .whole = servers == 1, .dim = 1, .features = {Pooling::max}});
    Bags bags;
    bags.add({1, 3, 2, 4});
    bags.add({4, 5, 3});
    bags.add({5, 6, 7});
    bags.weights = {1, nan, 1, 1, nan, 1, 1, 1, 1, 1};
    asked.pull({bags});
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(std::isnan(asked.view.tables[0].values[asked.view.places[0][i]][0]) == (i < 2));
    }
    asked.rows->drop(0, *asked.batch);
  }
}

TEST_CASE("whoever evaluates has pools too, and admits nothing") {
  Random random(6);
  for (const bool whole : {true, false}) {
    const Bags bags = bags_of(random, 9, 40, 6, false);
    Asked asked({.servers = 2, .whole = whole, .features = {Pooling::max}});
    Alone alone(asked, 40, 5);
    const IdColumn column = bags.column();
    BatchView view{nullptr, {}, 9};
    view.columns = {&column, 1};
    asked.rows->read(0, view, *asked.batch);
    std::vector<float> expected(9 * 5);
    embedding_kernels(default_isa())
        .pool_racy(alone.pooled(bags, Pooling::max), alone.pointers.data(), expected.data(), 5);
    CHECK(view.tables[0].gradient == nullptr);
    for (std::size_t i = 0; i < 9; ++i) {
      for (std::size_t k = 0; k < 5; ++k) {
        CHECK(view.tables[0].values[view.places[0][i]][k] == expected[i * 5 + k]);
      }
    }
    CHECK(asked.rows->counters().reads == 1);
    CHECK(asked.rows->counters().lookups == 0);
  }
}

TEST_CASE("a gradient that is not finite, or comes to one that is not, is left out") {
  Bags bags;
  bags.add({1, 1, 1, 1});
  for (const float gradient : {std::numeric_limits<float>::infinity(), 3e38f}) {
    Asked asked({.servers = 2, .features = {Pooling::sum}});
    float before[5], after[5];
    asked.lookup(1, before);
    asked.pull({bags});
    std::fill_n(asked.view.tables[0].gradient, 5, gradient);
    asked.rows->push(0, *asked.batch, {});
    asked.pull({bags});
    asked.lookup(1, after);
    CHECK(std::equal(before, before + 5, after));
    CHECK(asked.rows->counters().not_finite == 1);
  }
}

namespace {

// Zipf's law: the k-th of all as often as 1/k^1.2.
std::vector<double> popularity(std::size_t rows) {
  std::vector<double> sums(rows);
  double sum = 0;
  for (std::size_t k = 0; k < rows; ++k) {
    sums[k] = sum += std::pow(static_cast<double>(k + 1), -1.2);
  }
  return sums;
}

// Bytes both ways of some batches, once it is decided.
double bytes_of(PooledAt at, std::size_t length, std::size_t servers, bool whole) {
  static const std::vector<double> sums = popularity(100'000);
  constexpr std::size_t kSize = 512, kBatches = PoolChoice::kBatches + 4;
  Random random(length);
  std::uniform_real_distribution<double> where(0, sums.back());
  Asked asked({.servers = servers,
               .whole = whole,
               .rows = sums.size(),
               .dim = 16,
               .features = {Pooling::sum},
               .at = at});
  double before = 0;
  for (std::size_t n = 0; n < kBatches; ++n) {
    Bags bags;
    std::vector<std::uint64_t> bag(length);
    for (std::size_t i = 0; i < kSize; ++i) {
      for (std::uint64_t& id : bag) {
        const auto found = std::ranges::lower_bound(sums, where(random));
        id = static_cast<std::uint64_t>(found - sums.begin()) * 7919 % sums.size();
      }
      bags.add(bag);
    }
    asked.pull({bags});
    const RemoteRows::Counters counters = asked.rows->counters();
    const auto bytes = static_cast<double>(counters.traffic.out + counters.traffic.in);
    if (n == PoolChoice::kBatches) before = bytes;
    if (n + 1 == kBatches) return bytes - before;
    asked.rows->push(0, *asked.batch, {});
  }
  return 0;
}

}  // namespace

TEST_CASE("bytes are within 1.2 of the better of rows and pools, for bags of any length") {
  for (const bool whole : {true, false}) {
    for (const std::size_t servers : {1, 4, 8}) {
      for (const std::size_t length : {1, 20, 50}) {
        const double rows = bytes_of(PooledAt::rows, length, servers, whole);
        const double pools = bytes_of(PooledAt::servers, length, servers, whole);
        const double found = bytes_of(PooledAt::automatic, length, servers, whole);
        CAPTURE(length);
        CAPTURE(servers);
        CAPTURE(whole);
        CAPTURE(pools / rows);
        CHECK(found <= 1.2 * std::min(rows, pools));
        if (whole && length == 50) CHECK(pools <= 0.35 * rows);
      }
    }
  }
}

TEST_CASE("a winner that a bag does not have makes no sense") {
  const std::vector<std::uint64_t> ids{0, 1, 2};
  const std::vector<std::uint32_t> offsets{0, 2, 3}, entries{0, 1, 2};
  const std::vector<AskedPool::Spot> spots{{0, 0}, {1, 0}, {1, 1}};
  AskedPool pool(0, 0, 1, Pooling::max, 2, std::nullopt);
  pool.find({ids.data(), offsets.data()}, 2, entries.data(), spots.data(), 0);
  std::vector<std::byte> told;
  for (const std::size_t server : {0, 1}) pool.tell(server, 0, 2, told);
  CHECK(pool.pools_of(0) == 1);
  CHECK(pool.pools_of(1) == 2);
  for (const std::uint16_t winner : {0, 1, 0xFFFF}) {
    const std::uint16_t winners[] = {0, winner};
    CHECK(pool.holds(1, reinterpret_cast<const std::byte*>(winners)) == (winner == 0));
  }
}

TEST_CASE("a lookup that no frame has room for is an error, and where it is found out is none") {
  constexpr std::size_t kMany = std::size_t{9} << 20;  // of 8 bytes each
  Bags small, large;
  small.add(std::vector<std::uint64_t>(100'000, 7));
  large.add(std::vector<std::uint64_t>(kMany, 7));
  large.weights.assign(kMany, 1);
  Asked asked({.features = {Pooling::sum}});
  CHECK_THROWS_WITH_AS(asked.pull({large}),
                       "a batch of 1 examples takes 72 MiB of ids and their places at embedding "
                       "server 0, and a frame has 64: give a smaller batch_size, or pooling rows",
                       Error);
  asked.pull({small});  // nothing is left of that
  asked.rows->drop(0, *asked.batch);
  CHECK(asked.rows->counters().cuts == 0);

  PoolChoice choice(PooledAt::automatic, {Pooling::sum, std::nullopt, Pooling::sum, Pooling::max});
  const double half = PoolChoice::kEntries / 2 + 1;
  for (std::uint64_t n = 0; n < PoolChoice::kBatches; ++n) {
    CHECK(choice.decided() == nullptr);
    choice.add({{2e9, 1e9, half}, {}, {2e9, 1e9, half}, {2e3, 1e3, 100}});
  }
  REQUIRE(choice.decided());
  CHECK(*choice.decided() ==
        PoolChoice::Poolings{Pooling::sum, std::nullopt, std::nullopt, Pooling::max});
}
