// What DLRM's work on tables' rows takes at least: rows of 16 floats, each with as many
// accumulators of Adagrad behind it and nothing else, read into a buffer, and updated in place with
// its square roots and divisions; each distinct row of a batch once, prefetched. In turns with
// multiply-adds, by one thread and by all, each with batches of its own.
//
//   bench_rows <threads> <seconds> <tables> <rows> <exponent of Zipf's law> <batch size>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/base/aligned.h"
#include "zipf.h"

using namespace leashed;

namespace {

constexpr int kTurns = 7;
constexpr std::size_t kDim = 16, kStride = 2 * kDim, kBatches = 64, kAhead = 8;
constexpr float kRate = 1e-4f, kEpsilon = 1e-10f;

void update_plain(float* row, const float* g) {
  for (std::size_t i = 0; i < kDim; ++i) {
    row[kDim + i] += g[i] * g[i];
    row[i] -= kRate * g[i] / (std::sqrt(row[kDim + i]) + kEpsilon);
  }
}
#if defined(__x86_64__)
__attribute__((target("arch=x86-64-v4"))) void update_v4(float* row, const float* g) {
  const __m512 gradient = _mm512_loadu_ps(g);
  const __m512 v = _mm512_fmadd_ps(gradient, gradient, _mm512_load_ps(row + kDim));
  // GCC 12 takes the unmasked root's undefined source for a mistake.
  const __m512 root = _mm512_add_ps(_mm512_maskz_sqrt_ps(0xffff, v), _mm512_set1_ps(kEpsilon));
  const __m512 step = _mm512_div_ps(_mm512_mul_ps(_mm512_set1_ps(kRate), gradient), root);
  _mm512_store_ps(row + kDim, v);
  _mm512_store_ps(row, _mm512_sub_ps(_mm512_load_ps(row), step));
}
__attribute__((target("arch=x86-64-v3"))) void update_v3(float* row, const float* g) {
  for (std::size_t i = 0; i < kDim; i += 8) {
    const __m256 gradient = _mm256_loadu_ps(g + i);
    const __m256 v = _mm256_fmadd_ps(gradient, gradient, _mm256_load_ps(row + kDim + i));
    const __m256 root = _mm256_add_ps(_mm256_sqrt_ps(v), _mm256_set1_ps(kEpsilon));
    const __m256 step = _mm256_div_ps(_mm256_mul_ps(_mm256_set1_ps(kRate), gradient), root);
    _mm256_store_ps(row + kDim + i, v);
    _mm256_store_ps(row + i, _mm256_sub_ps(_mm256_load_ps(row + i), step));
  }
}
#endif

using Update = void (*)(float* row, const float* gradient);

Update update_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::v4) return update_v4;
  if (isa == Isa::v3) return update_v3;
#endif
  static_cast<void>(isa);
  return update_plain;
}

// The places of a batch's distinct rows among those of all tables.
using Places = std::vector<std::uint32_t>;

Places draw(const bench::Zipf& zipf, std::size_t tables, std::size_t rows, std::size_t batch,
            std::mt19937_64& random) {
  Places all, some(batch);
  for (std::size_t table = 0; table < tables; ++table) {
    for (std::uint32_t& place : some) {
      place = static_cast<std::uint32_t>(table * rows) + zipf(random);
    }
    std::sort(some.begin(), some.end());
    all.insert(all.end(), some.begin(), std::unique(some.begin(), some.end()));
  }
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    return std::fputs("usage: bench_rows <threads> <seconds> <tables> <rows> <exponent> <batch>\n",
                      stderr),
           2;
  }
  const auto number = [argv](int i) { return static_cast<std::size_t>(std::atol(argv[i])); };
  const std::size_t threads = number(1), tables = number(3), rows = number(4), batch = number(6);
  const double seconds = std::atof(argv[2]);
  const bench::Zipf zipf(rows, std::atof(argv[5]));
  const Isa isa = default_isa();
  const Update update = update_of(isa);

  AlignedArray<float> memory(tables * rows * kStride);
  std::fill_n(memory.data(), tables * rows * kStride, 1.0f);
  AlignedArray<float> gradients(tables * batch * kDim);
  std::fill_n(gradients.data(), tables * batch * kDim, 1e-3f);
  std::vector<std::vector<Places>> batches(threads);
  std::mt19937_64 random(1);
  std::size_t distinct = 0;
  for (auto& own : batches) {
    for (std::size_t k = 0; k < kBatches; ++k) {
      own.push_back(draw(zipf, tables, rows, batch, random));
      distinct += own.back().size();
    }
  }
  std::vector<AlignedArray<float>> buffers;
  for (std::size_t i = 0; i < threads; ++i) buffers.emplace_back(tables * batch * kDim);
  std::vector<std::size_t> next(threads);

  const auto work = [&](std::size_t rank) {
    const Places& places = batches[rank][next[rank]++ % kBatches];
    const std::size_t n = places.size();
    float* const to = buffers[rank].data();
    const auto row = [&](std::size_t i) { return memory.data() + places[i] * kStride; };
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(row(i + kAhead), 1);
      std::copy_n(row(i), kDim, to + i * kDim);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) {
        __builtin_prefetch(row(i + kAhead), 1);
        __builtin_prefetch(row(i + kAhead) + kDim, 1);
      }
      update(row(i), gradients.data() + i * kDim);
    }
    return static_cast<double>(batch);
  };
  std::vector<std::size_t> teams = {1};
  if (threads > 1) teams.push_back(threads);
  std::vector<std::vector<double>> gflops(teams.size()), examples(teams.size()),
      shares(teams.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t i = 0; i < teams.size(); ++i) {
      const double each = seconds / (2 * kTurns * static_cast<double>(teams.size()));
      const auto fma = bench::team_rate(
          teams[i], each, [isa](std::size_t) { return bench::multiply_adds(isa, 20000); });
      const auto found = bench::team_rate(teams[i], each, work);
      gflops[i].push_back(fma.rate * 1e-9);
      examples[i].push_back(found.rate);
      shares[i].push_back(std::min(fma.cpu_share, found.cpu_share));
    }
  }
  for (std::size_t i = 0; i < teams.size(); ++i) {
    bench::JsonLine("rows")
        .add("batch", batch)
        .add("threads", teams[i])
        .add("distinct", static_cast<double>(distinct) / static_cast<double>(threads * kBatches))
        .add("gflops", gflops[i])
        .add("examples", examples[i])
        .add("cpu_share", shares[i]);
  }
}
