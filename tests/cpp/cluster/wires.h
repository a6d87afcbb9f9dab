// Sockets in pairs, and what there is of descriptors.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
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
