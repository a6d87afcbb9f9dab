#include "leashed/net/kernel_bytes.h"

// (netinet/tcp.h has a tcp_info of its own, without these counts, and the two exclude each other.)
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace leashed {
namespace {

std::optional<Traffic> acknowledged_and_received(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(__u64);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 || size < kNeeded) {
    return std::nullopt;
  }
  return Traffic{info.tcpi_bytes_acked, info.tcpi_bytes_received};
}

// Bytes that wait in one of the socket's queues.
std::uint64_t waiting(int socket, unsigned long queue) {
  int bytes = 0;
  return ioctl(socket, queue, &bytes) == 0 ? static_cast<std::uint64_t>(std::max(bytes, 0)) : 0;
}

}  // namespace

// Of one moment: nothing came or was acknowledged while the queues were asked.
KernelBytes::KernelBytes(int socket) : socket_(socket) {
  std::uint64_t unsent = 0, unread = 0;
  std::optional<Traffic> after = acknowledged_and_received(socket);
  do {
    before_ = after;
    unsent = waiting(socket, SIOCOUTQ);
    unread = waiting(socket, SIOCINQ);
    after = acknowledged_and_received(socket);
  } while (before_ && after && (before_->out != after->out || before_->in != after->in));
  if (!before_) return;
  before_->out += unsent;
  before_->in -= std::min(before_->in, unread);
}

std::optional<Traffic> KernelBytes::count() const {
  if (!before_) return std::nullopt;
  auto now = acknowledged_and_received(socket_);
  if (!now) return std::nullopt;
  now->out -= std::min(now->out, before_->out);
  now->in -= std::min(now->in, before_->in);
  return now;
}

}  // namespace leashed
