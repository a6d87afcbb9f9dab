#include <doctest/doctest.h>

#include <cmath>
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
