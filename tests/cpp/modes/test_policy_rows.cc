// Rows of tables under the modes, on threads: nothing is lost, whatever ends a run lets go of the
// tables, and what the server heard, told to another by one thread, gives the same parameters and
// rows, bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/row_store/local_rows.h"
#include "leashed/server/own_models.h"
#include "leashed/server/row_holder.h"
#include "leashed/staleness/registry.h"
#include "leashed/trace/replay.h"
#include "leashed/trace/trace_writer.h"
#include "leashed/training/assemble.h"
#include "leashed/update/registry.h"
#include "modes/row_job.h"
#include "replaced_new.h"

namespace {

// Of a thread that is starved, allocations of all such threads until one fails.
thread_local bool starved = false;
std::atomic<long> allocations_left{0};  // relaxed: a count

void allocating() {
  if (starved && allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0) {
    throw std::bad_alloc();
  }
}

}  // namespace

using namespace leashed;
using namespace leashed::modes;
using namespace leashed::row_job;

namespace {

struct Setting {
  Choice mode;
  std::size_t workers = 2;
  Kind kind = Kind::fixed;
  Choice rule = kSgd;
  Choice staleness = {"none"};
  std::uint64_t examples = 5 * kExamples;
  StopRules until = {};
};

Tables tables_of(const Setting& setting) {
  return row_job::tables_of(setting.kind, setting.rule, setting.staleness);
}

Data data_of(const Setting& setting) { return Data(setting.kind >= Kind::evicts ? 100000 : 30); }

struct Made {
  explicit Made(const Setting& setting)
      : rule(make_rule(setting.rule)), staleness(make_staleness(setting.staleness)) {
    Choice choice = setting.mode;
    choice.settings.insert({{"workers", static_cast<double>(setting.workers)},
                            {"batch", static_cast<double>(kBatch)},
                            {"examples", static_cast<double>(setting.examples)}});
    machine = std::make_unique<ServerPolicy>(make_server_policy(choice));
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule, *staleness};
  }
  std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  std::unique_ptr<const Rule> rule;
  std::unique_ptr<const StalenessPolicy> staleness;
  std::unique_ptr<ServerPolicy> machine;
};

struct Heard {
  Event event;
  Time at;
  bool step;
};

class Recorder final : public ModeListener {
 public:
  void heard(const Event& event, Time at) override { all.push_back({event, at, false}); }
  void stepped(Node node) override { all.push_back({{Event::Kind::push, node}, {}, true}); }
  std::vector<Heard> all;
};

ModeTrainResult run(const Source& source, const Setting& setting, const Data& data,
                    const Tables& tables, ModeListener* listener = nullptr,
                    const TrainCallbacks& callbacks = {}) {
  const Made made(setting);
  ModeTrainOptions options{setting.workers, kBatch, kSeed, setting.until};
  options.evaluate_every = std::numeric_limits<double>::infinity();
  options.listener = listener;
  options.tables = tables;
  return train_mode(source, data.view(), nullptr, *made.machine, made.context(setting.workers),
                    options, callbacks);
}

// Tells another server what was heard: rows are pulled when a batch is granted, and a gradient is
// computed when its push comes, or at the step that was heard of.
class Replay final : Sink {
 public:
  Replay(const Setting& setting, const Data& data, const Tables& tables)
      : made_(setting),
        batches_(data.view(), kBatch, kSeed),
        holder_(tables, kTablesOfFeatures),
        server_(*made_.machine, made_.context(setting.workers), &holder_),
        models_(server_, made_.context(setting.workers)),
        players_(setting.workers) {
    for (Player& player : players_) player.sent = AlignedArray<float>(kFeatures);
  }

