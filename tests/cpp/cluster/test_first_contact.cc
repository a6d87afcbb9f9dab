// A trainer whose sync servers come when it trains already: what it was before goes into nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cluster/replica.h"
#include "cluster/wires.h"
#include "leashed/cluster/round.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"
#include "leashed/cluster/trainer_sync.h"
#include "leashed/discipline/registry.h"
#include "leashed/engine/trainer.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;

constexpr std::size_t kDimension = 2 * kFragment + 5;  // three fragments
constexpr float kHeld = 100;                           // by the servers, in all of w
const std::vector<std::uint32_t> kOwner = {0, 1, 0};

// Two servers that have been there for long.
struct Hosts {
  Hosts() {
    servers[0].restore({Vector(kFragment + 5, kHeld), {true, true}, 0});
    servers[1].restore({Vector(kFragment, kHeld), {true}, 0});
  }
  void connect(TrainerSync& sync, std::size_t server) {
    for (std::size_t slot = 0; slot < sync.slots(); ++slot) {
      const auto [one, other] = pair_of_sockets();
      servers[server].adopt(one, false);
      sync.links(slot).adopt(server, other, false);
    }
  }
  // One that is lost at once, so that nobody waits for it before training begins.
  void connect_lost(TrainerSync& sync, std::size_t server) {
    const auto [one, other] = pair_of_sockets();
    close(one);
    sync.links(0).adopt(server, other, false);
  }
  // Whether all that is held is as it was.
  bool untouched() const {
    return std::all_of(std::begin(servers), std::end(servers), [](const SyncServer& server) {
      const Vector values = server.snapshot().values;
      return std::all_of(values.begin(), values.end(), [](float v) { return v == kHeld; });
    });
  }
  SyncServer servers[2] = {SyncServer({{0, kFragment}, {2, 5}}), SyncServer({{1, kFragment}})};
};

// theta moves by nothing but what servers answer.
class Still final : public GradientSource {
 public:
  Still() { describe({.dimension = kDimension, .features = 1}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView&, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    std::fill_n(gradient, kDimension, 0.0f);
    calls.fetch_add(1, std::memory_order_relaxed);
    return 1;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {1, 0, batch.size};
  }
  mutable std::atomic<int> calls{0};
};

// Trains from 0; `over` is asked now and then, once training has begun.
Vector run(TrainerSync& sync, std::size_t workers, const std::function<bool()>& over,
           const Choice& choice = {"locked"}) {
  const Still source;
  const Vector x(10), initial(kDimension);
  const std::vector<std::int32_t> y(10);
  const auto rule = make_rule({"sgd", {{"lr", 1}}});
  DisciplineContext context{initial.data(), kDimension, workers, 1, *rule};
  context.synchronisers = sync.threads();
  const auto discipline = make_discipline(choice, context);
  TrainOptions options{workers, 1, 7, StopRules{}, 1000};
  options.synchronisation = &sync;
  TrainCallbacks callbacks;
  callbacks.interrupted = [&] { return source.calls > 0 && over(); };
  return train(source, {x.data(), y.data(), 10, 1}, nullptr, *discipline, context, options,
               callbacks)
      .parameters;
}

SyncPlan plan_of(const Choice& machine, const Pace& pace, std::size_t parts, Codec codec) {
  return {make_synchroniser(machine), pace, kDimension, kOwner, 2, parts, kLong, {}, codec};
}
Choice easgd(bool symmetric) {
  return {"easgd", {{"alpha", 0.5}, {"symmetric", symmetric ? 1.0 : 0.0}}};
}
const Pace kPaces[] = {{}, {Pace::Kind::iterations, {0}, {1}}};

}  // namespace

TEST_CASE("whenever a server comes, theta becomes what it has, and what theta was goes nowhere") {
  for (const Pace& pace : kPaces) {
    for (const Codec codec : {Codec::none, Codec::int8}) {
      for (const std::size_t parts : {1u, 2u}) {
        for (const bool half : {false, true}) {  // the first server is there from the beginning
          CAPTURE((pace.kind == Pace::Kind::background));
          CAPTURE(static_cast<int>(codec));
          CAPTURE(parts);
          CAPTURE(half);
          Hosts hosts;
          const auto sync = make_trainer_sync(plan_of(easgd(half), pace, parts, codec), 3);
          half ? hosts.connect(*sync, 0) : hosts.connect_lost(*sync, 0);
          hosts.connect_lost(*sync, 1);
          bool came = false;
          const auto over = [&] {
            if (!came) {
              if (!half) hosts.connect(*sync, 0);
              hosts.connect(*sync, 1);
              came = true;
            }
            return hosts.servers[0].counters().exchanges >= 30 &&
                   hosts.servers[1].counters().exchanges >= 20;
          };
          // (Under Hogwild a worker may write what it has read before.)
          const Choice leashed_one = {"leashed",
                                      {{"persistence", std::numeric_limits<double>::infinity()}}};
          const Vector theta = run(*sync, 3, over, parts == 1 ? Choice{"locked"} : leashed_one);
          CHECK(hosts.untouched());
          CHECK(theta == Vector(kDimension, kHeld));
          CHECK(sync->counters().rounds > 0);
          CHECK(sync->counters().failed == 0);
        }
      }
    }
  }
}

