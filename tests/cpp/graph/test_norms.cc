// Normalisation at every instruction-set level: its kernels against plain loops in double, graphs
// against central differences, and what workers average of their batches' statistics.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/graph/graph.h"
#include "leashed/kernels/normalise.h"
#include "leashed/model/tracked_source.h"

namespace {

using leashed::Choice;
using leashed::Graph;
using leashed::Isa;
using leashed::Node;
using Doubles = std::vector<double>;

const std::atomic<bool> kGoOn{false};

std::vector<float> drawn(std::size_t n, unsigned seed, float mean = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(mean, 1);
  std::vector<float> values(n);
  for (float& v : values) v = draw(random);
  return values;
}

TEST_CASE("kernels of normalisation do what plain loops do") {
  for (const Isa isa : leashed::available_isas()) {
    const auto& kernels = leashed::normalise_kernels(isa);
    for (const std::size_t n : {1, 3, 16, 37}) {
      for (const std::size_t rows : {1, 2, 63, 64, 200}) {
        INFO(isa_name(isa), " n=", n, " rows=", rows);
        const std::size_t ld = n + 5, ld_d = n + 2;
        const auto x = drawn(rows * ld, 1, 3), d = drawn(rows * ld_d, 2);
        const auto center = drawn(n, 3), by = drawn(n, 4), shift = drawn(n, 5);
        std::vector<float> mean(n), variance(n), partial(2 * n), out(rows * ld_d, 7),
            dx(rows * ld, 1);
        std::vector<double> sums(2 * n);
        kernels.moments(x.data(), ld, rows, n, mean.data(), variance.data(), partial.data(),
                        sums.data());
        for (std::size_t k = 0; k < n; ++k) {
          double sum = 0, squares = 0;
          for (std::size_t i = 0; i < rows; ++i) sum += x[i * ld + k];
          const double m = sum / static_cast<double>(rows);
          for (std::size_t i = 0; i < rows; ++i)
            squares += (x[i * ld + k] - m) * (x[i * ld + k] - m);
          CHECK(mean[k] == doctest::Approx(m).epsilon(1e-6));
          CHECK(variance[k] == doctest::Approx(squares / static_cast<double>(rows)).epsilon(1e-5));
        }
        kernels.scale(
            {x.data(), center.data(), by.data(), shift.data(), out.data(), ld, ld_d, rows, n});
        kernels.sums({d.data(), x.data(), center.data(), ld_d, ld, rows, n}, partial.data(),
                     sums.data());
        const auto before = dx;
        for (const bool adds : {false, true}) {
          kernels.input_gradient({d.data(), x.data(), center.data(), by.data(), shift.data(),
                                  center.data(), dx.data(), ld_d, ld, rows, n, adds});
          for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t k = 0; k < ld; ++k) {
              if (k >= n) {
                CHECK(dx[i * ld + k] == before[i * ld + k]);
                continue;
              }
              const double term = double{d[i * ld_d + k]} * by[k] +
                                  (double{x[i * ld + k]} - center[k]) * shift[k] + center[k];
              CHECK(dx[i * ld + k] == doctest::Approx(term * (adds ? 2 : 1)).epsilon(1e-4));
            }
          }
        }
        for (std::size_t k = 0; k < n; ++k) {
          double sum_d = 0, sum_dx = 0;
          for (std::size_t i = 0; i < rows; ++i) {
            const double off = double{x[i * ld + k]} - center[k];
            sum_d += d[i * ld_d + k];
            sum_dx += d[i * ld_d + k] * off;
            CHECK(out[i * ld_d + k] == doctest::Approx(off * by[k] + shift[k]).epsilon(1e-4));
            CHECK(out[i * ld_d + n] == 7);
          }
          CHECK(sums[k] == doctest::Approx(sum_d).epsilon(1e-4));
          CHECK(sums[n + k] == doctest::Approx(sum_dx).epsilon(1e-4));
        }
      }
    }
  }
}

TEST_CASE("means of more rows than a float counts are right") {
  const auto& kernels = leashed::normalise_kernels(leashed::default_isa());
  std::vector<float> x((std::size_t{1} << 24) + 4096, 1), mean(1), variance(1), partial(2);
  std::vector<double> sums(2);
  kernels.moments(x.data(), 1, x.size(), 1, mean.data(), variance.data(), partial.data(),
                  sums.data());
  CHECK(mean[0] == 1);
  CHECK(variance[0] == 0);
}

// Four features, a dense layer of 5, a normalisation, ReLU, an output.
constexpr std::size_t kFeatures = 4, kHidden = 5;

