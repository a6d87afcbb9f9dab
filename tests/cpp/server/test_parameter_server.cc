// Updates that are made in parts, by whoever is there, beside one over the whole vector.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "leashed/server/parameter_server.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

constexpr std::uint32_t kWorkers = 3;
constexpr int kRounds = 4;

std::vector<float> drawn(std::mt19937& random, std::size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

class Grants final : public Sink {
 public:
  void grant(Grant grant) override { granted[grant.node] = std::move(grant); }
  void wake(Time) override {}
  void meet(std::span<const Node>, Node) override {}
  void end(Node) override {}
  void settled(Node, const Publication& publication) override { became.push_back(publication); }
  void working(std::size_t parts) override { asked += parts; }

  Grant granted[kWorkers];
  std::vector<Publication> became;
  std::size_t asked = 0;
};

// Of two parameters that begin at 0, without rows.
struct Served {
  explicit Served(const Choice& mode, const Choice& rule_of = {"sgd", {{"lr", 1}}},
                  const Choice& staleness_of = {"none"})
      : rule(make_rule(rule_of)),
        staleness(make_staleness(staleness_of)),
        server(make_server_policy(with_job(mode)), {initial, 2, kWorkers, 1, *rule, *staleness}) {}

  static Choice with_job(Choice mode) {
    mode.settings.insert({{"workers", kWorkers}, {"batch", 7}});
    return mode;
  }
  void pull(Node node) { server.handle({Event::Kind::pull, node}, nullptr, {0}, sink); }
  void push(Node node, std::uint64_t ticket, float first, float second,
            std::uint64_t examples = 7) {
    AlignedArray<float> sent(2);
    sent[0] = first;
    sent[1] = second;
    const Payload payload{&sent, examples};
    server.handle({Event::Kind::push, node, ticket}, &payload, {0}, sink);
  }
  void push(Node node, float first, float second) {
    push(node, sink.granted[node].lease.ticket, first, second);
  }
  void check(double first, double second) {
    const ParameterVector::Pin latest = server.holder().pull();
    CHECK(latest.data()[0] == doctest::Approx(first).epsilon(1e-5));
    CHECK(latest.data()[1] == doctest::Approx(second).epsilon(1e-5));
  }

  const float initial[2] = {0, 0};
  const std::unique_ptr<const Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  ParameterServer server;
  Grants sink;
};

const std::vector<Choice> kRules = {
    {"sgd", {{"lr", 0.1}}},
    {"momentum", {{"lr", 0.1}, {"momentum", 0.9}}},
    {"adam", {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"clip_norm", 1}}},
    {"nesterov", {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}, {"clip_value", 0.5}}},
};

}  // namespace

TEST_CASE("an update in parts has the bits of a whole one, whoever helps") {
  for (const Choice& choice : kRules) {
    for (const std::size_t dimension : {1u, 8191u, 8192u, 8193u, 40011u}) {
      CAPTURE(choice.name);
      CAPTURE(dimension);
      std::mt19937 random(5);
      const auto rule = make_rule(choice);
      const std::vector<float> initial = drawn(random, dimension);
      const DisciplineContext context{initial.data(), dimension, kWorkers, 1, *rule};
      ParameterServer server(
          make_server_policy({"sync", {{"workers", kWorkers}, {"batch", 1}, {"examples", 0}}}),
          context);
      const Updater updater(context);
      AlignedArray<float> wanted = updater.initial(context);
      Grants sink;
      std::int64_t time = 0;
      for (Node node = 0; node < kWorkers; ++node) {
        server.handle({Event::Kind::pull, node}, nullptr, {++time}, sink);
      }
      std::atomic<bool> over{false};
      std::vector<std::jthread> helpers;
      for (int h = 0; h < 2; ++h) {
        helpers.emplace_back([&] {
          while (!over.load(std::memory_order_relaxed)) server.work().help();
        });
      }
      for (int round = 0; round < kRounds; ++round) {
        std::vector<std::vector<float>> gradients;
        std::vector<const float*> vectors;
        for (Node node = 0; node < kWorkers; ++node) {
          gradients.push_back(drawn(random, dimension));
          vectors.push_back(gradients.back().data());
        }
        std::vector<float> mean(dimension);
        update_kernels().mean(mean.data(), vectors.data(), kWorkers, 0, dimension);
        const GradientPiece whole{mean.data(), 0, dimension};
        updater.apply(wanted.data(), wanted.data(), {&whole, 1},
                      {static_cast<std::uint64_t>(round), {1}, updater.clip_factor({&whole, 1})});
        for (Node node = 0; node < kWorkers; ++node) {
          AlignedArray<float> sent(dimension);
          std::copy_n(gradients[node].data(), dimension, sent.data());
          const Payload payload{&sent, 1};
          sink.granted[node].pulled.release();
          const std::uint64_t ticket = sink.granted[node].lease.ticket;
          server.handle({Event::Kind::push, node, ticket}, &payload, {++time}, sink);
        }
        for (Node node = 0; node < kWorkers; ++node) {
          server.handle({Event::Kind::pull, node}, nullptr, {++time}, sink);
        }
        const ParameterVector::Pin latest = server.holder().pull();
        CHECK(latest.t() == static_cast<std::uint64_t>(round) + 1);
        CHECK(std::equal(wanted.data(), wanted.data() + dimension, latest.data()));
      }
      over.store(true, std::memory_order_relaxed);
      CHECK((sink.asked > 0) == (dimension > 8192));
    }
  }
}

