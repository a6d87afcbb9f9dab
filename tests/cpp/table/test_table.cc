// Tables: exact counts however many threads update, SWAP that waits, admission and eviction within
// the memory limit, files.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/table/saving.h"
#include "sanitized.h"

using namespace leashed;

namespace {

const std::size_t kLess = sanitized() ? 20 : 1;

Choice sgd(double lr) { return {"sgd", {{"lr", lr}}}; }
Choice adagrad(double lr) {
  return {"adagrad", {{"lr", lr}, {"eps", 1e-10}, {"initial_accumulator", 0}}};
}

Table::Settings fixed(std::size_t rows, std::size_t dim, Choice rule) {
  return {.name = "t",
          .dim = dim,
          .rows = rows,
          .initial = {"zeros"},
          .rule = std::move(rule),
          .staleness = {"none"}};
}
Table::Settings growing(std::size_t max_bytes, std::size_t dim) {
  return {.name = "t",
          .dim = dim,
          .max_bytes = max_bytes,
          .initial = {"normal", {{"sigma", 1}}},
          .rule = sgd(1),
          .staleness = {"none"},
          .seed = 5};
}

std::vector<float> values_of(SavedTable& table, const std::vector<std::uint64_t>& ids) {
  std::vector<float> values(ids.size() * table.dim());
  table.lookup(ids.data(), ids.size(), values.data(), nullptr);
  return values;
}

std::vector<float> begins_with(const SavedTable& table, std::uint64_t id) {
  std::vector<float> values(table.dim());
  Initial(table.settings().initial, table.settings().seed, table.settings().number)(
      id, values.data(), table.dim());
  return values;
}

void in_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < count; ++w) threads.emplace_back(work, w);
  for (std::thread& thread : threads) thread.join();
}

struct File {
  explicit File(const char* name) : path("/tmp/leashed-" + std::to_string(getpid()) + "-" + name) {}
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

}  // namespace

TEST_CASE("every update of one hot row is counted, and rows of one thread each are exact") {
  const std::size_t kThreads = 8, kUpdates = 4000 / kLess, kDim = 10;
  SavedTable table(fixed(64, kDim, sgd(1)));
  const std::vector<float> down(2 * kDim, -1);
  in_threads(kThreads, [&](std::size_t w) {
    const std::uint64_t ids[] = {0, 8 + w};
    for (std::size_t i = 0; i < kUpdates; ++i) table.update(ids, 2, down.data(), nullptr);
  });
  std::vector<float> values(2 * kDim);
  std::uint32_t versions[2];
  for (std::uint64_t w = 0; w < kThreads; ++w) {
    const std::uint64_t ids[] = {0, 8 + w};
    table.lookup(ids, 2, values.data(), versions);
    CHECK(versions[0] == RowHead::kUpdate * kThreads * kUpdates);
    CHECK(versions[1] == RowHead::kUpdate * kUpdates);
    for (std::size_t i = 0; i < kDim; ++i) REQUIRE(values[kDim + i] == kUpdates);
    for (std::size_t i = 0; i < kDim; ++i) REQUIRE(values[i] <= kThreads * kUpdates);
  }
  const TableStatistics s = table.growth().statistics();
  CHECK(s.updates.applied == 2 * kThreads * kUpdates);
  CHECK(table.steps() == kThreads * kUpdates);
  CHECK(s.found == s.asked);
}

TEST_CASE("rows without versions have the same values, and no room for more") {
  const File file("uncounted");
  for (const std::size_t dim : {1, 10, 16}) {
    Table::Settings settings = fixed(200, dim, adagrad(0.5));
    SavedTable counted(settings);
    settings.versions = false;
    SavedTable table(settings);
    const std::vector<std::uint32_t> old(150, 7);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::uint64_t> ids(150);  // some of them again
      std::vector<float> gradients(ids.size() * dim);
      for (std::uint64_t& id : ids) id = random() % 200;
      for (float& g : gradients) g = normal(random);
      const auto expected = counted.update(ids.data(), ids.size(), gradients.data(), nullptr);
      const auto told = table.update(ids.data(), ids.size(), gradients.data(), old.data());
      CHECK(told.applied == expected.applied);
      CHECK(told.staleness == 0);
    }
    std::vector<std::uint64_t> all(200);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    CHECK(values_of(table, all) == values_of(counted, all));
    std::uint32_t version = 1;
    std::vector<float> values(dim);
    table.lookup(all.data(), 1, values.data(), &version);
    CHECK(version == 0);
    CHECK(table.growth().statistics().bytes_per_row == (2 * dim * sizeof(float) + 15) / 16 * 16);

    table.save(file.path, "kind");
    SavedTable again(settings);
    again.load({file.path}, "kind");
    CHECK(values_of(again, all) == values_of(table, all));
  }
}

