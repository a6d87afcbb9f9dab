// The kernels of sampled logits against plain loops, and the loss on them, at every instruction-set
// level. Gradients are held to PyTorch's in tests/models/test_sampled.py.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/kernels/candidates.h"
#include "leashed/model/loss.h"

namespace {

using leashed::Isa;

std::vector<float> drawn(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(n);
  for (float& v : values) v = draw(random);
  return values;
}

TEST_CASE("kernels of sampled logits do what plain loops do") {
  for (const Isa isa : leashed::available_isas()) {
    const auto& kernels = leashed::candidate_kernels(isa);
    for (const std::size_t n : {1, 4, 15, 16, 33}) {
      for (const std::size_t rows : {1, 5, 64}) {
        INFO(isa_name(isa), " n=", n, " rows=", rows);
        const std::size_t ld_u = n + 3, ld_p = n + 1, ld = 9;
        const auto u = drawn(rows * ld_u, 1), p = drawn(rows * ld_p, 2), d = drawn(rows * ld, 3);
        std::vector<float> out(rows * ld, 7), d_p(rows * ld_p, 7);
        kernels.score(u.data(), ld_u, p.data(), ld_p, rows, n, out.data() + 4, ld);
        for (const bool wanted : {true, false}) {
          auto d_u = drawn(rows * ld_u, 4);
          const auto before = d_u;
          kernels.score_backward({d.data(), u.data(), p.data(), ld, ld_u, ld_p, rows, n,
                                  wanted ? d_u.data() : nullptr, d_p.data()});
          for (std::size_t i = 0; i < rows; ++i) {
            double sum = 0;
            for (std::size_t k = 0; k < n; ++k) {
              const float u_k = u[i * ld_u + k], p_k = p[i * ld_p + k], d_i = d[i * ld];
              sum += double{u_k} * p_k;
              CHECK(d_p[i * ld_p + k] == doctest::Approx(d_i * u_k).epsilon(1e-5));
              const float added = wanted ? d_i * p_k : 0;
              CHECK(d_u[i * ld_u + k] ==
                    doctest::Approx(before[i * ld_u + k] + added).epsilon(1e-4));
            }
            CHECK(d_p[i * ld_p + n] == 7);
            CHECK(out[i * ld + 4] == doctest::Approx(sum).epsilon(1e-4));
            CHECK(out[i * ld + 3] == 7);
            CHECK(out[i * ld + 5] == 7);
          }
        }
      }
    }
    std::vector<std::uint32_t> negatives(37), positives = {3, 90, 5};
    for (std::size_t j = 0; j < negatives.size(); ++j) {
      negatives[j] = static_cast<std::uint32_t>(j % 6);
    }
    std::vector<float> out(3 * 40, 1);
    kernels.hide(negatives.data(), negatives.size(), positives.data(), 3, -5, out.data(), 40);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 40; ++j) {
        const bool hidden = j < 37 && negatives[j] == positives[i];
        CHECK(out[i * 40 + j] == (hidden ? -5 : 1));
      }
    }
  }
}

TEST_CASE("the loss takes the last output for the right one, whatever the label") {
  for (const Isa isa : leashed::available_isas()) {
    for (const std::size_t n : {2, 16, 21}) {
      const leashed::Loss& loss = leashed::find_loss("sampled_softmax", n, isa);
      const std::size_t rows = 3, ld = n + 4;
      auto o = drawn(rows * ld, 8);
      o[0] = -1e30f;  // as good as not there
      const std::vector<std::int32_t> labels = {1, 0, 1};
      const std::vector<float> weights = {1, 2, 0.5f};
      leashed::Targets targets(labels.data());
      targets.weights = weights.data();
      std::vector<float> r(rows * ld);
      const double found = loss.residuals(o.data(), r.data(), rows, n, ld, targets, 0.5f);
      double expected = 0;
      std::uint64_t right = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        double sum = 0;
        bool above = true;
        for (std::size_t k = 0; k < n; ++k) {
          sum += std::exp(double{o[i * ld + k]});
          above &= k + 1 == n || o[i * ld + n - 1] > o[i * ld + k];
        }
        right += above;
        expected += weights[i] * (std::log(sum) - o[i * ld + n - 1]);
        for (std::size_t k = 0; k < n; ++k) {
          const double p = std::exp(double{o[i * ld + k]}) / sum - (k + 1 == n);
          CHECK(std::abs(r[i * ld + k] - 0.5 * weights[i] * p) < 1e-6);
        }
      }
      CHECK(found == doctest::Approx(expected).epsilon(1e-5));
      CHECK(loss.correct(o.data(), rows, n, ld, labels.data()) == right);
      o[1] = std::numeric_limits<float>::quiet_NaN();
      CHECK(std::isnan(loss.residuals(o.data(), r.data(), rows, n, ld, targets, 0.5f)));
    }
  }
}

}  // namespace
