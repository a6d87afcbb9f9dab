// Compressed exchanges with a sync server, and compressed rounds between members: what replicas
// come to, what is counted, and what a new connection begins with.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/rings.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;

constexpr Codec kLossy[] = {Codec::bfloat16, Codec::int8};
constexpr std::size_t kDimension = 2 * kFragment + 1000;  // three fragments, the last a short one

Vector draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Vector values(kDimension);
  for (float& value : values) value = normal(random);
  return values;
}

double distance(const Vector& a, const Vector& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

// What encoding a vector of draw() once leaves of it, at least.
constexpr double kResolution = 2e-3;

std::unique_ptr<SyncServer> make_server() {
  std::vector<SyncServer::Holding> holdings;
  for (std::uint32_t f = 0; f < fragments_of(kDimension); ++f) {
    const auto [begin, end] = fragment(f, kDimension);
    holdings.push_back({f, end - begin});
  }
  return std::make_unique<SyncServer>(holdings);
}

// A trainer's side, and theta.
struct Trainer {
  Trainer(Codec codec, std::uint64_t seed)
      : links(kDimension, std::vector<std::uint32_t>(fragments_of(kDimension)), 1, 1, codec),
        theta(draw(seed)) {}
  void connect(SyncServer& server, bool checked = false) {
    const auto [here, there] = pair_of_sockets();
    links.adopt(0, here, checked, Transport::tcp);
    server.adopt(there, checked, Transport::tcp);
  }
  // How many of the vector's floats have come; a first contact, which theta is to become, alike.
  std::size_t exchange(float alpha, bool old_reply = false) {
    if (!links.begin(0)) return 0;
    Covered done, first;
    links.exchange(theta.data(), alpha, old_reply, done, first, Deadline::in(kLong));
    links.end();
    other.assign(links.other(), links.other() + kDimension);
    std::size_t floats = 0;
    for (const Covered* come : {&done, &first}) {
      come->each(0, kDimension, [&](std::size_t begin, std::size_t end) { floats += end - begin; });
    }
    return floats;
  }
  void mix(float alpha) {
    for (std::size_t i = 0; i < kDimension; ++i) {
      theta[i] = (1 - alpha) * theta[i] + alpha * other[i];
    }
  }
  ServerLinks links;
  Vector theta, other;
};

// What a server does with a first frame: whether it refuses it.
bool refuses(const std::vector<ExchangeHead>& heads, const std::vector<std::size_t>& bytes) {
  const std::unique_ptr<SyncServer> server = make_server();
  const auto [here, there] = pair_of_sockets();
  server->adopt(there, false, Transport::tcp);
  Connection connection(here, kServerLimits, false);
  const std::vector<std::byte> values(kMostExchange);
  std::vector<std::byte> reply(kMostExchange);
  try {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&heads[i], 1)),
                                                  std::span(values).first(bytes[i])};
      connection.send({.kind = kExchange, .correlation = i}, parts, Deadline::in(kLong));
      const FrameHeader header =
          connection.receive([&](const FrameHeader& h) { return std::span(reply).first(h.length); },
                             Deadline::in(kLong));
      CHECK(header.length == bytes[i]);
    }
  } catch (const ConnectionError&) {
    CHECK(comes_true([&] { return server->counters().refused == 1; }));
    return true;
  }
  return false;
}

