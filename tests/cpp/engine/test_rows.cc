// What a worker and an evaluation ask of a store of rows, and in which order: beside a store that
// writes it all down.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leashed/base/team.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/evaluator.h"
#include "leashed/engine/trainer.h"
#include "leashed/model/external_rows.h"
#include "leashed/row_store/local_rows.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kRows = 64, kBatch = 4, kDimension = 3;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

// Knows of each batch's rows where they are between prefetch and push.
class Recorder final : public RowStore {
 public:
  enum class State { free, located, pulled };
  struct Rows final : BatchRows {
    State state = State::free;
    const std::uint64_t* ids = nullptr;
  };

  explicit Recorder(std::size_t workers, std::size_t readers = 2, std::size_t ahead = 1)
      : calls(workers), readers_(readers), ahead_(ahead) {}

  std::unique_ptr<BatchRows> make_batch() const override { return std::make_unique<Rows>(); }
  std::size_t readers() const override { return readers_; }
  std::size_t ahead() const override { return ahead_; }
  void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) override {
    note(worker, 'f', rows, State::free, State::located);
    static_cast<Rows&>(rows).ids = batch.columns[0].ids;
  }
  void pull(std::size_t worker, BatchView& batch, BatchRows& rows) override {
    if (static_cast<Rows&>(rows).ids != batch.columns[0].ids) fail("another batch is pulled");
    note(worker, 'l', rows, State::located, State::pulled);
  }
  RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) override {
    note(worker, 'p', rows, State::pulled, State::free);
    const std::lock_guard lock(mutex_);
    steps.push_back(step.t);
    return {.applied = 1};
  }
  void drop(std::size_t worker, BatchRows& rows) override {
    note(worker, 'd', rows, State::pulled, State::free);
  }
  void reach(std::uint64_t) override {}
  RowPublication leave(std::size_t worker) override {
    const std::lock_guard lock(mutex_);
    calls[worker] += 'e';
    return {};
  }
  void read(std::size_t, BatchView& batch, BatchRows&,
            const std::function<bool()>& /*keep_on*/) override {
    const std::lock_guard lock(mutex_);
    if (batch.columns.empty()) wrong = "nothing to read";
    ++reads;
  }

  // By worker: f for prefetch, l for pull, p for push, d for drop, e for leave.
  std::vector<std::string> calls;
  std::vector<std::uint64_t> steps;
  std::size_t reads = 0;
  std::string wrong;
  // The call of that kind that throws.
  char throws = 0;
  std::uint64_t throw_at = kNever;

 private:
  void fail(const char* what) {
    const std::lock_guard lock(mutex_);
    wrong = what;
  }
  // (A pull that throws leaves the rows to be dropped.)
  void note(std::size_t worker, char call, BatchRows& given, State before, State after) {
    auto& rows = static_cast<Rows&>(given);
    const std::lock_guard lock(mutex_);
    const bool dropped = call == 'd' && throws == 'l';
    if (rows.state != before && !dropped) wrong = std::string("out of order: ") + call;
    if (!calls[worker].empty() && calls[worker].back() == 'e') wrong = "called after leave";
    rows.state = after;
    calls[worker] += call;
    if (call == throws && count_++ == throw_at) throw std::runtime_error("boom");
  }

  const std::size_t readers_, ahead_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
};

constexpr std::size_t kAhead[] = {1, 2, 5};  // of which Recorder's rows are asked for

