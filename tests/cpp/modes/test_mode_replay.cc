// Traces of trainings by a mode: every mode of real threads is made again bit for bit, up to any
// update and after whatever end; and records that such a server cannot have heard are refused.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "all_modes.h"
#include "leashed/base/error.h"
#include "leashed/model/gradient_source.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "told.h"

using namespace leashed;
using namespace leashed::modes;
using Note = LogLine::Note;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kDimension = 67, kRows = 96, kBatch = 4;

struct TracePath {
  TracePath() { fs::remove(name); }
  ~TracePath() { fs::remove(name); }
  const std::string name =
      (fs::temp_directory_path() / ("test_mode_replay." + std::to_string(getpid()))).string();
};

// The gradient of a number for each row, such that rounding depends on every order.
class Waves final : public GradientSource {
 public:
  explicit Waves(std::size_t dimension = kDimension) : dimension_(dimension) {
    describe({.dimension = dimension_, .features = 1});
  }

  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call == throw_at) throw std::runtime_error("boom");
    if (call % 5 == 3) std::this_thread::yield();
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    float loss = 0;
    for (std::size_t i = 0; i < dimension_; ++i) gradient[i] = 0;
    for (std::size_t row = 0; row < batch.size; ++row) {
      for (std::size_t i = 0; i < dimension_; ++i) {
        const float away = theta[i] - batch.rows[row][0] * static_cast<float>(1 + i % 7);
        gradient[i] += away * 0.37f + theta[(i + 1) % dimension_] * 0.11f;
        loss += away * away;
      }
    }
    return loss;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }

  mutable std::atomic<std::uint64_t> calls{0};
  std::uint64_t throw_at = ~std::uint64_t{0};
  bool slow = false;

 private:
  const std::size_t dimension_;
};

const Choice kSgd{"sgd", {{"lr", 0.002}}};
const Choice kAdam{
    "adam", {{"lr", 0.01}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"clip_norm", 0.5}}};
const Choice kNone{"none"};
const Choice kTail{"tail_tau", {{"amplitude", 0.8}, {"warmup", 20}}};

struct Setting {
  Choice mode;
  std::size_t workers = 8;
  Choice rule = kSgd, staleness = kNone;
  StopRules until = {};
  std::vector<std::pair<double, std::uint32_t>> commands = {};
  std::uint64_t examples = 5 * kRows;
  std::size_t dimension = kDimension;
};

// What a training and its replay are made from.
struct Made {
  explicit Made(const Setting& setting)
      : workers(setting.workers),
        initial(setting.dimension, 0.1f),
        rule(make_rule(setting.rule)),
        staleness(make_staleness(setting.staleness)) {
    for (std::size_t i = 0; i < kRows; ++i) x[i] = 0.3f * static_cast<float>(i % 13);
    Choice choice = setting.mode;
    choice.settings.insert({{"workers", static_cast<double>(workers)},
                            {"batch", static_cast<double>(kBatch)},
                            {"examples", static_cast<double>(setting.examples)}});
    machine = std::make_unique<ServerPolicy>(make_server_policy(choice));
  }
  DatasetView data() const { return {x.data(), y.data(), kRows, 1}; }
  DisciplineContext context(std::size_t readers) const {
    return {initial.data(), initial.size(), workers, readers, *rule, *staleness};
  }

  const std::size_t workers;
  std::vector<float> x = std::vector<float>(kRows), initial;
  std::vector<std::int32_t> y = std::vector<std::int32_t>(kRows);
  std::unique_ptr<const Rule> rule;
  std::unique_ptr<const StalenessPolicy> staleness;
  std::unique_ptr<ServerPolicy> machine;
};

ModeTrainResult record(const Setting& setting, const std::string& path,
                       const Waves& source = Waves(), Told* told = nullptr) {
  const Made made(setting);
  TraceWriter writer(path, "{}", made.initial, 1, 0);
  ModeRecorder recorder(writer);
  ModeTrainOptions options{setting.workers,  kBatch,   7, setting.until, 0,
                           setting.commands, &recorder};
  if (told) options.observers = {told};
  ModeTrainResult result =
      train_mode(source, made.data(), nullptr, *made.machine, made.context(1), options, {});
  writer.finish(result.training.updates, result.training.parameters);
  REQUIRE(writer.failure().empty());
  return result;
}

