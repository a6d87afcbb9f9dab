// Connections that a loop serves, over sockets.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "leashed/net/serving_loop.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;

constexpr double kLong = 120;  // seconds: under an emulator
constexpr std::array<std::uint64_t, 3> kLimits{0, std::uint64_t{1} << 22, 0};

bool comes_true(const auto& holds) {
  for (int i = 0; i < 60'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Sends back what comes; a frame of kind 2 is none.
struct Echo final : Service {
  void come(Peer peer) override {
    seen_by(std::this_thread::get_id());
    if (refuses) throw Error("no more");
    payloads[peer];
    came.fetch_add(1);
  }
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override {
    placed.fetch_add(1);
    Bytes& payload = payloads.at(peer);
    payload.resize(header.length);
    return payload;
  }
  void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override {
    seen_by(std::this_thread::get_id());
    frames.fetch_add(1);
    if (header.kind == 2) throw Error("of no kind that is known here");
    const std::span<const std::byte> same(payloads.at(peer));
    outbox.send({.kind = 1, .correlation = header.correlation}, {&same, 1});
  }
  void gone(Peer peer) noexcept override {
    payloads.erase(peer);
    left.fetch_add(1);
  }
  void seen_by(std::thread::id thread) { threads.insert(thread); }

  std::map<Peer, Bytes> payloads;
  std::set<std::thread::id> threads;
  std::atomic<bool> refuses{false};
  std::atomic<int> came{0}, placed{0}, frames{0}, left{0};
};

std::unique_ptr<Connection> connect(ServingLoop& loop) {
  const auto [one, other] = pair_of_sockets();
  const int least = 1;
  for (const int socket : {one, other}) {
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0);
  }
  loop.adopt([socket = one] { return std::make_unique<Connection>(socket, kLimits, false); });
  return std::make_unique<Connection>(other, kLimits, false);
}

// What comes back of it.
Bytes ask(Connection& connection, const Bytes& bytes, std::uint16_t kind = 1) {
  const std::span<const std::byte> all(bytes);
  connection.send({.kind = kind, .correlation = 5}, {&all, 1}, Deadline::in(kLong));
  Bytes answer;
  const FrameHeader header = connection.receive(
      [&answer](const FrameHeader& h) {
        answer.resize(h.length);
        return std::span(answer);
      },
      Deadline::in(kLong));
  CHECK(header.correlation == 5);
  return answer;
}

}  // namespace

TEST_CASE("each has his own answer; who is refused or goes is told of, and nobody else") {
  Echo echo;
  std::vector<std::unique_ptr<Connection>> connections;
  {
    ServingLoop loop(echo);
    for (int i = 0; i < 5; ++i) connections.push_back(connect(loop));
    for (std::size_t i = 0; i < 5; ++i) {
      const Bytes bytes(100'000 * i, static_cast<std::byte>(i));
      CHECK(ask(*connections[i], bytes) == bytes);
    }
    CHECK(echo.came == 5);
    CHECK_THROWS_AS(ask(*connections[0], {}, 2), ConnectionError);
    CHECK(comes_true([&] { return loop.counters().connections == 4; }));
    CHECK(loop.counters().refused == 1);
    connections[1].reset();
    CHECK(comes_true([&] { return loop.counters().connections == 3; }));
    CHECK(loop.counters().refused == 1);
    CHECK(comes_true([&] { return echo.left == 2; }));
    for (std::size_t i = 2; i < 5; ++i) CHECK(ask(*connections[i], Bytes(9)) == Bytes(9));
    CHECK(loop.counters().traffic.out == loop.counters().traffic.in - kFrameHeader);
  }
  CHECK(echo.left == 2);
  CHECK(echo.payloads.size() == 3);
}

TEST_CASE("whom the service does not take is closed, and others are served") {
  Echo echo;
  ServingLoop loop(echo);
  const auto good = connect(loop);
  CHECK(ask(*good, Bytes(3)) == Bytes(3));
  echo.refuses = true;
  const auto refused = connect(loop);
  CHECK_THROWS_AS(ask(*refused, Bytes(3)), ConnectionError);
  CHECK(ask(*good, Bytes(3)) == Bytes(3));
  CHECK(loop.counters().connections == 1);
  CHECK(echo.left == 0);  // he never was there
}

TEST_CASE("a connection that cannot be made is nobody's, and takes nothing with it") {
  Echo echo;
  ServingLoop loop(echo);
  CHECK_THROWS_AS(loop.adopt([]() -> std::unique_ptr<Connection> { throw Error("not made"); }),
                  Error);
  const auto good = connect(loop);
  CHECK(ask(*good, Bytes(3)) == Bytes(3));
  CHECK(echo.came == 1);
}

TEST_CASE("until an answer has gone nothing more is taken from who is to have it") {
  Echo echo;
  ServingLoop loop(echo);
  const auto slow = connect(loop), other = connect(loop);
  const Bytes bytes(1'000'000, std::byte{1});
  const std::span<const std::byte> all(bytes);
  // (Its bytes must be read for the next to go: the answer to it waits.)
  slow->send({.kind = 1, .correlation = 1}, {&all, 1}, Deadline::in(kLong));
  slow->begin({.kind = 1, .correlation = 2}, {&all, 1});
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(slow->flush());
    CHECK(ask(*other, Bytes(1)) == Bytes(1));
  }
  CHECK(echo.placed == 1 + 50);
  Bytes answer(bytes.size());
  for (std::uint64_t come = 0; come < 2;) {
    slow->flush();
    if (const auto header = slow->take([&](const FrameHeader&) { return std::span(answer); })) {
      CHECK(header->correlation == ++come);
      CHECK(answer == bytes);
    } else {
      slow->wait(true, slow->sending(), Deadline::in(kLong));
    }
  }
}