  void play(const Heard& heard) {
    Player& player = players_[heard.event.node];
    if (heard.step) return compute(heard.event.node);
    if (heard.event.kind != Event::Kind::push) {
      return server_.handle(heard.event, nullptr, heard.at, *this);
    }
    if (!player.computed) compute(heard.event.node);
    const Payload payload{&player.sent, player.granted.lease.count, &player.pulled.keys,
                          &player.row_gradients};
    player.granted.pulled.release();
    server_.handle(heard.event, &payload, heard.at, *this);
  }
  std::vector<float> theta() {
    if (!server_.has_global_model()) return {models_.mean(), models_.mean() + kFeatures};
    const ParameterVector::Pin latest = server_.holder().pull();
    return {latest.data(), latest.data() + kFeatures};
  }
  const RowPublication& rows() const { return server_.counts().rows; }

 private:
  struct Player {
    Grant granted{};
    bool computed = false;
    PulledRows pulled;
    ShownRows shown;
    AlignedArray<float> sent, row_gradients;
  };

  void compute(Node node) {
    Player& player = players_[node];
    const modes::Lease& lease = player.granted.lease;
    batches_.fill_span(lease.first, lease.count, batch_);
    holder_.show(player.pulled, batch_.view, player.shown, player.row_gradients);
    const bool own = server_.rule().model == WorkerRule::Model::own;
    source_.gradient(own ? models_[node] : player.granted.pulled.data(), batch_.view,
                     player.sent.data(), *workspace_, never_);
    if (own) models_.step(node, player.sent.data());
    player.computed = true;
  }
  void grant(Grant grant) override {
    if (grant.lease.count == 0) return;
    Player& player = players_[grant.node];
    player.granted = std::move(grant);
    player.computed = false;
    batches_.fill_span(player.granted.lease.first, player.granted.lease.count, batch_);
    holder_.pull(batch_.view, player.pulled);
    if (server_.rule().model == WorkerRule::Model::own) models_.take(player.granted);
  }
  void wake(Time) override {}
  void meet(std::span<const Node>, Node) override {}
  void end(Node) override {}
  void settled(Node, const Publication&) override {}

  const Made made_;
  const Source source_;
  const IndexedBatches batches_;
  const std::unique_ptr<Workspace> workspace_ = source_.make_workspace();
  const std::atomic<bool> never_{false};
  RowHolder holder_;
  ParameterServer server_;
  OwnModels models_;
  std::vector<Player> players_;
  Batch batch_;
};

std::vector<Choice> pushing_modes() {
  return {{"sync"},
          {"sync", {{"divide_by_containing", 1}}},
          {"bsp", {{"b2", 3}}},
          {"asp"},
          {"ssp", {{"s", 1}}},
          {"dssp", {{"lower", 1}, {"upper", 4}}},
          {"hop_bs", {{"m", 3}}},
          {"hop_bw", {{"b3", 1}}},
          {"gba", {{"m", 3}, {"iota", 0}, {"divide_by_m", 1}}},
          {"switching", {{"gba_batch", 2}}},
          {"automatic", {{"window_ns", 1e5}}},
          {"shat"},
          {"ensemble"}};
}

void check_same(const RowPublication& a, const RowPublication& b) {
  CHECK(a.applied == b.applied);
  CHECK(a.folded == b.folded);
  CHECK(a.late == b.late);
  CHECK(a.excluded == b.excluded);
  CHECK(a.unadmitted == b.unadmitted);
  CHECK(a.deferred == b.deferred);
  CHECK(a.refused == b.refused);
  CHECK(a.staleness == b.staleness);
  CHECK(a.stalest == b.stalest);
  CHECK(a.octaves == b.octaves);
}

void check_free(const Tables& tables) {
  for (const auto& table : tables) CHECK(table.use_count() == 1);
}

}  // namespace

