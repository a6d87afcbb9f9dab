// What functions from outside get of a batch that reads tables, beside a plain reading of it; what
// is asked of which function, and what becomes of the rows' gradients.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/model/external_rows.h"
#include "leashed/model/flat_batch.h"

using namespace leashed;

namespace {

const std::atomic<bool> kGoOn{false};
constexpr std::size_t kNumbers = 2, kTables = 4;
constexpr std::size_t kDims[kTables] = {1, 3, 10, 16};
const std::vector<std::size_t> kTableOf = {0, 2, 3, 2, 1};  // of each feature

// A batch of random rows, more than one feature of a table, one feature without offsets, one with
// weights, one whose bags are all empty.
struct Problem {
  explicit Problem(std::size_t size) : x(size * kNumbers) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::normal_distribution<float> draw;
    for (float& v : x) v = draw(random);
    for (std::size_t i = 0; i < size; ++i) {
      rows.push_back(x.data() + (size - 1 - i) * kNumbers);
      labels.push_back(static_cast<std::int32_t>(random() % 2));
    }
    std::vector<std::vector<std::uint32_t>> all(kTables);
    values.resize(kTables), pointers.resize(kTables), gradients.resize(kTables);
    for (std::size_t t = 0; t < kTables; ++t) {
      const std::size_t count = t == 1 ? 0 : 5 + t;  // no row of the second is read
      for (std::size_t i = 0; i < count * (kDims[t] + 2); ++i) values[t].push_back(draw(random));
      // The last row first: rows lie anywhere.
      for (std::size_t i = count; i-- > 0;) {
        pointers[t].push_back(values[t].data() + i * (kDims[t] + 2));
      }
      gradients[t].assign(count * (kDims[t] + 5), 0.5f);
      tables.push_back({count, kDims[t], kDims[t] + 5, pointers[t].data(), gradients[t].data()});
    }
    for (std::size_t f = 0; f < kTableOf.size(); ++f) {
      offsets.emplace_back(1, 0);
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t entries = f == 0 ? 1 : f == 4 ? 0 : random() % 4;
        offsets[f].push_back(offsets[f].back() + static_cast<std::uint32_t>(entries));
      }
      places.emplace_back();
      weights.emplace_back();
      for (std::size_t e = 0; e < offsets[f].back(); ++e) {
        places[f].push_back(static_cast<std::uint32_t>(random() % tables[kTableOf[f]].count));
        weights[f].push_back(f == 2 ? draw(random) : 1);
      }
    }
    for (std::size_t f = 0; f < kTableOf.size(); ++f) {
      columns.push_back(
          {nullptr, f == 0 ? nullptr : offsets[f].data(), f == 2 ? weights[f].data() : nullptr});
      place_pointers.push_back(places[f].data());
    }
    view = {rows.data(), labels.data(), size};
    view.columns = columns;
    view.tables = tables;
    view.places = place_pointers.data();
  }

  std::vector<float> x;
  std::vector<const float*> rows;
  std::vector<std::int32_t> labels;
  std::vector<std::vector<float>> values, gradients, weights;
  std::vector<std::vector<const float*>> pointers;
  std::vector<std::vector<std::uint32_t>> offsets, places;
  std::vector<const std::uint32_t*> place_pointers;
  std::vector<IdColumn> columns;
  std::vector<TableRows> tables;
  BatchView view{nullptr, Targets(), 0};
};

struct Flat {
  Flat(const Problem& p, Counted counted) {
    layout.measure(p.view);
    offsets.resize(layout.offsets());
    places.resize(layout.entries());
    weights.resize(layout.entries());
    values.resize(layout.floats());
    layout.copy(p.view, kTableOf, counted,
                {offsets.data(), places.data(), weights.data(), values.data()});
  }
  FlatLayout layout;
  std::vector<std::int64_t> offsets, places;
  std::vector<float> weights, values;
};

// By entry: o = Σ_i θ₀ x_i0 + Σ_e θ₁ weight_e Σ_j row_ej, by the mean; the gradient with respect to
// each entry's row is weight · θ₁ / batch.
struct Calls {
  int gradients = 0, losses = 0, logits = 0;
  std::int64_t first_word = -1;
  bool right = true;
};