TEST_CASE("a server may have several loops: each serves its connections in a thread of its own") {
  Echo echoes[2];
  std::vector<std::unique_ptr<Connection>> connections;
  {
    ServingLoop loops[] = {ServingLoop(echoes[0]), ServingLoop(echoes[1])};
    for (std::size_t i = 0; i < 6; ++i) connections.push_back(connect(loops[i % 2]));
    for (int round = 0; round < 3; ++round) {
      for (const auto& connection : connections) CHECK(ask(*connection, Bytes(7)) == Bytes(7));
    }
    for (const ServingLoop& loop : loops) CHECK(loop.counters().connections == 3);
  }
  for (const Echo& echo : echoes) {
    CHECK(echo.came == 3);
    CHECK(echo.placed == 9);
    CHECK(echo.threads.size() == 1);
  }
  CHECK(echoes[0].threads != echoes[1].threads);
}

TEST_CASE("a connection is handed over with its frame, and is the other loop's from then on") {
  // Takes for itself what has its number as its first byte; without, all.
  struct Some final : Service {
    void come(Peer peer) override { echo.come(peer); }
    std::span<std::byte> place(Peer peer, const FrameHeader& header) override {
      return echo.place(peer, header);
    }
    std::optional<std::size_t> elsewhere(Peer peer, const FrameHeader& header) override {
      if (header.length == 0) return std::nullopt;
      const auto first = static_cast<std::size_t>(echo.payloads.at(peer)[0]);
      return first == number ? std::nullopt : std::optional(first);
    }
    void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override {
      echo.frame(peer, header, outbox);
    }
    void gone(Peer peer) noexcept override { echo.gone(peer); }
    std::size_t number = 0;
    Echo echo;
  };
  constexpr std::size_t kLoops = 3;
  constexpr int kFrames = 300;
  Some services[kLoops];
  std::vector<std::unique_ptr<ServingLoop>> loops;
  for (std::size_t n = 0; n < kLoops; ++n) {
    services[n].number = n;
    loops.push_back(std::make_unique<ServingLoop>(
        services[n], [&loops](std::size_t other) -> ServingLoop& { return *loops[other]; }));
  }
  std::vector<std::jthread> clients;
  for (std::size_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<std::uint32_t>(client));
      const auto connection = connect(*loops[client % kLoops]);
      for (int frame = 0; frame < kFrames; ++frame) {
        Bytes bytes(random() % 30'000, static_cast<std::byte>(random() % kLoops));
        CHECK(ask(*connection, bytes) == bytes);
      }
    });
  }
  clients.clear();
  CHECK(comes_true([&] {
    return std::ranges::all_of(loops, [](const auto& l) { return l->counters().connections == 0; });
  }));
  int frames = 0, came = 0, left = 0;
  Traffic traffic;
  for (std::size_t n = 0; n < kLoops; ++n) {
    CHECK(loops[n]->counters().refused == 0);
    traffic.in += loops[n]->counters().traffic.in;
    traffic.out += loops[n]->counters().traffic.out;
    frames += services[n].echo.frames;
    came += services[n].echo.came;
    left += services[n].echo.left;
    CHECK(services[n].echo.frames > kFrames);
  }
  CHECK(frames == 4 * kFrames);
  CHECK(came == left);
  CHECK(came > kFrames);  // far more often than connections were made
  CHECK(traffic.in == traffic.out);
  for (const auto& loop : loops) loop->end();
}

