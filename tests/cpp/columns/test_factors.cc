// The kernels of factorisation machines, at every instruction-set level and for every kind of k,
// against the definition in double precision.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "leashed/columns/factorisation_machine.h"
#include "leashed/kernels/factors.h"
#include "leashed/update/registry.h"
#include "reference/factorisation_machine.h"

using namespace leashed;

namespace {

constexpr std::size_t kColumns = 50, kRows = 9;
constexpr std::size_t kFactors[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31, 33};

// Rows of 0 to 40 distinct columns, the first one empty, and a machine.
struct Problem {
  Problem(std::size_t factors, bool valued, unsigned seed)
      : k(factors), random(seed), machine{factors, {}, 0.3} {
    std::vector<std::int32_t> all(kColumns);
    for (std::size_t i = 0; i < kColumns; ++i) all[i] = static_cast<std::int32_t>(i);
    for (std::size_t row = 0; row < kRows; ++row) {
      std::shuffle(all.begin(), all.end(), random);
      const std::size_t length = row == 0 ? 0 : row == 1 ? 1 : random() % 41;
      columns.insert(columns.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(length));
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
      residuals.push_back(row == 2 ? 0 : normal(random));
    }
    for (std::size_t j = 0; j < columns.size(); ++j) values.push_back(valued ? normal(random) : 1);
    for (std::size_t i = 0; i < kColumns * (1 + k); ++i) records.push_back(0.5f * normal(random));
    machine.records.assign(records.begin(), records.end());
    machine.bias = bias;
    rows = {offsets.data(), columns.data(), valued ? values.data() : nullptr};
  }

  // scale · Σ residual · the outputs' gradients.
  std::vector<double> gradient(double scale) const {
    std::vector<double> sum(records.size());
    for (std::size_t row = 0; row < kRows; ++row) {
      machine.add_gradient(rows, row, scale * double{residuals[row]}, sum);
    }
    return sum;
  }
  double worst(const std::vector<float>& found, const std::vector<double>& expected) const {
    double most = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      most = std::max(most, std::abs(double{found[i]} - expected[i]) / (1 + std::abs(expected[i])));
    }
    return most;
  }

  std::size_t k;
  std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;
  std::vector<float> values, residuals, records;
  float bias = 0.25f;
  reference::FactorisationMachine machine;
  SparseRows rows;
};

template <class F>
void for_each_problem(F f) {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t k : kFactors) {
      CAPTURE(k);
      for (const bool valued : {false, true}) f(factor_kernels(isa), Problem(k, valued, 7));
    }
  }
}

constexpr double kClose = 2e-5;

}  // namespace

TEST_CASE("outputs are those of every pair, and what is kept is what was read") {
  for_each_problem([](const FactorKernels& kernels, Problem p) {
    std::vector<float> out(kRows), sums(kRows * p.k + 1, -7),
        factors(p.columns.size() * p.k + 1, -7);
    const FactorsAhead ahead{p.offsets.back()};
    kernels.outputs(p.records.data(), &p.bias, p.k, p.rows, kRows, ahead, out.data(),
                    {sums.data(), factors.data()});
    std::vector<float> alone(kRows);
    kernels.outputs(p.records.data(), &p.bias, p.k, p.rows, kRows, {}, alone.data(), {});
    CHECK(alone == out);
    for (std::size_t row = 0; row < kRows; ++row) {
      const double expected = p.machine.output(p.rows, row);
      CHECK(double{out[row]} == doctest::Approx(expected).epsilon(kClose).scale(10));
      for (std::size_t f = 0; f < p.k; ++f) {
        double sum = 0;
        for (std::int64_t j = p.offsets[row]; j < p.offsets[row + 1]; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double v = p.machine.record(p.columns[at])[1 + f];
          sum += v * double{p.values[at]};
          CHECK(double{factors[at * p.k + f]} == v);
        }
        CHECK(double{sums[row * p.k + f]} == doctest::Approx(sum).epsilon(kClose).scale(1));
      }
    }
    CHECK(sums.back() == -7);
    CHECK(factors.back() == -7);
  });
}

