// Engines whose threads come and go, kept together by a shadow thread or by those threads.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cluster/rings.h"
#include "leashed/backend/engine.h"
#include "leashed/cluster/trainer_sync.h"
#include "sanitized.h"

using namespace leashed;

namespace {

const std::size_t kEach = sanitized() ? 60 : 400;
constexpr std::size_t kLength = 1500, kWorkers = 3;
const std::vector<float> kZeros(kLength, 0.0f), kOnes(kLength, 1.0f);
const GradientPiece kWhole{kOnes.data(), 0, kLength};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<Choice> kDisciplines = {{"sequential"},
                                          {"locked"},
                                          {"hogwild", {{"copy", 1}}},
                                          {"hogwild", {{"copy", 0}}},
                                          {"leashed", {{"persistence", kInfinity}}}};
const Pace kPaces[] = {{Pace::Kind::background, {}, {}}, {Pace::Kind::iterations, {0}, {3}}};

std::shared_ptr<TrainerSync> synchronisation(const Choice& machine, const Pace& pace,
                                             std::size_t workers, double timeout,
                                             const CustomMix& custom = {}) {
  return make_trainer_sync(
      {make_synchroniser(machine), pace, kLength,
       std::vector<std::uint32_t>(fragments_of(kLength), 0), 1, 1, timeout, custom},
      workers);
}

std::unique_ptr<Engine> make(const Choice& discipline, std::size_t workers,
                             std::shared_ptr<TrainerSync> others, std::size_t readers = 8) {
  Engine::Parts parts{discipline, {"sgd", {{"lr", 1}}}, {"none"}, workers, readers};
  parts.synchronisation = std::move(others);
  auto engine = std::make_unique<Engine>(kZeros.data(), kLength, parts);
  engine->begin([] { return true; });
  return engine;
}

void step(Engine& engine) {
  engine.hold();
  engine.push({&kWhole, 1});
}

void pair_up(TrainerSync& one, TrainerSync& other) {
  auto both = rings(1, {true, true});
  one.ring().form(std::move(both[0]));
  other.ring().form(std::move(both[1]));
}

void alone(TrainerSync& sync) { sync.ring().form({1, 0, {true}, nullptr}); }

std::uint64_t rounds(TrainerSync& sync) {
  return sync.counters().rounds.load(std::memory_order_relaxed);
}

}  // namespace

TEST_CASE("two engines stay together while their threads come and go, and views are held") {
  for (const Pace& pace : kPaces) {
    for (const Choice& discipline : kDisciplines) {
      CAPTURE(discipline.name);
      const std::size_t workers = discipline.name == "sequential" ? 1 : kWorkers;
      std::shared_ptr<TrainerSync> syncs[2];
      std::unique_ptr<Engine> engines[2];
      for (auto& sync : syncs)
        sync = synchronisation({"ma", {{"alpha", 0.5}}}, pace, workers, kLong);
      pair_up(*syncs[0], *syncs[1]);
      for (int i = 0; i < 2; ++i) engines[i] = make(discipline, workers, syncs[i]);
      std::vector<std::unique_ptr<Held>> kept;  // as many as there may be
      for (int i = 0; i < 8; ++i) kept.push_back(engines[0]->hold());
      CHECK_THROWS_AS(engines[0]->hold(), std::runtime_error);
      const std::uint64_t t = 0;
      const auto trainer = [&](int i) {
        for (int wave = 0; wave < 2; ++wave) {
          std::vector<std::jthread> threads;
          for (std::size_t worker = 0; worker < workers; ++worker) {
            threads.emplace_back([&engine = *engines[i], &t] {
              for (std::size_t k = 0; k < kEach; ++k) engine.push({&kWhole, 1}, &t);
            });
          }
        }
        engines[i]->close();  // the other goes on without this one
      };
      {
        std::jthread other(trainer, 1);
        trainer(0);
      }
      for (int i = 0; i < 2; ++i) {
        CHECK(engines[i]->t() == 2 * workers * kEach);
        CHECK(engines[i]->counters().published == 2 * workers * kEach);
        if (pace.kind == Pace::Kind::iterations) CHECK(rounds(*syncs[i]) > 0);
        CHECK_THROWS_WITH(engines[i]->hold(), "this engine is closed; make another");
        engines[i]->close();
      }
    }
  }
}

TEST_CASE("a thread that does other things between its pushes holds no round up for good") {
  const auto sync = synchronisation({"ma", {{"alpha", 1}}}, kPaces[1], 2, 0.1);
  alone(*sync);
  const auto engine = make({"locked"}, 2, sync);
  step(*engine);  // this one has a place, and does nothing more
  std::jthread([&] {
    for (int i = 0; i < 30; ++i) step(*engine);
  }).join();
  CHECK(rounds(*sync) >= 10);
  // It is one of them again at its next push, and the other, which has ended, is not.
  for (int i = 0; i < 30; ++i) step(*engine);
  CHECK(rounds(*sync) >= 20);
}

