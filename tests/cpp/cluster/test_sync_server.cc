// Sync servers and their trainers' links, over sockets: each fragment's interpolation is whole and
// exact; who goes, hangs or sends what does not belong there harms nobody else.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/wires.h"
#include "leashed/base/clock.h"
#include "leashed/base/fault.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;

// Three fragments, the last of 5 floats.
constexpr std::size_t kDimension = 2 * kFragment + 5;

std::vector<SyncServer::Holding> holdings_of(const std::vector<std::uint32_t>& owner,
                                             std::uint32_t server) {
  std::vector<SyncServer::Holding> holdings;
  for (std::uint32_t f = 0; f < owner.size(); ++f) {
    const auto [begin, end] = fragment(f, kDimension);
    if (owner[f] == server) holdings.push_back({f, end - begin});
  }
  return holdings;
}

void connect(SyncServer& server, ServerLinks& links, std::size_t index, bool checked = false) {
  const auto [one, other] = pair_of_sockets();
  server.adopt(one, checked);
  links.adopt(index, other, checked);
}

struct Answer {
  Vector other = Vector(kDimension, -1.0f);
  Covered done;
  bool all = false;

  bool has(std::uint32_t f) const {
    const auto [begin, end] = fragment(f, kDimension);
    std::size_t covered = 0;
    done.each(begin, end, [&](std::size_t from, std::size_t to) { covered += to - from; });
    CHECK((covered == 0 || covered == end - begin));  // whole fragments alone
    return covered > 0;
  }
};

// First contacts, which theta is to become, alike.
Answer exchange(ServerLinks& links, const Vector& theta, float alpha, bool old_reply,
                const Deadline& deadline, std::uint64_t turn = 0) {
  Answer answer;
  if (!links.begin(turn)) return answer;
  Covered done, first;
  answer.all = links.exchange(theta.data(), alpha, old_reply, done, first, deadline);
  answer.other.assign(links.other(), links.other() + kDimension);
  links.end();
  for (std::uint32_t f = 0; f < fragments_of(kDimension); ++f) {
    const auto [begin, end] = fragment(f, kDimension);
    for (const Covered* come : {&done, &first}) {
      come->each(begin, end, [&](std::size_t from, std::size_t to) {
        answer.done.add({from, to});
      });
    }
  }
  return answer;
}

Answer exchange(ServerLinks& links, const Vector& theta, float alpha, bool old_reply = false,
                double seconds = kLong, std::uint64_t turn = 0) {
  return exchange(links, theta, alpha, old_reply, Deadline::in(seconds), turn);
}

Vector ramp(float from, std::size_t n = kDimension) {
  Vector values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = from + static_cast<float>(i % 64);
  return values;
}

const std::vector<std::uint32_t> kOne = {0, 0, 0};

}  // namespace

TEST_CASE("a fragment that is not there becomes theta, and then moves towards each that comes") {
  for (const bool checked : {false, true}) {
    SyncServer server(holdings_of(kOne, 0));
    ServerLinks first(kDimension, kOne, 1, 1), late(kDimension, kOne, 1, 1);
    CHECK(first.missing(0));
    CHECK_THROWS_AS(ServerLinks(kDimension + kFragment, kOne, 1, 1), Error);
    connect(server, first, 0, checked);
    CHECK_FALSE(first.missing(0));
    const Vector begun = ramp(0);
    Answer answer = exchange(first, begun, 0.75f);
    CHECK(answer.other == begun);
    CHECK((answer.has(0) && answer.has(1) && answer.has(2)));

    // Whole numbers and a power of 2: the arithmetic is exact.
    const Vector theta = ramp(8);
    answer = exchange(first, theta, 0.25f);
    CHECK(answer.other == ramp(2));
    answer = exchange(first, theta, 0.5f, true);
    CHECK(answer.other == ramp(2));  // as it was
    CHECK(exchange(first, theta, 0).other == ramp(5));

    connect(server, late, 0, checked);
    answer = exchange(late, ramp(100), 0);
    CHECK(answer.other == ramp(5));
    CHECK(exchange(first, ramp(0), 0).other == ramp(5));
    CHECK(server.counters().exchanges == 3 * 6);
    CHECK(server.counters().changes == 3 * 3);  // not those with α = 0
    CHECK(server.counters().connections == 2);
    CHECK(server.counters().refused == 0);
    const Traffic one = first.traffic().own(), two = late.traffic().own();
    CHECK(comes_true([&] { return server.counters().traffic.out == one.in + two.in; }));
    CHECK(server.counters().traffic.in == one.out + two.out);
    const std::uint64_t each = 3 * kFrameHeader + kDimension * sizeof(float);
    CHECK(two.in == each);
    CHECK(two.out == each + 3 * sizeof(ExchangeHead));
  }
}

