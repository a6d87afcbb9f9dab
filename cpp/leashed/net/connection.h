// One connected stream socket that carries frames. Nothing here waits but wait(), send() and
// receive(), and these only to a deadline.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/net/frame.h"

namespace leashed {

// Why a connection is of no more use, or what was asked of it was not done.
class ConnectionError : public Error {
 public:
  enum class Reason {
    closed,     // by the other side, between two frames
    lost,       // within one, or by an error of the system
    refused,    // what came is no frame that is allowed here
    late,       // the deadline has passed
    cancelled,  // on this side
  };
  ConnectionError(Reason why, const std::string& what) : Error(what), reason(why) {}
  const Reason reason;
};

// How long to wait.
struct Deadline {
  static Deadline in(double seconds);
  // Throws `late` or `cancelled` where it is.
  void check() const;

  double at = std::numeric_limits<double>::infinity();  // on the monotonic clock
  // Whether to give up at once; looked at some times a second. Relaxed: hands nothing over.
  const std::atomic<bool>* cancelled = nullptr;
};

class Connection {
 public:
  // Where the payload of a frame with that header goes: as many bytes as it says. Called before any
  // of it is read.
  using Place = std::function<std::span<std::byte>(const FrameHeader&)>;
  using Parts = std::span<const std::span<const std::byte>>;

  // Takes a connected stream socket over, to close it; where that throws, it stays the caller's.
  // limits: FrameParser's, for what is sent as well. checked: payloads that are sent get a
  // checksum.
  Connection(int socket, std::span<const std::uint64_t> limits, bool checked);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins to send a frame of that kind and correlation, its payload from where its parts lie,
  // which stay as they are until flush() says that they have gone. The frame before it must have:
  // else, and where it is more than its kind may be, throws Error.
  void begin(FrameHeader header, Parts parts);
  // Sends what the system takes now, up to some megabytes; true when the frame has gone.
  bool flush();
  bool sending() const { return next_ < unsent_.size(); }
  // Receives what there is now, up to some megabytes; the header when a frame is complete. There
  // may be another behind it: ask until there is none.
  std::optional<FrameHeader> take(const Place& place);
  // Until the socket can be read or written to, as asked. Throws `late`, `cancelled`.
  void wait(bool to_read, bool to_write, const Deadline& deadline) const;
  // The same for two, until one of them can: each is asked for one thing.
  static void wait(const Connection& to_read, const Connection& to_write, const Deadline& deadline);

  // A whole frame. After `late` or `cancelled` a part of it may have gone: go on with flush(), or
  // close.
  void send(const FrameHeader& header, Parts parts, const Deadline& deadline);
  // The next frame. After `late` or `cancelled` it can be asked for again; the memory that `place`
  // gave is written to until the frame is complete or the connection closed.
  FrameHeader receive(const Place& place, const Deadline& deadline);

  int socket() const { return socket_; }
  // Bytes so far, headers and what has not made a whole frame included.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }

 private:
  std::size_t read(std::span<std::byte> into);
  std::optional<FrameHeader> parse(const Place& place);

  const int socket_;
  const std::span<const std::uint64_t> limits_;
  const bool checked_;
  FrameParser parser_;
  std::array<std::byte, kFrameHeader> header_{};
  std::vector<std::span<const std::byte>> unsent_;
  std::size_t next_ = 0;               // of unsent_
  std::vector<std::byte> buffer_;      // what comes in, but for large payloads
  std::span<const std::byte> unread_;  // of it
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace leashed