TEST_CASE("rows too are as who tells another server the same makes them") {
  for (const Choice& mode : pushing_modes()) {
    for (const Kind kind : {Kind::fixed, Kind::grows, Kind::evicts}) {
      for (const Choice& staleness : {Choice{"none"}, Choice{"cutoff", {{"iota", 1}}}}) {
        for (const std::size_t workers : {1, 2, 6}) {
          CAPTURE(mode.name);
          CAPTURE(static_cast<int>(kind));
          CAPTURE(staleness.name);
          CAPTURE(workers);
          const Setting setting{mode, workers, kind, kAdam, staleness};
          const Data data = data_of(setting);
          const Tables tables = tables_of(setting), again = tables_of(setting);
          Recorder recorder;
          const auto [training, counts] = run(Source(), setting, data, tables, &recorder);
          check_free(tables);
          CHECK(training.reason == StopReason::epochs);
          {
            Replay replay(setting, data, again);
            for (const Heard& heard : recorder.all) replay.play(heard);
            check_same(replay.rows(), training.rows);
            CHECK(replay.theta() == training.parameters);
          }
          CHECK(rows_of(again, data) == rows_of(tables, data));
          for (std::size_t t = 0; t < tables.size(); ++t) {
            CHECK(again[t]->steps() == tables[t]->steps());
          }
          const RowPublication& rows = training.rows;
          const std::uint64_t accounted = rows.applied + rows.folded + rows.late + rows.excluded +
                                          rows.unadmitted + rows.deferred + rows.refused;
          std::uint64_t asked = 0;
          for (const auto& table : tables) asked += table->growth().statistics().asked;
          CHECK(accounted <= asked);
          if (counts.stale + counts.straggler == 0) CHECK(accounted == asked);
          CHECK(rows.applied > 0);
          if (kind == Kind::evicts) CHECK(tables[0]->growth().statistics().evicted > 0);
        }
      }
    }
  }
}

namespace {

std::vector<std::uint64_t> digests_of(const Tables& tables) {
  std::vector<std::uint64_t> all;
  for (const auto& table : tables) {
    const Table::Digest digest = table->digest();
    all.insert(all.end(), digest.begin(), digest.end());
  }
  return all;
}

// Trains, recorded, and makes it again; by the mode, or under that discipline.
void check_record(const Setting& setting, const std::string& name = "") {
  const Choice chosen{name};
  const bool by_mode = name.empty();
  const Data data = data_of(setting);
  const Tables tables = tables_of(setting), again = tables_of(setting);
  const std::string path =
      (std::filesystem::temp_directory_path() / "leashed-test-rows.trace").string();
  const Made made(setting);
  const std::size_t workers = setting.workers;
  DisciplineContext context = made.context(workers);
  context.readers += 2;
  TrainResult result;
  {
    TraceWriter writer(path, "{}", made.initial, by_mode ? 1 : workers, 0);
    if (by_mode) {
      ModeRecorder recorder(writer);
      result = run(Source(), setting, data, tables, &recorder).training;
    } else {
      const auto discipline = make_discipline(chosen, context);
      TrainOptions options{workers, kBatch, kSeed, setting.until, 0};
      options.until.batches = setting.examples / kBatch;
      LocalRows rows(tables, kTablesOfFeatures, workers, 1, discipline->lockstep(), 0, false, true);
      options.rows = &rows;
      options.observers = {&writer};
      result = train(Source(), data.view(), nullptr, *discipline, context, options, {});
    }
    writer.finish(result.updates, result.parameters, digests_of(tables));
    REQUIRE(writer.failure().empty());
  }
  const Trace trace(path);
  ReplayOptions options{workers, kBatch, kSeed};
  Replayed replayed;
  if (by_mode) {
    replayed = replay(Source(), data.view(), *made.machine, context, again, trace, options);
  } else {
    const bool lockstep = make_discipline(chosen, context)->lockstep();
    LocalRows rows(again, kTablesOfFeatures, workers, 0, lockstep);
    options.rows = &rows;
    replayed = replay(Source(), data.view(), context, lockstep, trace, options);
  }
  compare_rows(replayed, digests_of(again));
  CHECK(replayed.ended);
  CHECK(replayed.difference == 0);
  CHECK(replayed.parameters == result.parameters);
  CHECK(rows_of(again, data) == rows_of(tables, data));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    CHECK(again[t]->steps() == tables[t]->steps());
    const RowPublication rows = again[t]->growth().statistics().updates;
    const RowPublication then = tables[t]->growth().statistics().updates;
    check_same(rows, then);
    if (setting.kind == Kind::full && t == 0) CHECK(rows.refused > 0);
  }
  check_free(tables);
  check_free(again);
  compare_rows(replayed, digests_of(tables_of(setting)));
  CHECK(replayed.difference == std::numeric_limits<double>::infinity());
  std::filesystem::remove(path);
}

}  // namespace

