// The rules' formulas over rows: the same bits as the passes over the vector, at every
// instruction-set level, and row-wise Adagrad beside its formula.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "leashed/table/kernels.h"
#include "leashed/table/row_rules.h"
#include "leashed/update/passes.h"

using namespace leashed;

namespace {

constexpr std::size_t kDims[] = {1, 3, 4, 8, 10, 16, 17, 32, 40, 64};
constexpr std::size_t kRows = 5;

Coefficients some_coefficients() {
  Coefficients c;
  c.lr = 0.3f;
  c.step = 0.2f;
  c.add1 = 0.1f;
  c.add2 = 0.05f;
  c.epsilon = 1e-3f;
  c.clip = 0.9f;
  return c;
}

std::vector<float> random_vector(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = std::abs(normal(random));
  return values;
}

double distance(const float* a, const float* b, std::size_t n) {
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(squares);
}

Coefficients decaying(float coupled, float shrink) {
  Coefficients c = some_coefficients();
  c.coupled = coupled;
  c.shrink = shrink;
  return c;
}

// Of a row's states: such as there are in one thread.
template <class Rule>
void make_moments(float* row, std::size_t dim) {
  constexpr bool kCentered = std::is_same_v<Rule, CenteredRmsprop>;
  if constexpr (kCentered || std::is_same_v<Rule, Adam> || std::is_same_v<Rule, Amsgrad>) {
    const float* const mean = row + (kCentered ? 2 : 1) * dim;
    float* const squares = row + (kCentered ? 1 : 2) * dim;
    for (std::size_t i = 0; i < dim; ++i) squares[i] += mean[i] * mean[i];
  }
}

// Of one rule of both lists: a row lies as a vector of dim parameters would.
template <class Rule>
void check_rule(Isa isa, std::size_t dim, const Coefficients& given) {
  const std::size_t floats = (1 + Rule::kStates) * dim;
  std::vector<float> rows = random_vector(kRows * (floats + 2), 1), expected;
  for (std::size_t r = 0; r < kRows; ++r) make_moments<Rule>(rows.data() + r * (floats + 2), dim);
  expected = rows;
  const std::vector<float> before = rows;
  const std::vector<float> gradients = random_vector(kRows * dim, 2);
  const RulePasses& passes = pass_table(isa)[kArithmetic<Rule>];
  std::vector<RowUpdate> updates;
  for (std::size_t r = 0; r < kRows; ++r) {
    const float scale = r == 1 ? 0 : 0.5f + static_cast<float>(r);
    const float keep = r == 2 ? 0.7f : 1;
    updates.push_back({rows.data() + r * (floats + 2), gradients.data() + r * dim, scale, keep});
    Coefficients c = given;
    c.scale = scale;
    c.keep = keep;
    float* const theta = expected.data() + r * (floats + 2);
    passes.full[0][0](theta, theta, dim, gradients.data() + r * dim, 0, dim, c);
  }
  const RowPass pass = row_kernels(isa).passes[RowRules::place<Rule>()];
  pass(updates.data(), kRows, dim, given, nullptr);
  CHECK(rows == expected);  // what lies between rows as well

  rows = before;
  std::vector<float> moved(kRows + 1, -1.0f);
  pass(updates.data(), kRows, dim, given, moved.data());
  CHECK(rows == expected);
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::size_t at = r * (floats + 2);
    REQUIRE(moved[r] == doctest::Approx(distance(&rows[at], &before[at], dim)).epsilon(1e-6));
  }
  CHECK(moved[kRows] == -1.0f);
}

// Without weight decay, with such that is part of the gradient, and with such that is apart.
template <class Rule>
void check_rule(Isa isa, std::size_t dim) {
  check_rule<Rule>(isa, dim, some_coefficients());
  check_rule<Rule>(isa, dim, decaying(0.2f, 1));
  check_rule<Rule>(isa, dim, decaying(0, 0.9f));
}

}  // namespace

TEST_CASE("a row is changed as the vector's pass changes so many parameters") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t dim : kDims) {
      CAPTURE(dim);
      check_rule<Sgd>(isa, dim);
      check_rule<Adagrad>(isa, dim);
      check_rule<AdagradPrinted>(isa, dim);
      check_rule<Rmsprop>(isa, dim);
      check_rule<CenteredRmsprop>(isa, dim);
      check_rule<Adam>(isa, dim);
      check_rule<Amsgrad>(isa, dim);
      check_rule<Ftrl>(isa, dim);
    }
  }
}

TEST_CASE("a row whose moments are of two threads makes no step that one's cannot") {
  constexpr float kRate = 0.01f;
  Coefficients c;
  c.lr = c.step = kRate;
  c.add1 = 0.1f;
  c.add2 = 0.001f;
  c.epsilon = 1e-8f;
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t dim : kDims) {
      // One thread has stored m of the row's first gradient, and not v, when another comes with
      // none.
      std::vector<float> row(3 * dim), gradient(dim);
      std::fill_n(row.data() + dim, dim, 0.01f);
      const RowUpdate update{row.data(), gradient.data(), 1, 1};
      row_kernels(isa).passes[RowRules::place<Adam>()](&update, 1, dim, c, nullptr);
      for (std::size_t i = 0; i < dim; ++i) {
        REQUIRE(row[i] < 0);
        REQUIRE(row[i] > -20 * kRate);
      }
    }
  }
}

