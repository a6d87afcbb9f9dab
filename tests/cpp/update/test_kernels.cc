#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/update/kernels.h"

using namespace leashed;

namespace {

std::vector<float> random_vector(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

}  // namespace

TEST_CASE("copy and mean") {
  for (const Isa isa : available_isas()) {
    const UpdateKernels& kernels = update_kernels(isa);
    const std::size_t n = 1003;
    const std::vector<float> a = random_vector(n, 1), b = random_vector(n, 2);
    std::vector<float> copy(n), mean(n, 5.0f);
    kernels.copy_racy(copy.data(), a.data(), n);
    CHECK(copy == a);
    const float* both[] = {a.data(), b.data()};
    kernels.mean(mean.data(), both, 2, 16, n - 32);
    for (std::size_t i = 0; i < n; ++i) {
      REQUIRE(mean[i] == (i < 16 || i >= n - 16 ? 5.0f : (a[i] + b[i]) * 0.5f));
    }
    kernels.mean(mean.data(), both, 1, 0, n);
    CHECK(mean == a);
  }
}

TEST_CASE("values are replaced, and what others have added since they were read is kept") {
  for (const Isa isa : available_isas()) {
    const UpdateKernels& kernels = update_kernels(isa);
    const std::size_t n = 103;
    const std::vector<float> after = random_vector(n, 1);
    std::vector<float> before = random_vector(n, 2);
    before[3] = before[101] = std::numeric_limits<float>::infinity();
    before[7] = 1e30f;
    std::vector<float> shared = before;
    for (std::size_t i = 10; i < n; i += 7) shared[i] += 1;
    std::vector<float> expected = after;
    for (std::size_t i = 10; i < n; i += 7) {
      if (i != 101) expected[i] += shared[i] - before[i];
    }
    kernels.replace_racy(shared.data(), before.data(), after.data(), n);
    CHECK(shared == expected);
  }
}

TEST_CASE("the sum of squares is of the clipped values, and neither overflows nor hides NaN") {
  for (const Isa isa : available_isas()) {
    const UpdateKernels& kernels = update_kernels(isa);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const std::size_t n : {0, 1, 15, 64, 65, 1000}) {
      const std::vector<float> v = random_vector(n, 1);
      double plain = 0, clipped = 0;
      for (const float x : v) {
        plain += double{x} * double{x};
        const double c = std::fmin(std::fmax(double{x}, -0.5), 0.5);
        clipped += c * c;
      }
      CHECK(kernels.sum_of_squares(v.data(), infinity, 0, n) == doctest::Approx(plain));
      CHECK(kernels.sum_of_squares(v.data(), 0.5f, 0, n) == doctest::Approx(clipped));
      const double parts = kernels.sum_of_squares(v.data(), infinity, 0, n / 3) +
                           kernels.sum_of_squares(v.data(), infinity, n / 3, n);
      CHECK(parts == doctest::Approx(plain));
    }
    std::vector<float> v(100, 1e30f);
    CHECK(kernels.sum_of_squares(v.data(), infinity, 0, 100) == doctest::Approx(1e62));
    v[50] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(kernels.sum_of_squares(v.data(), 0.5f, 0, 100)));
  }
}

TEST_CASE(
    "the first value that is not finite is found wherever it is, and no finite one is taken") {
  using Limits = std::numeric_limits<float>;
  const float largest = Limits::max(), smallest = Limits::denorm_min();
  const float bad[] = {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
                       Limits::infinity(), -Limits::infinity()};
  for (const Isa isa : available_isas()) {
    const auto first_not_finite = update_kernels(isa).first_not_finite;
    CAPTURE(isa_name(isa));
    for (std::size_t n = 0; n <= 140; ++n) {
      CAPTURE(n);
      for (const std::size_t offset : {0, 1, 3}) {
        // What surrounds the vector is not to be looked at.
        std::vector<float> buffer(n + 4, Limits::quiet_NaN());
        float* v = buffer.data() + offset;
        for (std::size_t i = 0; i < n; ++i) {
          const float values[] = {largest, -largest, 0.0f, -0.0f, smallest, -1.0f};
          v[i] = values[i % 6];
        }
        REQUIRE(first_not_finite(v, n) == n);
        for (std::size_t i = 0; i < n; ++i) {
          const float kept = v[i];
          for (const float value : bad) {
            v[i] = value;
            REQUIRE(first_not_finite(v, n) == i);
          }
          const float last = i + 1 == n ? kept : v[n - 1];
          v[n - 1] = Limits::infinity();  // a second one, later
          REQUIRE(first_not_finite(v, n) == i);
          v[n - 1] = last;
          v[i] = kept;
        }
      }
    }
  }
}

TEST_CASE("a cumulative penalty takes from each value what it owes, and no more than there is") {
  for (const Isa isa : available_isas()) {
    const UpdateKernels& kernels = update_kernels(isa);
    const std::size_t n = 103;
    const float penalty = 0.3f;
    std::vector<float> v(n), above(n), below(n), plain(n);
    std::vector<double> received(n);  // of both signs
    double total = 0;
    for (unsigned round = 0; round < 20; ++round) {
      const std::vector<float> change = random_vector(n, round + 1);
      total += penalty;
      for (std::size_t i = 0; i < n; ++i) {
        v[i] += change[i];
        plain[i] += change[i];
        const double before = plain[i];
        const double after = before > 0 ? std::max(0.0, before - (total + received[i]))
                                        : std::min(0.0, before + (total - received[i]));
        received[i] += after - before;
        plain[i] = static_cast<float>(after);
      }
      kernels.truncate_racy(v.data(), above.data(), below.data(), penalty, n);
      for (std::size_t i = 0; i < n; ++i) {
        REQUIRE(v[i] == doctest::Approx(plain[i]).epsilon(1e-4));
        REQUIRE(above[i] >= 0);
        REQUIRE(below[i] >= 0);
      }
    }
    v[5] = v[101] = std::numeric_limits<float>::quiet_NaN();
    kernels.truncate_racy(v.data(), above.data(), below.data(), penalty, n);
    CHECK(std::isnan(v[5]));
    CHECK(std::isnan(v[101]));
  }
}
