// Frames over sockets: whole, large, both ways at once, late, cut off, from who does not keep to
// it.
#include <doctest/doctest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/base/crc32c.h"
#include "leashed/net/connection.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;
using Reason = ConnectionError::Reason;

constexpr std::uint64_t kLimits[] = {0, 1 << 16, std::uint64_t{1} << 28};

Bytes pattern(std::size_t size, unsigned seed) {
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

// Another thread, whose exception is this one's at the end.
class Beside {
 public:
  explicit Beside(auto f)
      : thread_([this, f] {
          try {
            f();
          } catch (const std::exception& error) {
            failed_ = error.what();
          }
        }) {}
  void join() {
    thread_.join();
    CHECK(failed_ == "");
  }

 private:
  std::string failed_;
  std::jthread thread_;
};

constexpr double kLong = 120;  // seconds: under an emulator

Reason reason_of(const auto& f) {
  try {
    f();
  } catch (const ConnectionError& error) {
    return error.reason;
  }
  FAIL("nothing thrown");
  return Reason::closed;
}

}  // namespace

TEST_CASE(
    "frames arrive as they were sent, small and large, in parts, with a checksum and without") {
  for (const bool checked : {false, true}) {
    for (const auto& [one, other] : {pair_of_sockets(), loopback()}) {
      Connection a(one, kLimits, checked), b(other, kLimits, checked);
      const std::vector<std::size_t> sizes = {0, 1, 100, 16'383, 16'384, 16'385, 3'000'000, 5};
      Beside sending([&] {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          const Bytes bytes = pattern(sizes[i], static_cast<unsigned>(i));
          const std::span<const std::byte> all(bytes);
          std::vector<std::span<const std::byte>> parts;
          for (std::size_t k = 0; k < 20; ++k) {
            const std::size_t from = all.size() * k / 20, to = all.size() * (k + 1) / 20;
            parts.push_back(all.subspan(from, to - from));
          }
          a.send({.kind = 2, .correlation = i}, parts, Deadline::in(kLong));
        }
      });
      Inbox inbox;
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const FrameHeader header = b.receive(inbox.place, Deadline::in(kLong));
        CHECK(header.kind == 2);
        CHECK(header.correlation == i);
        CHECK(header.checked == checked);
        CHECK(inbox.payload == pattern(sizes[i], static_cast<unsigned>(i)));
        total += kFrameHeader + sizes[i];
      }
      sending.join();
      CHECK(a.sent() == total);
      CHECK(b.received() == total);
    }
  }
}

