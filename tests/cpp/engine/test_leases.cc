// Batch numbers from outside: claimed and used in any order, waited for, at an end.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "leashed/discipline/registry.h"
#include "leashed/engine/leases.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

using Claim = Leases::Claim;
using Used = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

std::uint64_t claimed(Leases& leases, std::uint64_t j) {
  std::uint64_t k = 0;
  CHECK(leases.claim(j, 0, k) == Claim::given);
  return k;
}

}  // namespace

TEST_CASE("batches are claimed by their place, whatever spans they are in") {
  Leases leases;
  std::uint64_t k = 0;
  CHECK(leases.claim(0, 0, k) == Claim::waiting);
  leases.give({7, 100, 3});
  leases.give({8, 50, 0});
  leases.give({9, 10, 2});
  CHECK(leases.left() == 5);
  CHECK(claimed(leases, 0) == 100);
  CHECK(claimed(leases, 4) == 11);
  CHECK(claimed(leases, 3) == 10);
  CHECK(claimed(leases, 2) == 102);
  CHECK(leases.left() == 0);
  CHECK(claimed(leases, 1) == 101);
  CHECK(leases.claim(5, 0, k) == Claim::waiting);
  CHECK(leases.claim(5, 0.01, k) == Claim::waiting);
  leases.end(1000);
  CHECK(leases.claim(5, 0, k) == Claim::none);
  CHECK(leases.claim(5, 60, k) == Claim::none);
  CHECK(leases.claim_beyond(5, 0, k) == Claim::given);
  CHECK(k == 1000);
  CHECK(leases.claim_beyond(7, 0, k) == Claim::given);
  CHECK(k == 1002);
  CHECK(leases.claim_beyond(4, 0, k) == Claim::given);
  CHECK(k == 11);
}

TEST_CASE("what is used behind a gap is told apart, for when nobody fills it") {
  using Apart = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>;
  Leases leases;
  leases.give({1, 100, 8});
  leases.give({2, 300, 3});
  leases.give({3, 400, 2});
  CHECK(leases.apart().empty());
  for (std::uint64_t j = 0; j < 13; ++j) claimed(leases, j);
  for (const std::uint64_t j : {0, 2, 3, 5, 8, 9, 10}) leases.use(j);
  CHECK(leases.apart() == Apart{{1, 2, 2}, {1, 5, 1}});
  leases.use(12);
  CHECK(leases.apart() == Apart{{1, 2, 2}, {1, 5, 1}, {3, 1, 1}});
  leases.use(1);
  CHECK(leases.used() == Used{{1, 4}, {2, 3}, {3, 0}});
  CHECK(leases.apart() == Apart{{1, 5, 1}, {3, 1, 1}});
  CHECK(leases.astray() == 0);
  leases.revoke();
  CHECK(leases.apart().empty());
  CHECK(leases.astray() == 2);
}

TEST_CASE("what is used of leases that were taken back is told apart, each batch once") {
  Leases leases;
  leases.give({1, 0, 4});
  leases.give({2, 10, 4});
  for (std::uint64_t j = 0; j < 7; ++j) claimed(leases, j);
  for (const std::uint64_t j : {0, 1, 4, 6}) leases.use(j);
  CHECK(leases.used() == Used{{1, 2}, {2, 1}});
  leases.use(2);
  leases.revoke();
  CHECK(leases.astray() == 2);  // 2 and 6
  leases.use(3);
  leases.use(5);
  CHECK(leases.used().empty());
  CHECK(leases.astray() == 4);
  leases.revoke();
  CHECK(leases.astray() == 4);
  leases.give({3, 50, 2});
  CHECK(claimed(leases, 7) == 50);
  leases.use(7);
  CHECK(leases.used() == Used{{3, 1}});
  CHECK(leases.astray() == 4);
  leases.revoke();
  leases.revoke();
  CHECK(leases.astray() == 4);
}

TEST_CASE("what is used counts without a gap, is told once, and is forgotten when it is all") {
  Leases leases;
  leases.give({1, 0, 3});
  leases.give({2, 3, 2});
  leases.give({3, 5, 0});
  CHECK(leases.used() == Used{{1, 0}, {2, 0}, {3, 0}});
  CHECK(leases.used().empty());
  for (std::uint64_t j = 0; j < 5; ++j) claimed(leases, j);
  leases.use(1);
  leases.use(2);
  CHECK(leases.used().empty());  // the first is missing
  leases.use(4);
  leases.use(3);
  CHECK(leases.used() == Used{{2, 2}});
  CHECK(leases.used().empty());
  leases.use(0);
  CHECK(leases.used() == Used{{1, 3}});
  CHECK(leases.used().empty());
  leases.give({4, 100, 1});  // after all that was before is forgotten
  CHECK(claimed(leases, 5) == 100);
  leases.use(5);
  leases.use(6);  // from beyond: counts for nobody
  CHECK(leases.used() == Used{{4, 1}});
  leases.end(0);
  CHECK(leases.used().empty());
}

TEST_CASE("who waits is woken by what comes, and by the end") {
  for (const bool comes : {true, false}) {
    Leases leases;
    std::jthread master([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      comes ? leases.give({1, 42, 1}) : leases.end(0);
    });
    std::uint64_t k = 0;
    CHECK(leases.claim(0, 60, k) == (comes ? Claim::given : Claim::none));
    if (comes) CHECK(k == 42);
  }
}