TEST_CASE("row-wise Adagrad keeps the mean square of a whole row") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const RowPass pass = row_kernels(isa).passes[RowRules::place<RowwiseAdagrad>()];
    for (const std::size_t dim : kDims) {
      CAPTURE(dim);
      std::vector<float> row = random_vector(dim + 2, 3);
      const std::vector<float> before = row, gradient = random_vector(dim, 4);
      const RowUpdate update{row.data(), gradient.data(), 0.5f, 0.25f};
      const Coefficients c = some_coefficients();
      pass(&update, 1, dim, c, nullptr);
      double squares = 0;
      const auto seen = [&](std::size_t i) {
        return 0.5 * std::min(double{gradient[i]}, double{c.clip});
      };
      for (std::size_t i = 0; i < dim; ++i) squares += seen(i) * seen(i);
      const double v = 0.25 * double{before[dim]} + squares / static_cast<double>(dim);
      CHECK(row[dim] == doctest::Approx(v).epsilon(1e-5));
      for (std::size_t i = 0; i < dim; ++i) {
        const double theta =
            double{before[i]} - double{c.lr} * seen(i) / (std::sqrt(v) + double{c.epsilon});
        REQUIRE(row[i] == doctest::Approx(theta).epsilon(1e-5));
      }
      CHECK(row[dim + 1] == before[dim + 1]);
      std::vector<float> again = before;
      const RowUpdate measured{again.data(), gradient.data(), 0.5f, 0.25f};
      float moved = -1;
      pass(&measured, 1, dim, c, &moved);
      CHECK(again == row);
      CHECK(moved == doctest::Approx(distance(row.data(), before.data(), dim)).epsilon(1e-5));
    }
  }
}

TEST_CASE("row-wise Adagrad with weight decay is that of the gradient with the decay in it") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const RowPass pass = row_kernels(isa).passes[RowRules::place<RowwiseAdagrad>()];
    for (const std::size_t dim : kDims) {
      CAPTURE(dim);
      std::vector<float> row = random_vector(dim + 1, 3), other = row;
      const std::vector<float> gradient = random_vector(dim, 4);
      std::vector<float> whole = gradient;
      for (std::size_t i = 0; i < dim; ++i) whole[i] += 0.2f * row[i];
      Coefficients c = decaying(0.2f, 1);
      c.clip = std::numeric_limits<float>::infinity();
      Coefficients none = c;
      none.coupled = 0;
      const RowUpdate decays{row.data(), gradient.data(), 1, 1};
      const RowUpdate plain{other.data(), whole.data(), 1, 1};
      pass(&decays, 1, dim, c, nullptr);
      pass(&plain, 1, dim, none, nullptr);
      for (std::size_t i = 0; i <= dim; ++i) {
        REQUIRE(row[i] == doctest::Approx(other[i]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("a row that does not move, since its step is lost in rounding, has moved by 0") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t place :
         {RowRules::place<Adagrad>(), RowRules::place<RowwiseAdagrad>()}) {
      const std::size_t dim = 10;
      std::vector<float> row(2 * dim, 1.0f);
      const std::vector<float> gradient(dim, 1.0f);
      Coefficients c;
      c.lr = 1e-9f;
      c.epsilon = 1e-10f;
      const RowUpdate update{row.data(), gradient.data(), 1, 1};
      float moved = -1;
      row_kernels(isa).passes[place](&update, 1, dim, c, &moved);
      CHECK(row[0] == 1);
      CHECK(moved == 0);
    }
  }
}

TEST_CASE("rows are gathered, gradients added and norms found, at any dim") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const RowKernels& kernels = row_kernels(isa);
    for (const std::size_t dim : kDims) {
      CAPTURE(dim);
      const std::vector<float> rows = random_vector(40 * dim, 5);
      std::vector<const float*> pointers;
      for (std::size_t r = 0; r < 40; ++r) pointers.push_back(rows.data() + (39 - r) * dim);
      std::vector<float> gathered(40 * dim + 1, 7.0f);
      kernels.gather(gathered.data(), pointers.data(), 40, dim);
      for (std::size_t r = 0; r < 40; ++r) {
        for (std::size_t i = 0; i < dim; ++i) REQUIRE(gathered[r * dim + i] == pointers[r][i]);
      }
      CHECK(gathered.back() == 7.0f);

      const std::size_t stride = dim + 3;
      std::vector<std::uint32_t> places;
      for (std::uint32_t r = 0; r < 40; ++r) places.push_back(r * 7 % 3);
      std::vector<float> sums(3 * stride), plain = sums;
      kernels.add(sums.data(), stride, rows.data(), places.data(), 40, dim);
      for (std::size_t r = 0; r < 40; ++r) {
        for (std::size_t i = 0; i < dim; ++i) plain[places[r] * stride + i] += rows[r * dim + i];
      }
      CHECK(sums == plain);

      double squares = 0;
      for (std::size_t i = 0; i < dim; ++i) squares += double{rows[i]} * double{rows[i]};
      CHECK(kernels.sum_of_squares(rows.data(), dim) == doctest::Approx(squares));
    }
  }
}

TEST_CASE("NaN shows in its row, and a sum of squares beyond a float moves nothing") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t place :
         {RowRules::place<Adagrad>(), RowRules::place<RowwiseAdagrad>()}) {
      const std::size_t dim = 10;
      std::vector<float> row(2 * dim, 0.0f), gradient(dim, 1e30f);
      Coefficients c;
      c.lr = 0.1f;
      c.epsilon = 1e-10f;
      const RowUpdate update{row.data(), gradient.data(), 1, 1};
      const RowPass pass = row_kernels(isa).passes[place];
      pass(&update, 1, dim, c, nullptr);
      CHECK(row[0] == 0);
      CHECK(row[dim] == std::numeric_limits<float>::infinity());
      gradient[9] = std::nanf("");
      pass(&update, 1, dim, c, nullptr);
      CHECK(std::isnan(row[9]));
    }
  }
}