// Members of a ring, each in a thread of its own.
struct Members {
  Members(std::size_t count, Codec codec, std::size_t parts = 1) {
    for (std::size_t i = 0; i < count; ++i) {
      groups.push_back(std::make_unique<RingGroup>(kDimension, parts, codec));
      theta.push_back(draw(i));
    }
    form(std::vector<bool>(count, true));
  }
  void form(const std::vector<bool>& fresh) {
    auto all = rings(++epoch, fresh, true);
    for (std::size_t i = 0; i < all.size(); ++i) groups[i]->form(std::move(all[i]));
  }
  // So many rounds, with theta ← (1 − alpha) theta + alpha mean after each; or none, where one
  // breaks.
  void rounds(int count, float alpha) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      threads.emplace_back([this, i, count, alpha] {
        for (int k = 0; k < count; ++k) {
          try {
            round(i, alpha);
          } catch (const Error&) {
            return;
          }
        }
      });
    }
  }
  void round(std::size_t i, float alpha) {
    Vector& mine = theta[i];
    const Peers::Begin begin = groups[i]->begin();
    if (begin == Peers::Begin::none) throw Error("there is no ring");
    if (begin == Peers::Begin::copies) {
      Vector copy = mine;
      if (groups[i]->take(copy, Deadline::in(kLong))) mine = copy;
    }
    Vector sum = mine;
    Covered done;
    const auto n = static_cast<float>(groups[i]->sum(sum, done, true, Deadline::in(kLong)).members);
    done.each(0, kDimension, [&](std::size_t first, std::size_t last) {
      for (std::size_t j = first; j < last; ++j) {
        mine[j] = (1 - alpha) * mine[j] + alpha * (sum[j] / n);
      }
    });
  }
  // Training has changed them, each by itself.
  void move_apart() {
    for (std::size_t i = 0; i < theta.size(); ++i) theta[i] = draw(100 * epoch + i);
  }
  Vector mean() const {
    Vector mean(kDimension);
    for (std::size_t j = 0; j < kDimension; ++j) {
      double sum = 0;
      for (const Vector& each : theta) sum += each[j];
      mean[j] = static_cast<float>(sum / static_cast<double>(theta.size()));
    }
    return mean;
  }

  std::vector<std::unique_ptr<RingGroup>> groups;
  std::vector<Vector> theta;
  std::uint64_t epoch = 0;
};

}  // namespace

TEST_CASE("a trainer that comes new has the server's values exactly, whatever the codec") {
  for (const Codec codec : kLossy) {
    const auto server = make_server();
    Trainer first(codec, 1), second(codec, 2);
    first.connect(*server);
    second.connect(*server, true);
    CHECK(first.exchange(0) == kDimension);
    CHECK(first.other == first.theta);
    CHECK(second.exchange(0) == kDimension);
    CHECK(second.other == first.theta);
  }
}

TEST_CASE("replicas that train no more come closer than the codec can tell numbers apart") {
  for (const Codec codec : kLossy) {
    for (const bool symmetric : {false, true}) {
      CAPTURE(static_cast<int>(codec));
      CAPTURE(symmetric);
      const auto server = make_server();
      // The last one without compression, beside the others.
      Trainer trainers[] = {{codec, 1}, {codec, 2}, {Codec::none, 3}};
      for (Trainer& trainer : trainers) trainer.connect(*server);
      double furthest = 0;
      for (int k = 0; k < 60; ++k) {
        for (Trainer& trainer : trainers) {
          REQUIRE(trainer.exchange(0.5f, symmetric) == kDimension);
          trainer.mix(0.5f);
        }
      }
      for (const Trainer& trainer : trainers) {
        furthest = std::max(furthest, distance(trainer.theta, trainers[2].theta));
        furthest = std::max(furthest, distance(trainer.theta, server->snapshot().values));
      }
      CHECK(furthest < kResolution / 1000);
      CHECK(server->counters().refused == 0);
    }
  }
}

TEST_CASE("while replicas move, what is lost is a small part of their way, not of their values") {
  for (const Codec codec : kLossy) {
    const auto exact_server = make_server(), server = make_server();
    Trainer exact(Codec::none, 1), trainer(codec, 1);
    exact.connect(*exact_server);
    trainer.connect(*server);
    const Vector steps = draw(9);
    for (Trainer* each : {&exact, &trainer}) {
      for (float& value : each->theta) value += 1000;
    }
    const Vector begin = exact.theta;
    for (int k = 0; k < 50; ++k) {
      for (Trainer* each : {&exact, &trainer}) {
        for (std::size_t i = 0; i < kDimension; ++i) each->theta[i] += 0.01f * steps[i];
        REQUIRE(each->exchange(0.5f) == kDimension);
        each->mix(0.5f);
      }
    }
    CHECK(distance(exact.theta, trainer.theta) < distance(exact.theta, begin) / 200);
  }
}

