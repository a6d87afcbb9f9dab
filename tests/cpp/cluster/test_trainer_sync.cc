// Synchronisation of trainings that run: in the background and by the workers, under every
// discipline, and however it ends.
#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cluster/rings.h"
#include "leashed/base/clock.h"
#include "leashed/base/fault.h"
#include "leashed/cluster/sync_server.h"
#include "leashed/cluster/trainer_sync.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;

constexpr std::size_t kDimension = kFragment + 301;  // two fragments
constexpr std::size_t kExamples = 100;
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kUpdates = 40;
#else
constexpr std::uint64_t kUpdates = 200;
#endif

// Towards the mean of the batch's rows, a bit.
class Quadratic : public GradientSource {
 public:
  Quadratic() { describe({.dimension = kDimension, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    if (calls.fetch_add(1, std::memory_order_relaxed) >= slow_from) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    float mean = 0;
    for (std::size_t r = 0; r < batch.size; ++r) mean += batch.rows[r][0];
    mean /= static_cast<float>(batch.size);
    for (std::size_t i = 0; i < kDimension; ++i) {
      gradient[i] = 0.1f * (theta[i] - mean - static_cast<float>(i % 7));
    }
    return 1;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }
  mutable std::atomic<std::uint64_t> calls{0};
  std::uint64_t slow_from = ~std::uint64_t{0};
};

Pace background() { return {}; }
Pace every(double iterations) { return {Pace::Kind::iterations, {0}, {iterations}}; }
Pace seconds(double gap) { return {Pace::Kind::seconds, {0}, {gap}}; }

// Whether there are rounds however short the run is.
bool surely(const Pace& pace) { return pace.kind == Pace::Kind::iterations; }

SyncPlan plan_of(const Choice& machine, const Pace& pace, double timeout = kLong) {
  return {make_synchroniser(machine), pace, kDimension, {0, 1}, 2, 1, timeout};
}
Choice easgd(double alpha) { return {"easgd", {{"alpha", alpha}, {"symmetric", 0}}}; }
Choice ma(double alpha) { return {"ma", {{"alpha", alpha}}}; }
Choice bmuf(double alpha) {
  return {"bmuf", {{"alpha", alpha}, {"eta", 0.5}, {"momentum", 0.5}, {"nesterov", 1}}};
}

// Two servers, of one fragment each.
struct Hosts {
  SyncServer servers[2] = {SyncServer({{0, kFragment}}), SyncServer({{1, 301}})};
  void connect(TrainerSync& sync) {
    for (std::size_t slot = 0; slot < sync.slots(); ++slot) {
      for (std::size_t s = 0; s < 2; ++s) {
        const auto [one, other] = pair_of_sockets();
        servers[s].adopt(one, false);
        sync.links(slot).adopt(s, other, false);
      }
    }
  }
};

void form(const std::vector<TrainerSync*>& all, bool fresh = true) {
  auto made = rings(1, std::vector<bool>(all.size(), fresh));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank]->ring().form(std::move(made[rank]));
  }
}

// Another, of which is known how often theta was transformed.
class Counting final : public Discipline {
 public:
  explicit Counting(std::unique_ptr<Discipline> inner) : inner_(std::move(inner)) {}
  View read(std::size_t worker) override { return inner_->read(worker); }
  Publication publish(std::size_t worker, float* gradient) override {
    return inner_->publish(worker, gradient);
  }
  void withdraw(std::size_t worker) override { inner_->withdraw(worker); }
  bool lockstep() const override { return inner_->lockstep(); }
  bool proceed(std::size_t worker, bool wish) override { return inner_->proceed(worker, wish); }
  void leave(std::size_t worker) override { inner_->leave(worker); }
  void transform(std::size_t begin, std::size_t end, const Transform& f) override {
    transforms.fetch_add(1, std::memory_order_relaxed);
    inner_->transform(begin, end, f);
  }
  void look(float* copy, const std::function<void(const float*)>& f) override {
    inner_->look(copy, f);
  }
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override {
    inner_->with_snapshot(f);
  }
  std::size_t live_vectors() const override { return inner_->live_vectors(); }
  std::size_t peak_vectors() const override { return inner_->peak_vectors(); }