TEST_CASE("one from outside has no part in a first contact, and all of what comes after it") {
  for (const Pace& pace : kPaces) {
    Hosts hosts;
    SyncPlan plan = plan_of({"custom_servers", {{"alpha", 0.5}}}, pace, 1, Codec::none);
    std::atomic<int> calls{0}, strange{0};
    plan.custom = [&](float* theta, const float* other, std::size_t n, std::uint32_t) {
      calls.fetch_add(1);
      for (std::size_t i = 0; i < n; ++i) {
        if (theta[i] != kHeld || other[i] != kHeld) strange.fetch_add(1);
        theta[i] += 0.5f * (other[i] - theta[i]);
      }
    };
    const auto sync = make_trainer_sync(plan, 1);
    for (std::size_t s = 0; s < 2; ++s) hosts.connect_lost(*sync, s);
    bool came = false;
    const Vector theta = run(*sync, 1, [&] {
      for (std::size_t s = 0; s < 2 && !came; ++s) hosts.connect(*sync, s);
      came = true;
      return calls >= 5;
    });
    CHECK(hosts.untouched());
    CHECK(theta == Vector(kDimension, kHeld));
    CHECK(strange == 0);
    CHECK(sync->counters().rounds >= 5);
  }
}

namespace {

struct Links {
  explicit Links(const std::shared_ptr<Standings>& standings)
      : links(kDimension, kOwner, 2, 1, Codec::none, standings) {}
  ~Links() {
    for (const int socket : silent) close(socket);
  }
  void connect(Hosts& hosts) {
    for (std::size_t s = 0; s < 2; ++s) {
      const auto [one, other] = pair_of_sockets();
      hosts.servers[s].adopt(one, false);
      links.adopt(s, other, false);
    }
  }
  // With servers that never answer.
  void connect() {
    for (std::size_t s = 0; s < 2; ++s) {
      const auto [one, other] = pair_of_sockets();
      silent.push_back(one);
      links.adopt(s, other, false);
    }
  }
  bool exchange(const Deadline& deadline) {
    const Vector theta(kDimension);
    first.clear();
    return links.exchange(theta.data(), 0.5f, false, done, first, deadline);
  }
  ServerLinks links;
  Covered done, first;
  std::vector<int> silent;
};

}  // namespace

TEST_CASE("one thread of a trainer makes a first contact, and where it fails another does") {
  Hosts hosts;
  const auto standings = std::make_shared<Standings>(2, 3);
  Links one(standings), other(standings);
  one.connect();
  other.connect();
  CHECK(one.links.begin(0));
  CHECK_FALSE(other.links.begin(0));  // nothing, for now
  std::atomic<bool> cancelled{true};
  Deadline given_up = Deadline::in(kLong);
  given_up.cancelled = &cancelled;
  one.exchange(given_up);
  one.links.end();
  // Nor does one keep it to itself that ends by an exception.
  CHECK(other.links.begin(0));
  const std::function<bool()> throws = []() -> bool { throw std::runtime_error("mine"); };
  Deadline interrupted = Deadline::in(kLong);
  interrupted.go_on = &throws;
  CHECK_THROWS_AS(other.exchange(interrupted), std::runtime_error);
  CHECK_FALSE(other.links.begin(0));  // it has no connection
  one.connect(hosts);
  CHECK(one.links.begin(0));
  other.connect(hosts);
  CHECK(one.exchange(Deadline::in(kLong)));
  CHECK_FALSE(one.first.empty());
  CHECK_FALSE(other.links.begin(0));  // not before theta has become it
  one.links.end();
  CHECK(hosts.untouched());
  CHECK(other.links.begin(0));
  CHECK(other.exchange(Deadline::in(kLong)));
  CHECK(other.first.empty());
  CHECK_FALSE(hosts.untouched());
}

TEST_CASE("where a server has nothing yet, what is trained while it is given theta stays") {
  bool trained = false;
  // Where the server has answered before anybody asks whether to go on, nothing was.
  for (int tries = 0; tries < 100 && !trained; ++tries) {
    SyncServer server({{0, 5}});
    ServerLinks links(5, {0}, 1, 1);
    const auto [one, two] = pair_of_sockets();
    server.adopt(one, false);
    links.adopt(0, two, false);
    RoundCounters counters;
    const CustomMix none;
    Round round(make_synchroniser(easgd(false)), &links, nullptr, none, 5, counters);
    Replica replica(Vector(5, 1.0f));
    const std::function<bool()> trains = [&] {  // theta has been looked at by now
      if (!std::exchange(trained, true)) replica.set(Vector(5, 3.0f));
      return true;
    };
    Deadline deadline = Deadline::in(kLong);
    deadline.go_on = &trains;
    round.begin(replica.discipline(), 0, deadline);
    CHECK(server.snapshot().values == Vector(5, 1.0f));
    CHECK(replica.theta() == Vector(5, trained ? 3.0f : 1.0f));
  }
  CHECK(trained);
}