std::vector<Node> normed(const char* kind) {
  return {{{"input", {{"features", kFeatures}}}, {}},
          {{"dense", {{"outputs", kHidden}}}, {0}},
          {{kind, {{"eps", 1e-2}}}, {1}},
          {{"relu"}, {2}},
          {{"dense", {{"outputs", 1}}}, {3}}};
}

struct Data {
  explicit Data(std::size_t rows) : x(drawn(rows * kFeatures, 9)) {
    for (std::size_t i = 0; i < rows; ++i) {
      pointers.push_back(x.data() + i * kFeatures);
      labels.push_back(static_cast<std::int32_t>(i % 3 == 0));
    }
    view.rows = pointers.data();
    view.targets = labels.data();
    view.size = rows;
  }
  std::vector<float> x;
  std::vector<const float*> pointers;
  std::vector<std::int32_t> labels;
  leashed::BatchView view{nullptr, leashed::Targets(), 0};
};

double reference_loss(bool batch_norm, const Doubles& theta, const Data& data) {
  const double *w = theta.data(), *b = w + kFeatures * kHidden, *scale = b + kHidden,
               *shift = scale + kHidden, *v = shift + kHidden, *c = v + kHidden;
  const std::size_t rows = data.labels.size();
  const auto count = static_cast<double>(rows);
  std::vector<Doubles> h(rows, Doubles(kHidden));
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < kHidden; ++k) {
      h[i][k] = b[k];
      for (std::size_t j = 0; j < kFeatures; ++j) {
        h[i][k] += double{data.x[i * kFeatures + j]} * w[j * kHidden + k];
      }
    }
  }
  for (std::size_t k = 0; k < kHidden; ++k) {
    double mean = 0, variance = 0;
    for (const Doubles& row : h) mean += row[k] / count;
    for (const Doubles& row : h) variance += (row[k] - mean) * (row[k] - mean) / count;
    const double divisor = std::abs(mean) < 1e-3 ? std::copysign(1e-3, mean) : mean;
    for (Doubles& row : h) {
      row[k] = batch_norm ? scale[k] * (row[k] - mean) / std::sqrt(variance + 1e-2) + shift[k]
                          : scale[k] * row[k] / divisor - shift[k];
    }
  }
  double loss = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    double o = *c;
    for (std::size_t k = 0; k < kHidden; ++k) o += std::max(0.0, h[i][k]) * v[k];
    loss += std::log1p(std::exp(-std::abs(o))) + std::max(o, 0.0) - (data.labels[i] ? o : 0);
  }
  return loss / count;
}

TEST_CASE("gradients through a batch's own statistics are its central differences") {
  for (const Isa isa : leashed::available_isas()) {
    for (const bool batch_norm : {true, false}) {
      for (const std::size_t rows : {2, 7, 64, 150}) {  // more than a micro-batch: still one
        INFO(isa_name(isa), " batch_norm=", batch_norm, " rows=", rows);
        const Graph graph(normed(batch_norm ? "batch_norm" : "data_norm"), {}, isa);
        const Data data(rows);
        auto theta = drawn(graph.dimension(), 4);
        // Means of the values to normalise that are not near 0, and one that counts as 10⁻³.
        for (std::size_t k = 0; k < kHidden; ++k) theta[kFeatures * kHidden + k] = 4;
        if (!batch_norm) {
          for (std::size_t j = 0; j <= kFeatures; ++j) theta[j * kHidden] = 0;
          theta[kFeatures * kHidden] = 5e-4f;
        }
        std::vector<float> g(theta.size(), std::numeric_limits<float>::quiet_NaN());
        const auto workspace = graph.make_workspace();
        const float loss = graph.gradient(theta.data(), data.view, g.data(), *workspace, kGoOn);
        Doubles at(theta.begin(), theta.end());
        CHECK(loss == doctest::Approx(reference_loss(batch_norm, at, data)).epsilon(1e-4));
        for (std::size_t i = 0; i < at.size(); ++i) {
          constexpr double kStep = 1e-7;
          const double old = at[i];
          at[i] = old + kStep;
          const double up = reference_loss(batch_norm, at, data);
          at[i] = old - kStep;
          const double slope = (up - reference_loss(batch_norm, at, data)) / (2 * kStep);
          at[i] = old;
          CHECK(std::abs(g[i] - slope) < 1e-3 * std::max(1.0, std::abs(slope)));
        }
      }
    }
  }
}