float by_entry(const float* theta, const float* x, const std::int64_t* rows, const std::int32_t* y,
               std::int64_t batch, const std::int64_t* offsets, const std::int64_t* places,
               const float* weights, const std::int64_t* counts, const float* values,
               float* gradient, float* row_gradients, float* logits, void* workspace,
               void* user_data) {
  auto& calls = *static_cast<Calls*>(user_data);
  calls.first_word = (*static_cast<std::int64_t*>(workspace))++;
  (gradient ? calls.gradients : logits ? calls.logits : calls.losses)++;
  calls.right &= (y == nullptr) == (logits != nullptr);
  calls.right &= (gradient == nullptr) == (row_gradients == nullptr);
  for (std::size_t t = 0; t < kTables; ++t) {
    calls.right &= counts[t] == (t == 1 ? 0 : static_cast<std::int64_t>(5 + t));
  }
  const float share = 1 / static_cast<float>(batch);
  float sum = 0;
  if (gradient) gradient[0] = gradient[1] = 0;
  for (std::int64_t i = 0; i < batch; ++i) {
    const float number = x[static_cast<std::size_t>(rows[i]) * kNumbers];
    float output = theta[0] * number, pooled = 0;
    for (std::size_t f = 0; f < kTableOf.size(); ++f) {
      const std::int64_t* at = offsets + f * static_cast<std::size_t>(batch + 1) + i;
      for (std::int64_t e = at[0]; e < at[1]; ++e) {
        for (std::size_t j = 0; j < kDims[kTableOf[f]]; ++j) {
          pooled += weights[e] * values[static_cast<std::size_t>(places[e]) + j];
          if (gradient) {
            row_gradients[static_cast<std::size_t>(places[e]) + j] += weights[e] * theta[1] * share;
          }
        }
      }
    }
    output += theta[1] * pooled;
    sum += output * share;
    if (logits) logits[i] = output;
    if (gradient) gradient[0] += number * share, gradient[1] += pooled * share;
  }
  return sum;
}

ExternalRowsSource source_of(Calls& calls, bool loss, bool logits) {
  std::vector<TableShape> tables;
  for (const std::size_t dim : kDims) tables.push_back({std::to_string(dim), dim});
  const ExternalRowsSource::Function f{by_entry, &calls}, none;
  return {{2, kNumbers, false, {}, std::move(tables), kTableOf},
          {f, loss ? f : none, logits ? f : none, sizeof(std::int64_t)}};
}

// The output of each example, and the row gradients' sums, by entries.
double output(const Problem& p, const float* theta, std::size_t i) {
  double pooled = 0;
  for (std::size_t f = 0; f < kTableOf.size(); ++f) {
    for (std::size_t e = p.offsets[f][i]; e < p.offsets[f][i + 1]; ++e) {
      const float* row = p.pointers[kTableOf[f]][p.places[f][e]];
      for (std::size_t j = 0; j < kDims[kTableOf[f]]; ++j) {
        pooled += double{p.weights[f][e]} * double{row[j]};
      }
    }
  }
  return double{theta[0]} * double{p.rows[i][0]} + double{theta[1]} * pooled;
}

}  // namespace

TEST_CASE("rows lie table after table, and places tell where") {
  for (const std::size_t size : {1, 2, 7, 33}) {
    CAPTURE(size);
    const Problem p(size);
    for (const Counted counted : {Counted::through, Counted::apart}) {
      const Flat flat(p, counted);
      const bool through = counted == Counted::through;
      std::size_t entry = 0;
      for (std::size_t f = 0; f < kTableOf.size(); ++f) {
        CAPTURE(f);
        const std::size_t t = kTableOf[f], first = entry;
        REQUIRE(flat.layout.entry_begins()[f] == first);
        for (std::size_t i = 0; i <= size; ++i) {
          const auto at = flat.offsets[f * (size + 1) + i];
          CHECK(static_cast<std::size_t>(at) == (through ? first : 0) + p.offsets[f][i]);
        }
        for (std::size_t e = 0; e < p.places[f].size(); ++e, ++entry) {
          const auto place = static_cast<std::size_t>(flat.places[entry]);
          const std::size_t begin =
              through ? place : flat.layout.float_begins()[t] + place * kDims[t];
          const float* row = p.pointers[t][p.places[f][e]];
          for (std::size_t j = 0; j < kDims[t]; ++j) CHECK(flat.values[begin + j] == row[j]);
          CHECK(flat.weights[entry] == p.weights[f][e]);
        }
      }
      CHECK(entry == flat.layout.entries());
    }
  }
}

TEST_CASE("a layout that has served a large batch serves a small one") {
  FlatLayout layout;
  const Problem large(40), small(3);
  layout.measure(large.view);
  layout.measure(small.view);
  const Flat fresh(small, Counted::through);
  CHECK(layout.entries() == fresh.layout.entries());
  CHECK(layout.floats() == fresh.layout.floats());
  CHECK(layout.offsets() == kTableOf.size() * 4);
}

