// Traces: what is written is read, whatever the moment; what has changed is refused; and trainings
// of real threads are made again bit for bit.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/trainer.h"
#include "leashed/trace/replay.h"
#include "leashed/trace/trace_reader.h"
#include "leashed/trace/trace_writer.h"
#include "leashed/update/registry.h"
#include "told.h"

using namespace leashed;
namespace fs = std::filesystem;

namespace {

// A file of this test, which is not there yet and goes with it.
struct TracePath {
  TracePath() { fs::remove(name); }
  ~TracePath() { fs::remove(name); }
  const std::string name =
      (fs::temp_directory_path() / ("test_trace." + std::to_string(getpid()))).string();
};

struct Written {
  std::uint64_t k, t_read;
  Publication publication;
  std::vector<double> factors;
};

// Some of all kinds, near and far from the one before.
std::vector<Written> written(std::size_t n, std::size_t factors, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Written> all(n);
  std::uint64_t k = 0, t = 0;
  for (std::size_t i = 0; i < n; ++i) {
    k += i == n / 2 ? std::uint64_t{1} << 50 : 1 + random() % 9;
    t += random() % 300;
    Publication p;
    const auto kind = random() % 8;
    p.published = kind > 2;
    p.excluded = kind == 0;
    p.abandoned = kind == 1;
    p.t = t + random() % (i % 100 ? 20 : 100000);
    p.staleness_schedule = p.published ? random() % 3 : 0;
    p.tries = random() % 3;
    std::vector<double> values(factors);
    for (double& value : values) value = static_cast<double>(random()) * 1e-19;
    p.factor = factors ? values.front() : 1;
    all[i] = {k, t, p, values};
  }
  return all;
}

void write(TraceWriter& writer, std::size_t worker, Written one) {
  one.publication.factors = one.factors.data();
  writer.published({.worker = worker, .k = one.k, .view = {nullptr, one.t_read}}, one.publication);
}

void require_next(TraceCursor& cursor, const Written& one) {
  TraceRecord found;
  REQUIRE(cursor.next(found));
  const Publication& p = one.publication;
  REQUIRE(found.outcome == (p.published   ? trace::Outcome::published
                            : p.abandoned ? trace::Outcome::given_up
                            : p.excluded  ? trace::Outcome::excluded
                                          : trace::Outcome::dropped));
  REQUIRE(found.k == one.k);
  REQUIRE(found.t_read == one.t_read);
  REQUIRE(found.t() == (p.abandoned ? one.t_read : p.t));
  REQUIRE(found.staleness_schedule == p.staleness_schedule);
  REQUIRE(found.tries == p.tries);
  if (p.published) REQUIRE(cursor.factors() == one.factors);
}

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put_bytes(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

constexpr std::size_t kDimension = 203, kRows = 64;

// The gradient of a number for each row, such that rounding depends on every order.
class Waves final : public GradientSource {
 public:
  Waves() { describe({.dimension = kDimension, .features = 1, .block_ends = {50, kDimension}}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    const float x = batch.rows[0][0];
    float loss = 0;
    for (std::size_t i = 0; i < kDimension; ++i) {
      const float away = theta[i] - x * static_cast<float>(1 + i % 7);
      gradient[i] = away * 0.37f + theta[(i + 1) % kDimension] * 0.11f;
      loss += away * away;
    }
    return loss;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }
};

struct Made {
  TrainResult result;
  Replayed replayed;
  Told told, again;
};

Made record_and_replay(const Choice& discipline, const Choice& rule_choice,
                       const Choice& policy_choice, std::size_t workers, std::uint64_t updates,
                       std::uint64_t until = std::numeric_limits<std::uint64_t>::max()) {
  std::vector<float> x(kRows), initial(kDimension, 0.1f);
  for (std::size_t i = 0; i < kRows; ++i) x[i] = 0.3f * static_cast<float>(i % 13);
  const std::vector<std::int32_t> y(kRows, 0);
  const DatasetView data{x.data(), y.data(), kRows, 1};
  const Waves source;
  const auto rule = make_rule(rule_choice, workers);
  const auto policy = make_staleness(policy_choice);
  const DisciplineContext context{initial.data(), kDimension,         workers, 1, *rule,
                                  *policy,        source.block_ends()};
  const auto made = make_discipline(discipline, context);
  const TracePath path;
  Made all{{}, {}, Told(workers), Told(workers)};
  {
    const auto factors =
        trace::factors(*policy, Updater(context).layout().blocks, made->lockstep());
    TraceWriter writer(path.name, "{}", initial, workers, factors);
    StopRules rules;
    rules.updates = updates;
    TrainOptions options{workers, 4, 7, rules, std::numeric_limits<double>::infinity()};
    options.observers = {&writer, &all.told};
    all.result = train(source, data, nullptr, *made, context, options, {});
    writer.finish(all.result.updates, all.result.parameters);
    REQUIRE(writer.failure().empty());
  }
  const auto fresh = make_staleness(policy_choice);
  const DisciplineContext again{initial.data(), kDimension,         workers, 1, *rule,
                                *fresh,         source.block_ends()};
  const Trace trace(path.name);
  ReplayOptions options{workers, 4, 7, until};
  options.observers = {&all.again};
  all.replayed = replay(source, data, again, made->lockstep(), trace, options);
  return all;
}

const Choice kSgd{"sgd", {{"lr", 0.01}}};
const Choice kAdam{
    "adam", {{"lr", 0.01}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"clip_norm", 0.5}}};
const Choice kNone{"none", {}};
const Choice kTail{"tail_tau", {{"amplitude", 0.8}, {"warmup", 20}}};

}  // namespace

TEST_CASE("records come back as they were written, over many pages and before the end") {
  const TracePath path;
  for (const std::size_t factors : {0, 1, 3}) {
    CAPTURE(factors);
    const std::vector<Written> first = written(30000, factors, 1), second = written(10, factors, 2);
    TraceWriter writer(path.name, R"({"a": 1})", {1.5f, -2}, 3, factors);
    for (const Written& one : first) write(writer, 0, one);
    for (const Written& one : second) write(writer, 2, one);
    for (const bool ended : {false, true}) {
      if (ended) writer.finish(77, {3, 4, 5});
      const Trace trace(path.name);
      CHECK(trace.header() == R"({"a": 1})");
      CHECK(trace.start() == std::vector<float>{1.5f, -2});
      CHECK(trace.end().theta == (ended ? std::vector<float>{3, 4, 5} : std::vector<float>{}));
      if (ended) CHECK(trace.end().t == 77);
      TraceCursor one(trace, 0, factors), none(trace, 1, factors), two(trace, 2, factors);
      for (const Written& expected : first) require_next(one, expected);
      for (const Written& expected : second) require_next(two, expected);
      TraceRecord record;
      CHECK_FALSE(one.next(record));
      CHECK_FALSE(none.next(record));
      CHECK_FALSE(two.next(record));
    }
  }
}

TEST_CASE("an update takes about six bytes") {
  const TracePath path;
  TraceWriter writer(path.name, "{}", {}, 1, 0);
  constexpr std::uint64_t kUpdates = 200000;
  for (std::uint64_t t = 0; t < kUpdates; ++t) {
    writer.published({.k = t + 1, .view = {nullptr, t}},
                     {.published = true, .t = t + 3, .staleness_compute = 3});
  }
  CHECK(fs::file_size(path.name) < 7 * kUpdates);
}

TEST_CASE("what is stored so far can be read after every record") {
  const TracePath path;
  TraceWriter writer(path.name, "{}", {}, 1, 1);
  const std::vector<Written> all = written(300, 1, 3);
  for (std::size_t n = 0; n < all.size(); ++n) {
    write(writer, 0, all[n]);
    const Trace trace(path.name);
    TraceCursor cursor(trace, 0, 1);
    for (std::size_t i = 0; i <= n; ++i) require_next(cursor, all[i]);
    TraceRecord record;
    REQUIRE_FALSE(cursor.next(record));
  }
}

TEST_CASE("a changed byte is refused, wherever it is") {
  const TracePath path;
  {
    TraceWriter writer(path.name, R"({"a": 1})", std::vector<float>(20, 1), 2, 0);
    for (const Written& one : written(100, 0, 4)) write(writer, 0, one);
    writer.finish(9, std::vector<float>(20, 2));
  }
  const std::vector<char> good = bytes_of(path.name);
  CHECK(good.size() == 5 * trace::kPage);
  for (std::size_t i = 0; i < good.size(); i += i % trace::kPage < 128 ? 1 : 4099) {
    std::vector<char> bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    put_bytes(path.name, bad);
    CAPTURE(i);
    CHECK_THROWS_AS(Trace(path.name), Error);
  }
}

TEST_CASE("what is no trace is refused") {
  const TracePath path;
  CHECK_THROWS_AS(Trace(path.name), Error);  // not there
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{100}, trace::kPage, 3 * trace::kPage}) {
    put_bytes(path.name, std::vector<char>(size, size % 2 ? 'x' : '\0'));
    CHECK_THROWS_AS(Trace(path.name), Error);
  }
}

