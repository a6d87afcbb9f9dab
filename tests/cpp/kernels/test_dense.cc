// The dense kernels, ReLU and softmax of every instruction-set level against plain loops in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/kernels/activation.h"
#include "leashed/kernels/dense.h"
#include "leashed/model/loss.h"

namespace {

using leashed::AlignedArray;
using leashed::Gemm;
using leashed::Isa;

struct Random {
  std::mt19937 engine;
  std::size_t between(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(engine);
  }
  bool coin() { return between(0, 1) == 1; }
  std::vector<float> normal(std::size_t n) {
    std::normal_distribution<float> draw;
    std::vector<float> values(n);
    for (float& v : values) v = draw(engine);
    return values;
  }
};

void check_product(Isa isa, Random& random, std::size_t m, std::size_t n, std::size_t k) {
  const auto& kernels = leashed::dense_kernels(isa);
  const std::size_t padding = random.between(0, 3);
  const bool columns_of_a = random.coin();
  const std::vector<float> a = random.normal((m + padding) * (k + padding) + 1);
  const std::vector<float> b = random.normal(k * (n + padding) + 1);
  const std::vector<float> bias = random.normal(n);
  const std::size_t ldc = n + padding;
  const std::vector<float> old = random.normal(m * ldc + 1);
  const std::vector<float> gate = random.normal(m * ldc + 1);
  std::vector<float> c = old;

  Gemm g{};
  g.m = m, g.n = n, g.k = k;
  g.a = a.data();
  g.a_row = columns_of_a ? 1 : k + padding;
  g.a_col = columns_of_a ? m + padding : 1;
  g.b = b.data(), g.ldb = n + padding;
  g.c = c.data(), g.ldc = ldc;
  g.accumulate = random.coin();
  g.bias = random.coin() ? bias.data() : nullptr;
  g.relu = random.coin();
  const bool gated = random.coin();
  const bool gated_by_itself = gated && random.coin();  // as in a backward pass in place
  g.gate = gated_by_itself ? c.data() : gated ? gate.data() : nullptr;
  AlignedArray<float> scratch(kernels.gemm_scratch(std::max(m, k)));
  kernels.gemm(g, scratch.data());

  double worst = 0;
  bool outside_touched = false;
  for (std::size_t i = 0; i < m * ldc + 1; ++i) {
    const std::size_t row = i / ldc, column = i % ldc;
    if (row >= m || column >= n) {
      outside_touched |= c[i] != old[i];
      continue;
    }
    double expected = g.accumulate ? old[i] : 0, scale = 1;
    for (std::size_t j = 0; j < k; ++j) {
      const double term = double{a[row * g.a_row + j * g.a_col]} * b[j * g.ldb + column];
      expected += term, scale += std::abs(term);
    }
    if (g.bias) expected += bias[column];
    if (g.relu) expected = std::max(0.0, expected);
    if (gated && !((gated_by_itself ? old : gate)[i] > 0)) expected = 0;
    worst = std::max(worst, std::abs(c[i] - expected) / scale);
  }
  INFO(isa_name(isa), " m=", m, " n=", n, " k=", k);
  CHECK(worst < 1e-6);
  CHECK_FALSE(outside_touched);
}

TEST_CASE("gemm equals plain loops for every tile height and panel width") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(1)};
    for (std::size_t m = 1; m <= 40; ++m) {
      for (std::size_t n : {1, 3, 4, 5, 8, 10, 16, 17, 31, 32, 33, 50}) {
        check_product(isa, random, m, n, random.between(1, 20));
      }
    }
  }
}

TEST_CASE("gemm equals plain loops for random shapes") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(2)};
    for (int i = 0; i < 200; ++i) {
      check_product(isa, random, random.between(1, 150), random.between(1, 150),
                    random.between(1, 300));
    }
  }
}

TEST_CASE("gemm with one column, and with one column of A, equals plain loops") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(7)};
    for (int i = 0; i < 100; ++i) {
      check_product(isa, random, random.between(1, 150), 1, random.between(0, 100));
      check_product(isa, random, random.between(1, 150), random.between(1, 100), 1);
    }
  }
}

TEST_CASE("gemm without inner dimension gives the bias") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(3)};
    check_product(isa, random, 5, 10, 0);
  }
}