TEST_CASE("versions are left out only where nothing needs them") {
  Table::Settings stale = fixed(10, 4, sgd(1)), swaps = fixed(10, 4, adagrad(1));
  stale.staleness = {"cutoff", {{"iota", 1}}};
  swaps.rule.parts.emplace("swap", Choice{"swap", {{"period", 2}, {"decay", 0.5}}});
  for (Table::Settings settings : {stale, swaps, growing(1 << 20, 4)}) {
    settings.versions = false;
    CHECK_THROWS_WITH_AS(Table{settings}, doctest::Contains("needs versions"), Error);
  }
}

TEST_CASE("gradients of one id are added in their order, and make one update") {
  SavedTable table(fixed(10, 4, adagrad(0.5)));
  const std::uint64_t ids[] = {3, 7, 3, 3};
  std::vector<float> gradients(16);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& g : gradients) g = normal(random);
  const RowPublication told = table.update(ids, 4, gradients.data(), nullptr);
  CHECK(told.applied == 2);
  const std::vector<float> values = values_of(table, {3, 7, 4});
  for (std::size_t i = 0; i < 4; ++i) {
    const float sum = gradients[i] + gradients[8 + i] + gradients[12 + i];
    CHECK(values[i] == doctest::Approx(sum > 0 ? -0.5 : 0.5).epsilon(1e-5));
    CHECK(values[4 + i] == doctest::Approx(gradients[4 + i] > 0 ? -0.5 : 0.5).epsilon(1e-5));
    CHECK(values[8 + i] == 0);
  }
}

TEST_CASE("SWAP that waits until a row is touched is that of a vector, over many periods") {
  constexpr std::size_t kRows = 6, kDim = 5, kPeriod = 4, kSteps = 40;
  const double decay = 0.5, lr = 0.1;
  Choice rule = adagrad(lr);
  rule.settings["initial_accumulator"] = 0.3;
  rule.parts["swap"] = {"swap", {{"period", kPeriod}, {"decay", decay}}};
  SavedTable table(fixed(kRows, kDim, rule));
  std::vector<double> theta(kRows * kDim, 0), v(kRows * kDim, 0.3);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (std::size_t t = 0; t < kSteps; ++t) {
    if (t > 0 && t % kPeriod == 0) {
      for (double& each : v) each *= decay;
    }
    // Row r is touched every 5 r + 1 steps: the last ones are left alone for 3 periods and more.
    std::vector<std::uint64_t> ids;
    std::vector<float> gradients;
    for (std::size_t r = 0; r < kRows; ++r) {
      if (t % (5 * r + 1) != 0) continue;
      ids.push_back(r);
      for (std::size_t i = 0; i < kDim; ++i) {
        const float g = normal(random);
        gradients.push_back(g);
        v[r * kDim + i] += double{g} * double{g};
        theta[r * kDim + i] -= lr * double{g} / (std::sqrt(v[r * kDim + i]) + 1e-10);
      }
    }
    table.update(ids.data(), ids.size(), gradients.data(), nullptr);
  }
  const std::vector<float> values = values_of(table, {0, 1, 2, 3, 4, 5});
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(values[i] == doctest::Approx(theta[i]).epsilon(1e-5));
  }
}

