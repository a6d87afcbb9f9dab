#include "leashed/net/connection.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/crc32c.h"
#include "leashed/net/spin.h"

namespace leashed {
namespace {

using Reason = ConnectionError::Reason;

// What is read at once: small frames whole, with those behind them. The rest of a larger payload
// goes straight to where it belongs, and with it comes the beginning of what is behind it.
constexpr std::size_t kBuffer = std::size_t{16} << 10;
constexpr std::size_t kAhead = 256;
constexpr std::size_t kMostParts = 64;    // handed to the system at once
constexpr int kSilence = 15, kProbe = 3;  // seconds until a silent host is asked, and again
constexpr double kLook = 0.05;            // seconds between two looks at whether to give up
constexpr std::size_t kTurn = std::size_t{4} << 20;  // bytes until the clock is looked at
// Through shared memory:
constexpr std::size_t kPiece = std::size_t{32}
                               << 10;  // published, and used, at once: in L1's reach
constexpr std::size_t kBefore = kGrain - kFrameHeader;  // unused, before a frame's header

[[noreturn]] void lost(const char* doing) {
  const int error = errno;
  throw ConnectionError(Reason::lost, std::string(doing) + ": " + std::strerror(error));
}

[[noreturn]] void ended(const FrameParser& parser) {
  if (parser.within()) {
    throw ConnectionError(Reason::lost, "the other side ended within a frame");
  }
  throw ConnectionError(Reason::closed, "the other side has closed the connection");
}

bool later() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void until_ready(std::span<pollfd> waiting, const Deadline& deadline) {
  for (;;) {
    deadline.check();
    const double left = deadline.at - now();
    const bool looks = deadline.cancelled || deadline.ended || deadline.go_on;
    const double most = looks ? std::min(left, kLook) : left;
    const int milliseconds =
        std::isfinite(most) ? static_cast<int>(std::ceil(std::clamp(most, 0.0, 1e6) * 1e3)) : -1;
    const int ready = poll(waiting.data(), waiting.size(), milliseconds);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) lost("waiting");
  }
}

}  // namespace

Deadline Deadline::in(double seconds) { return {now() + seconds}; }

bool Deadline::called_off() const {
  const auto set = [](const std::atomic<bool>* flag) {
    return flag && flag->load(std::memory_order_relaxed);
  };
  return set(cancelled) || set(ended) || (go_on && !(*go_on)());
}

void Deadline::check() const {
  if (called_off()) throw ConnectionError(Reason::cancelled, "given up");
  if (!(at > now())) {
    throw ConnectionError(Reason::late, "the other side has not answered in time");
  }
}

Connection::Connection(int socket, std::span<const std::uint64_t> limits, bool checked)
    : socket_(socket),
      limits_(limits),
      checked_(checked),
      kernel_(socket),
      parser_(limits),
      buffer_(kBuffer) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(socket_, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM) {
    throw Error("a connection needs a connected stream socket");
  }
  const int flags = fcntl(socket_, F_GETFL);
  if (flags < 0 || fcntl(socket_, F_SETFL, flags | O_NONBLOCK) < 0) lost("taking a socket over");
  const int on = 1;  // frames go at once; other kinds of sockets do not know it
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host that is gone says nothing: the connection ends after half a minute or so.
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &kSilence, sizeof kSilence);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &kProbe, sizeof kProbe);
}

Connection::~Connection() { close(socket_); }

void Connection::begin(FrameHeader header, Parts parts) {
  if (sending()) throw Error("a frame is still being sent; go on with it, or close the connection");
  header.length = 0;
  header.checked = checked();
  header.checksum = 0;
  for (const auto& part : parts) header.length += part.size();
  if (header.kind >= limits_.size() || header.length > limits_[header.kind]) {
    throw Error("a frame of kind " + std::to_string(header.kind) + " with " +
                std::to_string(header.length) + " bytes may not be sent here");
  }
  unsent_.reserve(1 + parts.size());
  if (header.checked) {
    for (const auto& part : parts) {
      header.checksum = crc32c(part.data(), part.size(), header.checksum);
    }
  }
  header_ = encode(header);
  length_ = kFrameHeader + header.length;
  gone_ = 0;
  unsent_.assign(1, header_);
  for (const auto& part : parts) {
    if (!part.empty()) unsent_.push_back(part);
  }
  next_ = 0;
}

