// Signs of life between messages: while nobody sends, for as long as is allowed, and never within
// a message.
#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "leashed/base/descriptor.h"
#include "leashed/net/pulse.h"
#include "sockets.h"

using namespace leashed;

namespace {

constexpr double kLong = 120;  // seconds: under an emulator
constexpr double kNever = 1e9;
constexpr double kSoon = 0.005;

struct Ends {
  explicit Ends(std::pair<int, int> sockets) : here(sockets.first), there(sockets.second) {}
  Descriptor here, there;
};

// The next bytes: as many, or all up to the end.
std::string next(int socket, std::size_t size) {
  std::string got(size, ' ');
  std::size_t at = 0;
  while (at < size) {
    const ssize_t n = read(socket, got.data() + at, size - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  got.resize(at);
  return got;
}

std::string rest(Ends& ends) {
  shutdown(ends.here.get(), SHUT_WR);
  return next(ends.there.get(), std::size_t{1} << 26);
}

std::size_t count(std::string_view whole, std::string_view part) {
  std::size_t found = 0;
  for (auto at = whole.find(part); at != whole.npos; at = whole.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

void until_full(int socket) {
  for (pollfd full{socket, POLLOUT, 0}; poll(&full, 1, 20) != 0;) std::this_thread::yield();
}

}  // namespace

TEST_CASE("beats go while nobody sends, and seldom where they are to be seldom") {
  Ends ends(pair_of_sockets());
  Pulse pulse(ends.here.get(), "beat", kLong);
  CHECK(pulse.send("hello", kLong, kSoon));
  CHECK(next(ends.there.get(), 5 + 3 * 4) == "hellobeatbeatbeat");
  CHECK(pulse.send("last", kLong, kNever));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  pulse.close();
  pulse.close();
  const std::string heard = rest(ends);
  CHECK(heard.substr(heard.size() - 4) == "last");
  CHECK(count(heard, "beat") * 4 + 4 == heard.size());
}

TEST_CASE("nothing goes before the first message, and closing waits for no beat") {
  Ends ends(pair_of_sockets());
  {
    Pulse pulse(ends.here.get(), "beat", 1e9);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(pulse.send("hello", kLong, kNever));
  }
  CHECK(rest(ends) == "hello");
}

TEST_CASE("without a message beats end after a while, and go on with the next") {
  Ends ends(pair_of_sockets());
  Pulse pulse(ends.here.get(), "beat", 5 * kSoon);
  CHECK(pulse.send("hello", kLong, kSoon));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(pulse.send("again", kLong, kNever));
  std::string first;
  while (!first.ends_with("again")) first += next(ends.there.get(), 1);
  CHECK(count(first, "beat") <= 5);
  std::string second;
  do {
    CHECK(pulse.send("once", kLong, kSoon));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    second += next(ends.there.get(), 4);
  } while (count(second, "beat") == 0);
}

TEST_CASE("a beat of which a part has gone goes wholly before a message does") {
  Ends ends(loopback());
  const std::string beat = "<" + std::string(1 << 20, 'b') + ">";
  Pulse pulse(ends.here.get(), beat, kLong);
  CHECK(pulse.send("(hello)", kLong, 0.0001));
  until_full(ends.here.get());
  const std::string message = "(" + std::string(1 << 20, 'm') + ")";
  bool sent = false;
  std::jthread sending([&] { sent = pulse.send(message, kLong, kNever); });
  CHECK(next(ends.there.get(), 7) == "(hello)");
  std::string got;
  do {
    got = next(ends.there.get(), beat.size());
    CHECK((got == beat || got == message));
  } while (got == beat);
  sending.join();
  CHECK(sent);
  pulse.close();
  CHECK(rest(ends) == "");
}

TEST_CASE("after a message that did not go in time nothing goes") {
  Ends ends(loopback());
  Pulse pulse(ends.here.get(), "beat", kLong);
  const std::string message(std::size_t{1} << 25, 'm');
  CHECK(!pulse.send(message, 0.01, kSoon));
  const std::string heard = next(ends.there.get(), 1 << 10);
  CHECK(pulse.send("more", kLong, kSoon));
  pulse.close();
  CHECK(message.starts_with(heard + rest(ends)));
}

TEST_CASE("where the other side has ended, beats end, and reading tells what it said last") {
  Ends ends(loopback());
  Pulse pulse(ends.here.get(), "beat", kLong);
  CHECK(write(ends.there.get(), "bye", 3) == 3);
  close(ends.there.take());
  for (int k = 0; k < 100; ++k) {
    CHECK(pulse.send("hello", kLong, 0.0001));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(next(ends.here.get(), 1 << 10) == "bye");
}