TEST_CASE("a file that cannot be written is an error, a full one the end of the recording") {
  CHECK_THROWS_AS(TraceWriter("/nowhere/at/all", "{}", {}, 1, 0), fs::filesystem_error);
  CHECK_THROWS_AS(TraceWriter("/dev/null", "{}", {}, 1, 0), fs::filesystem_error);
  CHECK(fs::exists("/dev/null"));
  const TracePath path;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit full = before;
  full.rlim_cur = 4 * trace::kPage;
  setrlimit(RLIMIT_FSIZE, &full);
  const std::vector<Written> all = written(20000, 0, 5);
  {
    TraceWriter writer(path.name, "{}", {1}, 1, 0);
    for (const Written& one : all) write(writer, 0, one);
    CHECK_FALSE(writer.failure().empty());
    writer.finish(1, {1});
    // Whose beginning has no room is not put in the place of one that is whole.
    CHECK_THROWS_AS(TraceWriter(path.name, "{}", std::vector<float>(100000), 1, 0),
                    fs::filesystem_error);
    for (const auto& file : fs::directory_iterator(fs::path(path.name).parent_path())) {
      CHECK(file.path().string().find(path.name + ".partial") == std::string::npos);
    }
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  const Trace trace(path.name);
  CHECK(trace.end().theta.empty());
  TraceCursor cursor(trace, 0, 0);
  TraceRecord record;
  std::size_t n = 0;
  while (cursor.next(record)) CHECK(record.k == all[n++].k);
  CHECK(n > 5000);
}

TEST_CASE("a training of threads is made again bit for bit") {
  struct {
    Choice discipline;
    std::size_t workers;
  } kinds[] = {
      {{"sequential", {}}, 1},
      {{"synchronous", {}}, 1},
      {{"synchronous", {}}, 3},
      {{"locked", {}}, 8},
      {{"leashed", {{"persistence", std::numeric_limits<double>::infinity()}}}, 8},
      {{"leashed", {{"persistence", 1}}}, 8},
      {{"leashed", {{"persistence", 0}}}, 8},
      {{"hogwild", {{"copy", 1}}}, 1},
  };
  const Choice staged{"stage_aware", {{"lam", 1.0}, {"as_printed", 0}}, {}, {{"policy", kTail}}};
  for (const auto& [discipline, workers] : kinds) {
    for (const Choice& rule : {kSgd, kAdam}) {
      for (const Choice& policy : {kNone, kTail, Choice{"cutoff", {{"iota", 3}}}, staged}) {
        CAPTURE(discipline.name);
        CAPTURE(workers);
        CAPTURE(rule.name);
        CAPTURE(policy.name);
        const auto [result, replayed, told, again] =
            record_and_replay(discipline, rule, policy, workers, 1500);
        CHECK(replayed.t == result.updates);
        CHECK(replayed.ended);
        CHECK(replayed.difference == 0);
        CHECK(replayed.parameters == result.parameters);
        CHECK(replayed.dropped == result.dropped);
        CHECK(replayed.excluded == result.excluded);
        CHECK((again.gradients == told.gradients));
        CHECK((again.outcomes == told.outcomes));
      }
    }
  }
}

TEST_CASE("Hogwild's is made again as the training that its counter tells") {
  const auto [result, replayed, told, again] =
      record_and_replay({"hogwild", {{"copy", 1}}}, kSgd, kNone, 4, 2000);
  CHECK(replayed.t == result.updates);
  CHECK(replayed.ended);
  CHECK((again.outcomes == told.outcomes));
  // How far it is off depends on who was interrupted while writing; that it is told is what counts.
  CHECK(std::isfinite(replayed.difference));
}

TEST_CASE("a replay stops where it is told to, and tells of the update before") {
  const auto [result, replayed, told, again] =
      record_and_replay({"leashed", {{"persistence", 1}}}, kSgd, kNone, 4, 500, 123);
  std::size_t published = 0;
  for (const auto& outcomes : again.outcomes) {
    for (const auto& outcome : outcomes) published += std::get<0>(outcome);
  }
  CHECK(published == 123);
  CHECK(replayed.t == 123);
  CHECK_FALSE(replayed.ended);
  CHECK(replayed.last.front().record.t() == 122);
  for (std::size_t i = 0; i < kDimension; ++i) {
    const float step = replayed.before[i] - replayed.parameters[i];
    CHECK(step == doctest::Approx(0.01f * replayed.gradient[i]).epsilon(1e-3));
  }
  CHECK(record_and_replay({"sequential", {}}, kSgd, kNone, 1, 5, 0).replayed.last.empty());
}

TEST_CASE("an update that is missing ends the replay, one that cannot be is refused") {
  const std::vector<float> x(kRows, 1), initial(kDimension, 0.1f);
  const std::vector<std::int32_t> y(kRows, 0);
  const Waves source;
  const auto rule = make_rule(kSgd);
  const DisciplineContext context{initial.data(), kDimension, 2, 1, *rule};
  const TracePath path;
  struct Update {
    std::size_t worker;
    std::uint64_t t_read, t;
  };
  const auto replayed = [&](const std::vector<Update>& updates, std::uint64_t end = 0) {
    {
      TraceWriter writer(path.name, "{}", initial, 2, 0);
      for (const auto& [worker, t_read, t] : updates) {
        writer.published({.worker = worker, .k = t, .view = {nullptr, t_read}},
                         {.published = true, .t = t});
      }
      if (end > 0) writer.finish(end, initial);
    }
    const Trace trace(path.name);
    return replay(source, {x.data(), y.data(), kRows, 1}, context, false, trace, {2, 4, 7}).t;
  };
  CHECK(replayed({}) == 0);
  CHECK(replayed({{0, 0, 0}, {1, 0, 1}, {0, 1, 2}}) == 3);
  CHECK(replayed({{0, 0, 0}, {1, 0, 2}}) == 1);
  CHECK(replayed({{0, 5, 5}}) == 0);
  CHECK(replayed({{0, 0, 0}, {1, 0, 1}}, 2) == 2);
  CHECK_THROWS_AS(replayed({{0, 0, 0}, {1, 0, 2}}, 3), Error);  // which is there in the end
  CHECK_THROWS_AS(replayed({{0, 0, 0}, {0, 0, 1}}), Error);     // read before its own last update
  CHECK_THROWS_AS(replayed({{0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {1, 0, 1}}), Error);
}

TEST_CASE("a process that is killed while it writes the end has none") {
  const TracePath path;
  const std::vector<Written> all = written(50, 0, 6);
  {
    TraceWriter writer(path.name, "{}", {1}, 1, 0);
    for (const Written& one : all) write(writer, 0, one);
    writer.finish(9, std::vector<float>(20000, 2));
  }
  std::vector<char> good = bytes_of(path.name);
  good.resize(good.size() - trace::kPage);  // the first of the end's two is left
  std::vector<char> bad = good;
  bad[bad.size() - trace::kPage / 2] = 7;
  put_bytes(path.name, bad);
  CHECK_THROWS_AS(Trace(path.name), Error);
  good[good.size() - trace::kPage - 1] = 7;  // of a record that was half-written
  put_bytes(path.name, good);
  const Trace trace(path.name);
  CHECK(trace.end().theta.empty());
  TraceCursor cursor(trace, 0, 0);
  for (const Written& one : all) require_next(cursor, one);
}