  std::atomic<std::uint64_t> transforms{0};

 private:
  const std::unique_ptr<Discipline> inner_;
};

struct Outcome {
  TrainResult result;
  std::uint64_t transforms;
};

Outcome run(const Quadratic& source, const Choice& choice, std::size_t workers, StopRules until,
            TrainerSync* sync, float from = 0, std::uint64_t seed = 7, Leases* leases = nullptr,
            const TrainCallbacks& callbacks = {}) {
  Vector x(kExamples), initial(kDimension, from);
  for (std::size_t i = 0; i < kExamples; ++i) x[i] = static_cast<float>(i) / kExamples;
  const std::vector<std::int32_t> y(kExamples);
  const auto rule = make_rule({"momentum", {{"lr", 0.1}, {"momentum", 0.5}}});
  DisciplineContext context{initial.data(), kDimension, workers, 1, *rule};
  if (sync) context.synchronisers = sync->threads();
  Counting discipline(make_discipline(choice, context));
  TrainOptions options{workers, 4, seed, until, 1000};
  options.leases = leases;
  options.synchronisation = sync;
  TrainResult result = train(source, {x.data(), y.data(), kExamples, 1}, nullptr, discipline,
                             context, options, callbacks);
  return {std::move(result), discipline.transforms};
}

StopRules updates(std::uint64_t n) {
  StopRules until;
  until.updates = n;
  return until;
}

Choice leashed_unbounded() {
  return {"leashed", {{"persistence", std::numeric_limits<double>::infinity()}}};
}

struct Named {
  Choice discipline;
  std::size_t workers;  // at most
  bool beside = true;   // a shadow thread may change theta while gradients are computed on it
};

std::vector<Named> disciplines() {
  // What computes gradients where theta lies races with who changes it there, as is meant: outside
  // of the kernels that ThreadSanitizer is told of.
#if defined(__SANITIZE_THREAD__)
  constexpr bool kBeside = false;
#else
  constexpr bool kBeside = true;
#endif
  std::vector<Named> all = {{{"sequential"}, 1, kBeside},
                            {{"synchronous"}, 4, kBeside},
                            {{"locked"}, 4},
                            {{"hogwild", {{"copy", 1}}}, 4},
                            {leashed_unbounded(), 4},
                            {{"leashed", {{"persistence", 0}}}, 4}};
#if !defined(__SANITIZE_THREAD__)
  all.push_back({{"hogwild", {{"copy", 0}}}, 4});
#endif
  return all;
}

bool finite(const Vector& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::uint64_t rounds_of(const TrainerSync& sync) { return sync.counters().rounds; }

}  // namespace

// These two are about bits and counts, with one worker each; ThreadSanitizer takes minutes for
// them.
#if !defined(__SANITIZE_THREAD__)

TEST_CASE("with alpha 0 a training has the bits of one that is alone") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    const Vector expected =
        run(Quadratic(), named.discipline, 1, updates(60), nullptr).result.parameters;
    // Else gradients are dropped for it, or computed on what it changes meanwhile.
    const bool whole = named.discipline.name == "locked" ||
                       (named.discipline.name == "leashed" && named.discipline["persistence"] > 0);
    for (const Pace& pace : {every(1), every(7), seconds(0), background()}) {
      if (pace.kind == Pace::Kind::background && !whole) continue;
      for (const bool symmetric : {false, true}) {
        Hosts hosts;
        const auto sync = make_trainer_sync(
            plan_of({"easgd", {{"alpha", 0}, {"symmetric", symmetric ? 1.0 : 0.0}}}, pace), 1);
        hosts.connect(*sync);
        const Outcome with = run(Quadratic(), named.discipline, 1, updates(60), sync.get());
        CHECK(with.result.parameters == expected);
        CHECK(with.result.updates == 60);
      }
      for (const Choice& machine : {ma(0), bmuf(0)}) {
        for (const std::size_t trainers : {1, 2}) {
          std::vector<std::unique_ptr<TrainerSync>> syncs;
          std::vector<TrainerSync*> all;
          for (std::size_t i = 0; i < trainers; ++i) {
            syncs.push_back(make_trainer_sync(plan_of(machine, pace), 1));
            all.push_back(syncs.back().get());
          }
          form(all, false);  // who is new takes the first one's theta, as it is by then
          std::vector<Vector> found(trainers);
          {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < trainers; ++i) {
              threads.emplace_back([&, i] {
                found[i] =
                    run(Quadratic(), named.discipline, 1, updates(60), all[i]).result.parameters;
              });
            }
          }
          for (const Vector& parameters : found) CHECK(parameters == expected);
          if (surely(pace)) CHECK(rounds_of(*all[0]) >= 1);
        }
      }
    }
  }
}