Replayed make_again(const Setting& setting, const std::string& path,
                    std::uint64_t until = ReplayOptions::kAll, Told* told = nullptr) {
  const Made made(setting);
  const Trace trace(path);
  ReplayOptions options{setting.workers, kBatch, 7, until};
  if (told) options.observers = {told};
  return replay(Waves(setting.dimension), made.data(), *made.machine, made.context(4), {}, trace,
                options);
}

void check_same(const Replayed& made, const TrainResult& then) {
  CHECK(made.t == then.updates);
  CHECK(made.ended);
  CHECK(made.difference == 0);
  CHECK(made.parameters == then.parameters);
  CHECK(made.dropped == then.dropped);
  CHECK(made.excluded == then.excluded);
}

std::vector<LogLine> records_of(const std::string& path) {
  const Trace trace(path);
  ModeCursor cursor(trace);
  std::vector<LogLine> all;
  LogLine one{};
  while (cursor.next(one)) all.push_back(one);
  return all;
}

void write(const std::string& path, const std::vector<LogLine>& records) {
  const Made made(Setting{{"asp"}});
  TraceWriter writer(path, "{}", made.initial, 1, 0);
  ModeRecorder recorder(writer);
  for (const LogLine& one : records) {
    one.note == Note::none ? recorder.heard(one.event, one.at)
                           : recorder.noted(one.event.node, one.note);
  }
}

}  // namespace

TEST_CASE("events come back as they were written, over many pages") {
  const TracePath path;
  using Kind = Event::Kind;
  std::vector<LogLine> all;
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto node = static_cast<Node>(i % 7 ? i % 40 : kMostNodes - 1);
    const Time at{static_cast<std::int64_t>(i * i)};
    switch (i % 8) {
      case 0:
        all.push_back({{Kind::push, node, i * 3, i % 100}, at});
        break;
      case 1:
        all.push_back({{Kind::command, 0, 0, 0, ~std::uint32_t{0}}, at});
        break;
      case 2:
        all.push_back({{Kind::push, node}, at, static_cast<Note>(1 + i / 8 % 3)});
        break;
      case 3:
        all.push_back({{Kind::push, node, i % 16 < 8 ? kMost : 0, kMost - i}, at});
        break;
      default:
        all.push_back({{static_cast<Kind>(i % 8 == 4   ? Kind::pull
                                          : i % 8 == 5 ? Kind::wake
                                          : i % 8 == 6 ? Kind::leave
                                                       : Kind::join),
                        node},
                       at});
    }
  }
  all.push_back({{Kind::data_end}, {far}});
  all.push_back({{Kind::wake}, {far}});
  write(path.name, all);
  const std::vector<LogLine> found = records_of(path.name);
  REQUIRE(found.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const Event &a = all[i].event, &b = found[i].event;
    REQUIRE(found[i].note == all[i].note);
    REQUIRE(a.node == b.node);
    if (all[i].note != Note::none) continue;
    REQUIRE(a.kind == b.kind);
    REQUIRE(all[i].at.ns == found[i].at.ns);
    REQUIRE(a.ticket == b.ticket);
    REQUIRE(a.version == b.version);
    REQUIRE(a.argument == b.argument);
  }
}

TEST_CASE("a push and the pull after it take about ten bytes") {
  const TracePath path;
  const Made made(Setting{{"asp"}});
  TraceWriter writer(path.name, "{}", made.initial, 1, 0);
  ModeRecorder recorder(writer);
  constexpr std::uint64_t kUpdates = 400000;
  std::int64_t ns = 0;
  for (std::uint64_t i = 1; i <= kUpdates; ++i) {
    const auto node = static_cast<Node>(i % 8);
    ns += 900'000;
    recorder.heard({Event::Kind::push, node, i, i - 1}, {ns});
    ns += 20'000;
    recorder.heard({Event::Kind::pull, node}, {ns});
  }
  CHECK(fs::file_size(path.name) < 11 * kUpdates);
}

