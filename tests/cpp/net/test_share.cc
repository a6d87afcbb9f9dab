// Frames through shared memory: how two sides agree on it, and that whatever befalls a socket's
// frames is told in the same way.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "asked.h"
#include "leashed/base/clock.h"
#include "leashed/net/share.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;
using Reason = ConnectionError::Reason;

constexpr std::uint64_t kLimits[] = {kShareFrame, 1 << 16, std::uint64_t{1} << 28};
constexpr double kLong = 120;  // seconds: under an emulator

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
  return bytes;
}

struct Inbox {
  Bytes payload;
  Connection::Place place = [this](const FrameHeader& header) {
    payload.assign(header.length, std::byte{});
    return std::span(payload);
  };
};

void send(Connection& connection, std::uint16_t kind, const Bytes& bytes) {
  const std::span<const std::byte> all(bytes);
  connection.send({.kind = kind}, {&all, 1}, Deadline::in(kLong));
}

// Both ends in this process, on memory that it has mapped once, so that ThreadSanitizer sees one
// side's accesses beside the other's.
struct Pair {
  explicit Pair(std::size_t capacity = SharedRings::kCapacity)
      : rings(SharedRings::create(draw_secret(), capacity)) {
    const auto [one, other] = loopback();
    a = std::make_unique<Connection>(one, kLimits, true);
    b = std::make_unique<Connection>(other, kLimits, true);
    a->go_through(rings, true);
    b->go_through(rings, false);
  }
  std::shared_ptr<SharedRings> rings;
  std::unique_ptr<Connection> a, b;
};

std::optional<Reason> reason_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ConnectionError& error) {
    return error.reason;
  }
  return std::nullopt;
}

// What share() comes to: "shared", "socket", or what it throws.
std::string outcome(Connection& connection, Role role, Transport wish) {
  try {
    return share(connection, 0, role, wish, Deadline::in(kLong)) ? "shared" : "socket";
  } catch (const Error& error) {
    return error.what();
  }
}

// The other end in a process of its own, which f serves.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(Connection&)>& f) {
    const auto [one, other] = loopback();
    process = fork();
    REQUIRE(process >= 0);
    if (process == 0) {
      close(one);
      try {
        Connection connection(other, kLimits, false);
        share(connection, 0, Role::accepts, Transport::shm, Deadline::in(kLong));
        f(connection);
      } catch (const Error&) {
      }
      std::_Exit(0);
    }
    close(other);
    here = std::make_unique<Connection>(one, kLimits, false);
    REQUIRE(share(*here, 0, Role::offers, Transport::shm, Deadline::in(kLong)));
  }
  ~OtherProcess() {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  pid_t process;
  std::unique_ptr<Connection> here;
};

// What it is sent comes back.
void echo(Connection& connection) {
  Inbox inbox;
  for (;;) {
    const FrameHeader header = connection.receive(inbox.place, {});
    const std::span<const std::byte> all(inbox.payload);
    connection.send({.kind = header.kind, .correlation = header.correlation}, {&all, 1}, {});
  }
}

}  // namespace

TEST_CASE("where there is no room for the memory that is offered, frames stay on the socket") {
  enum { on_the_socket, otherwise, no_limits };
  const auto [one, other] = pair_of_sockets();
  const pid_t process = fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    close(one);
    try {
      Connection connection(other, kLimits, false);
      std::uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t all = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + (1 << 20);
      const rlimit as_it_is{all, all};
      setrlimit(RLIMIT_AS, &as_it_is);
      if (mmap(nullptr, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
        std::_Exit(no_limits);
      }
      if (!share(connection, 0, Role::accepts, Transport::any, Deadline::in(kLong))) {
        std::_Exit(on_the_socket);
      }
    } catch (const std::exception&) {
    }
    std::_Exit(otherwise);
  }
  close(other);
  Connection here(one, kLimits, false);
  bool shared = true;
  try {
    shared = share(here, 0, Role::offers, Transport::any, Deadline::in(kLong));
  } catch (const ConnectionError&) {
  }
  int status = 0;
  REQUIRE(waitpid(process, &status, 0) == process);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_limits) {
    MESSAGE("not tested: an emulator limits no memory");
    return;
  }
  CHECK_FALSE(shared);
  CHECK(status == on_the_socket);
}