TEST_CASE("a gap of so many iterations is one, and a round is one change of theta and no update") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    for (const std::uint64_t gap : {0, 1, 3, 60, 61}) {
      CAPTURE(gap);
      const std::uint64_t expected = gap == 0 ? 60 : 60 / gap;
      Hosts hosts;
      const auto servers =
          make_trainer_sync(plan_of(easgd(0.5), every(static_cast<double>(gap))), 1);
      hosts.connect(*servers);
      Outcome outcome = run(Quadratic(), named.discipline, 1, updates(60), servers.get());
      CHECK(rounds_of(*servers) == expected);
      CHECK(servers->counters().failed == 0);
      CHECK(outcome.transforms == expected);  // at the beginning there is nothing to take
      CHECK(outcome.result.updates == 60);

      for (const std::size_t workers : {std::size_t{1}, named.workers}) {
        if (workers > 1 && named.discipline.name != "synchronous") continue;
        const auto alone =
            make_trainer_sync(plan_of(ma(0.5), every(static_cast<double>(gap))), workers);
        form({alone.get()});
        outcome = run(Quadratic(), named.discipline, workers, updates(60), alone.get());
        // And a last one, to leave, where there were updates since the one before.
        const std::uint64_t last = 60 % std::max<std::uint64_t>(gap, 1) == 0 ? 0 : 1;
        CHECK(rounds_of(*alone) == expected + last);
        CHECK(outcome.transforms == expected + last);
        CHECK(outcome.result.updates == 60);
      }
    }
  }
}

#endif

TEST_CASE("a gap may change over time") {
  Hosts hosts;
  const auto sync = make_trainer_sync(
      plan_of(easgd(0.5), {Pace::Kind::iterations, {0, 20, 40}, {1, 5, 1000}}), 1);
  hosts.connect(*sync);
  run(Quadratic(), {"locked"}, 1, updates(60), sync.get());
  CHECK(rounds_of(*sync) == 19 + 4);  // after 1 … 19; after 24, 29, 34, 39
}

TEST_CASE("workers, shadow thread and servers at once, under every discipline") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    for (const Pace& pace : {background(), every(2), seconds(1e-4)}) {
      if (pace.kind == Pace::Kind::background && !named.beside) continue;
      Hosts hosts;
      std::vector<std::unique_ptr<TrainerSync>> syncs;
      std::vector<Outcome> found(2);
      for (int i = 0; i < 2; ++i) {
        syncs.push_back(make_trainer_sync(plan_of(easgd(0.3), pace), named.workers));
        hosts.connect(*syncs.back());
      }
      {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
          threads.emplace_back([&, i] {
            found[i] = run(Quadratic(), named.discipline, named.workers, updates(kUpdates),
                           syncs[i].get(), static_cast<float>(i));
          });
        }
      }
      for (std::size_t i = 0; i < 2; ++i) {
        const TrainResult& result = found[i].result;
        CHECK(result.updates == kUpdates);
        CHECK(finite(result.parameters));
        if (surely(pace)) CHECK(rounds_of(*syncs[i]) > 0);
        if (named.discipline.name == "leashed") {  // drafts and pins, and the gradients
          CHECK(result.peak_vectors <= 2 * (named.workers + 1) + 1 + named.workers);
        }
      }
    }
  }
}

