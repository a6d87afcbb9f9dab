// What modes with tables are tested with: a small job of least squares on numbers and on the rows
// of two tables, whose gradients depend on every bit of what was read.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/model/gradient_source.h"
#include "leashed/table/table.h"

namespace leashed::row_job {

inline constexpr std::size_t kFeatures = 5, kExamples = 96, kBatch = 4, kDim = 6;
inline constexpr std::uint64_t kSeed = 7, kNever = ~std::uint64_t{0};
inline const std::vector<std::size_t> kTablesOfFeatures{0, 0, 1};

// Least squares on the numbers and on the first of each row's floats, weighed by the others, by
// plain loops: gradients depend on every bit of what was read.
class Source : public GradientSource {
 public:
  Source() {
    describe({.dimension = kFeatures,
              .features = kFeatures,
              .classes = 0,
              .classifies = false,
              .tables = {{"a", kDim}, {"b", kDim}},
              .features_of_tables = kTablesOfFeatures});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>& cancel) const override {
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call == throw_at) throw std::runtime_error("boom");
    if (call == nan_at) return std::numeric_limits<float>::quiet_NaN();
    while (call >= held_from && !cancel.load(std::memory_order_relaxed)) std::this_thread::yield();
    if (call % 5 == 3) std::this_thread::yield();
    std::fill_n(gradient, kFeatures, 0.0f);
    double loss = 0;
    const auto size = static_cast<float>(batch.size);
    for (std::size_t row = 0; row < batch.size; ++row) {
      const float residual = residual_of(theta, batch, row);
      loss += residual * residual / 2;
      for (std::size_t i = 0; i < kFeatures; ++i) {
        gradient[i] += residual * batch.rows[row][i] / size;
      }
      each(batch, row, [&](const TableRows& rows, std::uint32_t place) {
        const float* const values = rows.values[place];
        float* const to = rows.gradient + place * rows.stride;
        for (std::size_t i = 0; i < kDim; ++i) to[i] += residual * (1 + 0.1f * values[i]) / size;
        if (batch.rows[0][0] > infinite_above) to[0] = std::numeric_limits<float>::infinity();
      });
    }
    return static_cast<float>(loss) / size;
  }
  Evaluation evaluate(const float* theta, const BatchView& batch, Workspace&) const override {
    Evaluation sum{0, 0, batch.size};
    for (std::size_t row = 0; row < batch.size; ++row) {
      const float residual = residual_of(theta, batch, row);
      sum.loss_sum += residual * residual / 2;
    }
    return sum;
  }

  mutable std::atomic<std::uint64_t> calls{0};  // relaxed: a count
  std::uint64_t throw_at = kNever, nan_at = kNever, held_from = kNever;
  float infinite_above = 1;  // of a batch's first number: its rows' gradients are

 private:
  template <class F>
  static void each(const BatchView& batch, std::size_t row, const F& f) {
    for (std::size_t feature = 0; feature < kTablesOfFeatures.size(); ++feature) {
      const IdColumn& column = batch.columns[feature];
      for (std::size_t e = column.begin(row); e < column.end(row); ++e) {
        f(batch.tables[kTablesOfFeatures[feature]], batch.places[feature][e]);
      }
    }
  }
  static float residual_of(const float* theta, const BatchView& batch, std::size_t row) {
    float residual = -batch.targets.values[row];
    for (std::size_t i = 0; i < kFeatures; ++i) residual += theta[i] * batch.rows[row][i];
    each(batch, row, [&](const TableRows& rows, std::uint32_t place) {
      for (std::size_t i = 0; i < kDim; ++i) {
        const float value = rows.values[place][i];
        residual += value + 0.05f * value * value;
      }
    });
    return residual;
  }
};

// Of the first feature one id, of the others bags, some of them empty.
struct Data {
  explicit Data(std::uint64_t most = 30) : x(kExamples * kFeatures), y(kExamples) {
    std::uint32_t state = 1;
    const auto draw = [&state] { return state = state * 1664525u + 1013904223u; };
    const auto real = [&draw] { return static_cast<float>(draw() >> 8) / 0x1p23f - 1; };
    for (float& value : x) value = real();
    for (float& value : y) value = real();
    for (std::size_t feature = 0; feature < 3; ++feature) {
      offsets[feature].push_back(0);
      for (std::size_t row = 0; row < kExamples; ++row) {
        for (std::uint32_t k = feature == 0 ? 1 : (draw() >> 16) % 4; k > 0; --k) {
          all[feature].push_back((draw() >> 12) % most);
        }
        offsets[feature].push_back(static_cast<std::int64_t>(all[feature].size()));
      }
      features[feature] = {.ids = all[feature].data(), .offsets = offsets[feature].data()};
    }
  }
  DatasetView view() const {
    return {.x = x.data(),
            .targets = Targets(y.data()),
            .rows = kExamples,
            .features = kFeatures,
            .ids = features};
  }
  std::vector<float> x, y;
  std::vector<std::uint64_t> all[3];
  std::vector<std::int64_t> offsets[3];
  IdFeature features[3];
};

inline const Choice kSgd{"sgd", {{"lr", 0.02}}};
inline const Choice kAdam{"adam", {{"lr", 0.02}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}};

enum class Kind : std::uint8_t { fixed, grows, evicts, full };

using Tables = std::vector<std::shared_ptr<Table>>;

inline Tables tables_of(Kind kind, const Choice& rule, const Choice& staleness = {"none"}) {
  Tables tables;
  for (const char* name : {"a", "b"}) {
    Table::Settings settings{.name = name,
                             .dim = kDim,
                             .rows = 30,
                             .initial = {"uniform", {{"bound", 0.5}}},
                             .rule = rule,
                             .staleness = staleness,
                             .seed = 9};
    if (kind != Kind::fixed) {
      settings.rows = 0;
      settings.max_bytes = std::size_t{1} << (kind == Kind::grows ? 20 : 15);
      settings.admit_after = kind == Kind::grows ? 2 : 1;
      if (kind == Kind::evicts) settings.evict = "age";
    }
    tables.push_back(std::make_shared<Table>(settings));
  }
  return tables;
}

// θ of all ids of the data, and their versions.
inline std::vector<float> rows_of(const Tables& tables, const Data& data) {
  std::vector<float> all;
  for (std::size_t feature = 0; feature < 3; ++feature) {
    const std::vector<std::uint64_t>& ids = data.all[feature];
    std::vector<float> values(ids.size() * kDim);
    std::vector<std::uint32_t> versions(ids.size());
    tables[kTablesOfFeatures[feature]]->lookup(ids.data(), ids.size(), values.data(),
                                               versions.data());
    all.insert(all.end(), values.begin(), values.end());
    all.insert(all.end(), versions.begin(), versions.end());
  }
  return all;
}

}  // namespace leashed::row_job
