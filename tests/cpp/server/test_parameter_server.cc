// Updates that are made in parts, by whoever is there, beside one over the whole vector.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "leashed/server/parameter_server.h"
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
  void settled(Node, const Publication&) override {}
  void working(std::size_t parts) override { asked += parts; }

  Grant granted[kWorkers];
  std::size_t asked = 0;
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
          const Payload payload{&sent, sink.granted[node].t, 1};
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