TEST_CASE("gemm keeps NaN through its ReLU") {
  for (Isa isa : leashed::available_isas()) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float one = 1;
    float c = 0;
    AlignedArray<float> scratch(leashed::dense_kernels(isa).gemm_scratch(1));
    leashed::dense_kernels(isa).gemm({.m = 1,
                                      .n = 1,
                                      .k = 1,
                                      .a = &nan,
                                      .a_row = 1,
                                      .a_col = 1,
                                      .b = &one,
                                      .ldb = 1,
                                      .c = &c,
                                      .ldc = 1,
                                      .relu = true},
                                     scratch.data());
    CHECK(std::isnan(c));
  }
}

TEST_CASE("transpose equals plain loops") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(4)};
    for (int i = 0; i < 100; ++i) {
      const std::size_t rows = random.between(1, 70), columns = random.between(1, 70);
      const std::size_t ld_in = columns + random.between(0, 3);
      const std::size_t ld_out = rows + random.between(0, 3);
      const std::vector<float> in = random.normal(rows * ld_in);
      std::vector<float> out(columns * ld_out, -7), expected = out;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) expected[c * ld_out + r] = in[r * ld_in + c];
      }
      leashed::dense_kernels(isa).transpose(in.data(), rows, columns, ld_in, out.data(), ld_out);
      INFO(isa_name(isa), " rows=", rows, " columns=", columns);
      CHECK(out == expected);
    }
  }
}

TEST_CASE("column_sums equals plain loops") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(5)};
    for (int i = 0; i < 50; ++i) {
      const std::size_t rows = random.between(1, 70), columns = random.between(1, 70);
      const std::vector<float> in = random.normal(rows * (columns + 2));
      const std::vector<float> old = random.normal(columns + 1);
      for (bool accumulate : {false, true}) {
        std::vector<float> out = old;
        leashed::dense_kernels(isa).column_sums(in.data(), rows, columns, columns + 2, out.data(),
                                                accumulate);
        for (std::size_t c = 0; c < columns; ++c) {
          double expected = accumulate ? old[c] : 0;
          for (std::size_t r = 0; r < rows; ++r) expected += in[r * (columns + 2) + c];
          CHECK(out[c] == doctest::Approx(expected).epsilon(1e-5).scale(10));
        }
        CHECK(out[columns] == old[columns]);
      }
    }
  }
}

TEST_CASE("softmax and its loss have a relative error below 1e-6") {
  for (Isa isa : leashed::available_isas()) {
    Random random{std::mt19937(6)};
    for (std::size_t classes : {1, 2, 3, 4, 7, 8, 10, 16, 17, 100}) {
      for (float spread : {0.1f, 3.0f, 40.0f}) {
        const std::size_t rows = random.between(1, 40), ld = classes + random.between(0, 3);
        std::vector<float> logits = random.normal(rows * ld);
        for (float& v : logits) v = v * spread + 100;
        std::vector<std::int32_t> labels(rows);
        for (auto& l : labels) l = static_cast<std::int32_t>(random.between(0, classes - 1));
        const leashed::Loss& softmax = leashed::find_loss("softmax", classes, isa);
        std::vector<float> p = logits;
        softmax.predict(p.data(), rows, classes, ld);
        std::vector<float> d(rows * ld, -7);
        const double loss =
            softmax.residuals(logits.data(), d.data(), rows, classes, ld, labels.data(), 0.25f);

        double expected_loss = 0, worst = 0;
        for (std::size_t r = 0; r < rows; ++r) {
          const float* x = logits.data() + r * ld;
          const double high = *std::max_element(x, x + classes);
          double sum = 0;
          // The difference rounded to float: what the exponential sees.
          const auto e = [&](std::size_t j) {
            return std::exp(double{x[j] - static_cast<float>(high)});
          };
          for (std::size_t j = 0; j < classes; ++j) sum += e(j);
          for (std::size_t j = 0; j < classes; ++j) {
            const double expected = e(j) / sum;
            if (expected < 1e-36) {
              CHECK(p[r * ld + j] < 1e-35);
            } else {
              worst = std::max(worst, std::abs(p[r * ld + j] - expected) / expected);
            }
          }
          for (std::size_t j = classes; j < ld; ++j) CHECK(d[r * ld + j] == -7);
          expected_loss -= x[labels[r]] - high - std::log(sum);
        }
        INFO(isa_name(isa), " classes=", classes, " spread=", spread);
        CHECK(worst < 1e-6);
        CHECK(loss == doctest::Approx(expected_loss).epsilon(1e-6));

        // The residuals: (p - [class == label]) * scale.
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t j = 0; j < classes; ++j) {
            const float one = static_cast<std::int32_t>(j) == labels[r] ? 1.0f : 0.0f;
            CHECK(d[r * ld + j] == (p[r * ld + j] - one) * 0.25f);
          }
        }
      }
    }
  }
}

