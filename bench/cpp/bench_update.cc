// T_u of Leashed, uncontended, against one fused pass over the same memory, and what a read costs.
//
// An update by one thread alone claims a slot, pins the published vector, applies SGD, publishes
// and recycles: two buffers change places and a third holds the gradient. The yardstick is an SGD
// kernel alone on these very three buffers, the two changing places as well; 12 bytes per parameter
// either way. There are two such kernels, through the caches and past them: the faster of each turn
// counts. All run in turns on the thread's own clock (turns.h says why).
//
//   bench_update <seconds per figure>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/discipline/leashed.h"
#include "leashed/update/registry.h"
#include "leashed/update/rules.h"
#include "turns.h"

using namespace leashed;

namespace {

constexpr float kStep = 1e-6f;

AlignedArray<float> constant(std::size_t d, float value) {
  AlignedArray<float> values(d);
  std::fill_n(values.data(), d, value);
  return values;
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
  const GradientPiece whole{gradient.data(), 0, d};
  const auto update = [&] {
    load_and_update(vector, updater, {&whole, 1},
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
  const RulePasses& passes = pass_table()[kArithmetic<Sgd>];
  const bench::Turns turns =
      bench::take_turns({pass(passes(Mode::cached, false, numbers)),
                         pass(passes(Mode::streamed, false, numbers)), update},
                        seconds);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < turns.seconds[2].size(); ++i) {
    ratios.push_back(turns.seconds[2][i] / std::min(turns.seconds[0][i], turns.seconds[1][i]));
  }
  bench::JsonLine("update")
      .add("dimension", d)
      .add("update_seconds", turns.median_seconds(2))
      .add("pass_seconds", turns.median_seconds(0))
      .add("streaming_pass_seconds", turns.median_seconds(1))
      .add("ratio", bench::median(ratios))
      .add("cpu_share", turns.cpu_share);
}

void bench_read(double seconds) {
  const float initial[16] = {};
  ParameterVector vector(initial, 16, 1, 1);
  const bench::Turns turns = bench::take_turns({[&] { vector.pin().release(); }}, seconds);
  bench::JsonLine("read and release")
      .add("seconds", turns.median_seconds(0))
      .add("cpu_share", turns.cpu_share);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: bench_update <seconds>\n", stderr), 2;
  const double seconds = std::atof(argv[1]);
  for (const std::size_t d : {134'794, 10'000'000}) bench_update(d, seconds);
  bench_read(seconds);
}
