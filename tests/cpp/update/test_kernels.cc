#include <doctest/doctest.h>

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