TEST_CASE("workers and a ring at once, under every discipline; who ends lets the other go on") {
  for (const Named& named : disciplines()) {
    CAPTURE(named.discipline.name);
    for (const Pace& pace : {background(), every(3), seconds(5e-4)}) {
      if (pace.kind == Pace::Kind::background && !named.beside) continue;
      for (const Choice& machine : {ma(0.5), bmuf(1)}) {
        const double begun = now();
        std::vector<std::unique_ptr<TrainerSync>> syncs;
        for (int i = 0; i < 2; ++i) {
          syncs.push_back(make_trainer_sync(plan_of(machine, pace), named.workers));
        }
        form({syncs[0].get(), syncs[1].get()});
        std::vector<Outcome> found(2);
        {
          std::vector<std::jthread> threads;
          for (std::size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i] {  // the second has more to do
              found[i] =
                  run(Quadratic(), named.discipline, named.workers, updates(kUpdates * (1 + i) / 2),
                      syncs[i].get(), static_cast<float>(i));
            });
          }
        }
        CHECK(now() - begun < kLong);  // nobody waited for a deadline
        for (std::size_t i = 0; i < 2; ++i) {
          CHECK(found[i].result.updates == kUpdates * (1 + i) / 2);
          CHECK(finite(found[i].result.parameters));
          if (surely(pace)) CHECK(rounds_of(*syncs[i]) > 0);
          CHECK(syncs[i]->ring().has_left());
        }
      }
    }
  }
}

TEST_CASE("a trainer takes over what the servers have before it begins") {
  Hosts hosts;
  const auto first = make_trainer_sync(plan_of(easgd(1), every(1)), 1);
  hosts.connect(*first);
  const Vector theta = run(Quadratic(), {"locked"}, 1, updates(50), first.get()).result.parameters;
  for (const std::size_t parts : {1u, 2u, 100u}) {  // there are two fragments
    SyncPlan plan = plan_of(easgd(0), every(1));
    plan.parts = parts;
    const auto late = make_trainer_sync(plan, 1);
    hosts.connect(*late);
    CHECK(run(Quadratic(), {"locked"}, 1, updates(0), late.get(), 9).result.parameters == theta);
    const auto later = make_trainer_sync(plan, 1);
    hosts.connect(*later);
    run(Quadratic(), {"locked"}, 1, updates(30), later.get());
    CHECK(rounds_of(*later) == 30);
    CHECK(later->counters().floats == (parts == 1 ? 30 * kDimension : 15 * kDimension));
  }
}

TEST_CASE("in the background turns of parts go on where they were") {
  Hosts hosts;
  SyncPlan plan = plan_of(easgd(0.5), background());
  plan.parts = 2;
  plan.within = {{.turn = 1001}};
  const auto sync = make_trainer_sync(plan, 1);
  hosts.connect(*sync);
  run(Quadratic(), {"locked"}, 1, updates(50), sync.get());
  REQUIRE(sync->within().size() == 1);
  CHECK(sync->within()[0].turn >= 1001 + rounds_of(*sync));
  CHECK(make_trainer_sync(plan_of(ma(0.5), background()), 1)->within().empty());
}

TEST_CASE("a server that is away, or hangs, keeps no trainer from taking over what others have") {
  Hosts hosts;
  const auto first = make_trainer_sync(plan_of(easgd(1), every(1)), 1);
  hosts.connect(*first);
  const Vector theta = run(Quadratic(), {"locked"}, 1, updates(50), first.get()).result.parameters;
  for (const bool away : {true, false}) {
    CAPTURE(away);
    SyncPlan plan = plan_of(easgd(0), every(1), 1);
    plan.parts = 2;
    const auto late = make_trainer_sync(plan, 1);
    const auto [hung, its] = pair_of_sockets();
    const auto [one, other] = pair_of_sockets();
    if (!away) late->links(0).adopt(0, dup(hung), false);
    hosts.servers[1].adopt(one, false);
    late->links(0).adopt(1, other, false);
    const Vector found =
        run(Quadratic(), {"locked"}, 1, updates(0), late.get(), 9).result.parameters;
    CHECK(found[0] == 9);
    CHECK(std::equal(found.begin() + kFragment, found.end(), theta.begin() + kFragment));
    close(hung);
    close(its);
  }
}