TEST_CASE("one worker's averages begin with its first batch and go on from where they were") {
  const Graph graph(normed("batch_norm"), {});
  const auto theta = drawn(graph.dimension(), 4);
  std::vector<float> g(theta.size());
  std::vector<Data> data;
  for (std::size_t i = 0; i < 6; ++i) data.emplace_back(3 + i);
  Doubles expected(2 * kHidden);
  double share_before = 1;
  leashed::RunningStatistics half;
  leashed::TrackedSource whole(graph, 1, {});
  CHECK(whole.running()->batches == 0);
  const auto workspace = whole.make_workspace();
  auto inner = graph.make_workspace();
  for (std::size_t n = 0; n < data.size(); ++n) {
    whole.gradient(theta.data(), data[n].view, g.data(), *workspace, kGoOn);
    std::vector<float> own(2 * kHidden);
    leashed::BatchView view = data[n].view;
    view.own_statistics = own.data();
    graph.gradient(theta.data(), view, g.data(), *inner, kGoOn);
    share_before *= 0.99;
    const double part = 0.01 / (1 - share_before);
    for (std::size_t i = 0; i < own.size(); ++i) expected[i] += part * (own[i] - expected[i]);
    const auto running = *whole.running();
    CHECK(running.batches == n + 1);
    for (std::size_t i = 0; i < own.size(); ++i) {
      CHECK(running.values[i] == doctest::Approx(expected[i]).epsilon(1e-4));
    }
    if (n == 2) half = running;
  }
  const leashed::TrackedSource rest(graph, 1, half);
  const auto again = rest.make_workspace();
  for (std::size_t n = 3; n < data.size(); ++n) {
    rest.gradient(theta.data(), data[n].view, g.data(), *again, kGoOn);
  }
  CHECK(rest.running()->values == whole.running()->values);
  CHECK(rest.running()->batches == whole.running()->batches);
}

TEST_CASE("workers' averages count by their batches; who takes no part keeps what it was given") {
  const Graph graph(normed("data_norm"), {});
  auto theta = drawn(graph.dimension(), 4);
  std::vector<float> g(theta.size()), low(kHidden, 2), high(kHidden);
  const Data one(8), single(1);
  leashed::TrackedSource source(graph, 4, {low, 40, 3});
  const auto a = source.make_workspace(), b = source.make_workspace();
  source.gradient(theta.data(), one.view, g.data(), *a, kGoOn);
  source.gradient(theta.data(), single.view, g.data(), *b, kGoOn);  // tells nothing
  const std::atomic<bool> cancelled{true};
  source.gradient(theta.data(), one.view, g.data(), *b, cancelled);
  auto view = one.view;
  view.own_statistics = high.data();
  graph.gradient(theta.data(), view, g.data(), *graph.make_workspace(), kGoOn);
  const auto running = *source.running();
  CHECK(running.batches == 41);
  CHECK(running.least == 3);
  CHECK(running.gradients == 2);
  const double part = 0.01 / (1 - std::pow(0.99, 11));
  for (std::size_t k = 0; k < kHidden; ++k) {
    const double own = 2 + part * (high[k] - 2.0);
    CHECK(running.values[k] == doctest::Approx((30 * 2 + 11 * own) / 41).epsilon(1e-5));
  }
  // A mean that counts as 10⁻³ is counted, each time.
  std::fill(theta.begin(), theta.end(), 0.0f);
  source.gradient(theta.data(), one.view, g.data(), *b, kGoOn);
  CHECK(source.running()->least == 3 + kHidden);
}

TEST_CASE("whoever reads averages while workers write them sees whole ones") {
  // Of one column of ones and of twos by turns, all features have the same mean at each moment.
  const std::vector<Node> nodes = {{{"input", {{"features", kFeatures}}}, {}},
                                   {{"data_norm"}, {0}},
                                   {{"dense", {{"outputs", 1}}}, {1}}};
  const Graph graph(nodes, {});
  const leashed::TrackedSource source(graph, 2, {});
  const std::vector<float> theta(graph.dimension(), 0.5f);
  Data ones(4), twos(4);
  std::fill(ones.x.begin(), ones.x.end(), 1.0f);
  std::fill(twos.x.begin(), twos.x.end(), 2.0f);
  std::atomic<bool> stop{false};
  const auto work = [&] {
    std::vector<float> g(theta.size());
    const auto workspace = source.make_workspace();
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      source.gradient(theta.data(), (i % 2 ? twos : ones).view, g.data(), *workspace, kGoOn);
    }
  };
  std::thread first(work), second(work);
  for (int i = 0; i < 2000; ++i) {
    const auto running = *source.running();
    for (const float value : running.values) CHECK(value == running.values[0]);
  }
  stop.store(true);
  first.join();
  second.join();
}

}  // namespace
