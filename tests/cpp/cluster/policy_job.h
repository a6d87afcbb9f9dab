// What policy servers are tested with: a small job of least squares, for each mode that they take.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "leashed/model/gradient_source.h"
#include "modes/all_modes.h"

namespace leashed {

inline bool has_server(const Choice& mode) {
  for (const char* name : {"all_reduce", "swarm", "go_sgd", "ad_psgd", "d_psgd", "prague"}) {
    if (mode.name == name) return false;
  }
  return true;
}

inline constexpr std::size_t kFeatures = 13, kJobRows = 48, kBatch = 4, kExamples = 4 * kJobRows;
inline constexpr std::size_t kRowFloats = 3;
inline constexpr std::uint64_t kSeed = 7;
inline const Choice kMomentum{"momentum", {{"lr", 0.02}, {"momentum", 0.9}}};

inline Choice with_job(Choice mode, double workers, double examples) {
  mode.settings.insert({{"workers", workers}, {"batch", kBatch}, {"examples", examples}});
  return mode;
}

// A gradient of which each bit of the parameters tells; with_rows: and of the rows that it reads,
// one for each example.
class Squares final : public GradientSource {
 public:
  explicit Squares(bool with_rows = false) {
    describe({.dimension = kFeatures, .features = kFeatures, .classes = 0, .classifies = false});
    if (!with_rows) return;
    describe({.dimension = kFeatures,
              .features = kFeatures,
              .classes = 0,
              .classifies = false,
              .tables = {{"a", kRowFloats}},
              .features_of_tables = {0}});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>& cancel) const override {
    if (before) before(cancel);
    std::fill_n(gradient, kFeatures, 0.0f);
    for (std::size_t row = 0; row < batch.size; ++row) {
      float residual = -batch.targets.values[row];
      for (std::size_t i = 0; i < kFeatures; ++i) residual += theta[i] * batch.rows[row][i];
      for (const TableRows& rows : batch.tables) {
        const float* const values = rows.values[batch.places[0][row]];
        for (std::size_t i = 0; i < kRowFloats; ++i) residual += 0.1f * values[i];
      }
      for (std::size_t i = 0; i < kFeatures; ++i) gradient[i] += residual * batch.rows[row][i];
      for (const TableRows& rows : batch.tables) {
        float* const to = rows.gradient + batch.places[0][row] * rows.stride;
        for (std::size_t i = 0; i < kRowFloats; ++i) to[i] += 0.1f * residual;
      }
    }
    return gradient[0];
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {0, 0, batch.size};
  }

  std::function<void(const std::atomic<bool>& cancel)> before;  // each gradient, where there is any
};

struct Drawn {
  Drawn() : x(kJobRows * kFeatures), y(kJobRows), ids(kJobRows) {
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    for (float& value : x) value = uniform(random);
    for (float& value : y) value = uniform(random);
  }
  DatasetView view() const { return {x.data(), Targets(y.data()), kJobRows, kFeatures}; }
  // Each example has a row of its own.
  DatasetView view_with_rows() const {
    DatasetView all = view();
    all.ids = {&feature, 1};
    return all;
  }
  std::vector<float> x, y;
  std::vector<std::uint64_t> ids;
  IdFeature feature{.ids = ids.data()};
};

}  // namespace leashed
