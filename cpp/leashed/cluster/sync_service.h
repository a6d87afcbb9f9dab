// What a sync server answers: it holds fragments of w^PS, and moves each towards the replicas of
// the trainers that send theirs (shadowsync, Algorithm 2). Over a connection that is compressed,
// what both sides know of each other takes twice the memory of what is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/messages.h"
#include "leashed/net/service.h"

namespace leashed {

class SyncService final : public Service {
 public:
  struct Holding {
    std::uint32_t fragment;
    std::size_t length;  // floats
  };
  explicit SyncService(const std::vector<Holding>& holdings);

  void come(Peer peer) override;
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override;
  void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override;
  void gone(Peer peer) noexcept override;

  // What follows is for any thread.
  struct Counters {
    std::uint64_t exchanges = 0;   // of fragments, α = 0 included
    std::uint64_t changes = 0;     // of these, those that changed what is held: α = 0 does not
    std::uint64_t not_finite = 0;  // frames refused for values that are not
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
  struct Client {
    AlignedArray<std::byte> payload{kMostExchange};  // of what came, and then the reply's
    std::unordered_map<std::uint32_t, Known> known;  // of fragments
  };
  // w moves towards `values`, which become what is answered. Throws Error where these are not
  // finite; w stays as it is.
  void interpolate(Held& held, const ExchangeHead& head, std::span<float> values);

  std::deque<Held> held_;
  std::unordered_map<std::uint32_t, std::size_t> place_;  // of a fragment in held_
  std::unordered_map<Peer, Client> clients_;
  AlignedArray<float> values_{kFragment};  // of what came compressed
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> exchanges_{0}, changes_{0}, not_finite_{0};
};

}  // namespace leashed
