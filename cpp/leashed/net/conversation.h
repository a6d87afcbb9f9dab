// One thread's connections with several others, each of which may send and receive at any moment.
// They come and go meanwhile. It never waits to send without reading: who waits for the other side
// to read, which waits for the same, waits for ever.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "leashed/net/connection.h"
#include "leashed/net/spin.h"
#include "leashed/net/wire_count.h"

namespace leashed {

// Each lane has one connection, or none.
class Conversation {
 public:
  explicit Conversation(std::size_t lanes) : lanes_(lanes) { waiting_.reserve(lanes); }

  // From any thread: the connection replaces what the lane has when that is renewed. mark: whatever
  // the caller wants to know of it.
  void adopt(std::size_t lane, std::unique_ptr<Connection> connection, std::uint64_t mark = 0);
  // From any thread: whether the lane has one, or one has come for it.
  bool there(std::size_t lane) const { return lanes_[lane].there.load(std::memory_order_relaxed); }
  // From any thread: bytes over all lanes, as far as they were counted.
  const WireCount& traffic() const { return traffic_; }

  // What follows is for the conversing thread.

  // Whether a connection had come, which the lane has now; the one before it is closed.
  bool renew(std::size_t lane);
  // Closes it.
  void drop(std::size_t lane);
  bool has(std::size_t lane) const { return lanes_[lane].connection != nullptr; }
  // Or null.
  Connection* connection(std::size_t lane) { return lanes_[lane].connection.get(); }
  std::uint64_t mark(std::size_t lane) const { return lanes_[lane].mark; }

  // The rest is for a lane that has a connection. What throws is the connection's: it is to be
  // dropped.

  // Whether the last frame that was said has not gone yet.
  bool saying(std::size_t lane) const { return lanes_[lane].connection->sending(); }
  // Sends what goes now; whether the next can be said.
  bool free(std::size_t lane) { return !saying(lane) || lanes_[lane].connection->flush(); }
  // A frame, where the lane is free, as Connection::begin has it; free() sends it.
  void say(std::size_t lane, const FrameHeader& header, Connection::Parts parts) {
    lanes_[lane].connection->begin(header, parts);
  }
  // The next frame, where it is there.
  std::optional<FrameHeader> hear(std::size_t lane, const Connection::Place& place) {
    return lanes_[lane].connection->take(place);
  }
  // What has not gone yet is copied: its parts are needed no more.
  void keep(std::size_t lane) { lanes_[lane].connection->keep(); }
  // Until there is something to hear on one of these lanes, or to go on saying; or for a moment, so
  // that what has come is heard before the time is looked at. Where that is over already it throws
  // `late` or `cancelled`.
  void wait(std::span<const std::size_t> lanes, const Deadline& deadline) {
    wait(lanes, {}, deadline);
  }
  // The same; on `saying_on` only to go on saying.
  void wait(std::span<const std::size_t> lanes, std::span<const std::size_t> saying_on,
            const Deadline& deadline);
  // Counts what has gone over all lanes.
  void count();

 private:
  struct Lane {
    std::unique_ptr<Connection> arriving;  // under the lock
    std::uint64_t arriving_mark = 0;       // likewise
    std::atomic<bool> there{false};        // relaxed: tells others only that there is one
    // The conversing thread's own.
    std::unique_ptr<Connection> connection;
    std::uint64_t mark = 0;
    WireCount::Seen seen;
  };
  void close(Lane& lane);

  std::mutex mutex_;
  std::vector<Lane> lanes_;
  std::vector<pollfd> waiting_;  // has room for all lanes
  Spin spin_;
  WireCount traffic_;
};

}  // namespace leashed
