#include "leashed/net/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/crc32c.h"

namespace leashed {
namespace {

using Reason = ConnectionError::Reason;

// What is read at once: small frames whole, with those behind them. The rest of a larger payload
// goes straight to where it belongs.
constexpr std::size_t kBuffer = std::size_t{16} << 10;
constexpr std::size_t kMostParts = 16;  // handed to the system at once
constexpr double kLook = 0.05;          // seconds between two looks at whether to give up
constexpr std::size_t kTurn = std::size_t{4} << 20;  // bytes until the clock is looked at

[[noreturn]] void lost(const char* doing) {
  const int error = errno;
  throw ConnectionError(Reason::lost, std::string(doing) + ": " + std::strerror(error));
}

bool later() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void until_ready(std::span<pollfd> waiting, const Deadline& deadline) {
  for (;;) {
    deadline.check();
    const double left = deadline.at - now();
    const double most = deadline.cancelled ? std::min(left, kLook) : left;
    const int milliseconds =
        std::isfinite(most) ? static_cast<int>(std::ceil(std::clamp(most, 0.0, 1e6) * 1e3)) : -1;
    const int ready = poll(waiting.data(), waiting.size(), milliseconds);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) lost("waiting");
  }
}

}  // namespace

Deadline Deadline::in(double seconds) { return {now() + seconds}; }

void Deadline::check() const {
  if (cancelled && cancelled->load(std::memory_order_relaxed)) {
    throw ConnectionError(Reason::cancelled, "given up");
  }
  if (!(at > now())) {
    throw ConnectionError(Reason::late, "the other side has not answered in time");
  }
}

Connection::Connection(int socket, std::span<const std::uint64_t> limits, bool checked)
    : socket_(socket), limits_(limits), checked_(checked), parser_(limits), buffer_(kBuffer) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(socket_, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM) {
    throw Error("a connection needs a connected stream socket");
  }
  const int flags = fcntl(socket_, F_GETFL);
  if (flags < 0 || fcntl(socket_, F_SETFL, flags | O_NONBLOCK) < 0) lost("taking a socket over");
  const int on = 1;  // frames go at once; other kinds of sockets do not know it
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection::~Connection() { close(socket_); }

void Connection::begin(FrameHeader header, Parts parts) {
  if (sending()) throw Error("a frame is still being sent; go on with it, or close the connection");
  header.length = 0;
  header.checked = checked_;
  header.checksum = 0;
  for (const auto& part : parts) header.length += part.size();
  if (header.kind >= limits_.size() || header.length > limits_[header.kind]) {
    throw Error("a frame of kind " + std::to_string(header.kind) + " with " +
                std::to_string(header.length) + " bytes may not be sent here");
  }
  unsent_.reserve(1 + parts.size());
  if (checked_) {
    for (const auto& part : parts) {
      header.checksum = crc32c(part.data(), part.size(), header.checksum);
    }
  }
  header_ = encode(header);
  unsent_.assign(1, header_);
  for (const auto& part : parts) {
    if (!part.empty()) unsent_.push_back(part);
  }
  next_ = 0;
}

bool Connection::flush() {
  const std::uint64_t end = sent_ + kTurn;
  while (sending()) {
    if (sent_ >= end) return false;
    iovec vectors[kMostParts];
    const std::size_t count = std::min(kMostParts, unsent_.size() - next_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto part = unsent_[next_ + i];
      vectors[i] = {const_cast<std::byte*>(part.data()), part.size()};
    }
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = count;
    const ssize_t n = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (later()) return false;
      if (errno == EINTR) continue;
      lost("sending");
    }
    sent_ += static_cast<std::uint64_t>(n);
    for (auto left = static_cast<std::size_t>(n); left > 0;) {
      auto& part = unsent_[next_];
      const std::size_t gone = std::min(left, part.size());
      part = part.subspan(gone);
      left -= gone;
      if (part.empty()) ++next_;
    }
  }
  return true;
}

// 0: nothing now.
std::size_t Connection::read(std::span<std::byte> into) {
  for (;;) {
    const ssize_t n = recv(socket_, into.data(), into.size(), 0);
    if (n > 0) {
      received_ += static_cast<std::uint64_t>(n);
      return static_cast<std::size_t>(n);
    }
    if (n == 0) {
      if (parser_.within()) {
        throw ConnectionError(Reason::lost, "the other side ended within a frame");
      }
      throw ConnectionError(Reason::closed, "the other side has closed the connection");
    }
    if (later()) return 0;
    if (errno != EINTR) lost("receiving");
  }
}

// What the buffer holds, up to a whole frame.
std::optional<FrameHeader> Connection::parse(const Place& place) {
  for (;;) {
    switch (parser_.feed(unread_)) {
      case FrameParser::Step::more:
        return std::nullopt;
      case FrameParser::Step::header:
        parser_.place(place(parser_.header()));
        break;
      case FrameParser::Step::frame:
        return parser_.header();
      case FrameParser::Step::refused:
        throw ConnectionError(Reason::refused, parser_.why());
    }
  }
}

std::optional<FrameHeader> Connection::take(const Place& place) {
  const std::uint64_t end = received_ + kTurn;
  for (;;) {
    if (auto frame = parse(place)) return frame;
    if (received_ >= end) return std::nullopt;
    if (const auto missing = parser_.missing(); missing.size() >= kBuffer) {
      const std::size_t n = read(missing);
      if (n == 0) return std::nullopt;
      const FrameParser::Step step = parser_.wrote(n);
      if (step == FrameParser::Step::frame) return parser_.header();
      if (step == FrameParser::Step::refused) {
        throw ConnectionError(Reason::refused, parser_.why());
      }
    } else {
      const std::size_t n = read(buffer_);
      if (n == 0) return std::nullopt;
      unread_ = std::span<const std::byte>(buffer_).first(n);
    }
  }
}

void Connection::wait(bool to_read, bool to_write, const Deadline& deadline) const {
  if (to_read && !unread_.empty()) return;
  pollfd waiting{socket_, 0, 0};
  if (to_read) waiting.events |= POLLIN;
  if (to_write) waiting.events |= POLLOUT;
  until_ready({&waiting, 1}, deadline);
}

void Connection::wait(const Connection& to_read, const Connection& to_write,
                      const Deadline& deadline) {
  if (!to_read.unread_.empty()) return;
  pollfd waiting[] = {{to_read.socket_, POLLIN, 0}, {to_write.socket_, POLLOUT, 0}};
  until_ready(waiting, deadline);
}

void Connection::send(const FrameHeader& header, Parts parts, const Deadline& deadline) {
  begin(header, parts);
  while (!flush()) wait(false, true, deadline);
}

FrameHeader Connection::receive(const Place& place, const Deadline& deadline) {
  for (;;) {
    if (const auto frame = take(place)) return *frame;
    wait(true, false, deadline);
  }
}

}  // namespace leashed