TEST_CASE("a quiet moment is between two frames, of one at a time, and nobody loses what he says") {
  Echo echo;
  ServingLoop loop(echo);
  const auto connection = connect(loop);
  std::atomic<bool> over{false};
  std::jthread asks([&] {
    const Bytes bytes(50'000, std::byte{7});
    while (!over) CHECK(ask(*connection, bytes) == bytes);
  });
  std::atomic<int> within{0}, moments{0};
  {
    std::vector<std::jthread> several;
    for (int i = 0; i < 3; ++i) {
      several.emplace_back([&] {
        for (int k = 0; k < 100; ++k) {
          loop.quiet([&] {
            CHECK(within.fetch_add(1) == 0);
            const int frames = echo.frames;
            loop.quiet([&] { moments.fetch_add(1); });  // it is one already
            std::this_thread::yield();
            CHECK(echo.frames == frames);
            within.fetch_sub(1);
          });
          CHECK_THROWS_AS(loop.quiet([] { throw Error("not now"); }), Error);
        }
      });
    }
  }
  CHECK(moments == 300);
  const int frames = echo.frames;
  CHECK(comes_true([&] { return echo.frames > frames + 3; }));
  over = true;
  asks.join();
  CHECK(loop.counters().refused == 0);
}

namespace {

// Sends what comes from each to all others, as often as its first byte says; of whoever goes it
// tells those that stay.
struct Tells final : Service {
  void open(Post& given) noexcept override { post = &given; }
  void come(Peer peer) override { payloads[peer]; }
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override {
    Bytes& payload = payloads.at(peer);
    payload.resize(header.length);
    return payload;
  }
  void frame(Peer peer, const FrameHeader& header, Outbox&) override {
    frames.fetch_add(1);
    if (refuses) return post->refuse(peer);
    const Bytes& said = payloads.at(peer);
    for (int i = 0; i < static_cast<int>(said.at(0)); ++i) tell(peer, header.correlation + i, said);
  }
  void gone(Peer peer) noexcept override {
    payloads.erase(peer);
    left.fetch_add(1);
    tell(peer, 99, {});
    post->send(peer, {.kind = 1}, {}, {}, nullptr);  // who is not there
  }
  void woken() noexcept override {
    late.store(post->now() < due);
    tell(0, 77, {});
  }
  void tell(Peer but, std::uint64_t number, const Bytes& what) {
    const auto kept = std::make_shared<Bytes>(what);
    const std::span<const std::byte> parts[] = {std::span<const std::byte>(*kept)};
    std::byte head[] = {std::byte{5}, std::byte{6}};
    for (const auto& [other, _] : payloads) {
      if (other != but) post->send(other, {.kind = 1, .correlation = number}, head, parts, kept);
    }
    head[0] = std::byte{0};
    held = kept;
  }

  Post* post = nullptr;
  std::map<Peer, Bytes> payloads;
  std::weak_ptr<Bytes> held;
  std::int64_t due = 0;
  std::atomic<int> frames{0}, left{0};
  std::atomic<bool> refuses{false}, late{false};
};

void say(Connection& connection, std::uint64_t number, const Bytes& bytes) {
  const std::span<const std::byte> all(bytes);
  connection.send({.kind = 1, .correlation = number}, {&all, 1}, Deadline::in(kLong));
}

// Until the loop has taken a connection, what others say does not go there.
void wait_for(ServingLoop& loop, const Tells& tells, std::size_t peers) {
  REQUIRE(comes_true([&] {
    bool come = false;
    loop.quiet([&] { come = tells.payloads.size() == peers; });
    return come;
  }));
}

// Behind its head; the number that came with it.
std::uint64_t hear(Connection& connection, const Bytes& wanted) {
  Bytes bytes;
  const FrameHeader header = connection.receive(
      [&bytes](const FrameHeader& h) {
        bytes.resize(h.length);
        return std::span(bytes);
      },
      Deadline::in(kLong));
  REQUIRE(bytes.size() == 2 + wanted.size());
  CHECK(bytes[0] == std::byte{5});
  CHECK(bytes[1] == std::byte{6});
  CHECK(std::equal(wanted.begin(), wanted.end(), bytes.begin() + 2));
  return header.correlation;
}

}  // namespace

TEST_CASE("what one says goes to others, in its order, and is kept until it has gone") {
  Tells tells;
  ServingLoop loop(tells);
  const auto one = connect(loop), other = connect(loop), third = connect(loop);
  wait_for(loop, tells, 3);
  for (int round = 0; round < 20; ++round) {
    Bytes bytes(100'000, static_cast<std::byte>(round));
    bytes[0] = std::byte{3};
    say(*one, 10, bytes);
    for (const auto& connection : {other.get(), third.get()}) {
      for (std::uint64_t k = 0; k < 3; ++k) CHECK(hear(*connection, bytes) == 10 + k);
    }
    CHECK(comes_true([&] {
      bool gone = false;
      loop.quiet([&] { gone = tells.held.expired(); });
      return gone;
    }));
  }
  CHECK(loop.counters().refused == 0);
}

TEST_CASE("who takes nothing of what is sent to him is refused, and others are told so") {
  Tells tells;
  ServingLoop loop(tells);
  const auto one = connect(loop), other = connect(loop);
  auto slow = connect(loop);
  wait_for(loop, tells, 3);
  Bytes bytes(1'000'000, std::byte{9});
  bytes[0] = std::byte{1};
  for (std::size_t i = 0; i < Post::kBacklog + 1; ++i) {
    say(*one, 1, bytes);
    CHECK(hear(*other, bytes) == 1);
  }
  CHECK(tells.left == 0);
  say(*one, 1, bytes);
  CHECK(hear(*other, bytes) == 1);
  CHECK(comes_true([&] { return tells.left == 1; }));
  CHECK(loop.counters().refused == 1);
  CHECK(hear(*one, {}) == 99);
  CHECK(hear(*other, {}) == 99);
  CHECK(loop.counters().connections == 2);
  bool gone = false;
  CHECK(comes_true([&] {
    loop.quiet([&] { gone = tells.held.expired(); });
    return gone;
  }));
  tells.refuses = true;
  say(*other, 1, bytes);
  CHECK(hear(*one, {}) == 99);
  CHECK(loop.counters().refused == 2);
}

TEST_CASE("whose first frame at another loop is refused, of him that one is told nothing more") {
  struct Passes final : Service {
    void come(Peer) override {}
    std::span<std::byte> place(Peer, const FrameHeader& header) override {
      payload.resize(header.length);
      return payload;
    }
    std::optional<std::size_t> elsewhere(Peer, const FrameHeader&) override { return 1; }
    void frame(Peer, const FrameHeader&, Outbox&) override {}
    void gone(Peer) noexcept override {}
    Bytes payload;
  } passes;
  Tells tells;
  tells.refuses = true;
  ServingLoop second(tells);
  ServingLoop first(passes, [&](std::size_t) -> ServingLoop& { return second; });
  const auto one = connect(first);
  first.quiet([&] {
    for (int frame = 0; frame < 3; ++frame) say(*one, 1, {std::byte{1}});
  });
  CHECK(comes_true([&] { return tells.left == 1; }));
  CHECK(tells.frames == 1);
  CHECK(second.counters().refused == 1);
  first.end();
  second.end();
}

TEST_CASE("a service is woken when it asked to be, not before, and what it says then is heard") {
  Tells tells;
  ServingLoop loop(tells);
  const auto one = connect(loop), other = connect(loop);
  wait_for(loop, tells, 2);
  say(*one, 1, {std::byte{1}});
  CHECK(hear(*other, {std::byte{1}}) == 1);
  for (const std::int64_t ns : {0, 1'000, 300'000, 20'000'000}) {
    loop.quiet([&] {
      tells.due = tells.post->now() + ns;
      tells.post->wake(tells.due + 1'000'000'000'000);
      tells.post->wake(tells.due);
    });
    CHECK(hear(*one, {}) == 77);
    CHECK(hear(*other, {}) == 77);
    CHECK_FALSE(tells.late);
  }
  loop.quiet([&] {
    tells.due = 0;
    for (const auto& [peer, _] : tells.payloads) {
      const std::byte head[] = {std::byte{5}, std::byte{6}};
      tells.post->send(peer, {.kind = 1, .correlation = 3}, head, {}, nullptr);
    }
  });
  CHECK(hear(*one, {}) == 3);
  CHECK(hear(*other, {}) == 3);
}

TEST_CASE("frames that lie there are told before the time, also where others go on saying more") {
  Tells tells;
  std::vector<std::unique_ptr<Connection>> all;
  std::atomic<bool> over{false};
  ServingLoop loop(tells);
  for (int i = 0; i < 3; ++i) all.push_back(connect(loop));
  std::jthread talks([&] {
    while (!over) say(*all[0], 0, {std::byte{0}});
  });
  CHECK(comes_true([&] { return tells.frames > 1000; }));
  for (int round = 0; round < 20; ++round) {
    loop.quiet([&] {
      say(*all[1], 5, {std::byte{1}});
      tells.due = 0;
      tells.post->wake(0);
    });
    CHECK(hear(*all[2], {std::byte{1}}) == 5);
    CHECK(hear(*all[2], {}) == 77);
    CHECK(hear(*all[1], {}) == 77);
    loop.quiet([] {});
    tells.post->now();
    // (Of the talker's own nothing is read.)
    while (all[0]->take([](const FrameHeader& h) {
      static Bytes unread;
      unread.resize(h.length);
      return std::span(unread);
    })) {
    }
  }
  over = true;
}