TEST_CASE("every mode of eight threads is made again bit for bit") {
  const TracePath path;
  for (const Choice& mode : all_modes()) {
    for (const Choice& rule : {kSgd, kAdam}) {
      for (const Choice& staleness : {kNone, kTail, Choice{"cutoff", {{"iota", 2}}}}) {
        for (const std::size_t workers : {1, 8}) {
          CAPTURE(mode.name);
          CAPTURE(rule.name);
          CAPTURE(staleness.name);
          CAPTURE(workers);
          Setting setting{mode, workers, rule, staleness};
          if (mode.name == "switching") setting.commands = {{0, 1}, {0.0005, 0}, {0.001, 1}};
          Told told(workers), again(workers);
          const ModeTrainResult then = record(setting, path.name, Waves(), &told);
          check_same(make_again(setting, path.name, ReplayOptions::kAll, &again), then.training);
          CHECK((again.outcomes == told.outcomes));
          for (std::size_t worker = 0; worker < workers; ++worker) {
            auto& all = told.gradients[worker];
            const std::size_t pushed = again.gradients[worker].size();
            REQUIRE(pushed <= all.size());  // of a switch some are not asked for any more
            all.resize(pushed);
            CHECK((again.gradients[worker] == all));
          }
        }
      }
    }
  }
}

// The replay's server has nobody who helps it.
TEST_CASE("updates in parts, which waiting workers help with, are those that one thread makes") {
  const TracePath path;
  for (const Choice& mode : all_modes()) {
    for (const std::size_t workers : {3, 8}) {
      CAPTURE(mode.name);
      CAPTURE(workers);
      Setting setting{mode, workers, kAdam, kTail};
      setting.examples = 2 * kRows;
      setting.dimension = 3 * 8192 + 11;
      if (mode.name == "switching") setting.commands = {{0, 1}, {0.002, 0}, {0.004, 1}};
      const ModeTrainResult then = record(setting, path.name, Waves(setting.dimension));
      check_same(make_again(setting, path.name), then.training);
    }
  }
}

TEST_CASE("with more nodes than a record's first byte has room for") {
  const TracePath path;
  const Setting setting{{"gba", {{"m", 4}}}, 40};
  const ModeTrainResult then = record(setting, path.name);
  check_same(make_again(setting, path.name), then.training);
}