TEST_CASE("while all threads wait for batches, the others' rounds go on") {
  const auto sync = synchronisation({"ma", {{"alpha", 1}}}, kPaces[1], 2, kLong);
  const auto partner = synchronisation({"ma", {{"alpha", 1}}}, kPaces[1], 1, kLong);
  pair_up(*sync, *partner);
  const auto engine = make({"leashed", {{"persistence", kInfinity}}}, 2, sync);
  const auto other = make({"locked"}, 1, partner);
  Leases leases;
  std::atomic<int> trained{0};
  const auto loop = [&] {
    std::uint64_t j, k;
    for (;;) {
      const Leases::Claim claim = engine->take(leases, 0.01, j, k);
      if (claim == Leases::Claim::none) return;
      if (claim == Leases::Claim::waiting) continue;
      CHECK(k >= 100);
      step(*engine);
      leases.use(j);
      ++trained;
    }
  };
  std::atomic<bool> enough{false};
  std::jthread one(loop), two(loop), third([&] {
    while (!enough) step(*other);
    other->close();
  });
  leases.give({1, 100, 10});
  CHECK(comes_true([&] { return trained == 10; }));
  const std::uint64_t before = rounds(*sync);
  CHECK(comes_true([&] { return rounds(*sync) > before + 5; }));
  leases.give({2, 200, 10});
  CHECK(comes_true([&] { return trained == 20; }));
  enough = true;
  third.join();
  leases.end(0);
  one.join();
  two.join();
  CHECK(leases.left() == 0);
  CHECK(leases.used() == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 10}, {2, 10}});
}

TEST_CASE("what a synchroniser throws comes out once, wherever somebody looks first") {
  for (const Pace& pace : kPaces) {
    const CustomMix broken = [](float*, const float*, std::size_t, std::uint32_t) {
      throw std::domain_error("of my own");
    };
    const auto sync = synchronisation({"custom_mean"}, pace, kWorkers, kLong, broken);
    alone(*sync);
    const auto engine = make({"locked"}, kWorkers, sync);
    std::atomic<int> mine{0}, later{0};
    {
      std::vector<std::jthread> threads;
      for (std::size_t worker = 0; worker < kWorkers; ++worker) {
        threads.emplace_back([&] {
          try {
            for (;;) step(*engine);
          } catch (const std::domain_error&) {
            ++mine;
          } catch (const std::runtime_error&) {
            ++later;
          }
        });
      }
    }
    CHECK(mine == 1);
    CHECK(later == kWorkers - 1);
    engine->close();
  }
}

TEST_CASE("closing gives up what waits for a server that hangs, and ends with pushes under way") {
  for (const Pace& pace : kPaces) {
    const auto sync = synchronisation({"easgd", {{"alpha", 0.5}, {"symmetric", 0}}}, pace, kWorkers,
                                      1e6);  // more than this test has
    std::vector<int> hung;
    for (std::size_t slot = 0; slot < sync->slots(); ++slot) {
      const auto [ours, theirs] = pair_of_sockets();
      sync->links(slot).adopt(0, ours, false);
      hung.push_back(theirs);
    }
    Engine::Parts parts{{"locked"}, {"sgd", {{"lr", 1}}}, {"none"}, kWorkers, 8};
    parts.synchronisation = sync;
    Engine engine(kZeros.data(), kLength, parts);
    std::atomic<bool> over{false};
    // What it takes over comes first.
    std::jthread server([&] {
      Connection c(hung[0], kServerLimits, false);
      std::vector<std::byte> payload(1 << 20);
      const FrameHeader asked =
          c.receive([&](const FrameHeader& h) { return std::span(payload.data(), h.length); },
                    Deadline::in(kLong));
      const std::vector<float> w(kLength, 7.0f);
      const std::span<const std::byte> all[] = {std::as_bytes(std::span(w))};
      c.send({.kind = kReply, .correlation = asked.correlation}, all, Deadline::in(kLong));
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it says no more
    });
    engine.begin([] { return true; });
    std::atomic<std::size_t> pushes{0};
    {
      std::vector<std::jthread> threads;
      for (std::size_t worker = 0; worker < kWorkers; ++worker) {
        threads.emplace_back([&] {
          try {
            for (;; ++pushes) step(engine);
          } catch (const std::runtime_error&) {  // closed
          }
        });
      }
      // In the foreground each stops in its third.
      CHECK(comes_true([&] { return pushes >= 2 * kWorkers; }));
      engine.close();
    }
    CHECK(engine.t() >= 2 * kWorkers);
    over = true;
    for (std::size_t slot = 1; slot < hung.size(); ++slot) close(hung[slot]);
  }
}

TEST_CASE("an engine that is not closed ends its synchronisation by itself") {
  for (const Pace& pace : kPaces) {
    const auto sync = synchronisation({"ma", {{"alpha", 0.5}}}, pace, 1, kLong);
    alone(*sync);
    std::jthread outlives([&] {
      auto engine = make({"locked"}, 1, sync);
      for (int i = 0; i < 20; ++i) step(*engine);
      engine.reset();
    });
  }
}