TEST_CASE("two sides agree on shared memory, on the socket, or on neither, both the same") {
  using enum Transport;
  const std::string asked = "one side asks for shared memory, the other for TCP";
  for (const auto& [offers, accepts, expected] :
       std::vector<std::tuple<Transport, Transport, std::string>>{{any, any, "shared"},
                                                                  {shm, any, "shared"},
                                                                  {any, shm, "shared"},
                                                                  {shm, shm, "shared"},
                                                                  {tcp, any, "socket"},
                                                                  {any, tcp, "socket"},
                                                                  {tcp, tcp, "socket"},
                                                                  {shm, tcp, asked},
                                                                  {tcp, shm, asked}}) {
    const auto [one, other] = loopback();
    Connection a(one, kLimits, false), b(other, kLimits, false);
    std::string there;
    std::jthread beside([&, wish = accepts] { there = outcome(b, Role::accepts, wish); });
    CHECK(outcome(a, Role::offers, offers) == expected);
    beside.join();
    CHECK(there == expected);
    CHECK(a.shared() == (expected == "shared"));
    CHECK(b.shared() == a.shared());
    // Either way it carries frames.
    Inbox inbox;
    for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      send(*from, 1, pattern(1000, 1));
      CHECK(to->receive(inbox.place, Deadline::in(kLong)).kind == 1);
      CHECK(inbox.payload == pattern(1000, 1));
    }
  }
}

TEST_CASE("what does not hold the secret is not opened, and no answer is believed without it") {
  const Secret secret = draw_secret();
  const auto rings = SharedRings::create(secret);
  CHECK(SharedRings::open(getpid(), rings->file(), secret));
  CHECK_FALSE(SharedRings::open(getpid(), rings->file(), draw_secret()));
  CHECK_FALSE(SharedRings::open(1 << 30, 3, secret));
  CHECK_FALSE(SharedRings::open(-1, 3, secret));
  CHECK_FALSE(SharedRings::open(getpid(), -1, secret));
  CHECK_FALSE(SharedRings::open(getpid(), 0, secret));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK_FALSE(SharedRings::open(getpid(), ends[1], secret));
  const int plain = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
  REQUIRE(plain >= 0);  // another could make it shorter
  REQUIRE(ftruncate(plain, (std::size_t{64} << 10) + 2 * SharedRings::kCapacity) == 0);
  CHECK_FALSE(SharedRings::open(getpid(), plain, secret));
  for (const int file : {ends[0], ends[1], plain}) close(file);

  // An answer that says "opened", with a secret that does not stand in the memory.
  const auto [one, other] = loopback();
  Connection a(one, kLimits, false), b(other, kLimits, false);
  std::jthread liar([&b] {
    Inbox inbox;
    b.receive(inbox.place, Deadline::in(kLong));
    Bytes answer(kShareFrame, std::byte{1});
    std::memset(answer.data() + 24, 0, 4);
    send(b, 0, answer);
  });
  CHECK(reason_of([&a] { share(a, 0, Role::offers, Transport::shm, Deadline::in(kLong)); }) ==
        Reason::refused);
  liar.join();
  CHECK_FALSE(a.shared());
}

