// A server without sockets, threads or clocks: what it answers to the frames of whoever is
// connected. Who drives it is a loop over connections (net/serving_loop.h), or a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "leashed/net/connection.h"

namespace leashed {

// A connection, as the service knows it. No other one ever has its number.
using Peer = std::uint64_t;

// What goes to the peer whose frame it is.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // One frame, as Connection::begin has it. Its parts stay as they are until the service is asked
  // for the place of the peer's next one, or told that the peer has gone.
  virtual void send(const FrameHeader& header, Connection::Parts parts) = 0;
};

// Called by one thread, for one peer after the other.
class Service {
 public:
  virtual ~Service() = default;
  // Where it throws, the connection is closed and counted as refused, and there is no such peer.
  virtual void come(Peer peer) = 0;
  // Where the payload of the peer's next frame goes, as Connection::Place has it. What was sent to
  // the peer has gone by then.
  virtual std::span<std::byte> place(Peer peer, const FrameHeader& header) = 0;
  // That frame is complete, and not told yet: of several services, each with a loop, the number of
  // the one that it and all after it are for. That one's loop has the connection from then on, and
  // here the peer is gone. Nothing: it stays.
  virtual std::optional<std::size_t> elsewhere(Peer /*peer*/, const FrameHeader& /*header*/) {
    return std::nullopt;
  }
  // It is told. Where this or place() throws, the peer is refused: it is gone.
  virtual void frame(Peer peer, const FrameHeader& header, Outbox& outbox) = 0;
  virtual void gone(Peer peer) noexcept = 0;
};

}  // namespace leashed