TEST_CASE("gradients are those of every pair, wherever they are added") {
  for_each_problem([](const FactorKernels& kernels, Problem p) {
    std::vector<float> out(kRows), sums(kRows * p.k), factors(p.columns.size() * p.k);
    const FactorSums kept{sums.data(), factors.data()};
    kernels.outputs(p.records.data(), &p.bias, p.k, p.rows, kRows, {}, out.data(), kept);
    const std::vector<double> expected = p.gradient(0.5);
    std::vector<float> found(p.records.size() + 1);
    kernels.add(p.records.data(), p.k, p.rows, kRows, p.residuals.data(), sums.data(), 0.5f,
                nullptr, found.data());
    CHECK(p.worst(found, expected) < kClose);
    CHECK(found.back() == 0);

    // By places: here those of the columns from the last on.
    std::vector<std::int32_t> places;
    for (const std::int32_t column : p.columns) {
      places.push_back(static_cast<std::int32_t>(kColumns) - 1 - column);
    }
    std::vector<float> placed(p.records.size());
    kernels.add(p.records.data(), p.k, p.rows, kRows, p.residuals.data(), sums.data(), 0.5f,
                places.data(), placed.data());
    for (std::size_t column = 0; column < kColumns; ++column) {
      const auto width = static_cast<std::ptrdiff_t>(1 + p.k);
      CHECK(std::equal(found.begin() + static_cast<std::ptrdiff_t>(column) * width,
                       found.begin() + static_cast<std::ptrdiff_t>(column + 1) * width,
                       placed.end() - static_cast<std::ptrdiff_t>(column + 1) * width));
    }

    // In place, of the factors as they were.
    std::vector<float> records = p.records;
    kernels.add_racy(records.data(), p.k, p.rows, kRows, p.residuals.data(), kept, 0.5f);
    std::vector<double> moved = p.machine.records;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += expected[i];
    CHECK(p.worst(records, moved) < kClose);

    // One row, in which no column comes again, needs none of them kept.
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<float> with = p.records, without = p.records;
      const SparseRows one = p.rows.from(row);
      kernels.outputs(p.records.data(), &p.bias, p.k, one, 1, {}, out.data(), kept);
      kernels.add_racy(with.data(), p.k, one, 1, p.residuals.data() + row, kept, 0.5f);
      kernels.add_racy(without.data(), p.k, one, 1, p.residuals.data() + row, {sums.data()}, 0.5f);
      CHECK(with == without);
    }
  });
}

TEST_CASE("SGD and Adagrad step the columns named, and take the gradient away") {
  for_each_problem([](const FactorKernels& kernels, Problem p) {
    const std::vector<std::int32_t> columns = {3, 49, 0, 17};
    const std::size_t width = 1 + p.k, stride = kColumns * width;
    std::vector<float> gradient(columns.size() * width);
    for (float& g : gradient) g = p.normal(p.random);
    gradient[1] = 0;  // and an ε of 0: 0 / 0 where nothing is kept from it
    std::vector<float> with_states = p.records, stepped = p.records;
    with_states.resize(2 * stride);
    for (std::size_t i = stride; i < 2 * stride; ++i) with_states[i] = 0.25f;
    with_states[stride + 3 * width + 1] = 0;
    const std::vector<float> before = with_states;

    std::vector<float> g = gradient;
    kernels.sgd_racy(stepped.data(), p.k, columns.data(), columns.size(), g.data(), 0.125f);
    CHECK(std::all_of(g.begin(), g.end(), [](float x) { return x == 0; }));
    g = gradient;
    kernels.adagrad_racy(with_states.data(), stride, p.k, columns.data(), columns.size(), g.data(),
                         0.125f, 0);
    CHECK(std::all_of(g.begin(), g.end(), [](float x) { return x == 0; }));

    std::vector<double> sgd(p.records.begin(), p.records.end());
    std::vector<double> adagrad(before.begin(), before.end());
    for (std::size_t i = 0; i < columns.size(); ++i) {
      for (std::size_t f = 0; f < width; ++f) {
        const std::size_t at = static_cast<std::size_t>(columns[i]) * width + f;
        const double x = gradient[i * width + f];
        sgd[at] -= 0.125 * x;
        adagrad[stride + at] += x * x;
        if (x != 0) adagrad[at] -= 0.125 * x / std::sqrt(adagrad[stride + at]);
      }
    }
    CHECK(p.worst(stepped, sgd) < 1e-6);
    CHECK(p.worst(with_states, adagrad) < 1e-6);
  });
}