TEST_CASE("of threads that reach a period's edge one decays a row, and who is behind none") {
  Choice rule = adagrad(0.1);
  rule.parts["swap"] = {"swap", {{"period", 10}, {"decay", 0.5}}};
  const RowRule row_rule(rule);
  CHECK(row_rule.period(9) == 0);
  CHECK(row_rule.period(10) == 1);
  for (std::size_t round = 0; round < 3000 / kLess; ++round) {
    RowHead head{};
    const auto period = static_cast<std::uint16_t>(65534 + round);  // also as it wraps
    head.period.store(static_cast<std::uint16_t>(period - 1));
    std::atomic<int> ready{0};
    float kept[2];
    in_threads(2, [&](std::size_t w) {
      ++ready;
      while (ready < 2) {
      }
      kept[w] = row_rule.keep(head, period);
    });
    REQUIRE(kept[0] * kept[1] == 0.5f);
    REQUIRE(row_rule.keep(head, static_cast<std::uint16_t>(period - 1)) == 1);
    REQUIRE(head.period.load() == period);
    REQUIRE(row_rule.keep(head, static_cast<std::uint16_t>(period + 3)) == 0.125f);
  }
}

TEST_CASE("a row's staleness is counted in its own updates, and the policy is applied to each") {
  Table::Settings settings = fixed(10, 4, sgd(1));
  settings.staleness = {"power", {{"k", 1}}};
  const std::uint64_t ids[] = {1, 2};
  const std::vector<float> gradient(8, -6);
  std::vector<float> values(8);
  std::uint32_t read[2];
  {
    SavedTable table(settings);
    table.lookup(ids, 2, values.data(), read);
    for (int i = 0; i < 2; ++i) table.update(ids, 1, gradient.data(), nullptr);
    const RowPublication told = table.update(ids, 2, gradient.data(), read);
    CHECK(told.applied == 2);
    CHECK(told.staleness == 2);
    CHECK(told.stalest == 2);
    CHECK(told.octaves[0] == 1);
    CHECK(told.octaves[2] == 1);  // 2 and 3
    values = values_of(table, {1, 2});
    CHECK(values[0] == 6 + 6 + 6.0f / 3);
    CHECK(values[4] == 6);
  }
  settings.staleness = {"cutoff", {{"iota", 1}}};
  SavedTable table(settings);
  table.lookup(ids, 2, values.data(), read);
  for (int i = 0; i < 2; ++i) table.update(ids, 1, gradient.data(), nullptr);
  const RowPublication told = table.update(ids, 2, gradient.data(), read);
  CHECK(told.applied == 1);
  CHECK(told.excluded == 1);
  std::uint32_t after[2];
  table.lookup(ids, 2, values.data(), after);
  CHECK(after[0] == 2 * RowHead::kUpdate);  // what is left out is no update
  CHECK(values[0] == 12);
}

TEST_CASE("threads share rows whose policy goes by their last updates, and files of them") {
  const std::size_t kThreads = 4, kUpdates = 4000 / kLess;
  Table::Settings settings = fixed(50, 10, adagrad(0.1));
  settings.staleness = {"stage_aware", {{"lam", 1}}};
  settings.staleness.parts["policy"] = {"power", {{"k", 1}}};
  SavedTable table(settings);
  const std::string path = "test_table_" + std::to_string(getpid());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < kThreads; ++w) {
    threads.emplace_back([&, w] {
      const std::uint64_t ids[] = {0, 10 + w};
      const std::vector<float> gradient(20, -1);
      std::vector<float> values(20);
      std::uint32_t read[2];
      for (std::size_t k = 0; k < kUpdates; ++k) {
        table.lookup(ids, 2, values.data(), read);
        table.update(ids, 2, gradient.data(), read);
      }
    });
  }
  for (int k = 0; k < 5; ++k) table.save(path, "it");
  for (std::thread& thread : threads) thread.join();
  const TableStatistics s = table.growth().statistics();
  CHECK(s.updates.applied == 2 * kThreads * kUpdates);
  CHECK(std::accumulate(s.updates.octaves.begin(), s.updates.octaves.end(), std::uint64_t{0}) ==
        s.updates.applied);
  for (const float value : values_of(table, {0, 10})) CHECK((value > 0 && std::isfinite(value)));
  table.load({path}, "it");
  std::remove(path.c_str());
}

