// Field-aware factorisation machines, at every instruction-set level, against their definition in
// double precision: gradients of whole vectors, and steps of each rule where the parameters lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "leashed/columns/field_aware_machine.h"
#include "leashed/columns/field_finder.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kColumns = 40, kRows = 7;

// Rows of distinct columns: none, one, some of one field alone, some of any, and all of them.
struct Problem {
  Problem(std::size_t number_of_fields, std::size_t factors, bool valued, unsigned seed)
      : fields(number_of_fields), k(factors), random(seed) {
    for (std::size_t j = 0; j < kColumns; ++j) {
      field_of.push_back(static_cast<std::uint16_t>(j == 0 ? fields - 1 : random() % fields));
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<std::int32_t> all;
      for (std::size_t j = 0; j < kColumns; ++j) {
        if (row != 2 || field_of[j] == field_of[1]) all.push_back(static_cast<std::int32_t>(j));
      }
      std::shuffle(all.begin(), all.end(), random);
      if (row < 2) all.resize(row);
      if (row > 2 && row < kRows - 1) all.resize(1 + random() % 12);
      columns.insert(columns.end(), all.begin(), all.end());
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
      targets.push_back(row == 3 ? 0 : normal(random));
    }
    for (std::size_t j = 0; j < columns.size(); ++j) values.push_back(valued ? normal(random) : 1);
    for (std::size_t i = 0; i < kColumns * width() + 1; ++i) theta.push_back(0.3f * normal(random));
    rows = {offsets.data(), columns.data(), valued ? values.data() : nullptr};
  }
  std::size_t width() const { return 1 + fields * k; }
  BatchView batch(std::size_t first, std::size_t count) const {
    Targets given;
    given.values = targets.data();
    return {nullptr, given.from(first), count, nullptr, rows.from(first)};
  }

  // Of ½ (o − y)², o being the sum over every pair; its derivatives are added to `gradient`.
  double loss(const std::vector<double>& at, std::size_t row, double scale,
              std::vector<double>& gradient) const {
    double o = at.back();
    std::vector<double> slope(at.size());
    slope.back() = 1;
    for (std::int64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      const std::size_t a = record(i);
      o += values_at(i) * at[a];
      slope[a] += values_at(i);
      for (std::int64_t j = offsets[row]; j < i; ++j) {
        const std::size_t v = a + 1 + field(j) * k, u = record(j) + 1 + field(i) * k;
        const double both = values_at(i) * values_at(j);
        for (std::size_t f = 0; f < k; ++f) {
          o += both * at[v + f] * at[u + f];
          slope[v + f] += both * at[u + f];
          slope[u + f] += both * at[v + f];
        }
      }
    }
    const double residual = o - double{targets[row]};
    for (std::size_t i = 0; i < at.size(); ++i) gradient[i] += scale * residual * slope[i];
    return 0.5 * residual * residual;
  }
  std::size_t record(std::int64_t j) const {
    return static_cast<std::size_t>(columns[static_cast<std::size_t>(j)]) * width();
  }
  std::size_t field(std::int64_t j) const {
    return field_of[static_cast<std::size_t>(columns[static_cast<std::size_t>(j)])];
  }
  double values_at(std::int64_t j) const { return double{values[static_cast<std::size_t>(j)]}; }

  std::size_t fields, k;
  std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> field_of;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;
  std::vector<float> values, targets, theta;
  SparseRows rows;
};

template <class F>
void for_each_problem(F f) {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const std::size_t fields : {1u, 2u, 6u, 70u}) {
      CAPTURE(fields);
      for (const std::size_t k : {1u, 3u, 4u, 7u, 8u, 16u, 17u, 23u}) {
        CAPTURE(k);
        for (const bool valued : {false, true}) {
          const Problem p(fields, k, valued, 7);
          f(p, FieldAwareMachine(p.field_of, k, "squared_error", 0, false, isa));
        }
      }
    }
  }
}

double worst(const std::vector<float>& found, const std::vector<double>& expected) {
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(double{found[i]} - expected[i]) / (1 + std::abs(expected[i])));
  }
  return most;
}

constexpr double kClose = 5e-5;

}  // namespace