TEST_CASE("softmax's loss is finite for huge logits and NaN for NaN ones") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : leashed::available_isas()) {
    const auto loss = [&](std::vector<float> logits, std::int32_t label) {
      const std::size_t n = logits.size();
      return leashed::find_loss("softmax", n, isa)
          .residuals(logits.data(), logits.data(), 1, n, n, &label, 1);
    };
    CHECK(loss({1e30f, -1e30f, 0}, 0) == doctest::Approx(0));
    CHECK(loss({1e30f, -1e30f, 0}, 1) == doctest::Approx(2e30));
    for (std::size_t at : {0, 3, 9}) {
      std::vector<float> logits(10, 1.0f);
      logits[at] = nan;
      CHECK(std::isnan(loss(logits, 5)));
    }
  }
}

TEST_CASE("relu and its derivative") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : leashed::available_isas()) {
    std::vector<float> x = {1,  -1, 0,   2,  -3,  4,  -5,  6,  -7, 8,
                            -9, 10, -11, 12, -13, 14, -15, 16, nan};
    std::vector<float> d(x.size(), 2);
    const std::vector<float> before = x;
    const leashed::Activation& relu = leashed::activation_kernels(isa).relu;
    relu.forward(x.data(), x.size());
    relu.backward(x.data(), d.data(), x.size());
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      CHECK(x[i] == std::max(0.0f, before[i]));
      CHECK(d[i] == (before[i] > 0 ? 2 : 0));
    }
    CHECK(std::isnan(x.back()));
  }
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double tanh_of(double x) { return std::tanh(x); }

TEST_CASE("tanh and sigmoid are within 5e-7 of their values, and so are their derivatives") {
  struct Case {
    leashed::AnyActivation activation;
    double (*value)(double);
    double (*derivative)(double);  // by the value
  };
  const Case cases[] = {
      {&leashed::ActivationKernels::tanh, tanh_of, [](double y) { return 1 - y * y; }},
      {&leashed::ActivationKernels::sigmoid, sigmoid_of, [](double y) { return y * (1 - y); }},
  };
  std::vector<float> x;
  for (float size = 1e-30f; size < 87; size *= 1.001f) x.insert(x.end(), {size, -size});
  x.insert(x.end(), {0.0f, -0.0f, 0.625f, -0.625f, 87.2f, -87.2f, 1e30f});
  for (Isa isa : leashed::available_isas()) {
    for (const Case& c : cases) {
      const leashed::Activation& activation = leashed::activation_kernels(isa).*c.activation;
      std::vector<float> y = x, d(x.size(), 3);
      activation.forward(y.data(), y.size());
      activation.backward(y.data(), d.data(), d.size());
      double worst = 0, worst_derivative = 0;
      bool signs = true;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = c.value(x[i]);
        worst = std::max(worst, std::abs(y[i] - expected) / std::max(std::abs(expected), 1e-37));
        worst_derivative = std::max(worst_derivative, std::abs(d[i] - 3 * c.derivative(y[i])));
        signs = signs && (y[i] < 0) == (expected < 0);
      }
      INFO(isa_name(isa), " ", worst, " ", worst_derivative);
      CHECK(worst < 5e-7);
      CHECK(worst_derivative < 1e-6);
      CHECK(signs);
      // Parts of vectors, at any place, change nothing beside them.
      const std::size_t last = x.size() - 50;
      for (std::size_t n = 1; n < 40; ++n) {
        const std::vector<float> before(x.begin() + static_cast<std::ptrdiff_t>(last), x.end());
        std::vector<float> part = before, expected = before;
        std::copy_n(y.data() + last + 3, n, expected.data() + 3);
        activation.forward(part.data() + 3, n);
        CHECK(part == expected);
      }
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const float infinity = std::numeric_limits<float>::infinity();
      std::vector<float> special = {nan, -nan, infinity, -infinity, -1e30f};
      activation.forward(special.data(), special.size());
      CHECK(std::isnan(special[0]));
      CHECK(std::isnan(special[1]));
      const double least = c.value == tanh_of ? -1 : 0;
      CHECK(special[2] == doctest::Approx(1).epsilon(5e-7));
      CHECK(special[3] == doctest::Approx(least).epsilon(5e-7));
      CHECK(special[4] == doctest::Approx(least).epsilon(5e-7));
    }
  }
}

}  // namespace