TEST_CASE("what rows begin with is the id's, whoever asks and whenever") {
  for (const char* kind : {"zeros", "constant", "uniform", "normal"}) {
    Table::Settings settings = growing(1 << 20, 10);
    settings.initial = {kind, {{"value", 0.25}, {"bound", 2}, {"sigma", 3}}};
    SavedTable table(settings);
    double sum = 0, squares = 0, largest = 0;
    for (std::uint64_t id = 0; id < 1000; ++id) {
      const std::vector<float> before = values_of(table, {id});
      REQUIRE(before == begins_with(table, id));
      const std::vector<float> still(10, 0);
      table.update(&id, 1, still.data(), nullptr);
      REQUIRE(values_of(table, {id}) == before);
      for (const float v : before) {
        sum += double{v};
        squares += double{v} * double{v};
        largest = std::max(largest, std::abs(double{v}));
      }
    }
    const std::string name(kind);
    if (name == "zeros") CHECK(largest == 0);
    if (name == "constant") CHECK(sum == doctest::Approx(2500));
    if (name == "uniform") {
      CHECK(largest <= 2);
      CHECK(squares / 1e4 == doctest::Approx(4.0 / 3).epsilon(0.05));
    }
    if (name == "normal") CHECK(squares / 1e4 == doctest::Approx(9).epsilon(0.1));
  }
}

TEST_CASE("ids get a row once enough batches have had them, and seldom ones are forgotten") {
  Table::Settings settings = growing(1 << 20, 4);
  settings.admit_after = 3;
  SavedTable table(settings);
  const std::vector<float> still(4, 0);
  const auto update = [&](std::uint64_t id) { return table.update(&id, 1, still.data(), nullptr); };
  CHECK(update(77).unadmitted == 1);
  CHECK(update(77).unadmitted == 1);
  CHECK(update(77).applied == 1);
  CHECK(update(77).applied == 1);
  CHECK(update(0).applied == 1);  // has one from the start
  std::uint64_t admitted = 0;
  for (std::uint64_t id = 1000; id < 200000; ++id) admitted += update(id).applied;
  CHECK(admitted < 199000 / 20);
}

// Every row holds its id's first value: gradients are 0, so an update writes what it has read.
TEST_CASE("no row has another id's values, all is counted, and memory stays below its limit") {
  const std::size_t kThreads = 8, kBatch = 64, kBatches = 1500 / kLess;
  const std::size_t kLimit = kLess > 1 ? 100000 : 400000;
  Table::Settings settings = growing(kLimit, 4);
  bool parks = true;
  SUBCASE("the oldest go") { settings.evict = "age"; }
  SUBCASE("the oldest go, and nobody stands still") {
    settings.evict = "age";
    parks = false;
  }
  SUBCASE("the least go, and ids must come twice") {
    settings.evict = "norm";
    settings.admit_after = 2;
  }
  SUBCASE("none go") {}
  const bool evicts = settings.evict != "none";
  SavedTable table(settings);
  std::atomic<std::uint64_t> wrong{0}, asked{0};
  std::vector<RowPublication> told(kThreads);
  // Parked between finding rows and updating them.
  std::optional<Seat> parked;
  Located held;
  if (parks) {
    parked.emplace(table.seats());
    for (std::uint64_t id = 1; id < 50; ++id) held.ids.push_back(id);
    table.locate(*parked, held, true);
    table.pull(held);
  }
  in_threads(kThreads, [&](std::size_t w) {
    std::mt19937_64 random(w);
    const std::vector<float> still(kBatch * 4, 0);
    std::vector<std::uint64_t> ids(kBatch);
    std::vector<float> values(kBatch * 4);
    // (None is evicted while who has a shard's lock stands still.)
    const auto goes_on = [&] { return evicts && table.growth().statistics().evicted == 0; };
    for (std::size_t k = 0; k < kBatches || goes_on(); ++k) {
      for (auto& id : ids) {
        const double u = std::generate_canonical<double, 53>(random);
        id = static_cast<std::uint64_t>(std::pow(u, 8) * 1e6) + 1;
      }
      std::vector<std::uint64_t> distinct = ids;
      std::sort(distinct.begin(), distinct.end());
      asked += static_cast<std::uint64_t>(std::unique(distinct.begin(), distinct.end()) -
                                          distinct.begin());
      table.lookup(ids.data(), kBatch, values.data(), nullptr);
      for (std::size_t i = 0; i < kBatch; ++i) {
        const std::vector<float> right = begins_with(table, ids[i]);
        wrong += !std::equal(right.begin(), right.end(), values.begin() + i * 4);
      }
      told[w].add(table.update(ids.data(), kBatch, still.data(), nullptr));
      if (k % 64 == 0) {
        const TableStatistics now = table.growth().statistics();
        wrong += now.bytes > now.most_bytes || now.bytes > kLimit;
      }
    }
  });
  for (std::size_t i = 0; i < held.ids.size(); ++i) {  // still theirs
    const std::vector<float> right = begins_with(table, held.ids[i]);
    CHECK(std::equal(right.begin(), right.end(), held.values[i]));
  }
  RowPublication all;
  if (parks) {
    const std::vector<float> still(held.ids.size() * 4, 0);
    all = table.push(*parked, held, still.data(), 4, 0);
    asked += held.ids.size();
  }
  for (const RowPublication& each : told) all.add(each);
  const TableStatistics s = table.growth().statistics();
  MESSAGE("applied ", all.applied, ", late ", all.late, ", unadmitted ", all.unadmitted,
          ", deferred ", all.deferred, ", refused ", all.refused, ", evicted ", s.evicted,
          ", found ", s.found, " of ", s.asked);
  CHECK(wrong == 0);
  CHECK(all.applied + all.late + all.unadmitted + all.deferred + all.refused == asked);
  CHECK(s.asked == asked);
  CHECK(s.updates.applied == all.applied);
  CHECK(s.updates.refused == all.refused);
  CHECK(s.rows == s.admitted - s.evicted + 2);
  CHECK(s.most_bytes <= kLimit);
  CHECK((s.evicted > 0) == evicts);
  if (!parks) CHECK(s.evicted > 0);
}

