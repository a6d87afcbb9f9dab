// Each update rule's fused pass against the copy bandwidth of one core for the bytes that it moves.
//
// An update of d parameters with S states reads 2 + S vectors and writes 1 + S. The yardstick is a
// copy of half as many bytes, which moves as many and touches as much memory as an update from one
// buffer to another; the fastest of memcpy, a plain vector loop and one past the caches counts, of
// each turn. Once in half of the second-level cache and once in memory.
//
//   bench_rules <seconds per figure>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/base/cache.h"
#include "leashed/update/layout.h"
#include "leashed/update/registry.h"
#include "turns.h"

using namespace leashed;

namespace {

const std::vector<Choice> kRules = {
    {"sgd", {{"lr", 1e-6}}},
    {"momentum", {{"lr", 1e-6}, {"momentum", 0.9}}},
    {"nesterov", {{"lr", 1e-6}, {"momentum", 0.9}}},
    {"adagrad", {{"lr", 1e-6}, {"eps", 1e-10}, {"initial_accumulator", 0}}},
    {"rmsprop", {{"lr", 1e-6}, {"alpha", 0.99}, {"eps", 1e-8}}},
    {"adam", {{"lr", 1e-6}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}},
};

std::size_t second_level_cache() {
  std::size_t kibibytes = 512;
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index2/size") >> kibibytes;
  return kibibytes << 10;
}

AlignedArray<float> filled(std::size_t n) {
  AlignedArray<float> values(n);
  std::fill_n(values.data(), n, 1e-3f);
  return values;
}

void copy_past_caches(float* to, const float* from, std::size_t n) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i + 4 <= n; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
  _mm_sfence();
#else
  std::copy_n(from, n, to);
#endif
}

void bench_rule(const Choice& choice, const char* resident, std::size_t memory, double seconds) {
  const auto rule = make_rule(choice);
  const std::size_t streams = 3 + 2 * rule->states();
  const std::size_t d = memory / (streams * sizeof(float)) / 16 * 16;
  const std::size_t bytes = streams * d * sizeof(float), copied = bytes / 2 / sizeof(float);
  const Layout layout{d, rule->states()};
  const AlignedArray<float> gradient = filled(d), source = filled(copied);
  AlignedArray<float> one = filled(layout.length()), other = filled(layout.length()),
                      target = filled(copied);
  float* current = one.data();
  float* next = other.data();
  std::uint64_t t = 0;
  const auto apply = [&](float* to, Stores stores) {
    rule->apply(to, current, layout.stride(), gradient.data(), 0, d, {t++, 1, stores});
  };
  const bench::Turns turns = bench::take_turns(
      {[&] {
         std::memcpy(target.data(), source.data(), copied * sizeof(float));
         asm volatile("" : : "r"(target.data()) : "memory");
       },
       [&] { update_kernels().copy_racy(target.data(), source.data(), copied); },
       [&] { copy_past_caches(target.data(), source.data(), copied); },
       [&] {
         apply(next, Stores::cached);
         std::swap(current, next);
       },
       [&] { apply(current, Stores::cached); },
       [&] {
         rule->apply_racy(current, layout.stride(), gradient.data(), 0, d, {t++, 1});
       }},
      seconds);
  constexpr std::pair<std::size_t, const char*> kUpdates[] = {
      {3, "another buffer"}, {4, "in place"}, {5, "racy"}};
  for (const auto& [work, where] : kUpdates) {
    std::vector<double> ratios, copies;
    for (std::size_t i = 0; i < turns.seconds[work].size(); ++i) {
      copies.push_back(std::min({turns.seconds[0][i], turns.seconds[1][i], turns.seconds[2][i]}));
      ratios.push_back(copies.back() / turns.seconds[work][i]);
    }
    const double gbytes = static_cast<double>(bytes) * 1e-9;
    bench::JsonLine("rule")
        .add("rule", choice.name)
        .add("to", where)
        .add("resident", resident)
        .add("isa", isa_name(default_isa()))
        .add("dimension", d)
        .add("bytes", bytes)
        .add("seconds", turns.median_seconds(work))
        .add("gbytes", gbytes / turns.median_seconds(work))
        .add("copy_gbytes", gbytes / bench::median(copies))
        .add("ratio", bench::median(ratios))
        .add("turns", ratios.size())
        .add("cpu_share", turns.cpu_share);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: bench_rules <seconds>\n", stderr), 2;
  const double seconds = std::atof(argv[1]);
  for (const Choice& choice : kRules) {
    bench_rule(choice, "L2", second_level_cache() / 2, seconds);
    bench_rule(choice, "memory", 4 * last_level_cache(), seconds);
  }
}
