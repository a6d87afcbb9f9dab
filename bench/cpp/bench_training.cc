// Training by the engine, as a user starts it, against the multiply-add rate of as many threads:
// two virtual CPUs may share one core's units at one moment and not at the next, so the ceiling is
// taken right before and right after every run.
//
//   bench_training <threads> <seconds per run> <runs>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"
#include "networks.h"

using namespace leashed;

namespace {

struct Setting {
  const char* name;
  Choice choice;
};

struct Run {
  double examples_per_second;
  double cpu_share;  // of the processors asked for, while training went on
};

bench::TeamRate ceiling(std::size_t threads, double seconds) {
  return bench::team_rate(threads, seconds,
                          [](std::size_t) { return bench::multiply_adds(default_isa(), 20000); });
}

Run train_once(const Network& network, const Setting& setting, std::size_t threads,
               std::size_t batch_size, double seconds) {
  const auto theta = bench::random_values(network.dimension(), 0.05f);
  const auto rule = make_rule({"sgd", {{"lr", 1e-3}}});
  const DisciplineContext context{theta.data(), network.dimension(), threads, 1, *rule};
  const auto discipline = make_discipline(setting.choice, context);
  TrainOptions options{threads, batch_size, 0, {}, 1e6};  // no evaluation beside the workers
  options.until.seconds = seconds;

  // The initial evaluation is told of before the threads start; what is asked every 20 ms while
  // they run sees how much processor time they take.
  double start = 0, first_used = 0, first_at = 0, used = 0, at = 0;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Evaluated&, double) {
    if (start == 0) start = now();
  };
  callbacks.interrupted = [&] {
    if (start == 0 || now() - start >= seconds) return false;
    used = bench::process_seconds();
    at = now();
    if (first_at == 0) first_at = at, first_used = used;
    return false;
  };
  const TrainResult result =
      train(network, bench::images(), nullptr, *discipline, context, options, callbacks);
  const double asked = (at - first_at) * static_cast<double>(threads);
  return {static_cast<double>(result.gradients * batch_size) / result.elapsed,
          asked > 0 ? (used - first_used) / asked : 0};
}

void bench_settings(const char* name, std::size_t threads, std::size_t batch_size, double seconds,
                    std::size_t runs) {
  std::vector<Setting> settings = {{"HOG", {"hogwild", {{"copy", 1}}}},
                                   {"HOG_direct", {"hogwild", {{"copy", 0}}}},
                                   {"LSH_ps∞", {"leashed", {{"persistence", 1.0 / 0.0}}}}};
  if (threads == 1) settings.push_back({"SEQ", {"sequential", {}}});
  const Network network = bench::make_network(name);
  std::vector<std::vector<double>> rates(settings.size()), ceilings(rates), shares(rates),
      ceiling_shares(rates);
  bench::TeamRate before = ceiling(threads, seconds / 4);
  for (std::size_t run = 0; run < runs; ++run) {
    for (std::size_t i = 0; i < settings.size(); ++i) {
      const Run trained = train_once(network, settings[i], threads, batch_size, seconds);
      const bench::TeamRate after = ceiling(threads, seconds / 4);
      rates[i].push_back(trained.examples_per_second);
      shares[i].push_back(trained.cpu_share);
      ceilings[i].push_back((before.rate + after.rate) / 2 * 1e-9);
      ceiling_shares[i].push_back((before.cpu_share + after.cpu_share) / 2);
      before = after;
    }
  }
  for (std::size_t i = 0; i < settings.size(); ++i) {
    bench::JsonLine("training")
        .add("network", name)
        .add("discipline", settings[i].name)
        .add("threads", threads)
        .add("batch_size", batch_size)
        .add("flops_per_example", network.flops_per_example())
        .add("eps", rates[i])
        .add("cpu_share", shares[i])
        .add("ceiling", ceilings[i])
        .add("ceiling_cpu_share", ceiling_shares[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("usage: bench_training <threads> <seconds> <runs>\n", stderr), 2;
  const auto all = static_cast<std::size_t>(std::atol(argv[1]));
  const double seconds = std::atof(argv[2]);
  const auto runs = static_cast<std::size_t>(std::atol(argv[3]));
  for (const char* network : {"MLP", "CNN"}) {
    for (std::size_t batch : {16, 64, 512}) {
      bench_settings(network, 1, batch, seconds, runs);
      if (all > 1) bench_settings(network, all, batch, seconds, runs);
    }
  }
}