TEST_CASE("an exchange in parts takes every so many-th fragment, in turn") {
  SyncServer server(holdings_of(kOne, 0));
  ServerLinks links(kDimension, kOne, 1, 2);
  connect(server, links, 0);
  for (std::uint64_t turn = 0; turn < 4; ++turn) {
    const Answer answer = exchange(links, ramp(0), 0.5f, false, kLong, turn);
    for (std::uint32_t f = 0; f < 3; ++f) CHECK(answer.has(f) == (f % 2 == turn % 2));
  }
}

TEST_CASE("of a server that is away, killed or hung nothing comes, of the others all, in time") {
  const std::vector<std::uint32_t> owner = {0, 1, 2};
  std::vector<std::unique_ptr<SyncServer>> servers;
  for (std::uint32_t s = 0; s < 3; ++s) {
    servers.push_back(std::make_unique<SyncServer>(holdings_of(owner, s)));
  }
  ServerLinks links(kDimension, owner, 3, 1);
  connect(*servers[0], links, 0);
  connect(*servers[2], links, 2);
  CHECK(links.missing(1));
  Answer answer = exchange(links, ramp(0), 0.5f);
  CHECK((answer.has(0) && !answer.has(1) && answer.has(2)));

  // Hung: it takes what comes, and never answers. Time is over at the second look after the others'
  // answers have gone: what has gone before a look has come by the next.
  const auto [hung, other] = pair_of_sockets();
  links.adopt(1, other, false);
  const auto gone = [&](std::uint32_t s, std::size_t floats) {
    const std::uint64_t both = 2 * (kFrameHeader + floats * sizeof(float));
    return servers[s]->counters().traffic.out == both;
  };
  Deadline deadline = Deadline::in(kLong);
  int looks = 0;
  const std::function<bool()> look = [&] {
    if (gone(0, kFragment) && gone(2, 5) && ++looks == 2) deadline.at = now();
    return true;
  };
  deadline.go_on = &look;
  answer = exchange(links, ramp(0), 0.5f, false, deadline);
  CHECK(looks == 2);
  CHECK((answer.has(0) && !answer.has(1) && answer.has(2)));
  CHECK(links.missing(1));  // it is given up
  close(hung);
  answer = exchange(links, ramp(0), 0.5f);
  CHECK((answer.has(0) && !answer.has(1) && answer.has(2)));

  // Killed, while it is asked: having read a part.
  const auto [dying, to_dying] = pair_of_sockets();
  links.adopt(1, to_dying, false);
  std::jthread dies([socket = dying] {
    std::byte some[1000];
    CHECK(read(socket, some, sizeof some) > 0);
    close(socket);
  });
  answer = exchange(links, ramp(0), 0.5f);
  CHECK((answer.has(0) && !answer.has(1) && answer.has(2)));
  CHECK(links.missing(1));
  servers[2].reset();
  connect(*servers[1], links, 1);
  answer = exchange(links, ramp(0), 0.5f);
  CHECK((answer.has(0) && answer.has(1) && !answer.has(2)));
  CHECK(links.missing(2));

  std::atomic<bool> cancelled{true};
  deadline = Deadline::in(kLong);
  deadline.cancelled = &cancelled;
  const double begun = now();
  answer = exchange(links, ramp(0), 0.5f, false, deadline);
  CHECK(now() - begun < kLong / 2);
}

