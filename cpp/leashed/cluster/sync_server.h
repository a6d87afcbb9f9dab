// A sync server: holds fragments of w^PS, and moves each towards the replicas of the trainers that
// send theirs (shadowsync, Algorithm 2). One thread serves all connections; nobody waits for
// anybody else's. Over a connection that is compressed, what both sides know of each other takes
// twice the memory of what is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/descriptor.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/wire_count.h"
#include "leashed/net/connection.h"

namespace leashed {

class SyncServer {
 public:
  struct Holding {
    std::uint32_t fragment;
    std::size_t length;  // floats
  };
  explicit SyncServer(const std::vector<Holding>& holdings);
  // Closes all connections.
  ~SyncServer();

  // Takes a trainer's connection over, from any thread; where that throws, it stays the caller's.
  // Not over the socket alone: waits some seconds for the other side to agree.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp);

  struct Counters {
    std::uint64_t exchanges = 0;  // of fragments, α = 0 included
    std::uint64_t changes = 0;    // of these, those that changed what is held: α = 0 does not
    Traffic traffic;
    std::optional<Traffic> kernel;  // as WireCount has it
    double seconds = 0;             // of processor time, of the thread that serves; not of waiting
    std::uint64_t connections = 0;  // now
    std::uint64_t refused = 0;      // closed for what came over them
    std::uint64_t not_finite = 0;   // of these, for values that are not
  };
  Counters counters() const;

  // A copy of what is held, fragment after fragment in the order of the holdings, each as it is
  // between two exchanges; what has not come yet is 0 and not `present`. The changes that are in
  // it. While trainers go on.
  struct Snapshot {
    std::vector<float> values;
    std::vector<bool> present;
    std::uint64_t changes = 0;
  };
  Snapshot snapshot() const;
  // Before any connection. Exchanges are counted on from the changes.
  void restore(const Snapshot& snapshot);

 private:
  struct Held {
    mutable std::mutex mutex;  // keeps an exchange whole
    // Under the lock.
    std::vector<float> values;
    bool present = false;
    std::uint64_t changes = 0;
  };
  // What both sides of a connection know of a fragment: the server of theta, the trainer of w.
  struct Known {
    std::vector<float> theta, w;
  };
  struct Link;
  void serve();
  // Those that arrive have their first turn; `turns` and `next` get room for all.
  void welcome(std::vector<Link*>& turns, std::vector<Link*>& next);
  // False where the connection is of no more use.
  bool go_on(Link& link);
  void answer(Link& link, const FrameHeader& header);
  // w moves towards `values`, which become what is answered. Throws Error where these are not
  // finite; w stays as it is.
  void interpolate(Held& held, const ExchangeHead& head, std::span<float> values);
  void wake();
  double seconds() const;

  std::deque<Held> held_;
  std::unordered_map<std::uint32_t, std::size_t> place_;  // of a fragment in held_
  const Descriptor poll_, wake_;                          // epoll, eventfd
  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Link>> arriving_;               // under the lock
  std::unordered_map<Link*, std::unique_ptr<Link>> links_;  // the serving thread's own
  AlignedArray<float> values_{kFragment};                   // of what came compressed
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> exchanges_{0}, changes_{0}, connections_{0}, refused_{0},
      not_finite_{0};
  std::atomic<std::int64_t> waited_{0};  // nanoseconds of processor time
  WireCount traffic_;
  std::atomic<bool> ended_{false};  // relaxed: the eventfd's write and read order it
  std::jthread thread_;
};

}  // namespace leashed
