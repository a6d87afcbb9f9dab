// An update's two steps taken apart: one thread plays many workers, and time passes in between.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "leashed/discipline/leashed.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kDimension = 20;
using Update = LeashedUpdate<ParameterVector>;

// A worker as it would be told by a plain reading of Algorithm 3.
struct Played {
  std::optional<Update> update;
  bool has_view = false, loaded = false;
  std::uint64_t t_read = 0, t_entry = 0, t_loaded = 0, tries = 0;
  std::vector<float> gradient;
};

}  // namespace

TEST_CASE("workers played by one thread publish, lose and drop as threads would") {
  constexpr std::size_t kWorkers = 6, kReaders = 2;
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const auto staleness = make_staleness({"power", {{"k", 1}}});
  for (const std::uint64_t persistence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    CAPTURE(persistence);
    LeashedSgd discipline({initial.data(), kDimension, kWorkers, kReaders, *rule, *staleness},
                          persistence);
    std::vector<Played> workers(kWorkers);
    std::vector<std::unique_ptr<Held>> held(kReaders);
    std::mt19937 random(7);
    std::uint64_t t = 0, published = 0, lost = 0, dropped = 0;
    double theta = 0;
    for (int i = 0; i < 5000; ++i) {
      if (i % 17 == 0) {  // the monitor and a view of the user's, which last
        auto& one = held[random() % kReaders];
        one.reset();
        one = discipline.hold();
        CHECK(one->view.t == t);
      }
      const std::size_t id = random() % kWorkers;
      Played& worker = workers[id];
      if (!worker.update && !worker.has_view) {
        const View view = discipline.read(id);
        CHECK(view.t == t);
        CHECK(double{view.theta[0]} == doctest::Approx(theta));
        worker.t_read = t;
        worker.has_view = true;
      } else if (!worker.update) {
        worker.has_view = false;
        worker.gradient.assign(kDimension, -static_cast<float>(id + 1));
        worker.update.emplace(discipline.begin(id, worker.gradient.data()));
        worker.tries = 0;
      } else if (!worker.loaded) {
        CHECK(worker.update->load());
        if (worker.tries == 0) worker.t_entry = t;
        worker.t_loaded = t;
        worker.loaded = true;
      } else {
        worker.loaded = false;
        const Update::Outcome outcome = worker.update->commit();
        if (worker.t_loaded == t) {
          REQUIRE(outcome == Update::Outcome::published);
          const Publication& result = worker.update->result();
          const double tau = static_cast<double>(t - worker.t_read);
          CHECK(result.published);
          CHECK(result.t == t);
          CHECK(result.factor == 1 / (tau + 1));
          CHECK(result.staleness_compute == worker.t_entry - worker.t_read);
          CHECK(result.staleness_schedule == t - worker.t_entry);
          CHECK(result.tries == worker.tries);
          theta += result.factor * static_cast<double>(id + 1);
          ++t;
          ++published;
          worker.update.reset();
        } else if (++worker.tries <= persistence) {
          REQUIRE(outcome == Update::Outcome::lost);
          ++lost;
        } else {
          REQUIRE(outcome == Update::Outcome::dropped);
          CHECK_FALSE(worker.update->result().published);
          CHECK(worker.update->result().tries == persistence + 1);
          ++dropped;
          worker.update.reset();
        }
      }
      CHECK(discipline.live_vectors() <= 2 * kWorkers + kReaders);
    }
    CHECK(discipline.peak_vectors() <= 2 * kWorkers + kReaders);
    CHECK(published > 300);
    CHECK((lost > 0) == (persistence > 0));
    CHECK((dropped > 0) == (persistence < 9));
    discipline.with_snapshot([&](const float* values, std::uint64_t version) {
      CHECK(version == published);
      for (std::size_t j = 0; j < kDimension; ++j)
        CHECK(double{values[j]} == doctest::Approx(theta));
    });
  }
}

TEST_CASE("what the policy excludes is over at its load, and gives its draft and pin back") {
  const std::vector<float> initial(kDimension, 0.0f);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const auto cutoff = make_staleness({"cutoff", {{"iota", 0}}});
  LeashedSgd discipline({initial.data(), kDimension, 2, 0, *rule, *cutoff}, 0);
  std::vector<float> gradient(kDimension, -1.0f);
  discipline.read(0);
  discipline.read(1);
  CHECK(discipline.publish(0, gradient.data()).published);
  {
    auto update = discipline.begin(1, gradient.data());
    CHECK_FALSE(update.load());
    CHECK(update.result().excluded);
    CHECK(update.result().t == 1);
    CHECK(update.result().factor == 0);
  }
  CHECK(discipline.live_vectors() == 1);
}