TEST_CASE("an answer to what has not been sent is none") {
  const std::vector<std::uint32_t> owner = {0, 0, 0};
  ServerLinks links(kDimension, owner, 1, 1);
  const auto [here, there] = pair_of_sockets();
  const int small = 4096;  // so that a request does not go at once
  setsockopt(there, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  links.adopt(0, there, false);
  Connection server(here, kServerLimits, false);
  std::jthread early([&] {
    const Vector values(kFragment, 5.0f);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    server.send({.kind = kReply, .correlation = 0}, {&bytes, 1}, Deadline::in(kLong));
  });
  early.join();
  CHECK(exchange(links, ramp(0), 0.5f).done.empty());
  CHECK(links.missing(0));
  // Whose bytes are counted all the same.
  std::byte some[1 << 16];
  std::uint64_t come = 0;
  for (ssize_t n; (n = recv(here, some, sizeof some, 0)) > 0;)
    come += static_cast<std::uint64_t>(n);
  CHECK(links.traffic().own().out == come);
  CHECK(links.traffic().own().in >= kFrameHeader);
}

namespace {

// Answers probes; then exchanges with that value, or never.
void pretend(Connection& server, std::optional<float> value) {
  AlignedArray<std::byte> payload(kMostExchange);
  try {
    for (;;) {
      const FrameHeader header =
          server.receive([&](const FrameHeader& h) { return std::span(payload.data(), h.length); },
                         Deadline::in(kLong));
      std::span<const std::byte> reply(payload.data(), 1);
      Vector values;
      if (header.kind == kExchange) {
        if (!value) continue;
        values.assign((header.length - sizeof(ExchangeHead)) / sizeof(float), *value);
        reply = std::as_bytes(std::span(values));
      }
      server.send(
          {.kind = header.kind == kProbe ? kProbe : kReply, .correlation = header.correlation},
          {&reply, 1}, Deadline::in(kLong));
    }
  } catch (const ConnectionError&) {  // it is dropped
  }
}

// One more thread for each connection that is made so.
bool adopt_pretended(ServerLinks& links, std::vector<std::jthread>& threads,
                     std::optional<float> value = std::nullopt) {
  const auto [here, there] = pair_of_sockets();
  threads.emplace_back([here = here, value] {
    Connection server(here, kServerLimits, false);
    pretend(server, value);
  });
  return links.adopt(0, there, false, Transport::tcp, kLong);
}

}  // namespace

TEST_CASE("a server that accepts and never answers is waited for by nobody who exchanges") {
  const std::size_t before = open_descriptors();
  ServerLinks links(kDimension, kOne, 1, 1);
  const auto [hung, there] = pair_of_sockets();
  CHECK_FALSE(links.adopt(0, there, false, Transport::tcp, 0.05));
  close(hung);
  CHECK(open_descriptors() == before);
  CHECK(links.missing(0));
  const double begun = now();
  CHECK(exchange(links, ramp(0), 0.5f).done.empty());
  CHECK(now() - begun < kLong / 2);
  SyncServer server(holdings_of(kOne, 0));
  const auto [one, other] = pair_of_sockets();
  server.adopt(one, false);
  CHECK(links.adopt(0, other, false, Transport::tcp, kLong));
  CHECK(exchange(links, ramp(0), 0.5f).has(2));
}

TEST_CASE("what one thread has waited for in vain no other of its trainer waits for") {
  std::vector<std::jthread> threads;
  const auto standings = std::make_shared<Standings>(1, 3);
  ServerLinks first(kDimension, kOne, 1, 1, Codec::none, standings);
  ServerLinks second(kDimension, kOne, 1, 1, Codec::none, standings);
  constexpr double kWait = 0.2;
  const auto in_vain = [&](ServerLinks& links) {
    CHECK(exchange(links, ramp(0), 0.5f, false, kWait).done.empty());
  };
  CHECK((adopt_pretended(first, threads) && adopt_pretended(second, threads)));
  in_vain(first);
  double begun = now();
  CHECK(exchange(second, ramp(0), 0.5f).done.empty());
  CHECK(now() - begun < kLong / 2);
  CHECK((first.missing(0) && second.missing(0)));  // and are made anew, at once
  // It answers again, and is late again: the next connection is made after a pause.
  CHECK((adopt_pretended(first, threads) && adopt_pretended(second, threads)));
  begun = now();
  in_vain(first);
  CHECK(exchange(second, ramp(0), 0.5f).done.empty());
  const bool anew = first.missing(0) || second.missing(0);
  CHECK((!anew || now() - begun >= 2 * kWait));
  CHECK(comes_true([&] { return first.missing(0) && second.missing(0); }));
  CHECK(now() - begun >= 2 * kWait);
  // Once there was an answer it begins anew.
  CHECK(adopt_pretended(first, threads, 1.0f));
  CHECK(exchange(first, ramp(0), 0.5f).has(0));
  CHECK(adopt_pretended(first, threads));
  in_vain(first);
  CHECK(first.missing(0));
}

TEST_CASE("an answer that is not finite is taken by nobody, and its connection given up") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<std::jthread> threads;
    ServerLinks links(kDimension, kOne, 1, 1);
    CHECK(adopt_pretended(links, threads, bad));
    CHECK(exchange(links, ramp(0), 0.5f).done.empty());
    CHECK(links.not_finite() == 1);
    CHECK(links.missing(0));
  }
}