TEST_CASE("the counters of both sides show what is saved") {
  constexpr int kExchanges = 100;
  std::vector<double> out, in;
  for (const Codec codec : {Codec::none, Codec::bfloat16, Codec::int8}) {
    const auto server = make_server();
    Trainer trainer(codec, 1);
    trainer.connect(*server);
    for (int k = 0; k < kExchanges; ++k) REQUIRE(trainer.exchange(0.5f) == kDimension);
    const Traffic traffic = trainer.links.traffic().own();
    out.push_back(static_cast<double>(traffic.out));
    in.push_back(static_cast<double>(traffic.in));
    CHECK(comes_true([&] { return server->counters().traffic.out == traffic.in; }));
    CHECK(server->counters().traffic.in == traffic.out);
    // By what a whole vector takes, compressed or not, bytes are exchanges.
    CHECK(trainer.links.transfers().out == doctest::Approx(kExchanges));
    CHECK(trainer.links.transfers().in == doctest::Approx(kExchanges));
  }
  // The first of the exchanges is as without.
  CHECK(out[0] / out[1] > 1.95);
  CHECK(in[0] / in[1] > 1.95);
  CHECK(out[0] / out[2] > 3.75);
  CHECK(in[0] / in[2] > 3.75);
}

TEST_CASE("where a connection has ended both sides begin anew, with exact values") {
  for (const Codec codec : kLossy) {
    auto server = make_server();
    Trainer trainer(codec, 1);
    trainer.connect(*server);
    for (int k = 0; k < 3; ++k) REQUIRE(trainer.exchange(0.5f) == kDimension);
    // A second connection to the same server, which still has the first.
    trainer.theta = draw(2);
    trainer.connect(*server);
    REQUIRE(trainer.exchange(1) == kDimension);
    CHECK(server->snapshot().values == trainer.theta);
    CHECK(comes_true([&] { return server->counters().connections == 1; }));
    // A server that was started again.
    const SyncServer::Snapshot snapshot = server->snapshot();
    server = make_server();
    CHECK(trainer.exchange(0.5f) == 0);
    CHECK(trainer.links.missing(0));
    trainer.connect(*server);
    server->restore(snapshot);
    trainer.theta = draw(3);
    REQUIRE(trainer.exchange(0) == kDimension);
    CHECK(trainer.other == snapshot.values);
    REQUIRE(trainer.exchange(1) == kDimension);
    CHECK(distance(server->snapshot().values, trainer.theta) < 1e-6);
  }
}

TEST_CASE(
    "a server refuses a codec that it does not know, and differences from it knows not what") {
  const std::size_t n = kFragment;
  const auto head = [](std::uint16_t codec, std::uint16_t keep) {
    return ExchangeHead{0, 0.5f, 0, Codec{codec}, keep};
  };
  CHECK(refuses({head(3, 0)}, {4 * n}));
  CHECK(refuses({head(0xffff, 0)}, {n}));
  CHECK(refuses({head(0, 2)}, {4 * n}));
  CHECK(refuses({head(0, 1), head(1, 1)}, {4 * n, 2 * n}));
  CHECK(refuses({head(1, 0)}, {2 * n}));
  CHECK(refuses({head(0, 0), head(2, 0)}, {4 * n, encoded_size(Codec::int8, n)}));
  CHECK(refuses({head(0, 1), head(2, 0)}, {4 * n, encoded_size(Codec::int8, n) - 1}));
  CHECK(refuses({head(0, 1), head(2, 0)}, {4 * n, 4 * n}));
  CHECK_FALSE(refuses({head(0, 1), head(2, 0), head(1, 0), head(0, 0)},
                      {4 * n, encoded_size(Codec::int8, n), 2 * n, 4 * n}));
}

