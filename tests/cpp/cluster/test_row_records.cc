// Records of a policy server that has rows of tables: made again by one thread, and in virtual
// time, they have the run's bits, of rows too, whoever was cut off, died or sent what is of no use.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/row_served.h"
#include "cluster/tending.h"
#include "leashed/base/error.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/simulation/play_record.h"
#include "modes/all_modes.h"

using namespace leashed;
using OfTables = row_job::Kind;
using Note = LogLine::Note;

namespace {

std::vector<std::uint64_t> digests_of(const row_job::Tables& tables) {
  std::vector<std::uint64_t> all;
  for (const auto& table : tables) {
    const Table::Digest one = table->digest();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

struct TracePath {
  ~TracePath() { std::filesystem::remove(name); }
  const std::string name =
      (std::filesystem::temp_directory_path() / ("test_row_records." + std::to_string(getpid())))
          .string();
};

// A server that is recorded.
struct Recorded {
  Recorded(const Choice& mode, std::size_t of, OfTables which, std::uint64_t examples)
      : workers(of), kind(which), served(mode, of, which, examples, &recorder) {}

  void end() {
    served.server->quiet([&](PolicyService& service) {
      const ParameterVector::Pin latest = service.server().holder().pull();
      theta.assign(latest.data(), latest.data() + row_job::kFeatures);
      t = latest.t();
      writer.finish(t, theta, digests_of(served.tables));
    });
    REQUIRE(writer.failure().empty());
  }
  Replayed made_again(const row_job::Tables& tables, const std::string& from) const {
    DisciplineContext context = served.context(workers);
    context.readers = 4;
    ReplayOptions options{workers, row_job::kBatch, row_job::kSeed};
    options.looks_up = true;
    Replayed made = replay(served.source, served.data.view(), *served.machine, context, tables,
                           Trace(from), options);
    compare_rows(made, digests_of(tables));
    return made;
  }
  void check() {
    const std::vector<float> rows = row_job::rows_of(served.tables, served.data);
    const row_job::Tables again = row_job::tables_of(kind, row_job::kAdam);
    const Replayed made = made_again(again, path.name);
    CHECK(made.t == t);
    CHECK(made.ended);
    CHECK(made.difference == 0);
    CHECK(made.parameters == theta);
    CHECK(row_job::rows_of(again, served.data) == rows);
    const row_job::Tables also = row_job::tables_of(kind, row_job::kAdam);
    const Choice instant{"constant", {{"seconds", 0}}};
    SimulationOptions options{workers, row_job::kBatch, row_job::kSeed, {},
                              0.01,    instant,         instant,        instant};
    options.tables = also;
    const ModeResult played =
        simulate_record(served.source, served.data.view(), nullptr, served.choice,
                        memorywise(row_job::kFeatures, 1), Trace(path.name), true,
                        served.context(workers), options, {});
    CHECK(played.simulation.training.parameters == theta);
    CHECK(played.simulation.training.updates == t);
    CHECK(digests_of(also) == digests_of(served.tables));
    CHECK(row_job::rows_of(also, served.data) == rows);
    served.server->quiet([&](PolicyService& service) {
      const ModeCounts& then = service.server().counts();
      CHECK(played.counts.applied == then.applied);
      CHECK(played.counts.missing == then.missing);
      CHECK(played.counts.late == then.late);
      CHECK(played.counts.rows.applied == then.rows.applied);
      CHECK(played.counts.rows.unadmitted == then.rows.unadmitted);
      CHECK(played.counts.rows.late == then.rows.late);
      CHECK(played.counts.rows.refused == then.rows.refused);
      CHECK(then.rows.deferred == 0);
    });
  }

  const TracePath path;
  const std::size_t workers;
  const OfTables kind;
  TraceWriter writer{path.name, "{}", std::vector<float>(row_job::kFeatures, 0.25f), 1, 0};
  ModeRecorder recorder{writer};
  Served served;
  std::vector<float> theta;
  std::uint64_t t = 0;
};

std::vector<LogLine> lines_of(const std::string& path) {
  const Trace trace(path);
  ModeCursor cursor(trace);
  std::vector<LogLine> all;
  for (LogLine one{}; cursor.next(one);) all.push_back(one);
  return all;
}

}  // namespace

TEST_CASE("a record with rows has the bits of the run, whatever was cut and whoever died") {
  std::uint64_t cut = 0, evicted = 0, lost = 0;
  std::size_t runs = 0;
  for (const Choice& mode : all_modes()) {
    if (!pushes_gradients(mode)) continue;
    constexpr OfTables kKinds[] = {OfTables::evicts, OfTables::grows,  OfTables::evicts,
                                   OfTables::fixed,  OfTables::evicts, OfTables::full};
    const OfTables kind = kKinds[runs++ % std::size(kKinds)];
    CAPTURE(mode.name);
    CAPTURE(static_cast<int>(kind));
    Recorded run(mode, 3, kind, 3 * row_job::kExamples);
    Served& served = run.served;
    served.evaluate_every = 0.002;
    served.source.infinite_above = 0.7f;
    ModeTrainer::Settings other = kAlike;
    other.client = 200;
    std::jthread dies([&](const std::stop_token& ended) {
      while (!ended.stop_requested()) {
        ModeTrainer trainer(row_job::kFeatures, 1, other, served.shapes);
        const Tending tending(*served.server, trainer);
        std::jthread ends([&](const std::stop_token& over) {
          for (int ms = 0; ms < 4 && !over.stop_requested(); ++ms) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          trainer.end();
        });
        served.train(trainer, 1);
        ++other.life;
      }
    });
    ModeTrainer stays(row_job::kFeatures, 2, kAlike, served.shapes);
    const Tending tending(*served.server, stays, 40);
    CHECK(served.train(stays, 2).training.reason == StopReason::epochs);
    dies.request_stop();
    dies.join();
    run.end();
    run.check();
    cut += stays.counters().cut;
    for (const auto& table : served.tables) evicted += table->growth().statistics().evicted;
    for (const LogLine& line : lines_of(run.path.name)) {
      lost += line.event.version == kNoValues;
    }
  }
  CHECK(cut > 0);
  CHECK(evicted > 0);
  CHECK(lost > 0);
}

TEST_CASE("look-ups that no worker can have made are refused before anything is computed") {
  Recorded run({"asp"}, 2, OfTables::fixed, row_job::kExamples);
  ModeTrainer trainer(row_job::kFeatures, 2, kAlike, run.served.shapes);
  {
    const Tending tending(*run.served.server, trainer);
    run.served.train(trainer, 2);
  }
  run.end();
  run.check();
  const std::vector<LogLine> good = lines_of(run.path.name);
  std::size_t first = 0;
  while (good[first].note != Note::looked_up) ++first;
  const TracePath path;
  for (int wrong = 0; wrong < 5; ++wrong) {
    CAPTURE(wrong);
    std::vector<LogLine> bad = good;
    const auto at = bad.begin() + static_cast<std::ptrdiff_t>(first);
    if (wrong == 0) bad.erase(at);                 // its push has no rows
    if (wrong == 1) bad.insert(at, *at);           // a second one
    if (wrong == 2) bad.insert(bad.begin(), *at);  // under no lease
    if (wrong == 3) at->event.node = 2;            // of nobody
    if (wrong == 4)
      bad.insert(at, {{.kind = modes::Event::Kind::leave, .node = at->event.node}, {at[-1].at}});
    std::filesystem::remove(path.name);
    {
      TraceWriter writer(path.name, "{}", run.served.initial, 1, 0);
      ModeRecorder recorder(writer);
      for (const LogLine& one : bad) {
        one.note == Note::none ? recorder.heard(one.event, one.at)
                               : recorder.noted(one.event.node, one.note);
      }
    }
    CHECK_THROWS_WITH_AS(
        run.made_again(row_job::tables_of(OfTables::fixed, row_job::kAdam), path.name),
        doctest::Contains("contradict each other"), Error);
  }
}