TEST_CASE("a push is as stale as what was granted to it, whatever its worker says") {
  Served s({"asp"});
  for (Node node = 0; node < kWorkers; ++node) s.pull(node);
  for (Node node = 0; node < kWorkers; ++node) s.push(node, 1, 0);
  REQUIRE(s.sink.became.size() == kWorkers);
  for (Node node = 0; node < kWorkers; ++node) {
    CHECK(s.sink.became[node].staleness_compute == node);
  }
}

TEST_CASE("a push that comes twice is late the second time, and changes nothing of the first") {
  for (const double b2 : {1, 2}) {
    CAPTURE(b2);
    Served s({"bsp", {{"b2", b2}}});
    s.pull(0);
    s.pull(1);
    const std::uint64_t ticket = s.sink.granted[0].lease.ticket;
    s.push(0, ticket, 2, 4);
    s.push(0, ticket, 100, 100, 3);
    CHECK(s.server.counts().late == 3);
    s.push(1, 2, 4);
    CHECK(s.server.counts().applied == 14);
    CHECK(s.server.counts().worker_kept == std::vector<std::uint64_t>{1, 1, 0});
    b2 == 1 ? s.check(-4, -8) : s.check(-2, -4);
  }
}

TEST_CASE("who was granted nothing has nothing to push, and is not counted among the workers") {
  for (const Choice& mode : {Choice{"asp"}, Choice{"swarm", {{"h", 1}}}}) {
    CAPTURE(mode.name);
    Served s(mode);
    s.pull(0);
    s.push(kMostNodes - 1, 1, 1, 1);
    s.push(1, 1, 1, 1);
    CHECK(s.server.counts().late == 14);
    CHECK(s.server.counts().worker_examples.size() == kWorkers);
    CHECK(s.server.counts().worker_kept == std::vector<std::uint64_t>{0, 0, 0});
    s.check(0, 0);
  }
}

// One that is stale by one update, at half its size, and with it as many as there are to be.
TEST_CASE("clipping comes before damping, of one gradient and of the mean of several") {
  for (const double b2 : {1, 2}) {
    for (const auto& [clip, first, second] :
         {std::tuple{"clip_norm", 0.3, 0.4}, {"clip_value", 0.5, 0.5}}) {
      CAPTURE(b2);
      CAPTURE(clip);
      Served s({"bsp", {{"b2", b2}}}, {"sgd", {{"lr", 1}, {clip, 1}}}, {"power", {{"k", 1}}});
      s.pull(0);
      s.pull(1);
      for (int i = 0; i < b2; ++i) {  // an update of nothing
        s.pull(2);
        s.push(2, 0, 0);
      }
      s.push(0, 3, 4);
      if (b2 == 2) s.push(1, 3, 4);
      s.check(-first, -second);
    }
  }
  // Of a fresh and a stale one the mean has weights 1 and ½, and is damped by ¾.
  Served s({"bsp", {{"b2", 2}}}, {"sgd", {{"lr", 1}, {"clip_norm", 1}}}, {"power", {{"k", 1}}});
  s.pull(0);
  for (int i = 0; i < 2; ++i) {
    s.pull(2);
    s.push(2, 0, 0);
  }
  s.pull(1);
  s.push(0, 3, 0);
  s.push(1, 0, 2);
  s.check(-0.45, -0.6);  // (1, 4/3), whose norm is 5/3
}

TEST_CASE(
    "a mean over m is over m whatever a policy leaves out, and a mean over those kept is not") {
  for (const double by_m : {0, 1}) {
    CAPTURE(by_m);
    Served s({"gba", {{"m", 2}, {"iota", 1000}, {"divide_by_m", by_m}}}, {"sgd", {{"lr", 1}}},
             {"cutoff", {{"iota", 0}}});
    s.pull(0);
    for (int i = 0; i < 2; ++i) {
      s.pull(2);
      s.push(2, 0, 0);
    }
    s.pull(1);
    s.push(0, 100, 100);
    s.push(1, 2, 4);
    by_m == 1 ? s.check(-1, -2) : s.check(-2, -4);
    CHECK(s.sink.became.back().published);
  }
}
