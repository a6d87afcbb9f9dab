// What the kernel counts of a socket, whoever has written to it.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "leashed/base/descriptor.h"
#include "leashed/net/kernel_bytes.h"
#include "sockets.h"

using namespace leashed;

namespace {

void move(const Descriptor& from, const Descriptor& to, std::size_t bytes) {
  const std::string data(bytes, 'x');
  REQUIRE(send(from.get(), data.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  std::string read(bytes, '\0');
  REQUIRE(recv(to.get(), read.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
}

// What has been acknowledged comes some milliseconds late.
bool acknowledges(const KernelBytes& kernel, std::uint64_t bytes) {
  for (int i = 0; i < 5'000 && kernel.count()->out < bytes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return kernel.count()->out == bytes;
}

}  // namespace

TEST_CASE("the kernel counts both ways, from when it is first asked") {
  const auto [one, two] = loopback();
  const Descriptor here(one), there(two);
  move(here, there, 300);
  const std::string waiting(20, 'x');  // which nobody has read yet
  REQUIRE(send(there.get(), waiting.data(), waiting.size(), 0) == 20);
  const KernelBytes mine(here.get()), other(there.get());
  if (!mine.count()) {
    MESSAGE("NOT TESTED: this system has no such counts");
    return;
  }
  move(here, there, 1000);
  move(there, here, 77);
  CHECK(acknowledges(mine, 1000));
  CHECK(mine.count()->in == 20 + 77);
  CHECK(acknowledges(other, 77));
  CHECK(other.count()->in == 1000);
}

TEST_CASE("of a socket that is not TCP it counts nothing") {
  const auto [one, two] = pair_of_sockets();
  const Descriptor here(one), there(two);
  CHECK_FALSE(KernelBytes(here.get()).count());
}
