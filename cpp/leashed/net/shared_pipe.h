// Both directions of a connection whose bytes go through shared memory. The socket stays open: a
// byte on it is the bell that wakes who sleeps, and its end that of the other side, however it
// ends.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "leashed/net/byte_ring.h"
#include "leashed/net/shared_rings.h"

namespace leashed {

class SharedPipe {
 public:
  // made: whether this side has made the memory. The socket stays the caller's.
  SharedPipe(std::shared_ptr<SharedRings> rings, bool made, int socket)
      : rings_(std::move(rings)),
        writer_(rings_->ring(made ? 0 : 1)),
        reader_(rings_->ring(made ? 1 : 0)),
        socket_(socket) {}

  std::span<std::byte> room() const { return writer_.room(); }
  void publish(std::size_t bytes) {
    if (writer_.publish(bytes)) ring_bell();
  }
  std::span<const std::byte> bytes() { return reader_.bytes(); }
  void used(std::size_t bytes) {
    if (reader_.used(bytes)) ring_bell();
  }

  // Whether there is something to do of what is asked for: what to read or room, or the other side
  // has ended.
  bool ready(bool to_read, bool to_write);
  // Before this side waits until the socket can be read. False where it must not, since it is
  // ready.
  bool sleep(bool to_read, bool to_write);
  // After that, before anything else.
  void wake() {
    if (asleep_) woken();
  }
  // Whether the other side is known to have ended. What it has published before can be read.
  bool ended() const { return ended_; }

 private:
  void ring_bell();
  void woken();

  const std::shared_ptr<SharedRings> rings_;
  RingWriter writer_;
  RingReader reader_;
  const int socket_;
  bool asleep_ = false, ended_ = false;
};

}  // namespace leashed