TEST_CASE("a replay stops where it is told to, and tells of the update before") {
  const TracePath path;
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    const Setting setting{mode, 4};
    const std::uint64_t updates = record(setting, path.name).training.updates;
    REQUIRE(updates > 4);
    const Replayed one = make_again(setting, path.name, 4);
    const Replayed before = make_again(setting, path.name, 3);
    CHECK(one.t == 4);
    CHECK_FALSE(one.ended);
    REQUIRE_FALSE(one.last.empty());
    CHECK(one.before.size() == kDimension);
    CHECK_THROWS_AS(make_again(setting, path.name, updates + 1), Error);
    const Replayed none = make_again(setting, path.name, 0);
    CHECK(none.last.empty());
    const Made made(setting);
    const bool own = mode.name == "ensemble" || one.gradient.empty();
    if (made.machine->holds() && !own) {
      CHECK(none.parameters == made.initial);
      CHECK(one.before == before.parameters);
      for (std::size_t i = 0; i < kDimension; ++i) {
        const float step = one.before[i] - one.parameters[i];
        CHECK(step == doctest::Approx(0.002f * one.gradient[i]).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("what is told of an update is what was in it") {
  const TracePath path;
  const Setting setting{{"bsp", {{"b2", 3}}}, 4, kSgd, {"power", {{"k", 1}}}};
  record(setting, path.name);
  const Replayed made = make_again(setting, path.name, 9);
  REQUIRE(made.last.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const ReplayedPart& part = made.last[i];
    CHECK(part.record.t() == 8);
    CHECK(part.factor == 1 / (1 + static_cast<double>(part.record.staleness)));
    CHECK(part.loss > 0);
    if (i > 0) CHECK(made.last[i - 1].record.k < part.record.k);
  }
}

TEST_CASE("a training that a stop rule or a failing gradient ends is made again up to there") {
  const TracePath path;
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    Setting setting{mode, 8};
    setting.examples = 0;
    setting.until.updates = 50;
    const ModeTrainResult then = record(setting, path.name);
    CHECK(then.training.updates == 50);
    check_same(make_again(setting, path.name), then.training);
    Waves source;
    source.throw_at = 150;
    setting.until.updates = 1'000'000;
    CHECK_THROWS_AS(record(setting, path.name, source), std::runtime_error);
    const Replayed made = make_again(setting, path.name);
    CHECK(made.t > 0);
    CHECK_FALSE(made.ended);
  }
}

TEST_CASE("the beginning of a trace is the beginning of the training") {
  const TracePath path, part;
  for (const char* name : {"gba", "swarm", "shat"}) {
    CAPTURE(name);
    Setting setting{{name}};
    if (setting.mode.name == "swarm") setting.mode.settings = {{"h", 2}};
    record(setting, path.name);
    const std::vector<LogLine> all = records_of(path.name);
    const Replayed whole = make_again(setting, path.name);
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, all.size() / 2, all.size() - 1}) {
      write(path.name, {all.begin(), all.begin() + static_cast<long>(n)});
      const Replayed made = make_again(setting, path.name);
      CHECK(made.t <= whole.t);
      CHECK_FALSE(made.ended);
    }
  }
}

TEST_CASE("what such a server cannot have heard is refused before anything is computed") {
  const TracePath path;
  const Setting setting{{"ssp", {{"s", 2}}}, 4};
  record(setting, path.name);
  const std::vector<LogLine> good = records_of(path.name);
  const auto refused = [&](const Setting& with) {
    CHECK_THROWS_WITH_AS(make_again(with, path.name), doctest::Contains("contradict each other"),
                         Error);
  };
  // Another mode grants other versions, another number of workers has no such nodes.
  refused({{"bsp", {{"b2", 2}}}, 4});
  refused({{"ssp", {{"s", 2}}}, 2});
  refused({{"swarm", {{"h", 2}}}, 4});
  std::size_t push = 0;
  while (good[push].event.kind != Event::Kind::push) ++push;
  for (int wrong = 0; wrong < 7; ++wrong) {
    CAPTURE(wrong);
    std::vector<LogLine> bad = good;
    LogLine& one = bad[push];
    if (wrong == 0) ++one.event.ticket;
    if (wrong == 1) ++one.event.version;
    if (wrong == 2) one.event.node = 4;
    if (wrong == 3) one.note = Note::stepped;
    if (wrong == 5) one.note = Note::renewed;
    if (wrong == 6) one.note = Note::looked_up;
    if (wrong == 4) bad.insert(bad.begin() + static_cast<long>(push), one);
    write(path.name, bad);
    refused(setting);
  }
  std::vector<LogLine> bad = good;
  bad[1].at.ns = bad[0].at.ns - 1;
  write(path.name, bad);
  refused(setting);
}

TEST_CASE("a replay looks for an interruption while it reads, and between the steps of a lease") {
  const TracePath path;
  const Setting setting{{"local_sgd", {{"h", kBatch}}}, 2};
  record(setting, path.name);
  const Made made(setting);
  const Trace trace(path.name);
  Waves source;
  source.slow = true;
  const auto until = [&](std::uint64_t calls) {
    const std::function<bool()> interrupted = [&source, calls] { return source.calls >= calls; };
    return replay(source, made.data(), *made.machine, made.context(4), {}, trace,
                  {setting.workers, kBatch, 7, ReplayOptions::kAll, interrupted});
  };
  CHECK(until(0).interrupted);
  CHECK(source.calls == 0);
  const Replayed cut = until(2);
  CHECK(cut.interrupted);
  CHECK(cut.t == 0);
  CHECK(source.calls == 2);
  int pages = 0;
  CHECK_THROWS_WITH(Trace(path.name,
                          [&pages] {
                            if (++pages == 2) throw std::runtime_error("signal");
                          }),
                    "signal");
}

TEST_CASE("a trace with an end that its records do not reach is refused") {
  const TracePath path;
  const Setting setting{{"asp"}, 2};
  const ModeTrainResult then = record(setting, path.name);
  const std::vector<LogLine> all = records_of(path.name);
  {
    const Made made(setting);
    TraceWriter writer(path.name, "{}", made.initial, 1, 0);
    ModeRecorder recorder(writer);
    for (std::size_t i = 0; i < all.size() / 2; ++i) recorder.heard(all[i].event, all[i].at);
    writer.finish(then.training.updates, then.training.parameters);
  }
  CHECK_THROWS_WITH_AS(make_again(setting, path.name), doctest::Contains("lack update"), Error);
}
