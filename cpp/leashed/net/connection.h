// Two connected sides that send each other frames: over their stream socket, or, once share() has
// found them to be on one host, through memory that both have. Nothing here waits but wait(),
// send() and receive(), and these only to a deadline.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leashed/net/connection_error.h"
#include "leashed/net/frame.h"
#include "leashed/net/kernel_bytes.h"
#include "leashed/net/shared_pipe.h"

namespace leashed {

// How long to wait.
struct Deadline {
  static Deadline in(double seconds);
  // Throws `late` or `cancelled` where it is.
  void check() const;
  // Whether this side gives up, however much time is left.
  bool called_off() const;

  double at = std::numeric_limits<double>::infinity();  // on the monotonic clock
  // Whether to give up at once, for either reason; looked at some times a second. Relaxed: they
  // hand nothing over.
  const std::atomic<bool>* cancelled = nullptr;
  const std::atomic<bool>* ended = nullptr;
  const std::function<bool()>* go_on = nullptr;  // asked likewise; may throw
};

class Connection {
 public:
  // Where the payload of a frame with that header goes: as many bytes as it says. Called before any
  // of it is read.
  using Place = std::function<std::span<std::byte>(const FrameHeader&)>;
  using Parts = std::span<const std::span<const std::byte>>;
  // The next bytes of a payload that is had in pieces, where they lie. All but the last of a frame
  // have a multiple of kGrain.
  using Piece = std::function<void(std::span<const std::byte>)>;

  // Takes a connected stream socket over, to close it; where that throws, it stays the caller's.
  // limits: FrameParser's, for what is sent as well. checked: payloads that are sent get a
  // checksum, as long as they go over the socket.
  Connection(int socket, std::span<const std::uint64_t> limits, bool checked);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins to send a frame of that kind and correlation, its payload from where its parts lie,
  // which stay as they are until flush() says that they have gone. The frame before it must have:
  // else, and where it is more than its kind may be, throws Error.
  void begin(FrameHeader header, Parts parts);
  // Sends what the system takes now, up to some megabytes; true when the frame has gone. ready: so
  // much of the payload is there by now; what is behind it is neither read nor sent yet. Where
  // payloads get a checksum, all of it must have been there when the frame began.
  bool flush(std::size_t ready = std::numeric_limits<std::size_t>::max());
  bool sending() const { return next_ < unsent_.size(); }
  // What has not gone yet of that frame is copied: its parts are needed no more.
  void keep();
  // How much of the payload of the frame that is being sent has gone.
  std::size_t gone() const { return sending() && gone_ > kFrameHeader ? gone_ - kFrameHeader : 0; }
  // Receives what there is now, up to some megabytes; the header when a frame is complete. There
  // may be another behind it: ask until there is none.
  std::optional<FrameHeader> take(const Place& place) { return take(place, nullptr); }
  // The same through shared memory; a payload for which `place` gives null is had in pieces.
  std::optional<FrameHeader> take(const Place& place, const Piece& piece);
  // For a loop that waits for many: what to poll socket() for until take() or flush(), as asked,
  // has something to do; nothing where it has already. Holds until either is called, and is to be
  // asked again after that.
  std::optional<short> events(bool to_read, bool to_write);
  // Whether there is something to read in memory that both sides have, or room to go on sending.
  // Asks nobody.
  bool in_memory(bool to_read) { return pipe_ && pipe_->ready(to_read, sending()); }
  // Until take() or flush(), as asked, has something to do. Throws `late`, `cancelled`.
  void wait(bool to_read, bool to_write, const Deadline& deadline);
  // The same for two, until one of them has: each is asked for one thing.
  static void wait(Connection& to_read, Connection& to_write, const Deadline& deadline);

  // A whole frame. After `late` or `cancelled` a part of it may have gone: go on with flush(), or
  // close.
  void send(const FrameHeader& header, Parts parts, const Deadline& deadline);
  // The next frame. After `late` or `cancelled` it can be asked for again; the memory that `place`
  // gave is written to until the frame is complete or the connection closed.
  FrameHeader receive(const Place& place, const Deadline& deadline);

  int socket() const { return socket_; }
  // From now on through that memory, on both sides, with no frame on its way. share() does it.
  void go_through(std::shared_ptr<SharedRings> rings, bool made);
  bool shared() const { return pipe_ != nullptr; }
  // Whether payloads that are sent get a checksum.
  bool checked() const { return checked_ && !shared(); }
  // Bytes of frames so far, headers and what has not made a whole frame included.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }
  // The same as the kernel has it: acknowledged by the other side, and received. Nothing where
  // frames do not go over a TCP socket.
  std::optional<Traffic> kernel() const { return shared() ? std::nullopt : kernel_.count(); }

 private:
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second);
  std::optional<FrameHeader> parse(const Place& place);
  bool flush_socket(std::size_t ready);
  bool flush_shared(std::size_t ready);
  std::optional<FrameHeader> take_socket(const Place& place);
  std::optional<FrameHeader> take_shared(const Place& place, const Piece& piece);
  void copy_unsent(std::byte* to, std::size_t bytes);
  void count_sent(std::size_t bytes);

  const int socket_;
  const std::span<const std::uint64_t> limits_;
  const bool checked_;
  const KernelBytes kernel_;
  FrameParser parser_;
  std::array<std::byte, kFrameHeader> header_{};
  std::vector<std::span<const std::byte>> unsent_;
  std::vector<std::byte> kept_;        // what lies here of it
  std::size_t next_ = 0;               // of unsent_
  std::size_t length_ = 0, gone_ = 0;  // of the frame that is being sent, with its header
  std::vector<std::byte> buffer_;      // what comes in, but for large payloads
  std::span<const std::byte> unread_;  // of it
  std::uint64_t sent_ = 0, received_ = 0;
  std::unique_ptr<SharedPipe> pipe_;  // null: over the socket
};

}  // namespace leashed