class Source final : public GradientSource {
 public:
  Source() {
    describe({.dimension = kDimension,
              .features = 1,
              .gives_logits = true,
              .tables = {{"one", 4}},
              .features_of_tables = {0}});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float* gradient, Workspace&,
                 const std::atomic<bool>& stopped) const override {
    std::fill_n(gradient, kDimension, -1.0f);
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call == throw_at) throw std::runtime_error("boom");
    if (call == held_at) holds.store(true, std::memory_order_relaxed);
    while (call == held_at && !stopped.load(std::memory_order_relaxed)) std::this_thread::yield();
    return call == nan_at ? std::numeric_limits<float>::quiet_NaN() : 1;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t call = evaluated.fetch_add(1, std::memory_order_relaxed);
    if (call == evaluation_throws_at) throw std::runtime_error("boom");
    if (batch.logits) {
      for (std::size_t i = 0; i < batch.size; ++i) batch.logits[i] = *batch.rows[i];
    }
    return {static_cast<double>(batch.size), 0, batch.size};
  }

  mutable std::atomic<std::uint64_t> calls{0}, evaluated{0};  // relaxed: counts
  mutable std::atomic<bool> holds{false};                     // relaxed: nothing else is told by it
  std::uint64_t throw_at = kNever, held_at = kNever, nan_at = kNever;
  std::uint64_t evaluation_throws_at = kNever;
  bool slow = false;
};

struct Data {
  explicit Data(std::size_t n = kRows) : x(n), y(n), ids(n) {
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = std::sin(static_cast<float>(i));
      y[i] = static_cast<std::int32_t>(i % 2);
      ids[i] = i;
    }
    feature.ids = ids.data();
  }
  DatasetView view() const { return {x.data(), y.data(), x.size(), 1, {}, {&feature, 1}}; }

  std::vector<float> x;
  std::vector<std::int32_t> y;
  std::vector<std::uint64_t> ids;
  IdFeature feature;
};

std::vector<Choice> disciplines() {
  return {{"sequential", {}},
          {"synchronous", {}},
          {"locked", {}},
          {"hogwild", {{"copy", 1}}},
          {"leashed", {{"persistence", 1}}},
          {"leashed", {{"persistence", 0}}}};
}

std::size_t workers_of(const Choice& discipline) { return discipline.name == "sequential" ? 1 : 3; }

TrainResult run(const Source& source, const Choice& choice, Recorder& store, StopRules until,
                const StalenessPolicy& staleness = no_staleness_policy(),
                const TrainCallbacks& callbacks = {}, StepObserver* observer = nullptr,
                Leases* leases = nullptr) {
  const Data data;
  const std::size_t workers = store.calls.size();
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension, workers, 1, *rule, staleness};
  const auto discipline = make_discipline(choice, context);
  TrainOptions options{workers, kBatch, 7, until};
  options.rows = &store;
  options.leases = leases;
  if (observer) options.observers = {observer};
  return train(source, data.view(), nullptr, *discipline, context, options, callbacks);
}

std::size_t count(const Recorder& store, char call) {
  std::size_t n = 0;
  for (const std::string& calls : store.calls) {
    n += static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
  }
  return n;
}

// Everybody has left, once and last, and nobody reads.
void check_end(const Recorder& store) {
  CHECK(store.wrong == "");
  for (const std::string& calls : store.calls) {
    CHECK(std::count(calls.begin(), calls.end(), 'e') == 1);
    CHECK(calls.back() == 'e');
  }
}

}  // namespace

TEST_CASE("a step whose rows were not pushed is told of to nobody, so no record has it") {
  struct Listener final : StepObserver {
    void used(const WorkerStep&) override { ++used_; }
    void published(const WorkerStep&, const Publication&) override { ++published_; }
    std::atomic<std::size_t> used_{0}, published_{0};
  };
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    Recorder store(workers_of(discipline));
    store.throws = 'p';
    store.throw_at = 5;
    StopRules until;
    until.updates = 40;
    Listener listener;
    CHECK_THROWS_WITH(run({}, discipline, store, until, no_staleness_policy(), {}, &listener),
                      "boom");
    CHECK(listener.published_ == count(store, 'p') - 1);
    CHECK(listener.used_ == listener.published_);
  }
}

TEST_CASE("batches are prefetched while those before them are worked on, and pushed after") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    for (const bool by_updates : {true, false}) {
      CAPTURE(by_updates);
      for (const auto& [ahead, calls] : {std::pair<std::size_t, const char*>{1, "fflpflplpe"},
                                         {2, "ffflplplpe"},
                                         {5, "ffflplplpe"}}) {
        CAPTURE(ahead);
        Recorder store(1, 2, ahead);
        StopRules until;
        (by_updates ? until.updates : until.batches) = 3;
        run(Source(), discipline, store, until);
        // Those after the last are not located: their ids are not to be admitted.
        CHECK(store.calls[0] == calls);
        CHECK(store.steps == std::vector<std::uint64_t>{0, 1, 2});
        check_end(store);
      }
    }
  }
}

