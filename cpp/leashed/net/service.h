// A server without sockets, threads or clocks: what it answers to the frames of whoever is
// connected. Who drives it is a loop over connections (net/serving_loop.h), or a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// What goes to anybody at any time, and when to be woken. For the thread that calls the service, or
// while that holds.
class Post {
 public:
  // Frames that wait for a peer to take those before them; one more, and he is refused.
  static constexpr std::size_t kBacklog = 8;

  virtual ~Post() = default;
  // One frame, behind those that were sent to that peer before; of `head` it takes a copy, the
  // parts stay as they are for as long as it has `keeps`, which is until they have gone or the peer
  // has. Nothing more is taken from the peer until then. Where there is no such peer it goes
  // nowhere.
  virtual void send(Peer to, const FrameHeader& header, std::span<const std::byte> head,
                    Connection::Parts parts, std::shared_ptr<const void> keeps) noexcept = 0;
  // The peer is refused: after what is under way now the service is told that he has gone.
  virtual void refuse(Peer peer) noexcept = 0;
  // woken() is wanted then: the earliest time since it was called last counts.
  virtual void wake(std::int64_t ns) noexcept = 0;
  // Nanoseconds on a clock that does not go back.
  virtual std::int64_t now() const noexcept = 0;
};

// Called by one thread, for one peer after the other.
class Service {
 public:
  virtual ~Service() = default;
  // First of all, of a service that says something unasked: the post stays until the last call.
  virtual void open(Post& /*post*/) noexcept {}
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
  // The time has come that was asked for, and what had come from peers by then was told before,
  // within reason: so one that was held up takes nobody for late whose frames lay there.
  virtual void woken() noexcept {}
};

}  // namespace leashed