TEST_CASE("frames of all sizes go both ways at once, through rings larger and smaller than they") {
  for (const std::size_t capacity : {std::size_t{4096}, SharedRings::kCapacity}) {
    Pair pair(capacity);
    const std::vector<std::size_t> sizes = {0,     1,      23,     24,     63,        64,     65,
                                            4'000, 32'743, 32'744, 65'536, 1'500'001, 100'000};
    const auto both_ways = [&](Connection& connection, std::uint64_t mine, std::uint64_t its) {
      std::size_t gone = 0, come = 0;
      std::uint64_t total = 0;
      Bytes out;
      std::span<const std::byte> parts[3];
      Inbox inbox;
      const double begin = now();
      while (gone < sizes.size() || come < sizes.size()) {
        if (now() - begin > kLong) return false;
        if (gone < sizes.size() && !connection.sending()) {
          out = pattern(sizes[gone], mine + gone);
          const std::span<const std::byte> all(out);
          const std::size_t third = all.size() / 3;
          parts[0] = all.first(third);
          parts[1] = all.subspan(third, third);
          parts[2] = all.subspan(2 * third);
          connection.begin({.kind = 2, .correlation = gone}, parts);
        }
        if (connection.sending() && connection.flush()) ++gone;
        while (come < sizes.size()) {
          const auto frame = connection.take(inbox.place);
          if (!frame) break;
          if (frame->correlation != come || inbox.payload != pattern(sizes[come], its + come)) {
            return false;
          }
          total += kFrameHeader + sizes[come++];
        }
        if (gone < sizes.size() || come < sizes.size()) {
          if (gone < sizes.size() && !connection.sending()) continue;
          connection.wait(come < sizes.size(), gone < sizes.size(), Deadline::in(kLong));
        }
      }
      return connection.sent() == total && connection.received() == total;
    };
    bool there = false;
    std::jthread beside([&] { there = both_ways(*pair.b, 100, 7); });
    CHECK(both_ways(*pair.a, 7, 100));
    beside.join();
    CHECK(there);
  }
}

TEST_CASE("what is kept of a frame that is on its way through memory goes on from a copy") {
  Pair pair;
  Bytes bytes = pattern(5'000'001, 1);
  const std::span<const std::byte> all(bytes);
  pair.a->begin({.kind = 2}, {&all, 1});
  for (int i = 0; i < 3 && !pair.a->flush(); ++i) pair.a->keep();
  REQUIRE(pair.a->sending());
  bytes.assign(bytes.size(), std::byte{});
  Inbox inbox;
  for (bool come = false; !come;) {
    pair.a->flush();
    come = pair.b->take(inbox.place).has_value();
  }
  CHECK(inbox.payload == pattern(5'000'001, 1));
  CHECK_FALSE(pair.a->sending());
}

TEST_CASE("many small frames with pauses, so that both sides sleep and are woken often") {
  Pair pair(4096);
  const int count = 3000;
  std::jthread beside([&] {
    std::mt19937_64 random(1);
    for (int i = 0; i < count; ++i) {
      send(*pair.b, 1, pattern(random() % 3000, static_cast<std::uint64_t>(i)));
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    }
  });
  std::mt19937_64 random(2), sizes(1);
  Inbox inbox;
  for (int i = 0; i < count; ++i) {
    pair.a->receive(inbox.place, Deadline::in(kLong));
    REQUIRE(inbox.payload == pattern(sizes() % 3000, static_cast<std::uint64_t>(i)));
    if (sizes() % 8 == 0) sizes();  // the sender's pause
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
}

TEST_CASE("who waits through shared memory does it to a deadline, asleep, and can go on") {
  Pair pair;
  Inbox inbox;
  const double used = thread_seconds();
  CHECK(reason_of([&] { pair.a->receive(inbox.place, Deadline::in(0.5)); }) == Reason::late);
  CHECK(thread_seconds() - used < 0.1);
  const Bytes bytes = pattern(3'000'000, 1);
  const std::span<const std::byte> all(bytes);
  CHECK(reason_of([&] {
          pair.a->send({.kind = 2}, {&all, 1}, Deadline::in(0.1));
        }) == Reason::late);
  std::atomic<bool> cancelled{false};
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled.store(true, std::memory_order_relaxed);
  });
  Deadline deadline = Deadline::in(kLong);
  deadline.cancelled = &cancelled;
  CHECK(reason_of([&] { pair.a->receive(inbox.place, deadline); }) == Reason::cancelled);
  std::jthread there([&] { pair.b->receive(inbox.place, Deadline::in(kLong)); });
  while (!pair.a->flush()) pair.a->wait(false, true, Deadline::in(kLong));
  there.join();
  CHECK(inbox.payload == bytes);
}

