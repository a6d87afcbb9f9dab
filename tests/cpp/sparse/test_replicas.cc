// Copies that are merged, driven by one thread, against plain sums.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "leashed/sparse/replicas.h"

using namespace leashed;

namespace {

struct Shared {
  Shared(std::size_t columns, std::size_t workers, std::size_t states = 0)
      : mean_squares(columns, 0.01f),
        use{columns + 1, {}, mean_squares.data()},
        layout{columns + 6, states},
        buffer(layout.length()),
        replicas(start(), layout, workers, use) {}

  const float* start() {
    std::iota(buffer.begin(), buffer.end(), 0.0f);
    return buffer.data();
  }
  // The worker's copy of one parameter, or of its state.
  float& local(std::size_t worker, std::size_t i, std::size_t part = 0) {
    return replicas.local(worker)[part * replicas.stride() + i];
  }
  void merge_all() {
    for (std::size_t worker = 0; worker < 2; ++worker) replicas.merge_all(worker, buffer.data());
  }

  std::vector<float> mean_squares;
  SparseUse use;
  Layout layout;
  std::vector<float> buffer;
  Replicas replicas;
};

}  // namespace

TEST_CASE("when all have merged everything, all changes are in the shared vector, and its state") {
  for (const std::size_t columns : {0u, 1u, 63u, 64u, 65u, 700u}) {
    CAPTURE(columns);
    Shared shared(columns, 2, 1);
    std::vector<float> expected = shared.buffer;
    for (int round = 0; round < 20; ++round) {
      for (std::size_t worker = 0; worker < 2; ++worker) {
        for (std::size_t i = 0; i <= columns; i += 1 + (i + worker) % 3) {
          for (const std::size_t part : {0, 1}) {
            shared.local(worker, i, part) += 1;
            expected[part * shared.layout.stride() + i] += 1;
          }
        }
        shared.replicas.merge(worker, shared.buffer.data(), {});
      }
    }
    shared.merge_all();
    CHECK(shared.buffer == expected);
    // And each takes over what is there then.
    shared.replicas.merge_all(0, shared.buffer.data());
    for (std::size_t i = 0; i <= columns; ++i) CHECK(shared.local(0, i) == expected[i]);
  }
}

TEST_CASE("the intercept is merged after every run also where no column is active") {
  Shared shared(0, 2);
  shared.local(0, 0) += 3;
  shared.replicas.merge(0, shared.buffer.data(), {});
  CHECK(shared.buffer[0] == 3);
  shared.replicas.merge(1, shared.buffer.data(), {});
  CHECK(shared.local(1, 0) == 3);
}

TEST_CASE("merge number s is of the first columns, twice as many for each time 2 divides s") {
  constexpr std::size_t kColumns = 1000;
  Shared shared(kColumns, 2);
  const std::size_t ends[] = {65, 129, 257, 513, kColumns + 1};
  for (std::uint64_t s = 1; s <= 32; ++s) {
    const std::vector<float> before = shared.buffer;
    for (std::size_t i = 0; i <= kColumns; ++i) shared.local(0, i) += 1;
    shared.replicas.merge(0, shared.buffer.data(), {});
    const std::size_t tiers = std::min<std::size_t>(1 + std::countr_zero(s), std::size(ends));
    for (std::size_t i = 0; i <= kColumns; ++i) {
      CHECK((shared.buffer[i] != before[i]) == (i < ends[tiers - 1]));
    }
  }
}

TEST_CASE("changes that go all the way to the optimum count as their mean") {
  constexpr std::size_t kWorkers = 4;
  for (const double contraction : {0.0, 1.0, 10.0, 1e6}) {
    CAPTURE(contraction);
    Shared shared(10, kWorkers);
    const float before = shared.buffer[5];
    for (std::size_t worker = 0; worker < kWorkers; ++worker) {
      shared.local(worker, 5) += 8;
      shared.replicas.merge(worker, shared.buffer.data(), {.contraction = contraction});
    }
    const double gone = 1 - std::exp(-2 * contraction * 0.01);
    const double weight = kWorkers * gone > 1 ? 1 / (kWorkers * gone) : 1;
    CHECK(double{shared.buffer[5]} == doctest::Approx(before + kWorkers * 8 * weight));
  }
}

TEST_CASE("a copy's decay is merged with it, and leaves the intercept alone") {
  Shared shared(10, 2);
  const std::vector<float> before = shared.buffer;
  shared.replicas.merge(0, shared.buffer.data(), {.log_shrink = std::log(0.75)});
  CHECK(shared.replicas.effect(0).log_shrink == std::log(0.75));
  CHECK(shared.buffer[0] == before[0]);
  for (std::size_t i = 1; i <= 10; ++i) {
    CHECK(double{shared.buffer[i]} == doctest::Approx(0.75 * before[i]));
  }
  // Once: what was merged is not merged again.
  shared.replicas.merge(0, shared.buffer.data(), {.log_shrink = std::log(0.75)});
  CHECK(double{shared.buffer[4]} == doctest::Approx(0.75 * before[4]));
  CHECK(shared.buffer[12] == before[12]);
}

TEST_CASE("columns of several parameters are merged whole") {
  constexpr std::size_t kColumns = 300, kWidth = 9;
  const std::vector<float> mean_squares(kColumns, 0.01f);
  const ColumnShape shape{kWidth, 1};
  const SparseUse use{shape.dimension(kColumns), shape, mean_squares.data()};
  std::vector<float> buffer(use.active);
  Replicas replicas(buffer.data(), Layout{use.active}, 2, use);
  const std::size_t ends[] = {64, 128, 256, kColumns};
  for (std::uint64_t s = 1; s <= 16; ++s) {
    const std::vector<float> before = buffer;
    for (std::size_t i = 0; i < use.active; ++i) replicas.local(0)[i] += 1;
    replicas.merge(0, buffer.data(), {});
    const std::size_t tiers = std::min<std::size_t>(1 + std::countr_zero(s), std::size(ends));
    for (std::size_t i = 0; i < use.active; ++i) {
      CHECK((buffer[i] != before[i]) == (i < 1 + kWidth * ends[tiers - 1]));
    }
  }
}

TEST_CASE("without workers there are no copies") {
  Shared shared(10, 0);
  CHECK(shared.replicas.empty());
}
