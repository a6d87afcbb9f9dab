// Sockets in pairs, and what there is of descriptors.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

namespace leashed {

inline constexpr double kLong = 120;  // seconds: under an emulator

inline std::pair<int, int> pair_of_sockets() {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  return {sockets[0], sockets[1]};
}

inline std::pair<int, int> pair_over_loopback() {
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof here;
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(listener >= 0);
  REQUIRE(bind(listener, address, length) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, address, &length) == 0);
  const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(one, address, length) == 0);
  const int other = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  REQUIRE(other >= 0);
  close(listener);
  for (const int each : {one, other}) {
    const int on = 1;
    REQUIRE(setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
  }
  return {one, other};
}

inline std::size_t open_descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  REQUIRE(folder);
  std::size_t count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

// Until it holds, or nobody would wait any longer.
bool comes_true(const auto& holds) {
  for (int i = 0; i < 60'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace leashed