TEST_CASE("the end of the other side is told behind what it has sent, and within a frame") {
  for (const bool within : {false, true}) {
    Pair pair(4096);
    send(*pair.b, 1, pattern(100, 1));
    const Bytes bytes = pattern(60'000, 1);
    const std::span<const std::byte> all(bytes);
    if (within) {
      pair.b->begin({.kind = 1}, {&all, 1});
      CHECK_FALSE(pair.b->flush());
    }
    pair.b.reset();
    Inbox inbox;
    CHECK(pair.a->receive(inbox.place, Deadline::in(kLong)).kind == 1);
    CHECK(inbox.payload == pattern(100, 1));
    CHECK(reason_of([&] { pair.a->receive(inbox.place, Deadline::in(kLong)); }) ==
          (within ? Reason::lost : Reason::closed));
    CHECK(reason_of([&] { send(*pair.a, 1, bytes); }) == Reason::lost);
  }
}

TEST_CASE("between processes: kill -9 is told at once, and SIGSTOP by the deadline") {
  OtherProcess other(echo);
  Inbox inbox;
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{50'000'000}}) {
    const Bytes bytes = pattern(size, size);
    send(*other.here, 2, bytes);
    CHECK(other.here->receive(inbox.place, Deadline::in(kLong)).length == size);
    CHECK(inbox.payload == bytes);
  }
  kill(other.process, SIGSTOP);
  send(*other.here, 1, pattern(100, 1));
  CHECK(reason_of([&] { other.here->receive(inbox.place, Deadline::in(0.2)); }) == Reason::late);
  kill(other.process, SIGCONT);
  CHECK(other.here->receive(inbox.place, Deadline::in(kLong)).length == 100);
  std::jthread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(other.process, SIGKILL);
  });
  CHECK(reason_of([&] { other.here->receive(inbox.place, Deadline::in(kLong)); }) ==
        Reason::closed);
}

TEST_CASE("kill -9 at any moment: what comes is whole frames, then the end") {
  for (int i = 0; i < 30; ++i) {
    OtherProcess other([](Connection& connection) {
      const Bytes bytes = pattern(300'000, 5);
      const std::span<const std::byte> all(bytes);
      for (;;) connection.send({.kind = 2}, {&all, 1}, {});
    });
    std::jthread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 * i));
      kill(other.process, SIGKILL);
    });
    Inbox inbox;
    const Bytes expected = pattern(300'000, 5);
    const auto reason = reason_of([&] {
      for (;;) {
        other.here->receive(inbox.place, Deadline::in(kLong));
        REQUIRE(inbox.payload == expected);
      }
    });
    CHECK((reason == Reason::lost || reason == Reason::closed));
  }
}

TEST_CASE("one loop over epoll serves many, some through shared memory, and sleeps between") {
  constexpr std::size_t kClients = 8;
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::unique_ptr<Connection>> served;
  std::vector<std::unique_ptr<Connection>> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    const auto [one, other] = loopback();
    clients.push_back(std::make_unique<Connection>(one, kLimits, false));
    served.push_back(std::make_unique<Connection>(other, kLimits, false));
    if (i % 4 != 0) {
      const auto rings = SharedRings::create(draw_secret(), 4096);
      clients.back()->go_through(rings, true);
      served.back()->go_through(rings, false);
    }
    epoll_event event{.events = 0, .data = {.u64 = i}};
    REQUIRE(epoll_ctl(loop, EPOLL_CTL_ADD, served.back()->socket(), &event) == 0);
  }
  std::jthread server([&] {
    struct Client {
      Inbox inbox;
      Bytes reply;
    };
    std::vector<Client> states(kClients);
    // What comes goes back, one frame after the other, until nothing can be done; then what to
    // wait for.
    const auto serve = [&](std::size_t i) {
      Connection& connection = *served[i];
      for (;;) {
        while (!connection.sending() || connection.flush()) {
          if (!connection.take(states[i].inbox.place)) break;
          states[i].reply.swap(states[i].inbox.payload);
          const std::span<const std::byte> all(states[i].reply);
          connection.begin({.kind = 2}, {&all, 1});
        }
        const bool to_write = connection.sending();
        if (const auto events = connection.events(!to_write, to_write)) {
          epoll_event event{.events = static_cast<std::uint32_t>(*events), .data = {.u64 = i}};
          epoll_ctl(loop, EPOLL_CTL_MOD, connection.socket(), &event);
          return;
        }
      }
    };
    std::size_t open = kClients;
    std::vector<epoll_event> events(kClients);
    const auto served_or_gone = [&](std::size_t i) {
      if (!reason_of([&] { serve(i); })) return;
      served[i].reset();
      --open;
    };
    for (std::size_t i = 0; i < kClients; ++i) served_or_gone(i);
    while (open > 0) {
      const int n = epoll_wait(loop, events.data(), kClients, 10'000);
      if (n <= 0) return;
      for (int k = 0; k < n; ++k) served_or_gone(events[static_cast<std::size_t>(k)].data.u64);
    }
  });
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937_64 random(i);
        Inbox inbox;
        for (int turn = 0; turn < 100; ++turn) {
          const Bytes bytes = pattern(random() % 20'000, i);
          send(*clients[i], 2, bytes);
          clients[i]->receive(inbox.place, Deadline::in(kLong));
          if (inbox.payload != bytes) std::abort();
        }
        clients[i].reset();
      });
    }
  }
  server.join();
  close(loop);
  for (const auto& connection : served) CHECK_FALSE(connection);
}

