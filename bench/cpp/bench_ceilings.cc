// What the machine can do at most: float32 multiply-adds per second at every instruction-set level,
// and bytes copied per second (read and written) within the second-level cache, the third-level
// cache and memory; by one thread and by all, in turns.
//
//   bench_ceilings <threads> <seconds per figure>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/base/cache.h"

using namespace leashed;

namespace {

constexpr int kTurns = 5;

using TeamWork = std::function<double(std::size_t rank)>;

// One thread and all threads in turns; one line for each.
void report(const char* figure, const char* kind, const char* unit, std::size_t threads,
            double seconds, const TeamWork& work) {
  std::vector<std::size_t> teams = {1};
  if (threads > 1) teams.push_back(threads);
  std::vector<std::vector<double>> rates(teams.size()), shares(teams.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t i = 0; i < teams.size(); ++i) {
      const bench::TeamRate rate = bench::team_rate(teams[i], seconds / kTurns, work);
      rates[i].push_back(rate.rate * 1e-9);
      shares[i].push_back(rate.cpu_share);
    }
  }
  for (std::size_t i = 0; i < teams.size(); ++i) {
    bench::JsonLine(figure)
        .add("kind", kind)
        .add("threads", teams[i])
        .add(unit, rates[i])
        .add("cpu_share", shares[i]);
  }
}

// Stores past the caches where there are such; memcpy decides by itself where it uses them, and is
// not told how many threads share the cache.
void copy_past_caches(float* to, const float* from, std::size_t n) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < n; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
  _mm_sfence();
#else
  std::memcpy(to, from, n * sizeof(float));
#endif
}

std::size_t second_level_cache() {
  std::size_t kibibytes = 512;
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index2/size") >> kibibytes;
  return kibibytes << 10;
}

// Every thread copies an array of `bytes` bytes to another of its own.
void report_copy(const char* kind, std::size_t bytes, bool past_caches, std::size_t threads,
                 double seconds) {
  const std::size_t n = bytes / sizeof(float) / 16 * 16;
  std::vector<AlignedArray<float>> from, to;
  for (std::size_t i = 0; i < threads; ++i) {
    for (auto* arrays : {&from, &to}) {
      arrays->emplace_back(n);
      std::fill_n(arrays->back().data(), n, 1.0f);
    }
  }
  report("copy", kind, "gbytes", threads, seconds, [&](std::size_t rank) {
    float* target = to[rank].data();
    const float* source = from[rank].data();
    // Enough for reading the clock not to count.
    const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{1} << 20) / bytes);
    for (std::size_t i = 0; i < repeats; ++i) {
      if (past_caches) {
        copy_past_caches(target, source, n);
      } else {
        std::memcpy(target, source, n * sizeof(float));
      }
      asm volatile("" : : "r"(target) : "memory");  // every copy counts
    }
    return 2.0 * static_cast<double>(repeats * n * sizeof(float));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: bench_ceilings <threads> <seconds>\n", stderr), 2;
  const auto threads = static_cast<std::size_t>(std::atol(argv[1]));
  const double seconds = std::atof(argv[2]);
  for (Isa isa : available_isas()) {
    report("fma", isa_name(isa).data(), "gflops", threads, seconds,
           [isa](std::size_t) { return bench::multiply_adds(isa, 20000); });
  }
  // Two arrays a thread: together half of a second-level cache; half of the third-level cache, but
  // not what fits the second; four times the third.
  const std::size_t l2 = second_level_cache(), l3 = last_level_cache();
  report_copy("L2", l2 / 4, false, threads, seconds);
  report_copy("L3", std::max(l3 / 4 / threads, l2), false, threads, seconds);
  report_copy("memory, through the caches", 2 * l3, false, threads, seconds);
  report_copy("memory, past the caches", 2 * l3, true, threads, seconds);
}