namespace {

constexpr std::size_t kDimension = 17;

// Adds 1 to theta at each update, and notes the rows that it was given.
class Noting final : public GradientSource {
 public:
  Noting() { describe({.dimension = kDimension, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    std::fill_n(gradient, kDimension, -1.0f);
    const std::lock_guard lock(mutex);
    seen.push_back(batch.rows[0][0]);
    return 1;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }
  mutable std::mutex mutex;
  mutable std::vector<float> seen;
};

constexpr std::size_t kRows = 64;  // one of them a batch

TrainResult train_leased(const Noting& source, Leases& leases, const Choice& choice,
                         std::size_t workers, StopRules until = {},
                         const TrainCallbacks& callbacks = {}) {
  std::vector<float> x(kRows), initial(kDimension);
  for (std::size_t i = 0; i < kRows; ++i) x[i] = static_cast<float>(i);
  const std::vector<std::int32_t> y(kRows);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  const DisciplineContext context{initial.data(), kDimension, workers, 1, *rule};
  const auto discipline = make_discipline(choice, context);
  TrainOptions options{workers, 1, 7, until};
  options.leases = &leases;
  return train(source, {x.data(), y.data(), kRows, 1}, nullptr, *discipline, context, options,
               callbacks);
}

std::vector<Choice> disciplines() {
  return {{"locked"}, {"hogwild", {{"copy", 1}}}, {"leashed", {{"persistence", 1e18}}}};
}

// What of each lease has been told to be used, at last.
Used totals(Used told) {
  std::stable_sort(told.begin(), told.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Used last;
  for (const auto& [ticket, used] : told) {
    if (last.empty() || last.back().first != ticket) last.emplace_back(ticket, 0);
    CHECK(used >= last.back().second);
    last.back().second = used;
  }
  return last;
}

}  // namespace

TEST_CASE("a training makes of its leases what they say, each once, and ends when they do") {
  for (const Choice& choice : disciplines()) {
    CAPTURE(choice.name);
    for (const std::size_t workers : {1, 4}) {
      Leases leases;
      Used told;
      std::jthread master([&] {
        for (std::uint64_t ticket = 0; ticket < 8; ++ticket) {
          // One pass: each row is one batch. From behind; most come when they are waited for.
          leases.give({ticket, (7 - ticket) * 8, 8});
          std::this_thread::sleep_for(std::chrono::milliseconds(ticket % 3));
          for (const auto& one : leases.used()) told.push_back(one);
        }
        leases.end(kRows);
      });
      const Noting source;
      const TrainResult result = train_leased(source, leases, choice, workers);
      master.join();
      for (const auto& one : leases.used()) told.push_back(one);
      CHECK(result.updates == kRows);
      CHECK(result.reason == StopReason::epochs);
      CHECK(leases.left() == 0);
      std::sort(source.seen.begin(), source.seen.end());
      for (std::size_t i = 0; i < kRows; ++i) REQUIRE(source.seen[i] == static_cast<float>(i));
      Used all;
      for (std::uint64_t ticket = 0; ticket < 8; ++ticket) all.emplace_back(ticket, 8);
      CHECK(totals(told) == all);
    }
  }
}

TEST_CASE("in lockstep the last step's other batches come from beyond the run's") {
  Leases leases;
  leases.give({1, 0, 5});
  std::jthread master([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    leases.give({2, 5, 5});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    leases.end(20);
  });
  const Noting source;
  const TrainResult result = train_leased(source, leases, {"synchronous"}, 4);
  CHECK(result.updates == 3);  // whole steps: 12 of 4
  CHECK(result.gradients == 12);
  CHECK(leases.used() == Used{{1, 5}, {2, 5}});
  // The same rows as batches 0 … 9, 20 and 21 of a run without leases.
  Noting alone;
  Leases same;
  same.give({1, 0, 10});
  same.give({2, 20, 2});
  same.end(0);
  train_leased(alone, same, {"locked"}, 1);
  std::sort(source.seen.begin(), source.seen.end());
  std::sort(alone.seen.begin(), alone.seen.end());
  CHECK(source.seen == alone.seen);
}

TEST_CASE("seconds in which a worker waits for its lease are told once") {
  Leases leases;
  leases.give({0, 0, 1});
  std::jthread master([&] {
    for (std::uint64_t step = 0; step < 5; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      // What this step lacks, and the first batch of the next.
      leases.give({step + 1, 4 * step + 1, step < 4 ? 4u : 3u});
    }
    leases.end(20);
  });
  const Noting source;
  const TrainResult result = train_leased(source, leases, {"synchronous"}, 4);
  CHECK(result.gradients == 20);
  CHECK(result.waiting_seconds > 0);
  CHECK(result.waiting_seconds + result.sampling_seconds + result.read_seconds <=
        result.running_seconds);
}

TEST_CASE("who waits for a lease that never comes is stopped as well") {
  for (const Choice& choice :
       {Choice{"locked"}, Choice{"leashed", {{"persistence", 1e18}}}, Choice{"synchronous"}}) {
    CAPTURE(choice.name);
    for (const std::uint64_t given : {0, 1, 6}) {
      Leases leases;
      leases.give({1, 0, given});
      StopRules until;
      until.seconds = 0.1;
      const Noting source;
      const TrainResult result = train_leased(source, leases, choice, 4, until);
      CHECK(result.reason == StopReason::seconds);
      CHECK(result.gradients <= given);
      const Used used = leases.used();
      REQUIRE(used.size() == 1);
      CHECK(used[0].second == result.gradients);
    }
  }
}

TEST_CASE("no lease at all is an end at once") {
  for (const Choice& choice : {Choice{"locked"}, Choice{"synchronous"}}) {
    Leases leases;
    leases.end(100);
    const Noting source;
    const TrainResult result = train_leased(source, leases, choice, 3);
    CHECK(result.updates == 0);
    CHECK(result.reason == StopReason::epochs);
  }
}