TEST_CASE("of a server that is away fragments lag, and a round that loses one is partial") {
  Hosts hosts;
  const auto sync = make_trainer_sync(plan_of(easgd(0.5), every(1)), 1);
  hosts.connect(*sync);
  const auto [gone, other] = pair_of_sockets();
  close(gone);
  sync->links(0).adopt(0, other, false);
  bool lost = false;
  TrainCallbacks callbacks;
  callbacks.interrupted = [&] {
    const std::uint64_t rounds = rounds_of(*sync);
    if (rounds > 0 && !lost) {
      const auto [gone_too, another] = pair_of_sockets();
      close(gone_too);
      sync->links(0).adopt(0, another, false);
      lost = true;
    }
    return lost && sync->counters().partial > 0;
  };
  run(Quadratic(), {"locked"}, 1, StopRules{}, sync.get(), 0, 7, nullptr, callbacks);
  CHECK(sync->counters().partial == 1);
  // With the exchange before, and perhaps one that was under way when the training ended, which is
  // no round.
  const std::uint64_t more = sync->lag() - rounds_of(*sync);
  CHECK(more >= 1);
  CHECK(more <= 2);
  CHECK(sync->counters().failed == 0);
}

TEST_CASE("a run that is stopped within a round ends soon, and its partner is told") {
  for (const Pace& pace : {every(1), seconds(0), background()}) {
    for (const std::size_t workers : {1, 3}) {
      const auto sync = make_trainer_sync(plan_of(ma(0.5), pace, 1000), workers);
      const auto other = make_trainer_sync(plan_of(ma(0.5), pace, 1000), 1);
      form({sync.get(), other.get()});  // the other never comes
      StopRules until;
      until.seconds = 0.1;
      const double begun = now();
      const TrainResult result = run(Quadratic(), {"locked"}, workers, until, sync.get()).result;
      CHECK(result.reason == StopReason::seconds);
      CHECK(now() - begun < kLong);
      CHECK(rounds_of(*sync) == 0);
      // Who comes now finds nobody, at once.
      CHECK(run(Quadratic(), {"locked"}, 1, updates(20), other.get()).result.updates == 20);
      if (surely(pace)) CHECK(other->counters().failed >= 1);
      CHECK(now() - begun < kLong);
    }
  }
}

TEST_CASE("an exchange that is under way when the training ends has not failed") {
  for (const Pace& pace : {every(1), background()}) {
    Hosts hosts;
    const auto sync = make_trainer_sync(plan_of(easgd(0.5), pace, 1000), 1);
    hosts.connect(*sync);
    std::vector<pollfd> hung;  // servers in place of these, that do not answer
    TrainCallbacks callbacks;
    callbacks.interrupted = [&] {
      for (std::size_t s = hung.size(); s < 2; ++s) {
        const auto [one, other] = pair_of_sockets();
        sync->links(0).adopt(s, one, false);
        hung.push_back({other, POLLIN, 0});
      }
      return poll(hung.data(), hung.size(), 0) == 2;
    };
    const TrainResult result =
        run(Quadratic(), {"locked"}, 1, StopRules{}, sync.get(), 0, 7, nullptr, callbacks).result;
    CHECK(result.reason == StopReason::interrupted);
    CHECK(sync->counters().failed == 0);
    for (const pollfd& each : hung) close(each.fd);
  }
}