bool Connection::flush(std::size_t ready) {
  return pipe_ ? flush_shared(ready) : flush_socket(ready);
}

void Connection::count_sent(std::size_t bytes) {
  sent_ += bytes;
  gone_ += bytes;
  while (bytes > 0) {
    auto& part = unsent_[next_];
    const std::size_t gone = std::min(bytes, part.size());
    part = part.subspan(gone);
    bytes -= gone;
    if (part.empty()) ++next_;
  }
}

bool Connection::flush_socket(std::size_t ready) {
  const std::uint64_t end = sent_ + kTurn;
  while (sending()) {
    std::size_t left = std::min(ready, length_ - kFrameHeader) + kFrameHeader - gone_;
    if (left == 0 || sent_ >= end) return false;
    iovec vectors[kMostParts];
    std::size_t count = 0;
    for (; count < kMostParts && next_ + count < unsent_.size() && left > 0; ++count) {
      const auto part = unsent_[next_ + count];
      vectors[count] = {const_cast<std::byte*>(part.data()), std::min(part.size(), left)};
      left -= vectors[count].iov_len;
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
    count_sent(static_cast<std::size_t>(n));
  }
  return true;
}

void Connection::copy_unsent(std::byte* to, std::size_t bytes) {
  for (std::size_t i = next_; bytes > 0; ++i) {
    const std::size_t n = std::min(bytes, unsent_[i].size());
    std::memcpy(to, unsent_[i].data(), n);
    to += n;
    bytes -= n;
  }
}

void Connection::keep() {
  if (!sending()) return;
  std::vector<std::byte> left(length_ - gone_);
  copy_unsent(left.data(), left.size());
  kept_ = std::move(left);
  unsent_.assign(1, kept_);
  next_ = 0;
}

// In the ring a frame begins kBefore bytes behind a grain's edge, so that its payload begins at
// one, and is filled up to the next.
bool Connection::flush_shared(std::size_t ready) {
  pipe_->wake();
  const std::uint64_t end = sent_ + kTurn;
  while (sending()) {
    if (pipe_->ended()) throw ConnectionError(Reason::lost, "sending: the other side has ended");
    if (sent_ >= end) return false;
    const std::span<std::byte> room = pipe_->room();
    if (room.empty()) return false;
    const std::size_t before = gone_ == 0 ? kBefore : 0;
    const std::size_t there = std::min(ready, length_ - kFrameHeader) + kFrameHeader - gone_;
    std::size_t bytes = std::min(std::min(room.size(), kPiece) - before, there);
    // A grain that is not full is its frame's last.
    if (gone_ + bytes < length_) bytes = (before + bytes) / kGrain * kGrain - before;
    if (bytes == 0) return false;
    copy_unsent(room.data() + before, bytes);
    count_sent(bytes);
    pipe_->publish((before + bytes + kGrain - 1) / kGrain * kGrain);
  }
  return true;
}

// Into the first until it is full, then into the second. 0: nothing now.
std::size_t Connection::read(std::span<std::byte> first, std::span<std::byte> second) {
  iovec vectors[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = 2;
  for (;;) {
    const ssize_t n = recvmsg(socket_, &message, 0);
    if (n > 0) {
      received_ += static_cast<std::uint64_t>(n);
      return static_cast<std::size_t>(n);
    }
    if (n == 0) ended(parser_);
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

std::optional<FrameHeader> Connection::take(const Place& place, const Piece& piece) {
  return pipe_ ? take_shared(place, piece) : take_socket(place);
}

std::optional<FrameHeader> Connection::take_socket(const Place& place) {
  const std::uint64_t end = received_ + kTurn;
  for (bool drained = false;;) {
    if (auto frame = parse(place)) return frame;
    if (drained || received_ >= end) return std::nullopt;
    std::span<std::byte> straight = parser_.missing();
    if (straight.size() < kBuffer) straight = {};
    const auto behind = std::span(buffer_).first(straight.empty() ? kBuffer : kAhead);
    const std::size_t n = read(straight, behind);
    if (n == 0) return std::nullopt;
    drained = n < straight.size() + behind.size();
    const std::size_t there = std::min(n, straight.size());
    unread_ = std::span<const std::byte>(buffer_).first(n - there);
    if (there == 0) continue;
    const FrameParser::Step step = parser_.wrote(there);
    if (step == FrameParser::Step::frame) return parser_.header();
    if (step == FrameParser::Step::refused) {
      throw ConnectionError(Reason::refused, parser_.why());
    }
  }
}

std::optional<FrameHeader> Connection::take_shared(const Place& place, const Piece& piece) {
  pipe_->wake();
  const std::uint64_t end = received_ + kTurn;
  for (;;) {
    const std::span<const std::byte> bytes = pipe_->bytes();
    const bool begins = !parser_.within();
    if (begins || parser_.left() > 0) {
      if (bytes.empty()) {
        if (pipe_->ended()) ended(parser_);
        return std::nullopt;
      }
      if (received_ >= end) return std::nullopt;
    }
    std::span<const std::byte> next;
    std::size_t used = 0;
    if (begins) {
      next = bytes.subspan(kBefore, kFrameHeader);
      used = kBefore + kFrameHeader;
    }
    FrameParser::Step step = parser_.feed(next);
    if (step == FrameParser::Step::more) {
      next = bytes.first(std::min<std::uint64_t>({bytes.size(), parser_.left(), kPiece}));
      received_ += next.size();
      used = (next.size() + kGrain - 1) / kGrain * kGrain;
      if (parser_.passing()) {
        piece(next);
        step = parser_.passed(next);
      } else {
        step = parser_.feed(next);
      }
    } else if (begins) {
      received_ += kFrameHeader;
    }
    if (used > 0) pipe_->used(used);
    if (step == FrameParser::Step::refused) throw ConnectionError(Reason::refused, parser_.why());
    if (step == FrameParser::Step::frame) return parser_.header();
    if (step == FrameParser::Step::header) {
      const FrameHeader& header = parser_.header();
      const std::span<std::byte> memory = place(header);
      if (piece && header.length > 0 && !memory.data()) {
        parser_.pass();
      } else {
        parser_.place(memory);
      }
    }
  }
}

std::optional<short> Connection::events(bool to_read, bool to_write) {
  if (pipe_) {
    if (!pipe_->sleep(to_read, to_write)) return std::nullopt;
    return POLLIN;
  }
  if (to_read && !unread_.empty()) return std::nullopt;
  return static_cast<short>((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0));
}

void Connection::wait(bool to_read, bool to_write, const Deadline& deadline) {
  if (pipe_ && Spin::soon([&] { return pipe_->ready(to_read, to_write); })) return deadline.check();
  const std::optional<short> events = this->events(to_read, to_write);
  if (!events) return;
  pollfd waiting{socket_, *events, 0};
  until_ready({&waiting, 1}, deadline);
}

void Connection::wait(Connection& to_read, Connection& to_write, const Deadline& deadline) {
  const auto ready = [&] {
    return (to_read.pipe_ && to_read.pipe_->ready(true, false)) ||
           (to_write.pipe_ && to_write.pipe_->ready(false, true));
  };
  if ((to_read.pipe_ || to_write.pipe_) && Spin::soon(ready)) return deadline.check();
  const std::optional<short> reading = to_read.events(true, false);
  if (!reading) return;
  const std::optional<short> writing = to_write.events(false, true);
  if (!writing) return;
  pollfd waiting[] = {{to_read.socket_, *reading, 0}, {to_write.socket_, *writing, 0}};
  until_ready(waiting, deadline);
}

void Connection::go_through(std::shared_ptr<SharedRings> rings, bool made) {
  if (sending() || parser_.within()) throw Error("a frame is on its way; nothing can be changed");
  pipe_ = std::make_unique<SharedPipe>(std::move(rings), made, socket_);
  unread_ = {};  // bells
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
