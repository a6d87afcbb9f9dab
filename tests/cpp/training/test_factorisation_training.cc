// Factorisation machines updated in place by several threads: every update is made, and what they
// learn is right.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "leashed/columns/factorisation_machine.h"
#include "leashed/sparse/distinct_columns.h"
#include "leashed/training/assemble.h"

namespace {

using namespace leashed;

constexpr std::size_t kRows = 3000, kColumns = 200, kFactors = 8;

// Two classes that only the meetings of columns tell apart: columns have a sign, and of a row's two
// halves both have the same, or not.
struct Problem {
  Problem() {
    std::mt19937 random(5);
    for (std::size_t i = 0; i < kRows; ++i) {
      const auto a = static_cast<std::int32_t>(random() % kColumns);
      const auto b = static_cast<std::int32_t>(random() % kColumns);
      columns.insert(columns.end(), {a, b});
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
      labels.push_back(a % 2 == b % 2);
    }
    values.assign(columns.size(), 1.0f);
  }
  SparseRows rows() const { return {offsets.data(), columns.data(), values.data()}; }

  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns, labels;
  std::vector<float> values;
};

TrainResult train(const Choice& discipline, const Choice& rule, std::size_t workers,
                  std::uint64_t updates) {
  const Problem problem;
  const DistinctColumns distinct(problem.rows(), kRows, kColumns);
  const FactorisationMachine machine(kColumns, kFactors, "log_loss", 0);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> theta(machine.dimension());
  for (float& x : theta) x = 0.1f * normal(random);
  Assembly parts{machine,
                 theta.data(),
                 {nullptr, problem.labels.data(), kRows, kColumns, distinct.view()},
                 std::nullopt,
                 std::make_shared<const OrderedRows>(distinct.view(), kRows, kColumns, 0),
                 discipline,
                 rule,
                 {"none", {}}};
  StopRules until;
  until.updates = updates;
  return leashed::train(parts, {workers, 4, 0, until, 1e6}, {}, nullptr);
}

const Choice kSgd{"sgd", {{"lr", 0.3}}};
const Choice kAdagrad{"adagrad", {{"lr", 0.2}, {"eps", 1e-10}, {"initial_accumulator", 0.0}}};

}  // namespace

TEST_CASE("Several threads make exactly the updates asked for and learn which columns meet") {
  for (const Choice& rule : {kSgd, kAdagrad}) {
    CAPTURE(rule.name);
    for (const std::size_t workers : {1u, 2u, 4u}) {
      CAPTURE(workers);
      for (const Choice& kind : {Choice{"locked", {}}, Choice{"hogwild", {{"copy", 0.0}}},
                                 Choice{"hogwild", {{"copy", 1.0}}}}) {
        CAPTURE(kind.name);
        const TrainResult result = train(kind, rule, workers, 20001);
        CHECK(result.sparse_runs);
        CHECK(result.updates == 20001);
        CHECK(result.evaluations.back().accuracy > 0.95);
      }
    }
  }
}