TEST_CASE("a field-aware machine's gradient is that of every pair") {
  for_each_problem([](const Problem& p, const FieldAwareMachine& machine) {
    REQUIRE(machine.dimension() == p.theta.size());
    std::vector<double> at(p.theta.begin(), p.theta.end()), expected(at.size());
    double loss = 0;
    for (std::size_t row = 0; row < kRows; ++row) loss += p.loss(at, row, 1.0 / kRows, expected);
    std::vector<float> found(at.size() + 1, -7);
    const auto workspace = machine.make_workspace();
    const std::atomic<bool> never{false};
    const float mean =
        machine.gradient(p.theta.data(), p.batch(0, kRows), found.data(), *workspace, never);
    CHECK(double{mean} == doctest::Approx(loss / kRows).epsilon(kClose));
    CHECK(worst(found, expected) < kClose);
    CHECK(found.back() == -7);
  });
}

TEST_CASE("steps in place are the rule's, of a batch's gradient before it") {
  for_each_problem([](const Problem& p, const FieldAwareMachine& machine) {
    const Choice adagrad{"adagrad", {{"lr", 0.02}, {"eps", 1e-10}, {"initial_accumulator", 0.1}}};
    for (const Choice& choice : {Choice{"sgd", {{"lr", 0.02}}}, adagrad}) {
      CAPTURE(choice.name);
      const auto rule = make_rule(choice, 1);
      REQUIRE(machine.takes(*rule));
      const std::size_t stride = p.theta.size() + 3;
      for (const std::size_t batch_size : {std::size_t{1}, std::size_t{3}, kRows}) {
        CAPTURE(batch_size);
        std::vector<float> found(2 * stride, 0.25f);
        std::copy(p.theta.begin(), p.theta.end(), found.begin());
        const auto workspace = machine.make_workspace();
        CHECK(std::isfinite(machine.update({found.data(), stride, batch_size, *rule, 0, nullptr},
                                           p.batch(0, kRows), *workspace)));

        std::vector<double> at(p.theta.begin(), p.theta.end()), squares(at.size(), 0.25);
        for (std::size_t first = 0; first < kRows; first += batch_size) {
          const std::size_t count = std::min(batch_size, kRows - first);
          std::vector<double> g(at.size());
          for (std::size_t row = first; row < first + count; ++row) {
            p.loss(at, row, 1.0 / static_cast<double>(count), g);
          }
          for (std::size_t i = 0; i < at.size(); ++i) {
            squares[i] += g[i] * g[i];
            at[i] -= 0.02 * g[i] / (choice.name == "sgd" ? 1 : std::sqrt(squares[i]));
          }
        }
        CHECK(worst(found, at) < kClose);
        if (choice.name == "adagrad") {
          const auto states = found.begin() + static_cast<std::ptrdiff_t>(stride);
          CHECK(worst({states, found.end()}, squares) < 1e-3);
        }
        for (std::size_t i = p.theta.size(); i < stride; ++i) CHECK(found[i] == 0.25f);
      }
    }
  });
}

TEST_CASE("a row's fields are found in order, in runs") {
  const std::vector<std::uint16_t> field_of = {200, 3, 4, 4, 63, 64, 0};
  const std::vector<std::int64_t> offsets = {0, 0, 6, 7};
  const std::vector<std::int32_t> columns = {3, 0, 5, 2, 4, 1, 6};
  const SparseRows rows{offsets.data(), columns.data(), nullptr};
  FieldFinder finder(201);
  CHECK(finder.find(field_of.data(), rows).count == 0);
  const RowFields found = finder.find(field_of.data(), rows.from(1));
  REQUIRE(found.count == 5);
  REQUIRE(found.run_count == 3);
  const auto is = [](const FieldRun& run, std::uint32_t first, std::uint32_t place,
                     std::uint32_t length) {
    return run.first == first && run.place == place && run.length == length;
  };
  CHECK(is(found.runs[0], 3, 0, 2));
  CHECK(is(found.runs[1], 63, 2, 2));
  CHECK(is(found.runs[2], 200, 4, 1));
  const std::vector<std::uint32_t> places = {1, 4, 3, 1, 2, 0};
  for (std::size_t j = 0; j < places.size(); ++j) {
    CHECK(found.entries[j].place == places[j]);
    CHECK(found.entries[j].first == (j != 3));
    CHECK(found.entries[j].alone == (places[j] != 1));
  }
  CHECK(finder.find(field_of.data(), rows.from(2)).count == 1);
}
