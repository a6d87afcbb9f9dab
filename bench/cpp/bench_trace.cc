// What recording costs: an update in a loop of its own, and training that is recorded beside
// training that is not, at d = 1,000, where a step is short; and both by a mode, of which an update
// is a push and the pull after it.
//
// The loop is that of one worker, new pages included, on the thread's own clock; a new file begins
// with every million updates. Training takes turns of some tenths of a second.
//
//   bench_trace <threads> <seconds of the loop> <seconds of a turn> <turns>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "json_line.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/update/registry.h"
#include "networks.h"
#include "turns.h"

using namespace leashed;

namespace {

constexpr std::size_t kFeatures = 99, kClasses = 10, kBatch = 16;

std::string path() {
  return (std::filesystem::temp_directory_path() / ("bench_trace." + std::to_string(getpid())))
      .string();
}

// add(t) records one more update, start(writer) comes before those of a new file.
template <class Start, class Add>
void bench_record(const char* figure, double seconds, const Start& start, const Add& add) {
  constexpr std::uint64_t kUpdates = 1'000'000;
  const std::string file = path();
  std::optional<TraceWriter> writer;
  std::uint64_t t = kUpdates;
  std::uintmax_t bytes = 0;
  const auto record = [&] {
    if (t == kUpdates) {
      if (writer) bytes = std::filesystem::file_size(file);
      start(writer.emplace(file, "{}", std::vector<float>(), 1, 0));
      t = 0;
    }
    add(t++);
  };
  const bench::Turns turns = bench::take_turns({record}, seconds);
  while (bytes == 0) record();
  std::filesystem::remove(file);
  bench::JsonLine(figure)
      .add("seconds", turns.median_seconds(0))
      .add("bytes", static_cast<double>(bytes) / static_cast<double>(kUpdates))
      .add("cpu_share", turns.cpu_share);
}

// Of two workers, by turns: τ is 1.
void bench_worker(double seconds) {
  TraceWriter* writer = nullptr;
  bench_record(
      "record", seconds, [&](TraceWriter& begun) { writer = &begun; },
      [&](std::uint64_t t) {
        writer->published({.k = 2 * t, .view = {nullptr, 2 * t - (t > 0)}},
                          {.published = true, .t = 2 * t, .staleness_compute = 1});
      });
}

// The same of an ASP whose gradients take 30 microseconds.
void bench_mode(double seconds) {
  std::optional<ModeRecorder> recorder;
  bench_record(
      "mode record", seconds, [&](TraceWriter& begun) { recorder.emplace(begun); },
      [&](std::uint64_t t) {
        const auto node = static_cast<modes::Node>(t % 2);
        const auto ns = static_cast<std::int64_t>(t * 15'000);
        recorder->heard({modes::Event::Kind::push, node, t + 1, t - (t > 0)}, {ns});
        recorder->heard({modes::Event::Kind::pull, node}, {ns + 500});
      });
}

DatasetView examples() {
  const DatasetView& images = bench::images();
  return {images.x, images.targets, images.rows, kFeatures};
}

// Examples per second.
double rate(const TrainResult& result) {
  return static_cast<double>(result.gradients * kBatch) / result.elapsed;
}

struct Job {
  Job(const Network& of, std::size_t m)
      : network(of),
        threads(m),
        theta(bench::random_values(of.dimension(), 0.05f)),
        rule(make_rule({"sgd", {{"lr", 1e-3}}})),
        context{theta.data(), of.dimension(), m, 1, *rule} {}

  const Network& network;
  const std::size_t threads;
  const AlignedArray<float> theta;
  const std::unique_ptr<const Rule> rule;
  const DisciplineContext context;
};

double train_once(const Job& job, double seconds, TraceWriter* trace) {
  const auto discipline = make_discipline({"leashed", {{"persistence", 1.0 / 0.0}}}, job.context);
  TrainOptions options{job.threads, kBatch, 0, {}, std::numeric_limits<double>::infinity()};
  options.until.seconds = seconds;
  if (trace) options.observers = {trace};
  return rate(train(job.network, examples(), nullptr, *discipline, job.context, options, {}));
}

double train_by_asp(const Job& job, double seconds, TraceWriter* trace) {
  const auto machine = modes::make_server_policy(
      {"asp", {{"workers", static_cast<double>(job.threads)}, {"batch", kBatch}, {"examples", 0}}});
  std::optional<ModeRecorder> recorder;
  ModeTrainOptions options{job.threads, kBatch, 0, {}};
  options.evaluate_every = std::numeric_limits<double>::infinity();
  options.until.seconds = seconds;
  if (trace) options.listener = &recorder.emplace(*trace);
  return rate(
      train_mode(job.network, examples(), nullptr, machine, job.context, options, {}).training);
}

template <class Train>
void bench_training(const char* figure, const Train& train, std::size_t threads, double seconds,
                    std::size_t turns) {
  const Network network({1, 1, kFeatures}, {Layer{"dense", {{"outputs", kClasses}}}});
  const Job job(network, threads);
  std::vector<double> recorded, plain, ratios;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    TraceWriter writer(path(), "{}", {}, threads, 0);
    const auto with = [&] { recorded.push_back(train(job, seconds, &writer)); };
    if (turn % 2) with();
    plain.push_back(train(job, seconds, nullptr));
    if (turn % 2 == 0) with();
    ratios.push_back(recorded.back() / plain.back());
  }
  std::filesystem::remove(path());
  bench::JsonLine(figure)
      .add("dimension", network.dimension())
      .add("threads", threads)
      .add("batch_size", kBatch)
      .add("recorded_eps", recorded)
      .add("eps", plain)
      .add("ratio", bench::median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    return std::fputs("usage: bench_trace <threads> <seconds> <seconds of a turn> <turns>\n",
                      stderr),
           2;
  }
  const auto threads = static_cast<std::size_t>(std::atol(argv[1]));
  const double loop = std::atof(argv[2]), turn = std::atof(argv[3]);
  const auto turns = static_cast<std::size_t>(std::atol(argv[4]));
  bench_worker(loop);
  bench_mode(loop);
  bench_training("training", train_once, threads, turn, turns);
  bench_training("mode training", train_by_asp, threads, turn, turns);
}