TEST_CASE("members have the same mean, and come closer to each other than the codec's resolution") {
  for (const Codec codec : kLossy) {
    for (const std::size_t count : {2u, 3u, 4u}) {
      for (const std::size_t parts : {1u, 2u}) {
        CAPTURE(static_cast<int>(codec));
        CAPTURE(count);
        CAPTURE(parts);
        Members members(count, codec, parts);
        members.rounds(1, 0);
        members.move_apart();
        const Vector mean = members.mean();
        members.rounds(60, 0.5f);
        for (const Vector& theta : members.theta) {
          CHECK(distance(theta, members.theta[0]) < kResolution / 1000);
          // What every round lost of the sum came with later ones.
          CHECK(distance(theta, mean) < kResolution / 10);
        }
      }
    }
  }
}

TEST_CASE("with an elastic parameter of 1 members have the same bits after each round") {
  for (const Codec codec : kLossy) {
    Members members(3, codec);
    for (int k = 0; k < 4; ++k) {
      members.move_apart();
      members.rounds(1, 1);
      CHECK(members.theta[1] == members.theta[0]);
      CHECK(members.theta[2] == members.theta[0]);
    }
  }
}

TEST_CASE("a member whose values are not finite spoils its round for all, and no other") {
  for (const Codec codec : kLossy) {
    for (const float bad : {NAN, INFINITY}) {
      Members members(3, codec);
      members.rounds(2, 0.5f);
      members.move_apart();
      members.theta[1][17] = bad;
      members.rounds(1, 1);
      for (const Vector& theta : members.theta) CHECK_FALSE(std::isfinite(theta[17]));
      members.move_apart();
      const Vector mean = members.mean();
      members.rounds(60, 0.5f);
      for (const Vector& theta : members.theta) CHECK(distance(theta, mean) < kResolution / 10);
    }
  }
}

TEST_CASE("what a ring's members have sent shows what is saved") {
  std::vector<double> out;
  for (const Codec codec : {Codec::none, Codec::bfloat16, Codec::int8}) {
    Members members(2, codec);
    members.rounds(1, 0.5f);
    const std::uint64_t before = members.groups[1]->traffic().own().out;
    const double whole = members.groups[1]->transfers().out;
    members.rounds(10, 0.5f);
    out.push_back(static_cast<double>(members.groups[1]->traffic().own().out - before));
    // A member of two sends half of the vector twice a round.
    CHECK(members.groups[1]->transfers().out - whole == doctest::Approx(10).epsilon(0.01));
    CHECK(members.groups[1]->transfers().in == doctest::Approx(12).epsilon(0.01));
  }
  CHECK(out[0] / out[1] > 1.95);
  CHECK(out[0] / out[2] > 3.8);
}

TEST_CASE("after a round that broke a new ring begins anew, and who leaves does so at an edge") {
  for (const Codec codec : kLossy) {
    Members members(3, codec);
    members.rounds(3, 0.5f);
    members.move_apart();
    // One does not come; where its connections end, the others' round breaks.
    {
      std::jthread others([&] {
        CHECK_THROWS_AS(members.round(0, 0.5f), Error);
        members.groups[0].reset();
      });
      std::jthread another([&] { CHECK_THROWS_AS(members.round(1, 0.5f), Error); });
      members.groups[2].reset();
    }
    members.groups.pop_back();
    members.groups[0] = std::make_unique<RingGroup>(kDimension, 1, codec);
    members.theta.pop_back();
    members.form({true, false});
    // Member 0 is new, and has what member 1 has; to the bit, since all begin with that.
    const Vector before = members.theta[1];
    members.rounds(1, 1);
    CHECK(members.theta[0] == before);
    CHECK(members.theta[1] == before);
    // A wish to leave is not rounded away.
    members.groups[1]->want_to_leave();
    members.move_apart();
    members.rounds(1, 1);
    CHECK(members.theta[0] == members.theta[1]);
    CHECK(members.groups[0]->ended() == members.epoch);
    CHECK(members.groups[1]->has_left());
  }
}