TEST_CASE("Adagrad on one row is Adagrad on its gradient") {
  for_each_problem([](const FactorKernels& kernels, Problem p) {
    const std::size_t stride = p.records.size();
    std::vector<float> before = p.records, out(1), sums(p.k);
    before.resize(2 * stride, 0.25f);
    for (std::size_t row = 0; row < kRows; ++row) {
      const SparseRows one = p.rows.from(row);
      std::vector<float> at_once = before, summed = before;
      kernels.outputs(before.data(), &p.bias, p.k, one, 1, {}, out.data(), {sums.data()});
      kernels.adagrad_row_racy(at_once.data(), stride, p.k, one, p.residuals[row], sums.data(),
                               0.5f, 0.125f, 1e-10f);
      const auto length = static_cast<std::size_t>(p.offsets[row + 1] - p.offsets[row]);
      std::vector<std::int32_t> places(length);
      for (std::size_t i = 0; i < length; ++i) places[i] = static_cast<std::int32_t>(i);
      std::vector<float> gradient(length * (1 + p.k));
      kernels.add(before.data(), p.k, one, 1, &p.residuals[row], sums.data(), 0.5f, places.data(),
                  gradient.data());
      kernels.adagrad_racy(summed.data(), stride, p.k, one.columns + one.offsets[0], length,
                           gradient.data(), 0.125f, 1e-10f);
      CHECK(p.worst(at_once, {summed.begin(), summed.end()}) < 1e-6);
    }
  });
}

TEST_CASE("a batch too large for its factors to be kept takes the same step") {
  constexpr std::size_t kMany = 4000, kEach = 12, kWidth = 8;
  std::mt19937 random(3);
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns, labels;
  for (std::size_t i = 0; i < kMany; ++i) {
    for (std::size_t j = 0; j < kEach; ++j) {
      columns.push_back(static_cast<std::int32_t>(10 * j + random() % 10));
    }
    offsets.push_back(static_cast<std::int64_t>(columns.size()));
    labels.push_back(static_cast<std::int32_t>(random() % 2));
  }
  const BatchView batch{
      nullptr, labels.data(), kMany, nullptr, {offsets.data(), columns.data(), nullptr}};
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const FactorisationMachine machine(10 * kEach, kWidth, "log_loss", 0, true, isa);
    std::vector<float> theta(machine.dimension());
    std::normal_distribution<float> normal;
    for (float& x : theta) x = 0.2f * normal(random);
    const auto workspace = machine.make_workspace();
    std::vector<float> gradient(theta.size());
    const std::atomic<bool> never{false};
    machine.gradient(theta.data(), batch, gradient.data(), *workspace, never);
    const auto rule = make_rule({"sgd", {{"lr", 0.5}}}, 1);
    REQUIRE(machine.takes(*rule));
    std::vector<float> updated = theta;
    double loss = 0;
    const float check =
        machine.update({updated.data(), 0, kMany, *rule, 0, &loss}, batch, *workspace);
    CHECK(std::isfinite(check));
    for (std::size_t i = 0; i < theta.size(); ++i) {
      CHECK(double{updated[i]} ==
            doctest::Approx(double{theta[i]} - 0.5 * double{gradient[i]}).epsilon(1e-5).scale(0.1));
    }
  }
}
