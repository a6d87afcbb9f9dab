// What recording costs: an update in a loop of its own, and training that is recorded beside
// training that is not, at d = 1,000, where a step is short.
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
#include <optional>
#include <string>
#include <vector>

#include "json_line.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trace_writer.h"
#include "leashed/engine/trainer.h"
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

void bench_record(double seconds) {
  constexpr std::uint64_t kUpdates = 1'000'000;
  const std::string file = path();
  std::optional<TraceWriter> writer;
  std::uint64_t t = kUpdates;
  std::uintmax_t bytes = 0;
  // Of two workers, by turns: τ is 1.
  const auto record = [&] {
    if (t == kUpdates) {
      if (writer) bytes = std::filesystem::file_size(file);
      writer.emplace(file, "{}", std::vector<float>(), 1, 0);
      t = 0;
    }
    writer->add(0, 2 * t, 2 * t - (t > 0), {.published = true, .t = 2 * t, .staleness_compute = 1});
    ++t;
  };
  const bench::Turns turns = bench::take_turns({record}, seconds);
  while (bytes == 0) record();
  std::filesystem::remove(file);
  bench::JsonLine("record")
      .add("seconds", turns.median_seconds(0))
      .add("bytes", static_cast<double>(bytes) / static_cast<double>(kUpdates))
      .add("cpu_share", turns.cpu_share);
}

DatasetView examples() {
  const DatasetView& images = bench::images();
  return {images.x, images.targets, images.rows, kFeatures};
}

// Examples per second.
double train_once(const Network& network, std::size_t threads, double seconds, TraceWriter* trace) {
  const auto theta = bench::random_values(network.dimension(), 0.05f);
  const auto rule = make_rule({"sgd", {{"lr", 1e-3}}});
  const DisciplineContext context{theta.data(), network.dimension(), threads, 1, *rule};
  const auto discipline = make_discipline({"leashed", {{"persistence", 1.0 / 0.0}}}, context);
  TrainOptions options{threads, kBatch, 0, {}, std::numeric_limits<double>::infinity()};
  options.until.seconds = seconds;
  options.trace = trace;
  const TrainResult result = train(network, examples(), nullptr, *discipline, context, options, {});
  return static_cast<double>(result.gradients * kBatch) / result.elapsed;
}

void bench_training(std::size_t threads, double seconds, std::size_t turns) {
  const Network network({1, 1, kFeatures}, {Layer{"dense", {{"outputs", kClasses}}}});
  std::vector<double> recorded, plain, ratios;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    TraceWriter writer(path(), "{}", {}, threads, 0);
    const auto with = [&] { recorded.push_back(train_once(network, threads, seconds, &writer)); };
    if (turn % 2) with();
    plain.push_back(train_once(network, threads, seconds, nullptr));
    if (turn % 2 == 0) with();
    ratios.push_back(recorded.back() / plain.back());
  }
  std::filesystem::remove(path());
  bench::JsonLine("training")
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
  bench_record(std::atof(argv[2]));
  bench_training(static_cast<std::size_t>(std::atol(argv[1])), std::atof(argv[3]),
                 static_cast<std::size_t>(std::atol(argv[4])));
}
