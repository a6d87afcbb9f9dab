// Connected sockets for tests.
#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

inline std::pair<int, int> pair_of_sockets() {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  return {sockets[0], sockets[1]};
}

inline std::pair<int, int> loopback() {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listening, any, size) == 0);
  REQUIRE(listen(listening, 1) == 0);
  REQUIRE(getsockname(listening, any, &size) == 0);
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(connect(one, any, size) == 0);
  const int other = accept(listening, nullptr, nullptr);
  REQUIRE(other >= 0);
  close(listening);
  return {one, other};
}