// Interrupted at one moment after the other, also while digests are made of the rows: whatever has
// not been compared, or written, is not taken as whole.
TEST_CASE("digests of rows can be interrupted") {
  const Setting setting{{"asp"}, 1};
  const Data data = data_of(setting);
  const Made made(setting);
  const Source source;
  const std::string path =
      (std::filesystem::temp_directory_path() / "leashed-test-digests.trace").string();
  bool trained = false, replayed = false;
  for (int turn = 0; turn < 100 && !(trained && replayed); ++turn) {
    CAPTURE(turn);
    int asked = 0;
    const auto interrupted = [&asked, at = turn % 10] { return asked++ == at; };
    Assembly parts{source,  made.initial.data(), data.view(),  std::nullopt,
                   nullptr, {"sequential"},      setting.rule, setting.staleness};
    parts.tables = tables_of(setting);
    parts.recording = Recording{path, "{}", made.initial};
    StopRules until;
    until.updates = 20;
    const TrainOptions options{1, kBatch, kSeed, until, 1e6};
    TrainResult result = train(parts, options, {interrupted, {}, {}}, nullptr);
    trained |= !result.recording_failure.empty();
    if (!result.recording_failure.empty()) {
      CHECK(result.reason == StopReason::interrupted);
      CHECK(result.updates == 20);
      CHECK(Trace(path).end().theta.empty());
    }
    parts.tables = tables_of(setting);
    result = train(parts, options, {}, nullptr);
    CHECK(result.recording_failure.empty());
    parts.recording.reset();
    parts.tables = tables_of(setting);
    asked = 0;
    const ReplayOptions again{1, kBatch, kSeed, ReplayOptions::kAll, interrupted};
    const Replayed found = replay(parts, Trace(path), again, nullptr);
    replayed |= found.interrupted && found.t == 20;
    if (!found.interrupted) CHECK((found.ended && found.difference == 0));
  }
  CHECK(trained);
  CHECK(replayed);
  std::filesystem::remove(path);
}

TEST_CASE("a recorded training is made again with its rows") {
  for (const Kind kind : {Kind::fixed, Kind::grows, Kind::full}) {
    for (const Choice& staleness : {Choice{"none"}, Choice{"cutoff", {{"iota", 1}}}}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(staleness.name);
      check_record({{"asp"}, 1, kind, kAdam, staleness}, "sequential");
      for (const std::size_t workers : {1, 4}) {
        check_record({{"asp"}, workers, kind, kAdam, staleness}, "synchronous");
        for (const Choice& mode : pushing_modes()) {
          CAPTURE(mode.name);
          check_record({mode, workers, kind, kAdam, staleness});
        }
      }
    }
  }
}

TEST_CASE("one worker has the bits of Sequential, its rows too") {
  for (const Kind kind : {Kind::fixed, Kind::grows}) {
    for (const Choice& rule : {kSgd, kAdam}) {
      const Setting plain{{"asp"}, 1, kind, rule};
      const Data data = data_of(plain);
      const Tables alone = tables_of(plain);
      const Made made(plain);
      const DisciplineContext context = made.context(1);
      const auto discipline = make_discipline({"sequential"}, context);
      TrainOptions options{1, kBatch, kSeed, {}, 0};
      options.until.batches = plain.examples / kBatch;
      const Source source;
      TrainResult wanted;
      {
        LocalRows rows(alone, kTablesOfFeatures, 1, 1, false);
        options.rows = &rows;
        wanted = train(source, data.view(), nullptr, *discipline, context, options, {});
      }
      for (const Choice& mode :
           {Choice{"sync"}, Choice{"bsp", {{"b2", 1}}}, Choice{"asp"}, Choice{"ssp", {{"s", 0}}},
            Choice{"hop_bs"}, Choice{"gba", {{"m", 1}}},
            Choice{"gba", {{"m", 1}, {"divide_by_containing", 1}}}, Choice{"shat"}}) {
        CAPTURE(mode.name);
        CAPTURE(rule.name);
        CAPTURE(static_cast<int>(kind));
        Setting setting = plain;
        setting.mode = mode;
        const Tables tables = tables_of(setting);
        const auto [training, counts] = run(Source(), setting, data, tables);
        CHECK(training.parameters == wanted.parameters);
        CHECK(rows_of(tables, data) == rows_of(alone, data));
        check_same(training.rows, wanted.rows);
        CHECK(tables[0]->steps() == alone[0]->steps());
      }
    }
  }
}