TEST_CASE(
    "a frame of more parts than go to the system at once arrives, however few bytes it takes") {
  for (const bool checked : {false, true}) {
    for (const auto& [one, other] : {pair_of_sockets(), loopback()}) {
      const int least = 1;
      REQUIRE(setsockopt(one, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
      REQUIRE(setsockopt(other, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0);
      Connection a(one, kLimits, checked), b(other, kLimits, checked);
      const Bytes bytes = pattern(300'000, 1);
      std::span<const std::byte> left(bytes);
      std::vector<std::span<const std::byte>> parts;
      for (std::size_t k = 0; !left.empty(); ++k) {
        const std::size_t sizes[] = {1, 0, 4'000, 7, 133};
        const std::size_t size = std::min(sizes[k % 5], left.size());
        parts.push_back(left.first(size));
        left = left.subspan(size);
      }
      REQUIRE(parts.size() > 4 * 64);
      a.begin({.kind = 2, .correlation = 3}, parts);
      Inbox inbox;
      std::size_t ready = checked ? bytes.size() : 0, stopped = 0;
      std::optional<FrameHeader> come;
      for (const double end = now() + kLong; !come && now() < end;) {
        ready = std::min(ready + 30'011, bytes.size());
        stopped += !a.flush(ready) && a.gone() < ready;
        come = b.take(inbox.place);
      }
      REQUIRE(come);
      CHECK(come->correlation == 3);
      CHECK(inbox.payload == bytes);
      CHECK_FALSE(a.sending());
      CHECK(stopped > 0);
    }
  }
}

TEST_CASE("a frame of a head and as many parts as a model has tables goes in one piece") {
  const auto [one, other] = loopback();
  const auto pieces = [socket = one]() -> std::optional<std::uint32_t> {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
        size < offsetof(tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out) {
      return std::nullopt;
    }
    return info.tcpi_data_segs_out;
  };
  Connection a(one, kLimits, false), b(other, kLimits, false);
  const auto before = pieces();
  if (!before) {
    MESSAGE("NOT TESTED: this system has no such counts");
    return;
  }
  const Bytes bytes = pattern(27 * 64, 1);
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t k = 0; k < 27; ++k) parts.push_back(std::span(bytes).subspan(k * 64, 64));
  REQUIRE(pieces() == before);
  a.send({.kind = 1}, parts, Deadline::in(kLong));
  Inbox inbox;
  b.receive(inbox.place, Deadline::in(kLong));
  CHECK(inbox.payload == bytes);
  CHECK(*pieces() == *before + 1);
}

TEST_CASE("what is kept of a frame that is on its way goes on from a copy") {
  const auto [one, other] = loopback();
  Connection a(one, kLimits, true), b(other, kLimits, true);
  Bytes bytes = pattern(20'000'000, 1);
  const std::span<const std::byte> parts[] = {std::span(bytes).first(7),
                                              std::span(bytes).subspan(7)};
  a.begin({.kind = 2}, parts);
  for (int i = 0; i < 3 && !a.flush(); ++i) a.keep();
  REQUIRE(a.sending());
  std::fill(bytes.begin(), bytes.end(), std::byte{});
  Inbox inbox;
  for (bool come = false; !come;) {
    a.flush();
    come = b.take(inbox.place).has_value();
  }
  CHECK(inbox.payload == pattern(20'000'000, 1));
  CHECK_FALSE(a.sending());
  a.keep();  // nothing
  CHECK_FALSE(a.sending());
}

TEST_CASE("both sides send more than the system holds, and neither waits for the other for ever") {
  const auto [one, other] = loopback();
  Connection a(one, kLimits, false), b(other, kLimits, false);
  const Bytes bytes = pattern(20'000'000, 1);
  const std::span<const std::byte> all(bytes);
  const auto exchange = [&](Connection& connection) {
    Inbox inbox;
    connection.begin({.kind = 2}, {&all, 1});
    bool gone = false, come = false;
    while (!gone || !come) {
      gone = connection.flush();
      come = come || connection.take(inbox.place);
      if (!gone || !come) connection.wait(!come, !gone, Deadline::in(kLong));
    }
    return inbox.payload == bytes;
  };
  bool right = false;
  Beside there([&] { right = exchange(b); });
  CHECK(exchange(a));
  there.join();
  CHECK(right);
}

TEST_CASE(
    "who does not answer, does not read, or is no longer wanted is waited for no longer than "
    "said") {
  const auto [one, other] = loopback();
  Connection a(one, kLimits, false), b(other, kLimits, false);
  Inbox inbox;
  const double begin = now();
  CHECK(reason_of([&] { a.receive(inbox.place, Deadline::in(0.1)); }) == Reason::late);
  const Bytes bytes = pattern(30'000'000, 1);
  const std::span<const std::byte> all(bytes);
  CHECK(reason_of([&] { a.send({.kind = 2}, {&all, 1}, Deadline::in(0.1)); }) == Reason::late);
  std::atomic<bool> cancelled{false};
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled.store(true, std::memory_order_relaxed);
  });
  Deadline deadline = Deadline::in(60);
  deadline.cancelled = &cancelled;
  CHECK(reason_of([&] { a.receive(inbox.place, deadline); }) == Reason::cancelled);
  CHECK(now() - begin >= 0.2);

  // What was late goes on where it stopped.
  Beside there([&] { b.receive(inbox.place, Deadline::in(kLong)); });
  while (!a.flush()) a.wait(false, true, Deadline::in(kLong));
  there.join();
  CHECK(inbox.payload == bytes);
}

TEST_CASE("the end of the other side is told, between frames and within one") {
  for (const bool within : {false, true}) {
    const auto [one, other] = loopback();
    Connection a(one, kLimits, false);
    const FrameHeader header{.kind = 1, .length = 10, .correlation = 0};
    const auto bytes = encode(header);
    if (within) REQUIRE(write(other, bytes.data(), bytes.size()) == 40);
    close(other);
    Inbox inbox;
    CHECK(reason_of([&] { a.receive(inbox.place, Deadline::in(kLong)); }) ==
          (within ? Reason::lost : Reason::closed));
    const Bytes large(1 << 16);
    const std::span<const std::byte> all(large);
    CHECK(reason_of([&] {
            for (int i = 0; i < 1000; ++i) a.send({.kind = 1}, {&all, 1}, Deadline::in(kLong));
          }) == Reason::lost);
  }
}

TEST_CASE("bytes that are no frame are refused, and nothing is asked for on their word") {
  const auto [one, other] = pair_of_sockets();
  Connection a(one, kLimits, false);
  const auto bytes = encode({.kind = 1, .length = (1 << 16) + 1, .correlation = 0});
  REQUIRE(write(other, bytes.data(), bytes.size()) == 40);
  bool asked = false;
  const auto place = [&](const FrameHeader&) {
    asked = true;
    return std::span<std::byte>{};
  };
  CHECK(reason_of([&] { a.receive(place, Deadline::in(kLong)); }) == Reason::refused);
  CHECK_FALSE(asked);
  close(other);
  CHECK_THROWS_AS(Connection(-1, kLimits, false), Error);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK_THROWS_AS(Connection(ends[0], kLimits, false), Error);
  CHECK(close(ends[0]) == 0);  // still this one's
  close(ends[1]);
}

TEST_CASE("a large payload that was damaged on the way is refused") {
  const auto [one, other] = pair_of_sockets();
  Connection a(one, kLimits, false);
  const Bytes bytes = pattern(200'000, 1);
  FrameHeader header{.kind = 2, .length = bytes.size(), .checked = true};
  header.checksum = 1 + crc32c(bytes.data(), bytes.size());
  const auto head = encode(header);
  Beside there([&, socket = other] {
    REQUIRE(write(socket, head.data(), head.size()) == 40);
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = write(socket, bytes.data() + done, bytes.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
  });
  Inbox inbox;
  CHECK(reason_of([&] { a.receive(inbox.place, Deadline::in(kLong)); }) == Reason::refused);
  there.join();
  close(other);
}

TEST_CASE("who trickles is waited for no longer than said, and a frame goes on where it stopped") {
  const auto [one, other] = pair_of_sockets();
  Connection a(one, kLimits, false);
  const Bytes bytes = pattern(1000, 1);
  const auto head = encode({.kind = 1, .length = bytes.size()});
  std::atomic<bool> enough{false};
  std::size_t done = 0;
  REQUIRE(write(other, head.data(), head.size()) == 40);
  Beside there([&, socket = other] {
    while (!enough.load(std::memory_order_relaxed) && done < 900) {
      REQUIRE(write(socket, bytes.data() + done++, 1) == 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  Inbox inbox;
  CHECK(reason_of([&] { a.receive(inbox.place, Deadline::in(0.1)); }) == Reason::late);
  enough.store(true, std::memory_order_relaxed);
  there.join();
  REQUIRE(write(other, bytes.data() + done, bytes.size() - done) ==
          static_cast<ssize_t>(bytes.size() - done));
  const auto not_again = [](const FrameHeader&) -> std::span<std::byte> { throw std::bad_alloc(); };
  CHECK(a.receive(not_again, Deadline::in(kLong)).length == 1000);
  CHECK(inbox.payload == bytes);
  close(other);
}

TEST_CASE("frames that came at once are had one by one; who has no memory for one may ask again") {
  const auto [one, other] = pair_of_sockets();
  Connection a(one, kLimits, false), b(other, kLimits, false);
  const Bytes bytes = pattern(100, 1);
  const std::span<const std::byte> all(bytes);
  for (std::uint64_t i = 0; i < 3; ++i) {
    b.send({.kind = 1, .correlation = i}, {&all, 1}, Deadline::in(kLong));
  }
  const auto none = [](const FrameHeader&) -> std::span<std::byte> { throw std::bad_alloc(); };
  CHECK_THROWS_AS(a.receive(none, Deadline::in(kLong)), std::bad_alloc);
  Inbox inbox;
  for (std::uint64_t i = 0; i < 3; ++i) {
    a.wait(true, false, Deadline::in(kLong));
    const auto frame = a.take(inbox.place);
    REQUIRE(frame);
    CHECK(frame->correlation == i);
    CHECK(inbox.payload == bytes);
  }
  CHECK_FALSE(a.take(inbox.place));
}

TEST_CASE("a frame is not begun within another, nor one that the other side would refuse") {
  const auto [one, other] = pair_of_sockets();
  Connection a(one, kLimits, false), b(other, kLimits, false);
  const Bytes bytes = pattern(30'000'000, 1);
  const std::span<const std::byte> all(bytes);
  CHECK(reason_of([&] { a.send({.kind = 2}, {&all, 1}, Deadline::in(0.05)); }) == Reason::late);
  CHECK(a.sending());
  CHECK_THROWS_AS(a.begin({.kind = 0}, {}), Error);
  CHECK_THROWS_AS(b.begin({.kind = 1}, {&all, 1}), Error);
  CHECK_THROWS_AS(b.begin({.kind = 3}, {}), Error);
  CHECK_FALSE(b.sending());
}