TEST_CASE("a gradient by entries, and its rows' sums are added") {
  for (const std::size_t size : {1, 2, 7, 33}) {
    CAPTURE(size);
    Problem p(size);
    Calls calls;
    const ExternalRowsSource source = source_of(calls, false, false);
    const auto workspace = source.make_workspace();
    const float theta[2] = {0.5f, -0.25f};
    float gradient[2];
    const float loss = source.gradient(theta, p.view, gradient, *workspace, kGoOn);
    double wanted = 0, number = 0;
    for (std::size_t i = 0; i < size; ++i) {
      wanted += output(p, theta, i) / static_cast<double>(size);
      number += double{p.rows[i][0]} / static_cast<double>(size);
    }
    CHECK(loss == doctest::Approx(wanted).epsilon(1e-4));
    CHECK(gradient[0] == doctest::Approx(number).epsilon(1e-4));
    for (std::size_t t = 0; t < kTables; ++t) {
      CAPTURE(t);
      std::vector<double> sums(p.tables[t].count, 0);
      for (std::size_t f = 0; f < kTableOf.size(); ++f) {
        if (kTableOf[f] != t) continue;
        for (std::size_t e = 0; e < p.places[f].size(); ++e) {
          sums[p.places[f][e]] += double{p.weights[f][e]} * -0.25 / static_cast<double>(size);
        }
      }
      for (std::size_t i = 0; i < p.tables[t].count; ++i) {
        const float* got = p.gradients[t].data() + i * (kDims[t] + 5);
        for (std::size_t j = 0; j < kDims[t] + 5; ++j) {  // what is behind a row stays
          CHECK(got[j] == doctest::Approx(0.5 + (j < kDims[t] ? sums[i] : 0)).epsilon(1e-5));
        }
      }
    }
    CHECK(calls.right);
    // Row gradients of the batch before are gone, and the workspace stays.
    const std::vector<std::vector<float>> once = p.gradients;
    source.gradient(theta, p.view, gradient, *workspace, kGoOn);
    for (std::size_t t = 0; t < kTables; ++t) {
      for (std::size_t i = 0; i < once[t].size(); ++i) {
        CHECK(p.gradients[t][i] - once[t][i] == doctest::Approx(once[t][i] - 0.5f).epsilon(1e-4));
      }
    }
    CHECK(calls.first_word == 1);
  }
}

TEST_CASE("an evaluation asks the loss or the gradient, and the logits where these are wanted") {
  Problem p(9);
  for (TableRows& table : p.tables) table.gradient = nullptr;
  const float theta[2] = {0.5f, -0.25f};
  double mean = 0;
  for (std::size_t i = 0; i < 9; ++i) mean += output(p, theta, i) / 9;
  for (const bool has_loss : {false, true}) {
    for (const bool has_logits : {false, true}) {
      Calls calls;
      const ExternalRowsSource source = source_of(calls, has_loss, has_logits);
      CHECK(source.gives_logits() == has_logits);
      const auto workspace = source.make_workspace();
      std::vector<float> logits(9, 0), alone(9, 0);
      p.view.logits = has_logits ? logits.data() : nullptr;
      const Evaluation found = source.evaluate(theta, p.view, *workspace);
      CHECK(found.rows == 9);
      CHECK(found.loss_sum == doctest::Approx(9 * mean).epsilon(1e-4));
      CHECK(calls.gradients == !has_loss);
      CHECK(calls.losses == has_loss);
      CHECK(calls.logits == has_logits);
      CHECK(calls.right);
      if (!has_logits) continue;
      p.view.targets = Targets();  // which a prediction has none of
      source.logits(theta, p.view, alone.data(), *workspace);
      p.view.targets = Targets(p.labels.data());
      for (std::size_t i = 0; i < 9; ++i) {
        CHECK(logits[i] == doctest::Approx(output(p, theta, i)).epsilon(1e-4));
        CHECK(alone[i] == logits[i]);
      }
    }
  }
}

TEST_CASE("examples without numbers are numbered too") {
  const float nothing = 0;
  const std::vector<const float*> rows(3, &nothing);
  NumberedExamples examples;
  examples.number({rows.data(), Targets(), 3}, 0);
  CHECK(examples.base == &nothing);
  CHECK(examples.numbers == std::vector<std::int64_t>{0, 0, 0});
}

TEST_CASE("a feature of no table is refused") {
  CHECK_THROWS_AS(ExternalRowsSource({1, 1, false, {}, {{"one", 4}}, {1}}, {}), Error);
}