TEST_CASE("rows that have been updated longest ago, or are least, make room") {
  Table::Settings settings = growing(1 << 16, 4);
  for (const char* evict : {"age", "norm"}) {
    settings.evict = evict;
    SavedTable table(settings);
    const auto wanted = table.growth().statistics().capacity;
    const std::vector<float> big(4, -100), small(4, 0);
    for (std::uint64_t id = 1; id < 2 * wanted; ++id) {
      for (std::uint64_t kept = 1; kept <= 8; ++kept) {
        table.update(&kept, 1, big.data(), nullptr);
      }
      table.update(&id, 1, small.data(), nullptr);
    }
    CHECK(table.growth().statistics().evicted > wanted / 2);
    for (std::uint64_t kept = 1; kept <= 8; ++kept) {
      CHECK(values_of(table, {kept}) != begins_with(table, kept));
    }
  }
}

TEST_CASE("what is wrong is told, and nothing has changed") {
  using doctest::Contains;
  SavedTable table(fixed(10, 4, sgd(1)));
  std::vector<float> gradients(8, 1);
  std::uint64_t ids[] = {1, 10};
  CHECK_THROWS_WITH_AS(table.update(ids, 2, gradients.data(), nullptr),
                       Contains("id 10 is no row of table 't', which has rows 0 to 9"), Error);
  ids[1] = ~std::uint64_t{0};
  CHECK_THROWS_WITH_AS(table.lookup(ids, 2, gradients.data(), nullptr), Contains("id -1 is no"),
                       Error);
  ids[1] = 2;
  gradients[6] = std::nanf("");
  CHECK_THROWS_WITH_AS(table.update(ids, 2, gradients.data(), nullptr),
                       Contains("gradients[1, 2] is nan"), Error);
  CHECK(values_of(table, {1, 2}) == std::vector<float>(8, 0));
  CHECK(table.growth().statistics().updates.applied == 0);
  CHECK(table.update(ids, 0, gradients.data(), nullptr).applied == 0);

  const auto made = [](const Table::Settings& settings) { SavedTable table(settings); };
  CHECK_THROWS_WITH_AS(made(fixed(10, 4, {"momentum", {{"lr", 1}, {"momentum", 0.9}}})),
                       Contains("momentum would have"), Error);
  Choice clips = sgd(1);
  clips.settings["clip_norm"] = 1;
  CHECK_THROWS_WITH_AS(made(fixed(10, 4, clips)), Contains("clip_norm"), Error);
  CHECK_THROWS_WITH_AS(made(fixed(10, 0, sgd(1))), Contains("needs a dim"), Error);
  Table::Settings tight = fixed(1000, 4, sgd(1));
  tight.max_bytes = 1000;
  CHECK_THROWS_WITH_AS(made(tight), Contains("1000 rows needs 32000 bytes; max_bytes is 1000"),
                       Error);
  CHECK_THROWS_WITH_AS(made(growing(1000, 4)), Contains("64 rows needs"), Error);
  CHECK_THROWS_AS(made(fixed(std::numeric_limits<std::size_t>::max() / 4, 4, sgd(1))), Error);
}