TEST_CASE("servers that hang make nobody wait but for the deadline") {
  for (const Pace& pace : {every(30), background()}) {
    const auto sync = make_trainer_sync(plan_of(easgd(0.5), pace, 0.05), 2);
    std::vector<int> hung;
    for (std::size_t slot = 0; slot < sync->slots(); ++slot) {
      for (std::size_t s = 0; s < 2; ++s) {
        const auto [one, other] = pair_of_sockets();
        sync->links(slot).adopt(s, one, false);
        hung.push_back(other);
      }
    }
    const Outcome outcome = run(Quadratic(), {"locked"}, 2, updates(100), sync.get());
    CHECK(outcome.result.updates == 100);
    CHECK(outcome.transforms == 0);
    CHECK(rounds_of(*sync) == 0);
    CHECK(sync->links(0).missing(0));
    for (const int socket : hung) close(socket);
  }
}

TEST_CASE("an exception of a synchroniser from outside comes out of train, and nobody hangs") {
  for (const bool servers : {true, false}) {
    for (const Pace& pace : {every(2), seconds(0), background()}) {
      for (const Choice& choice : {Choice{"locked"}, Choice{"synchronous"}, leashed_unbounded()}) {
#if defined(__SANITIZE_THREAD__)
        if (pace.kind == Pace::Kind::background && choice.name == "synchronous") continue;
#endif
        CAPTURE(choice.name);
        SyncPlan plan =
            plan_of({servers ? "custom_servers" : "custom_mean", {{"alpha", 0.5}}}, pace);
        std::atomic<int> calls{0};
        plan.custom = [&calls](float*, const float*, std::size_t, std::uint32_t) {
          if (calls.fetch_add(1) == 3) throw std::runtime_error("mine");
        };
        const auto sync = make_trainer_sync(plan, 4);
        Hosts hosts;
        if (servers) {
          hosts.connect(*sync);
        } else {
          form({sync.get()});
        }
        const double begun = now();
        CHECK_THROWS_WITH_AS(run(Quadratic(), choice, 4, StopRules{}, sync.get()), "mine",
                             std::runtime_error);
        CHECK(now() - begun < kLong);
        CHECK(sync->ring().has_left());
      }
    }
  }
}

TEST_CASE("a worker that throws while the others are in a round ends the run") {
  class Throwing final : public GradientSource {
   public:
    Throwing() { describe({.dimension = kDimension, .features = 1}); }
    std::unique_ptr<Workspace> make_workspace() const override {
      return std::make_unique<Workspace>();
    }
    float gradient(const float*, const BatchView&, float* gradient, Workspace&,
                   const std::atomic<bool>&) const override {
      if (calls.fetch_add(1) == 11) throw std::runtime_error("boom");
      std::fill_n(gradient, kDimension, 0.0f);
      return 1;
    }
    Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
      return {1, 0, batch.size};
    }
    mutable std::atomic<int> calls{0};
  };
  for (const Choice& choice : {Choice{"locked"}, Choice{"synchronous"}}) {
    const auto sync = make_trainer_sync(plan_of(ma(0.5), every(1), 1000), 4);
    form({sync.get()});
    const Throwing source;
    Vector x(kExamples), initial(kDimension);
    const std::vector<std::int32_t> y(kExamples);
    const auto rule = make_rule({"sgd", {{"lr", 1}}});
    DisciplineContext context{initial.data(), kDimension, 4, 1, *rule};
    context.synchronisers = sync->threads();
    const auto discipline = make_discipline(choice, context);
    TrainOptions options{4, 4, 7, {}, 1000};
    options.synchronisation = sync.get();
    CHECK_THROWS_WITH_AS(train(source, {x.data(), y.data(), kExamples, 1}, nullptr, *discipline,
                               context, options, {}),
                         "boom", std::runtime_error);
    CHECK(sync->ring().has_left());
  }
}