TEST_CASE("a run of nothing prefetches nothing") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    Recorder store(workers_of(discipline));
    StopRules until;
    until.updates = until.batches = 0;
    run(Source(), discipline, store, until);
    for (const std::string& calls : store.calls) CHECK(calls == "e");
    check_end(store);
  }
}

TEST_CASE("every gradient is pushed, also one that is not published") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    for (const std::size_t ahead : kAhead) {
      CAPTURE(ahead);
      Recorder store(workers_of(discipline), 2, ahead);
      StopRules until;
      until.batches = 600;
      const TrainResult result = run(Source(), discipline, store, until);
      CHECK(result.gradients == 600);
      CHECK(count(store, 'p') == 600);
      CHECK(count(store, 'f') == 600);
      CHECK(count(store, 'd') == 0);
      check_end(store);
    }
  }
}

TEST_CASE("also one that the staleness policy leaves out") {
  struct Never final : StalenessPolicy {
    double factor(double) const override { return 0; }
    bool excludes() const override { return true; }
  };
  for (const Choice& discipline : disciplines()) {
    if (discipline.name == "synchronous" || discipline.name == "sequential") continue;
    CAPTURE(discipline.name);
    Recorder store(3);
    StopRules until;
    until.batches = 50;
    const TrainResult result = run(Source(), discipline, store, until, Never());
    CHECK(result.updates == 0);
    CHECK(result.gradients == 50);
    CHECK(result.excluded == result.gradients);
    CHECK(count(store, 'p') == result.gradients);
    check_end(store);
  }
}

TEST_CASE("so many updates as there are to be are published, however many batches are ahead") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    for (const std::size_t ahead : kAhead) {
      CAPTURE(ahead);
      Recorder store(workers_of(discipline), 2, ahead);
      StopRules until;
      until.updates = 300;
      const TrainResult result = run(Source(), discipline, store, until);
      CHECK(result.updates == 300);
      CHECK(count(store, 'p') == result.gradients);
      CHECK(count(store, 'd') == 0);
      check_end(store);
    }
  }
}

TEST_CASE("a batch is worked on when it comes, though none behind it is there to look ahead to") {
  constexpr std::uint64_t kGiven = 40;
  for (const Choice& discipline : disciplines()) {
    if (discipline.name == "synchronous") continue;
    CAPTURE(discipline.name);
    for (const std::size_t ahead : kAhead) {
      CAPTURE(ahead);
      Recorder store(workers_of(discipline), 2, ahead);
      Leases leases;
      std::uint64_t used = 0;
      {
        std::jthread gives([&](const std::stop_token& stop) {  // one batch after another is done
          for (std::uint64_t k = 0; k < kGiven; ++k) {
            leases.give({k, k, 1});
            for (std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
                 told.empty() && !stop.stop_requested();) {
              std::this_thread::yield();
              for (const auto& one : leases.used()) {
                if (one.second > 0) told.push_back(one);
              }
            }
            used += stop.stop_requested() ? 0 : 1;
          }
          leases.end(kGiven);
        });
        StopRules until;
        until.seconds = 60;
        run(Source(), discipline, store, until, no_staleness_policy(), {}, nullptr, &leases);
        leases.end(kGiven);
      }
      CHECK(used == kGiven);
      CHECK(count(store, 'f') == kGiven);
      CHECK(count(store, 'p') == kGiven);
      check_end(store);
    }
  }
}

TEST_CASE(
    "in lockstep everybody has as many pushes, also where the last step has too few batches") {
  Recorder store(3);
  StopRules until;
  until.batches = 7;
  const TrainResult result = run(Source(), {"synchronous", {}}, store, until);
  CHECK(result.updates == 3);
  for (const std::string& calls : store.calls)
    CHECK(std::count(calls.begin(), calls.end(), 'p') == 3);
  CHECK(store.steps == std::vector<std::uint64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2});
  check_end(store);
}