TEST_CASE("whatever ends a run lets go of the tables") {
  const Data data;
  for (const Choice& mode : pushing_modes()) {
    CAPTURE(mode.name);
    const Setting endless{mode, 4, Kind::grows, kSgd, {"none"}, 0};
    const Tables tables = tables_of(endless);

    Source throwing;
    throwing.throw_at = 23;
    CHECK_THROWS_WITH(run(throwing, endless, data, tables), "boom");
    check_free(tables);

    Source diverging;
    diverging.nan_at = 23;
    CHECK(run(diverging, endless, data, tables).training.reason == StopReason::not_finite);
    check_free(tables);

    Source held;
    held.held_from = 23;
    Setting timed = endless;
    timed.until.seconds = 0.02;
    CHECK(run(held, timed, data, tables).training.reason == StopReason::seconds);
    check_free(tables);

    Setting few = endless;
    few.until.updates = 5;
    CHECK(run(Source(), few, data, tables).training.reason == StopReason::updates);
    check_free(tables);
  }
}

TEST_CASE(
    "a worker without memory, wherever it asks for some, ends the run and lets go of the tables") {
  class Starving final : public Source {
   public:
    std::shared_ptr<void> attach() const override {
      std::shared_ptr<void> fed(nullptr, [](void*) { starved = false; });
      starved = true;
      return fed;
    }
  };
  for (const Choice& mode : {Choice{"sync"}, Choice{"asp"}, Choice{"gba", {{"m", 3}}}}) {
    CAPTURE(mode.name);
    Setting few{mode, 3, Kind::evicts, kSgd, {"none"}, 0};
    few.until.updates = 4;
    const Data data = data_of(few);
    const Tables tables = tables_of(few);
    int failed = 0;
    for (bool through = false; !through; ++failed) {
      allocations_left.store(failed, std::memory_order_relaxed);
      try {
        run(Starving(), few, data, tables);
        through = allocations_left.load(std::memory_order_relaxed) >= 0;
      } catch (const std::bad_alloc&) {
      }
      check_free(tables);
    }
    CHECK(failed > 20);
    CHECK(run(Source(), few, data, tables).training.reason == StopReason::updates);
  }
}

TEST_CASE("an id that is no row of its table ends the run with an error that names it") {
  const Data data(31);  // of 30 rows
  for (const Choice& mode : pushing_modes()) {
    CAPTURE(mode.name);
    const Setting setting{mode, 3, Kind::fixed, kSgd, {"none"}, 0};
    const Tables tables = tables_of(setting);
    CHECK_THROWS_AS(run(Source(), setting, data, tables), Error);
    check_free(tables);
  }
}

TEST_CASE("tables that are not the source's, and modes whose workers send models, are refused") {
  const Data data;
  const Setting setting{{"asp"}};
  Tables tables = tables_of(setting);
  for (const Choice& mode :
       {Choice{"easgd", {{"alpha", 0.5}}}, Choice{"local_sgd", {{"h", 2}}}, Choice{"d_psgd"}}) {
    CHECK_THROWS_AS(run(Source(), {mode}, data, tables), Error);
  }
  tables.pop_back();
  CHECK_THROWS_AS(run(Source(), setting, data, tables), Error);
}
