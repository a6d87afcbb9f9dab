// A trainer's connections with its sync servers, one each. They come and go while it trains.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/cluster/messages.h"
#include "leashed/cluster/partners.h"
#include "leashed/cluster/wire_count.h"

namespace leashed {

class ServerLinks final : public Servers {
 public:
  // owner[f]: the server that holds fragment f. An exchange takes every `parts`-th fragment, others
  // each time. With a codec, 2 * dimension floats are kept here, and as many on the servers.
  ServerLinks(std::size_t dimension, const std::vector<std::uint32_t>& owner, std::size_t servers,
              std::size_t parts, Codec codec = Codec::none);

  // From any thread. The socket replaces what there was, at the next exchange; where it throws, it
  // stays the caller's.
  void adopt(std::size_t server, int socket, bool checked, Transport wish = Transport::tcp);
  // Whether that server's connection is to be made (anew).
  bool missing(std::size_t server) const;

  bool exchange(const float* theta, float alpha, bool old_reply, std::uint64_t turn, float* other,
                Covered& done, const Deadline& deadline) override;

  const WireCount& traffic() const { return traffic_; }
  Transfers transfers() const;

 private:
  struct Lane {
    std::vector<std::uint32_t> fragments;    // that the server holds
    std::unique_ptr<Connection> arriving;    // under the lock
    std::unique_ptr<Connection> connection;  // the exchanging thread's own
    WireCount::Seen seen;                    // of it, likewise
    std::atomic<bool> there{false};          // relaxed: tells others only that there is one
    // Of the exchange under way.
    std::vector<std::uint32_t> asked;
    std::size_t sent = 0, received = 0;
    ExchangeHead head{};
    std::vector<std::byte> encoded, reply;  // with a codec: a fragment's, on its way
  };
  // Advances; false where nothing could be done now. Throws where it failed.
  bool step(Lane& lane, const float* theta, float* other);
  void send(Lane& lane, const float* theta);
  // False where it has not come whole.
  bool receive(Lane& lane, float* other);
  void drop(Lane& lane);
  // Closes the lane's connection.
  void end(Lane& lane);

  const std::size_t dimension_, parts_;
  const Codec codec_;
  mutable std::mutex mutex_;
  std::vector<Lane> lanes_;
  // With a codec: of each fragment, whether its values have been exchanged as they are over the
  // lane's connection; then what its server knows of theta, and what is known here of its values.
  std::vector<bool> kept_;
  std::vector<float> told_, heard_;
  float alpha_ = 0;
  bool old_reply_ = false;
  WireCount traffic_;
};

}  // namespace leashed