TEST_CASE("what is under way when the run is stopped is dropped") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    for (const auto& [nan, ahead] :
         {std::pair<bool, std::size_t>{false, 1}, {true, 1}, {false, 5}, {true, 5}}) {
      CAPTURE(nan);
      CAPTURE(ahead);
      Source source;
      (nan ? source.nan_at : source.held_at) = 20;
      Recorder store(workers_of(discipline), 2, ahead);
      StopRules until;
      until.seconds = 60;
      TrainCallbacks callbacks;
      callbacks.interrupted = [&] { return source.holds.load(std::memory_order_relaxed); };
      const TrainResult result =
          run(source, discipline, store, until, no_staleness_policy(), callbacks);
      CHECK(result.reason == (nan ? StopReason::not_finite : StopReason::interrupted));
      CHECK(count(store, 'd') >= 1);
      CHECK(count(store, 'l') == count(store, 'p') + count(store, 'd'));
      CHECK(count(store, 'p') == result.gradients);
      check_end(store);
    }
  }
}

TEST_CASE("an exception of a gradient or of the store ends the run, and nobody waits") {
  for (const Choice& discipline : disciplines()) {
    CAPTURE(discipline.name);
    for (const char at : {'g', 'f', 'l', 'p'}) {
      for (const std::uint64_t nth : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{31}}) {
        CAPTURE(at);
        CAPTURE(nth);
        Source source;
        Recorder store(workers_of(discipline), 2, nth == 31 ? 5 : 1);
        if (at == 'g') {
          source.throw_at = nth;
        } else {
          store.throws = at;
          store.throw_at = nth;
        }
        CHECK_THROWS_WITH_AS(run(source, discipline, store, StopRules{}), "boom",
                             std::runtime_error);
        check_end(store);
      }
    }
  }
}