TEST_CASE("what is no frame is refused, also in shared memory") {
  Pair pair;
  const RingView ring = pair.rings->ring(1);
  Inbox inbox;
  const auto header = encode({.kind = 1, .length = (1 << 16) + 1});
  std::memcpy(ring.bytes + kGrain - kFrameHeader, header.data(), header.size());
  ring.words->tail.store(kGrain, std::memory_order_release);
  CHECK(reason_of([&] { pair.a->receive(inbox.place, Deadline::in(kLong)); }) == Reason::refused);
  CHECK(inbox.payload.empty());
}

// LEASHED_FUZZ: how many; a million by hand.
TEST_CASE(
    "whatever the other side writes into the shared words, nothing is read or written amiss") {
  const auto count = static_cast<long>(asked_for("LEASHED_FUZZ", 200'000) / 10);
  std::mt19937_64 random(6);
  const auto pair = std::make_unique<Pair>(4096);
  for (long i = 0; i < count; ++i) {
    const auto [one, other] = pair_of_sockets();
    Connection a(one, kLimits, false);
    const auto rings = pair->rings;
    for (const std::size_t which : {0, 1}) {
      RingWords& words = *rings->ring(which).words;
      words.tail.store(0, std::memory_order_relaxed);
      words.head.store(0, std::memory_order_relaxed);
    }
    a.go_through(rings, true);
    Inbox inbox;
    const Bytes bytes = pattern(random() % 9000, 1);
    const std::span<const std::byte> all(bytes);
    try {
      for (int turn = 0; turn < 4; ++turn) {
        for (const std::size_t which : {0, 1}) {
          const RingView ring = rings->ring(which);
          const auto number = [&]() -> std::uint64_t {
            switch (random() % 4) {
              case 0:
                return random();
              case 1:
                return random() % 10'000;
              case 2:
                return ring.words->tail.load(std::memory_order_relaxed) + random() % 300 - 150;
              default:
                return ring.words->head.load(std::memory_order_relaxed) + 64 * (random() % 64);
            }
          };
          if (random() % 2 == 0) ring.words->tail.store(number(), std::memory_order_relaxed);
          if (random() % 2 == 0) ring.words->head.store(number(), std::memory_order_relaxed);
          ring.words->reader_sleeps.store(static_cast<std::uint32_t>(random()),
                                          std::memory_order_relaxed);
          const auto header = encode({.kind = 1, .length = random() % 3000});
          const std::size_t at = random() % (ring.capacity / kGrain) * kGrain;
          std::memcpy(ring.bytes + at + kGrain - kFrameHeader, header.data(), header.size());
        }
        if (random() % 2 == 0) [[maybe_unused]]
          const ssize_t n = write(other, bytes.data(), bytes.size() % 700);
        a.take(inbox.place);
        if (!a.sending()) a.begin({.kind = 1}, {&all, 1});
        a.flush();
        a.events(true, true);
      }
    } catch (const ConnectionError& error) {
      REQUIRE((error.reason == Reason::refused || error.reason == Reason::lost));
    }
    REQUIRE(inbox.payload.size() <= (1 << 16));
    close(other);
  }
}