TEST_CASE("who sends what does not belong there is cut off, and nobody else") {
  const std::vector<std::uint32_t> owner = {0, 0, 1};  // the last is elsewhere
  SyncServer server(holdings_of(owner, 0));
  ServerLinks good(kDimension, owner, 2, 1);
  connect(server, good, 0);
  exchange(good, ramp(0), 0.5f);

  struct Bad {
    ExchangeHead head;
    std::size_t floats;
    std::uint16_t kind = kExchange;
    float last = 1e6f;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Bad all[] = {{{0, 0.5f, 0}, kFragment - 1},
                     {{0, 0.5f, 0}, 0},
                     {{2, 0.5f, 0}, 5},
                     {{99, 0.5f, 0}, kFragment},
                     {{0, nan, 0}, kFragment},
                     {{0, -0.1f, 0}, kFragment},
                     {{0, 1.1f, 0}, kFragment},
                     {{0, 0.5f, 0}, kFragment, kReply},
                     {{0, 0.5f, 0}, kFragment, kExchange, nan},
                     {{0, 1.0f, 1}, kFragment, kExchange, -std::numeric_limits<float>::infinity()}};
  std::uint64_t refused = 0;
  for (const Bad& bad : all) {
    CAPTURE(refused);
    const auto [one, other] = pair_of_sockets();
    server.adopt(one, false);
    Connection c(other, kServerLimits, false);
    Vector values(bad.floats, 1e6f);
    if (!values.empty()) values.back() = bad.last;
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&bad.head, 1)),
                                                std::as_bytes(std::span(values))};
    c.send({.kind = bad.kind}, parts, Deadline::in(kLong));
    Vector reply(kFragment);
    CHECK_THROWS_AS(c.receive(
                        [&](const FrameHeader& h) {
                          return std::as_writable_bytes(std::span(reply)).first(h.length);
                        },
                        Deadline::in(kLong)),
                    ConnectionError);
    CHECK(comes_true([&] { return server.counters().refused == refused + 1; }));
    ++refused;
  }
  for (const std::string& raw : {std::string(2000, 'x'), std::string(2000, '\0')}) {
    const auto [one, other] = pair_of_sockets();
    server.adopt(one, false);
    CHECK(write(other, raw.data(), raw.size()) == static_cast<ssize_t>(raw.size()));
    CHECK(comes_true([&] { return server.counters().refused == refused + 1; }));
    ++refused;
    close(other);
  }
  {  // A head without what it belongs to; a frame that ends within: that is no refusal.
    const auto [one, other] = pair_of_sockets();
    server.adopt(one, false);
    const auto header = encode({.kind = kExchange, .length = kMostExchange});
    CHECK(write(other, header.data(), header.size()) == static_cast<ssize_t>(header.size()));
    close(other);
  }
  CHECK(comes_true([&] { return server.counters().connections == 1; }));
  CHECK(server.counters().refused == refused);
  CHECK(server.counters().not_finite == 2);
  const Answer answer = exchange(good, ramp(8), 0.25f);
  CHECK((answer.has(0) && answer.has(1)));
  CHECK(std::equal(answer.other.begin(), answer.other.begin() + 2 * kFragment, ramp(2).begin()));
}