TEST_CASE("evaluation lets its rows go, however it ends") {
  const Data data(20'000);
  const float theta[kDimension] = {};
  for (const std::size_t threads : {1u, 2u}) {
    CAPTURE(threads);
    Recorder store(0, 2);
    Source source;
    source.slow = true;
    const auto whole = Evaluator(
        source, [] { return true; }, &store)(theta, data.view(), threads);
    REQUIRE(whole);
    CHECK(store.reads == (20'000 + 255) / 256);

    int asked = 0;
    Evaluator early(
        source, [&] { return ++asked != 5; }, &store);
    CHECK_FALSE(early(theta, data.view(), threads));
    // And the next begins anew.
    const auto again = early(theta, data.view(), threads);
    REQUIRE(again);
    CHECK(again->heads.at(0).auc == whole->heads.at(0).auc);
    CHECK(again->heads.at(0).normalised_entropy ==
          doctest::Approx(whole->heads.at(0).normalised_entropy));

    asked = 0;
    Evaluator asks(
        source,
        [&]() -> bool {
          if (++asked == 5) throw std::domain_error("enough");
          return true;
        },
        &store);
    CHECK_THROWS_AS(asks(theta, data.view(), threads), std::domain_error);
    CHECK(asks(theta, data.view(), threads)->heads.at(0).auc == whole->heads.at(0).auc);

    source.evaluation_throws_at = source.evaluated + 10;
    Evaluator fails(
        source, [] { return true; }, &store);
    CHECK_THROWS_WITH_AS(fails(theta, data.view(), threads), "boom", std::runtime_error);
    CHECK(fails(theta, data.view(), threads)->heads.at(0).auc == whole->heads.at(0).auc);
  }
}

TEST_CASE("who stops waiting for another's part of an evaluation leaves nothing of it behind") {
  // Of two threads the one that helps has its first part for so long that the other has all else.
  struct Held final : GradientSource {
    Held() { describe({.dimension = kDimension, .features = 1, .gives_logits = true}); }
    std::unique_ptr<Workspace> make_workspace() const override { return inner.make_workspace(); }
    float gradient(const float*, const BatchView&, float*, Workspace&,
                   const std::atomic<bool>&) const override {
      return 0;
    }
    Evaluation evaluate(const float* theta, const BatchView& batch,
                        Workspace& workspace) const override {
      if (hold.load() && std::this_thread::get_id() != caller) {
        holds = true;
        while (hold.load()) std::this_thread::yield();
      }
      // (The first part is timed, before there is a helper.)
      while (hold.load() && parts > 0 && !holds.load()) std::this_thread::yield();
      ++parts;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return inner.evaluate(theta, batch, workspace);
    }
    const Source inner;
    const std::thread::id caller = std::this_thread::get_id();
    mutable std::atomic<int> parts{0};
    mutable std::atomic<bool> hold{true}, holds{false};
  };
  if (processors() < 2) return;
  const Data data(5'000);
  const float theta[kDimension] = {};
  Recorder store(0, 2);
  const Held source;
  int late = 0;
  Evaluator evaluator(
      source,
      [&]() -> bool {
        if (source.parts < 19 || ++late < 3) return true;
        source.hold = false;
        throw std::domain_error("enough");
      },
      &store);
  CHECK_THROWS_AS(evaluator(theta, data.view(), 2), std::domain_error);
  late = -1000;
  const Data other(1'000);
  const auto next = evaluator(theta, other.view(), 2);
  const auto expected = Evaluator(source, [] { return true; })(theta, other.view(), 1);
  REQUIRE(next);
  CHECK(next->heads.at(0).auc == expected->heads.at(0).auc);
  CHECK(next->heads.at(0).normalised_entropy ==
        doctest::Approx(expected->heads.at(0).normalised_entropy).epsilon(1e-12));
}

namespace {

// The one id's row is to become the label's sign: ½ (row · 1 − y)², summed over 4 floats each.
float towards_labels(const float* theta, const float*, const std::int64_t*, const std::int32_t* y,
                     std::int64_t batch, const std::int64_t* offsets, const std::int64_t* places,
                     const float*, const std::int64_t*, const float* values, float* gradient,
                     float* row_gradients, float*, void*, void*) {
  float loss = 0;
  for (std::size_t j = 0; gradient && j < kDimension; ++j) gradient[j] = theta[j] - 1;
  for (std::int64_t i = 0; i < batch; ++i) {
    for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
      for (std::int64_t j = 0; j < 4; ++j) {
        const float error = values[places[e] + j] - static_cast<float>(y[i]);
        loss += error * error / 2 / static_cast<float>(batch);
        if (gradient) row_gradients[places[e] + j] += error;
      }
    }
  }
  return loss;
}

}  // namespace

TEST_CASE("a function from outside trains rows that others read and write") {
  const Data data;
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 0.2}}});
  const ExternalRowsSource source({kDimension, 1, false, {}, {{"one", 4}}, {0}},
                                  {{towards_labels, nullptr}, {}, {}, 0});
  for (const Choice& choice : disciplines()) {
    CAPTURE(choice.name);
    const std::size_t workers = workers_of(choice);
    const auto table =
        std::make_shared<Table>(Table::Settings{.name = "one",
                                                .dim = 4,
                                                .rows = kRows,
                                                .max_bytes = 0,
                                                .initial = {"normal", {{"sigma", 1}}},
                                                .rule = {"sgd", {{"lr", 0.2}}},
                                                .staleness = {"none"},
                                                .seed = 9});
    LocalRows rows({table}, {0}, workers, 1, choice.name == "synchronous");
    const DisciplineContext context{initial.data(), kDimension, workers, 1, *rule};
    const auto discipline = make_discipline(choice, context);
    TrainOptions options{workers, kBatch, 7, {}};
    options.until.batches = 60 * kRows / kBatch;
    options.rows = &rows;
    const TrainResult result =
        train(source, data.view(), nullptr, *discipline, context, options, {});
    CHECK(result.reason == StopReason::epochs);
    CHECK(result.evaluations.back().loss < 0.1 * result.evaluations.front().loss);
  }
}