TEST_CASE("a file has the same bits, and one that is damaged or of another table changes nothing") {
  File file("table"), again("again");
  for (const bool grows : {false, true}) {
    CAPTURE(grows);
    Choice rule = adagrad(0.1);
    rule.parts["swap"] = {"swap", {{"period", 7}, {"decay", 0.5}}};
    Table::Settings settings = growing(1 << 20, 10);
    if (!grows) settings.rows = 500;
    settings.rule = rule;
    SavedTable table(settings), other(settings);
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    const auto train = [&](SavedTable& a, Table* b, std::size_t steps) {
      for (std::size_t k = 0; k < steps; ++k) {
        std::vector<std::uint64_t> ids(40);
        std::vector<float> gradients(400);
        for (auto& id : ids) id = random() % 500;
        for (float& g : gradients) g = normal(random);
        a.update(ids.data(), ids.size(), gradients.data(), nullptr);
        if (b) b->update(ids.data(), ids.size(), gradients.data(), nullptr);
      }
    };
    train(table, nullptr, 50);
    table.save(file.path, "one");
    CHECK_THROWS_WITH_AS(other.load({file.path}, "two"), doctest::Contains("of another table"),
                         Error);
    CHECK_THROWS_WITH_AS(other.load({"/nowhere/x"}, "one"), doctest::Contains("cannot be read"),
                         Error);
    CHECK_THROWS_WITH_AS(table.save("/nowhere/x", "one"), doctest::Contains("cannot be written"),
                         Error);
    {
      Seat busy(other.seats());
      CHECK_THROWS_WITH_AS(other.load({file.path}, "one"), doctest::Contains("in use"), Error);
    }
    other.load({file.path}, "one");
    train(table, &other, 30);
    std::vector<std::uint64_t> ids(500);
    for (std::size_t i = 0; i < 500; ++i) ids[i] = i;
    CHECK(values_of(table, ids) == values_of(other, ids));
    CHECK(other.steps() == table.steps());
    std::vector<std::uint32_t> versions[2] = {std::vector<std::uint32_t>(500),
                                              std::vector<std::uint32_t>(500)};
    std::vector<float> values(5000);
    table.lookup(ids.data(), 500, values.data(), versions[0].data());
    other.lookup(ids.data(), 500, values.data(), versions[1].data());
    CHECK(versions[0] == versions[1]);

    const std::vector<float> before = values_of(other, ids);
    std::ifstream in(file.path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    for (const std::size_t at :
         {std::size_t{3}, std::size_t{20}, bytes.size() / 2, bytes.size() - 20, bytes.size() - 1}) {
      CAPTURE(at);
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      std::ofstream(again.path, std::ios::binary) << changed;
      CHECK_THROWS_AS(other.load({again.path}, "one"), Error);
    }
    std::ofstream(again.path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    CHECK_THROWS_WITH_AS(other.load({again.path}, "one"), doctest::Contains("damaged"), Error);
    CHECK(values_of(other, ids) == before);
  }
}

TEST_CASE("what is interrupted has changed nothing") {
  File file("kept");
  struct Interrupted {};
  Table::Settings settings = growing(1 << 22, 4);
  SavedTable table(settings);
  std::vector<std::uint64_t> ids(20000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 1 + i % 9000;
  const std::vector<float> down(ids.size() * 4, -1);
  table.update(ids.data(), 4000, down.data(), nullptr);
  table.save(file.path, "one");
  const std::vector<float> before = values_of(table, ids);
  const auto read = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  std::vector<float> values(before.size());
  // At the first look, at the second, and so on until there is none that has not gone by.
  const auto ends = [&](const auto& call) {
    const std::string bytes = read(file.path);
    int looks = 0;
    for (bool through = false; !through; ++looks) {
      int left = looks;
      try {
        call([&] {
          if (left-- == 0) throw Interrupted{};
        });
        through = true;
      } catch (const Interrupted&) {
        CHECK(values_of(table, ids) == before);
        CHECK(table.steps() == 1);
        CHECK(table.growth().statistics().rows == 4002);
        CHECK((read(file.path) == bytes));
      }
    }
    return looks - 1;
  };
  const float* const gradients = down.data();
  CHECK(ends([&](const Table::Watch& watch) {
          table.lookup(ids.data(), ids.size(), values.data(), nullptr, watch);
        }) > 10);
  CHECK(ends([&](const Table::Watch& watch) { table.load({file.path}, "one", watch); }) >= 4);
  CHECK(ends([&](const Table::Watch& watch) { table.save(file.path, "one", watch); }) >= 4);
  CHECK(ends([&](const Table::Watch& watch) {
          table.update(ids.data(), ids.size(), gradients, nullptr, watch);
        }) >= 10);
  CHECK(values_of(table, ids) != before);
  settings.rows = 20000;
  int looks = 0;
  CHECK_THROWS_AS(Table(settings,
                        [&] {
                          if (++looks == 3) throw Interrupted{};
                        }),
                  Interrupted);
}

TEST_CASE("who waits for a seat can be interrupted") {
  struct Interrupted {};
  SavedTable table(fixed(10, 2, sgd(1)));
  std::vector<std::unique_ptr<Seat>> seats;
  while (seats.size() < Seats::kAll) seats.push_back(std::make_unique<Seat>(table.seats()));
  const std::uint64_t id = 3;
  const float gradient[2] = {1, 1};
  float values[2];
  const auto interrupted = [](const auto& call) {
    int looks = 0;
    CHECK_THROWS_AS(call([&] {
                      if (++looks == 3) throw Interrupted{};
                    }),
                    Interrupted);
  };
  interrupted([&](const Table::Watch& watch) { table.lookup(&id, 1, values, nullptr, watch); });
  interrupted([&](const Table::Watch& watch) { table.update(&id, 1, gradient, nullptr, watch); });
  interrupted([&](const Table::Watch& watch) { table.growth().statistics(watch); });
  interrupted([&](const Table::Watch& watch) { table.save("/tmp/never", "one", watch); });
  seats.pop_back();
  CHECK(table.steps() == 0);
}

TEST_CASE("memory that has been used counts for good, and that of few ids is little") {
  Table::Settings settings = growing(1 << 17, 4);
  settings.evict = "age";
  SavedTable table(settings);
  const std::vector<float> still(4, 0);
  std::size_t bytes = table.growth().statistics().bytes;
  Seat parked(table.seats());  // what is evicted waits for it
  for (std::uint64_t id = 1; id < 2000; ++id) {
    table.update(&id, 1, still.data(), nullptr);
    const TableStatistics s = table.growth().statistics();
    REQUIRE(s.bytes >= bytes);
    REQUIRE(s.bytes <= s.most_bytes);
    bytes = s.bytes;
  }
  const TableStatistics s = table.growth().statistics();
  CHECK(s.evicted > 0);
  // Rows in limbo are nobody's, and yet there.
  CHECK(s.bytes >= (s.rows + s.evicted) * s.bytes_per_row);

  settings.max_bytes = std::size_t{1} << 28;
  SavedTable large(settings);
  for (std::uint64_t id = 1; id < 1000; ++id) large.update(&id, 1, still.data(), nullptr);
  CHECK(large.growth().statistics().bytes < settings.max_bytes / 16);
}

TEST_CASE("a file is written while others update") {
  File file("running");
  Table::Settings settings = growing(1 << 20, 10);
  settings.evict = "age";
  SavedTable table(settings), other(settings);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::mt19937_64 random(1);
    const std::vector<float> still(10, 0);
    while (!stop) {
      const std::uint64_t id = random() % 40000;
      table.update(&id, 1, still.data(), nullptr);
    }
  });
  for (int i = 0; i < 5; ++i) table.save(file.path, "one");
  stop = true;
  writer.join();
  other.load({file.path}, "one");
  for (std::uint64_t id = 0; id < 40000; ++id) {
    REQUIRE(values_of(other, {id}) == begins_with(other, id));
  }
}