// As in a process that was forked: then closing it here ends no event of it.
TEST_CASE("a connection that is copied elsewhere is served no more once it is closed here") {
  SyncServer server(holdings_of(kOne, 0));
  const auto [one, other] = pair_of_sockets();
  const int copy = dup(one);
  server.adopt(one, false);
  const std::string garbage(2000, 'x');
  CHECK(write(other, garbage.data(), garbage.size()) > 0);
  CHECK(comes_true([&] { return server.counters().refused == 1; }));
  for (int i = 0; i < 20; ++i) {
    CHECK(write(other, garbage.data(), garbage.size()) > 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(server.counters().refused == 1);
  CHECK(server.counters().connections == 0);
  ServerLinks links(kDimension, kOne, 1, 1);
  connect(server, links, 0);
  CHECK(exchange(links, ramp(1), 0.5f).other == ramp(1));
  close(copy);
  close(other);
}

TEST_CASE("a trainer that sends and never reads holds up nobody") {
  SyncServer server(holdings_of(kOne, 0));
  const auto [one, other] = pair_of_sockets();
  server.adopt(one, false);
  Connection c(other, kServerLimits, false);
  const Vector values(kFragment, 1.0f);
  const ExchangeHead head{0, 0.5f, 0};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&head, 1)),
                                              std::as_bytes(std::span(values))};
  try {
    for (;;) c.send({.kind = kExchange}, parts, Deadline::in(0.2));
  } catch (const ConnectionError& error) {
    CHECK(error.reason == ConnectionError::Reason::late);
  }
  ServerLinks links(kDimension, kOne, 1, 1);
  connect(server, links, 0);
  for (int i = 0; i < 20; ++i) CHECK(exchange(links, ramp(1), 0.5f).has(2));
}

TEST_CASE("what a server was goes into another by its snapshot, with what was not there yet") {
  SyncServer::Snapshot snapshot;
  {
    SyncServer server(holdings_of(kOne, 0));
    ServerLinks links(kDimension, kOne, 1, 3);  // one fragment at a time
    connect(server, links, 0);
    exchange(links, ramp(3), 0.5f, false, kLong, 1);
    exchange(links, ramp(5), 0.5f, false, kLong, 1);
    snapshot = server.snapshot();
  }
  CHECK(snapshot.present == std::vector<bool>{false, true, false});
  CHECK(snapshot.changes == 2);
  REQUIRE(snapshot.values.size() == kDimension);
  const Vector expected = ramp(4);
  CHECK(std::equal(expected.begin() + kFragment, expected.begin() + 2 * kFragment,
                   snapshot.values.begin() + kFragment));

  SyncServer server(holdings_of(kOne, 0));
  server.restore(snapshot);
  CHECK(server.counters().exchanges == 2);
  CHECK(server.counters().changes == 2);
  const SyncServer::Snapshot again = server.snapshot();
  CHECK(again.values == snapshot.values);
  CHECK(again.present == snapshot.present);
  CHECK(again.changes == snapshot.changes);
  ServerLinks links(kDimension, kOne, 1, 1);
  connect(server, links, 0);
  const Answer answer = exchange(links, ramp(100), 0);
  CHECK(answer.other[0] == ramp(100)[0]);  // was not there
  CHECK(answer.other[kFragment] == expected[kFragment]);

  snapshot.present.pop_back();
  CHECK_THROWS_AS(server.restore(snapshot), Error);
  snapshot.present.push_back(true);
  snapshot.values.pop_back();
  CHECK_THROWS_AS(server.restore(snapshot), Error);
}

