// TCP over loopback, for programs that fork.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace leashed {

inline void need(bool held, const char* what) {
  if (held) return;
  std::perror(what);
  std::exit(1);
}

// Two connected sockets.
inline std::pair<int, int> loopback() {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  need(bind(listening, any, size) == 0 && listen(listening, 1) == 0, "listen");
  need(getsockname(listening, any, &size) == 0, "getsockname");
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  need(connect(one, any, size) == 0, "connect");
  const int other = accept(listening, nullptr, nullptr);
  need(other >= 0, "accept");
  const int on = 1;
  for (const int s : {one, other}) setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(listening);
  return {one, other};
}

}  // namespace leashed