TEST_CASE("what was made for another training is an error, and so is a second one") {
  const auto few = make_trainer_sync(plan_of(easgd(0.5), every(1)), 2);
  CHECK_THROWS_WITH_AS(run(Quadratic(), {"locked"}, 3, updates(1), few.get()),
                       "there are 3 workers, and what synchronises them is made for 2", Error);
  for (const Pace& pace : {every(1), background()}) {
    SyncPlan plan = plan_of(ma(0.5), pace);
    plan.dimension += 1;
    const auto large = make_trainer_sync(plan, 1);
    CHECK_THROWS_WITH_AS(run(Quadratic(), {"locked"}, 1, updates(1), large.get()),
                         doctest::Contains("parameters, and what synchronises it"), Error);
    const auto once = make_trainer_sync(plan_of(ma(0.5), pace), 1);
    form({once.get()});  // which it waits for
    CHECK(run(Quadratic(), {"locked"}, 1, updates(5), once.get()).result.updates == 5);
    CHECK_THROWS_AS(run(Quadratic(), {"locked"}, 1, updates(5), once.get()), Error);
  }
}

TEST_CASE("threads that cannot be started end the run, and its partner is told") {
  static int threads_left;
  for (const Pace& pace : {every(1), background()}) {
    for (int given = 0; given < (pace.kind == Pace::Kind::background ? 3 : 2); ++given) {
      const auto sync = make_trainer_sync(plan_of(ma(0.5), pace, 1000), 2);
      const auto other = make_trainer_sync(plan_of(ma(0.5), pace, 1000), 1);
      form({sync.get(), other.get()});
      threads_left = given;
      fault_hook = [](const char* step) {
        if (std::string_view(step) == "start a thread" && threads_left-- <= 0) {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }
      };
      CHECK_THROWS(run(Quadratic(), {"locked"}, 2, updates(10), sync.get()));
      fault_hook = nullptr;
      const double begun = now();
      CHECK(run(Quadratic(), {"locked"}, 1, updates(10), other.get()).result.updates == 10);
      CHECK(now() - begun < kLong);
    }
  }
}

TEST_CASE("workers that wait for a lease let rounds go on, and end with their leases") {
  for (const Choice& choice : {Choice{"locked"}, Choice{"synchronous"}, leashed_unbounded()}) {
    CAPTURE(choice.name);
    std::vector<std::unique_ptr<TrainerSync>> syncs;
    for (int i = 0; i < 2; ++i) syncs.push_back(make_trainer_sync(plan_of(ma(0.5), every(2)), 3));
    form({syncs[0].get(), syncs[1].get()});
    Leases leases[2];
    std::vector<Outcome> found(2);
    std::atomic<bool> over{false};
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
          found[i] = run(Quadratic(), choice, 3, StopRules{}, syncs[i].get(), 0, 7, &leases[i]);
        });
      }
      // The first has all at once, and the second little, late.
      leases[0].give({0, 0, 150});
      leases[0].end(300);
      for (std::uint64_t ticket = 0; ticket < 5; ++ticket) {
        leases[1].give({ticket, 150 + 10 * ticket, 10});
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
      leases[1].end(300);
    }
    CHECK(found[0].result.gradients == 150);
    CHECK(found[1].result.gradients == (choice.name == "synchronous" ? 51 : 50));
    CHECK(rounds_of(*syncs[0]) > 0);
  }
}

// Else block momentum would go on without data.
TEST_CASE("trainers that all wait for a lease have no rounds") {
  const Choice with_momentum = {"bmuf",
                                {{"alpha", 1}, {"eta", 1}, {"momentum", 0.9}, {"nesterov", 0}}};
  for (const Pace& pace : {every(2), Pace{}}) {
    std::vector<std::unique_ptr<TrainerSync>> syncs;
    for (int i = 0; i < 2; ++i) syncs.push_back(make_trainer_sync(plan_of(with_momentum, pace), 1));
    form({syncs[0].get(), syncs[1].get()});
    Leases leases[2];
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
          run(Quadratic(), {"locked"}, 1, StopRules{}, syncs[i].get(), 0, 7, &leases[i]);
        });
        leases[i].give({0, 10 * i, 10});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (Leases& each : leases) each.end(20);
    }
    // Each step leads to one round, at most, and there are those in which they leave.
    for (auto& sync : syncs) CHECK(rounds_of(*sync) <= 20 + 2);
  }
}
