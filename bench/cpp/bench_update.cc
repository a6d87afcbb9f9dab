// T_u of Leashed, uncontended, against one fused pass over the same memory, and what a read costs.
//
// An update by one thread alone claims a slot, pins the published vector, applies SGD, publishes
// and recycles: two buffers change places and a third holds the gradient. The yardstick is an SGD
// kernel alone on these very three buffers, the two changing places as well; 12 bytes per parameter
// either way. There are two such kernels, through the caches and past them: the faster of each turn
// counts. All run in turns on the thread's own clock (ceiling.h says why).
//
//   bench_update [seconds per figure, default 2]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ceiling.h"
#include "leashed/base/aligned.h"
#include "leashed/base/clock.h"
#include "leashed/discipline/leashed.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr float kStep = 1e-6f;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

AlignedArray<float> constant(std::size_t d, float value) {
  AlignedArray<float> values(d);
  std::fill_n(values.data(), d, value);
  return values;
}

template <class F>
double seconds_of(std::size_t repeats, F&& f) {
  const double start = thread_seconds();
  for (std::size_t i = 0; i < repeats; ++i) f();
  return (thread_seconds() - start) / static_cast<double>(repeats);
}

// The buffers that updates by one thread alternate between.
std::pair<float*, float*> buffers(ParameterVector& vector) {
  const ParameterVector::Pin latest = vector.pin();
  ParameterVector::Draft next = vector.claim();
  return {const_cast<float*>(latest.data()), next.data()};
}

void bench_update(std::size_t d, double seconds) {
  const AlignedArray<float> gradient = constant(d, 1);
  ParameterVector vector(constant(d, 0).data(), d, 1, 0);
  const auto rule = make_rule({"sgd", {{"lr", kStep}}});
  const Updater updater(d, *rule);
  StoreChoice stores(1, d);
  const auto update = [&] {
    load_and_update(vector, updater, gradient.data(),
                    persistence_bound(std::numeric_limits<double>::infinity()), 0, stores);
  };
  auto [current, next] = buffers(vector);
  Coefficients numbers;
  numbers.lr = kStep;
  const auto pass = [&](Pass kernel) {
    return [&, kernel] {
      kernel(next, current, d, gradient.data(), 0, d, numbers);
      std::swap(current, next);
    };
  };
  const auto cached = pass(pass_table()[Arithmetic::sgd].apply);
  const auto streamed = pass(pass_table()[Arithmetic::sgd].stream);

  update();
  const auto repeats =
      std::max<std::size_t>(4, static_cast<std::size_t>(2e-3 / seconds_of(4, update)));
  const auto turn = [repeats](std::vector<double>& times, const auto& work) {
    work();
    times.push_back(seconds_of(repeats, work));
  };
  std::vector<double> updates, cached_passes, streamed_passes, ratios;
  for (const double start = now(); now() - start < seconds;) {
    turn(cached_passes, cached);
    turn(streamed_passes, streamed);
    turn(updates, update);
    ratios.push_back(updates.back() / std::min(cached_passes.back(), streamed_passes.back()));
  }
  std::printf("%10zu %10.1f %14.1f %14.1f %8.3f %8zu\n", d, bench::median(updates) * 1e6,
              bench::median(cached_passes) * 1e6, bench::median(streamed_passes) * 1e6,
              bench::median(ratios), ratios.size());
}

void bench_read(double seconds) {
  constexpr std::size_t kReads = 10000;
  const float initial[16] = {};
  ParameterVector vector(initial, 16, 1, 1);
  std::vector<double> reads;
  for (const double start = now(); now() - start < seconds;) {
    reads.push_back(seconds_of(kReads, [&] { vector.pin().release(); }));
  }
  std::printf("\nread and release: %.1f ns\n", bench::median(reads) * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  std::printf("%s, isa %s\n\n", cpu_model().c_str(), isa_name(default_isa()).data());
  std::printf("%10s %10s %14s %14s %8s %8s\n", "d", "T_u, us", "one pass, us", "streaming, us",
              "ratio", "turns");
  for (const std::size_t d : {134'794, 10'000'000}) bench_update(d, seconds);
  bench_read(seconds);
}