// With α = 1 and the old value as the answer, an exchange swaps: in whatever order they come, each
// value sent is answered to one, or stays.
TEST_CASE("exchanges of many at once are in some order, for each fragment, and each is whole") {
  constexpr std::size_t kTrainers = 8, kRounds = 30;
  const std::vector<std::uint32_t> owner = {0, 1, 0};
  SyncServer servers[] = {SyncServer(holdings_of(owner, 0)), SyncServer(holdings_of(owner, 1))};
  std::vector<std::unique_ptr<ServerLinks>> links;
  {  // what is there at first: 0
    ServerLinks first(kDimension, owner, 2, 1);
    for (std::size_t s = 0; s < 2; ++s) connect(servers[s], first, s);
    exchange(first, Vector(kDimension), 1);
  }
  for (std::size_t t = 0; t < kTrainers; ++t) {
    links.push_back(std::make_unique<ServerLinks>(kDimension, owner, 2, 1));
    for (std::size_t s = 0; s < 2; ++s) connect(servers[s], *links[t], s, t % 2 == 0);
    exchange(*links[t], Vector(kDimension), 1);  // its first contact, which is with 0
  }
  std::vector<std::vector<Vector>> answers(kTrainers);  // of each fragment, what came
  std::atomic<bool> over{false}, torn{false};
  std::jthread looks([&] {
    while (!over.load(std::memory_order_relaxed)) {
      const auto snapshot = servers[1].snapshot();
      const auto& v = snapshot.values;
      if (std::adjacent_find(v.begin(), v.end(), std::not_equal_to()) != v.end()) {
        torn.store(true, std::memory_order_relaxed);
      }
    }
  });
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kTrainers; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t round = 0; round < kRounds; ++round) {
          const auto id = static_cast<float>(1 + t * kRounds + round);
          const Answer answer = exchange(*links[t], Vector(kDimension, id), 1, true);
          Vector values;
          for (std::uint32_t f = 0; f < 3; ++f) {
            const auto [begin, end] = fragment(f, kDimension);
            const float value = answer.other[begin];
            if (!answer.has(f) ||
                std::any_of(answer.other.begin() + static_cast<std::ptrdiff_t>(begin),
                            answer.other.begin() + static_cast<std::ptrdiff_t>(end),
                            [value](float v) { return v != value; })) {
              torn.store(true, std::memory_order_relaxed);
            }
            values.push_back(value);
          }
          answers[t].push_back(values);
        }
      });
    }
  }
  over.store(true, std::memory_order_relaxed);
  looks.join();
  CHECK_FALSE(torn);
  const auto left = [&](std::uint32_t f) {
    const auto snapshot = servers[owner[f]].snapshot();
    return snapshot.values[f == 2 ? kFragment : 0];
  };
  for (std::uint32_t f = 0; f < 3; ++f) {
    std::vector<std::size_t> seen{static_cast<std::size_t>(left(f))};
    for (const auto& own : answers) {
      for (const Vector& values : own) seen.push_back(static_cast<std::size_t>(values[f]));
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::size_t> each(1 + kTrainers * kRounds);
    std::iota(each.begin(), each.end(), 0);
    CHECK(seen == each);
  }
}

TEST_CASE("what cannot be made leaves no descriptor, and takes none over") {
  const std::size_t before = open_descriptors();
  CHECK_THROWS_AS(SyncServer({{0, 0}}), Error);
  CHECK_THROWS_AS(SyncServer({{0, kFragment + 1}}), Error);
  CHECK_THROWS_AS(SyncServer({{3, 5}, {3, 5}}), Error);
  fault_hook = [](const char* step) {
    if (std::string(step) == "start a thread") throw std::bad_alloc();
  };
  CHECK_THROWS_AS(SyncServer({{0, 5}}), std::bad_alloc);
  fault_hook = nullptr;
  CHECK(open_descriptors() == before);

  SyncServer server({{0, 5}});
  ServerLinks links(kDimension, kOne, 1, 1);
  const auto [one, other] = pair_of_sockets();
  CHECK_THROWS(links.adopt(1, one, false));  // there is no such server
  CHECK(fcntl(one, F_GETFD) >= 0);           // it stays the caller's
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK_THROWS_AS(server.adopt(file, false), Error);
  CHECK_THROWS_AS(links.adopt(0, file, false), Error);
  CHECK(fcntl(file, F_GETFD) >= 0);
  for (const int socket : {one, other, file}) close(socket);
}
