// The loss of a whole dataset, on one thread or several.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include "leashed/base/fault.h"
#include "leashed/engine/evaluator.h"
#include "leashed/model/standardised_source.h"
#include "leashed/model/tracked_source.h"

using namespace leashed;

namespace {

// Loss x[0] of a row, so slow that threads are worth it.
class Slow final : public GradientSource {
 public:
  Slow() { describe({.dimension = 1, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>&) const override {
    return 0;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);
    if (call >= throw_from) throw std::runtime_error("boom");
    Evaluation sum{0, 0, batch.size};
    for (std::size_t i = 0; i < batch.size; ++i) sum.loss_sum += std::sqrt(*batch.rows[i]);
    return sum;
  }

  mutable std::atomic<std::uint64_t> calls{0};  // relaxed: a count
  std::uint64_t throw_from = ~std::uint64_t{0};
};

// Loss of a row: what it is normalised by, which runs on with every question.
class Running final : public GradientSource {
 public:
  Running() { describe({.dimension = 1, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  std::optional<RunningStatistics> running() const override {
    const float asked = static_cast<float>(++questions);
    return RunningStatistics{{asked}, 1};
  }
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>&) const override {
    return 0;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    REQUIRE(batch.statistics);
    return {static_cast<double>(batch.size) * double{*batch.statistics}, 0, batch.size};
  }

  mutable int questions = 0;
};

// Loss x[0] of a row; the stream goes on with each chunk.
class GoingOn final : public GradientSource {
 public:
  explicit GoingOn(StandardNumbers& stream) : stream_(stream) {
    describe({.dimension = 1, .features = 1});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>&) const override {
    return 0;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    Evaluation sum{0, 0, batch.size};
    for (std::size_t i = 0; i < batch.size; ++i) sum.loss_sum += *batch.rows[i];
    stream_.reach(stream_.reached() + 256);
    return sum;
  }

 private:
  StandardNumbers& stream_;
};

struct Data {
  explicit Data(std::size_t rows) : x(rows), y(rows) {
    for (std::size_t i = 0; i < rows; ++i) x[i] = static_cast<float>(i);
  }
  DatasetView view() const { return {x.data(), y.data(), x.size(), 1}; }
  std::vector<float> x;
  std::vector<std::int32_t> y;
};

const float kTheta = 0;

}  // namespace

TEST_CASE("an evaluation has the same bits on any number of threads") {
  const Slow source;
  for (const std::size_t rows : {1u, 256u, 257u, 10'000u}) {
    const Data data(rows);
    const auto expected = Evaluator(source, [] { return true; })(&kTheta, data.view(), 1);
    REQUIRE(expected);
    CHECK(expected->rows == rows);
    for (const std::size_t threads : {2u, 3u, 64u}) {
      Evaluator evaluator(source, [] { return true; });
      for (int again = 0; again < 3; ++again) {
        const auto sum = evaluator(&kTheta, data.view(), threads);
        REQUIRE(sum);
        CHECK(sum->loss_sum == expected->loss_sum);
        CHECK(sum->rows == rows);
      }
    }
  }
}

TEST_CASE("all rows are normalised by what a source averages at one moment") {
  const Running source;
  const Data data(5000);
  Evaluator evaluator(source, [] { return true; });
  for (int k = 1; k <= 3; ++k) CHECK(evaluator(&kTheta, data.view(), 4)->loss_sum == 5000.0 * k);
  const float given = 7;
  const std::span<const float> by(&given, 1);
  CHECK(evaluator(&kTheta, data.view(), 4, 1, nullptr, by)->loss_sum == 5000.0 * 7);
  CHECK(source.questions == 3);
}

TEST_CASE("all rows are standardised by what a stream has come to at one moment") {
  StandardNumbers stream({true}, {});
  std::vector<float> rows(2048);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  stream.add(rows.data(), rows.size());
  const GoingOn inner(stream);
  const StandardisedSource standard(inner, stream);
  const TrackedSource source(standard, 1, {});
  const Data data(1024);
  for (int k = 0; k < 2; ++k) {
    const std::shared_ptr<const NumberScales> by = stream.scales();
    double expected = 0;
    for (const float x : data.x) expected += (double{x} - by->mean[0]) * by->factor[0];
    const auto sum = Evaluator(source, [] { return true; })(&kTheta, data.view(), 1);
    REQUIRE(sum);
    CHECK(sum->loss_sum == doctest::Approx(expected));
    CHECK(stream.scales() != by);
  }
}

TEST_CASE("an evaluation of a part of the rows has every n-th chunk") {
  const Slow source;
  for (const std::size_t rows : {1u, 256u, 257u, 2'049u, 10'000u}) {
    const Data data(rows);
    double expected = 0;
    std::uint64_t counted = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      if (i / 256 % 8 != 0) continue;
      expected += std::sqrt(data.x[i]);
      ++counted;
    }
    for (const std::size_t threads : {1u, 2u}) {
      const auto sum = Evaluator(source, [] { return true; })(&kTheta, data.view(), threads, 8);
      REQUIRE(sum);
      CHECK(sum->rows == counted);
      CHECK(sum->loss_sum == doctest::Approx(expected));
    }
  }
}

TEST_CASE("an evaluation needs no thread that cannot be started") {
  fault_hook = [](const char*) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  const Slow source;
  const Data data(3000);
  const auto sum = Evaluator(source, [] { return true; })(&kTheta, data.view(), 4);
  fault_hook = nullptr;
  REQUIRE(sum);
  CHECK(sum->rows == 3000);
}

TEST_CASE("an evaluation ends early, or with the exception of a thread or of who is asked") {
  const Data data(20'000);
  for (const std::size_t threads : {1u, 2u, 4u}) {
    CAPTURE(threads);
    Slow source;
    int asked = 0;
    CHECK_FALSE(Evaluator(source, [&] { return ++asked < 5; })(&kTheta, data.view(), threads));
    Evaluator throwing(source, [&]() -> bool { throw std::domain_error("enough"); });
    CHECK_THROWS_AS(throwing(&kTheta, data.view(), threads), std::domain_error);
    source.throw_from = source.calls + 10;
    Evaluator failing(source, [] { return true; });
    CHECK_THROWS_WITH_AS(failing(&kTheta, data.view(), threads), "boom", std::runtime_error);
  }
}

namespace {

// The sum of the ids of a row's first feature, as its loss; of its second, as many as are right.
class Ids final : public GradientSource {
 public:
  Ids() {
    describe({.dimension = 1, .features = 1, .tables = {{"one", 4}}, .features_of_tables = {0, 0}});
  }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float*, Workspace&,
                 const std::atomic<bool>&) const override {
    return 0;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    Evaluation sum{0, 0, batch.size};
    for (std::size_t i = 0; i < batch.size; ++i) {
      sum.loss_sum += static_cast<double>(batch.columns[0].ids[i]);
      sum.correct += batch.columns[1].end(i) - batch.columns[1].begin(i);
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("an evaluation brings the ids of all rows") {
  const Data data(1000);
  std::vector<std::uint64_t> ids(1000);
  std::vector<std::int64_t> offsets = {0};
  double sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i * i;
    sum += static_cast<double>(ids[i]);
    offsets.push_back(static_cast<std::int64_t>(i < 500 ? 2 * (i + 1) : 1000));
  }
  const Ids source;
  const std::vector<IdFeature> features = {{ids.data()}, {ids.data(), 1, offsets.data()}};
  DatasetView view = data.view();
  view.ids = features;
  for (const std::size_t threads : {1u, 2u}) {
    const auto total = Evaluator(source, [] { return true; })(&kTheta, view, threads);
    REQUIRE(total);
    CHECK(total->loss_sum == sum);
    CHECK(total->correct == 1000);
  }
}
