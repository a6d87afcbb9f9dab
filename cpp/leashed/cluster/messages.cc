#include "leashed/cluster/messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "leashed/base/descriptor.h"

namespace leashed {
namespace {

constexpr double kAgreement = 5;  // seconds for both sides to agree

}  // namespace

std::unique_ptr<Connection> connected(int socket, std::span<const std::uint64_t> limits,
                                      bool checked, Transport wish, Role role) {
  if (wish == Transport::tcp) return std::make_unique<Connection>(socket, limits, checked);
  // What throws after the connection has the socket would close it: it gets one of its own.
  Descriptor own(fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) throw Error(std::string("duplicating a socket: ") + std::strerror(errno));
  auto connection = std::make_unique<Connection>(own.get(), limits, checked);
  own.take();
  share(*connection, kShare, role, wish, Deadline::in(kAgreement));
  close(socket);
  return connection;
}

bool answers(Connection& connection, double patience) {
  const Deadline deadline = Deadline::in(patience);
  std::byte mark{};
  const std::span<const std::byte> probe(&mark, 1);
  try {
    connection.send({.kind = kProbe}, {&probe, 1}, deadline);
    const auto place = [&mark](const FrameHeader& h) {
      if (h.kind != kProbe) throw Error("a server has answered something else than was asked");
      return std::span(&mark, h.length);
    };
    connection.receive(place, deadline);
    return true;
  } catch (
      const std::exception&) {  // the connection is no use then, and its socket not the caller's
    return false;
  }
}

}  // namespace leashed
