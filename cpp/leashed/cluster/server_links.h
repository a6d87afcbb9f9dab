// A trainer's connections with its sync servers, one each. They come and go while it trains.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/exact_count.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/partners.h"
#include "leashed/net/conversation.h"

namespace leashed {

// What the threads of a trainer know of a server together, so that each need not wait in vain.
struct Lateness {
  // Relaxed: hints; they hand nothing over.
  std::atomic<std::uint64_t> times{0};    // that one has not answered in time
  std::atomic<std::uint64_t> in_vain{0};  // in a row
  std::atomic<double> until{0};           // then a connection may be made again
};

// The values that a server was sent of a fragment in first contacts, the newest, by their digests:
// one that had none has any of them, whether its answer has come or not.
class Offers {
 public:
  void add(std::span<const float> values);
  bool has(std::span<const float> values) const;

 private:
  bool has(std::uint64_t digest) const;
  std::array<std::uint64_t, 8> digests_{};
  std::size_t added_ = 0;
};

// And of a fragment.
struct Standing {
  enum class Contact : std::uint8_t { none, under_way, made };
  // Whether theta has become what its server has. `made`: release when it has, acquire before theta
  // is looked at, so that nothing of before goes into w. One thread at a time is at it: release
  // where it gives that back, acquire where it claims it, for `offers`.
  std::atomic<Contact> contact{Contact::none};
  Offers offers;  // of who has claimed it
  // Exchanges in a row in which it has not come, though it was its turn. Relaxed: a count.
  std::atomic<std::uint32_t> missed{0};
};

struct Standings {
  Standings(std::size_t servers, std::size_t fragments) : servers(servers), fragments(fragments) {}
  std::vector<Lateness> servers;
  std::vector<Standing> fragments;
};

class ServerLinks final : public Servers {
 public:
  // owner[f]: the server that holds fragment f. An exchange takes every `parts`-th fragment, others
  // each time: those first that have been missed most often. With a codec, 2 * dimension floats are
  // kept here, and as many on the servers. standings: shared with other links; null: nobody else's.
  ServerLinks(std::size_t dimension, const std::vector<std::uint32_t>& owner, std::size_t servers,
              std::size_t parts, Codec codec = Codec::none,
              std::shared_ptr<Standings> standings = nullptr);

  // From any thread. The socket replaces what there was, at the next exchange; where it throws, it
  // stays the caller's. With patience, in seconds, only if the server answers within it: who
  // exchanges never waits for one that has not; else false, and the socket is closed.
  bool adopt(std::size_t server, int socket, bool checked, Transport wish = Transport::tcp,
             double patience = 0);
  // Whether that server's connection is to be made (anew): not at once where it has been late
  // several times in a row, though it answered in between.
  bool missing(std::size_t server) const;

  bool begin(std::uint64_t turn) override;
  // A server that has brought something by the deadline is slow and not silent: its connection
  // stays, and what is under way over it comes with the next exchange.
  bool exchange(const float* theta, float alpha, bool old_reply, Covered& done, Covered& first,
                const Deadline& deadline) override;
  const float* other() const override { return other_.data(); }
  void end() override;

  const WireCount& traffic() const { return conversation_.traffic(); }
  Transfers transfers() const;
  // Connections given up for a reply that is not finite.
  std::uint64_t not_finite() const { return not_finite_.load(std::memory_order_relaxed); }

 private:
  struct Lane {
    std::vector<std::uint32_t> fragments;  // that the server holds
    // Of the exchange under way; what has been sent and not received when it is over is the next
    // one's.
    std::vector<std::uint32_t> asked;
    std::size_t sent = 0, received = 0;
    ExchangeHead head{};
    std::vector<std::byte> encoded, reply;  // with a codec: a fragment's, on its way
  };
  static bool finished(const Lane& lane) { return lane.received == lane.asked.size(); }
  // At the deadline: whether what is under way is to come with the next exchange, for which nothing
  // of theta is needed any more.
  bool keep(Lane& lane);
  // Takes over the connection that has been made for it; what is under way is what is asked.
  void renew(Lane& lane);
  // Whether this thread is to make the first contact; else another is at it, or has made it.
  bool claim(std::uint32_t index);
  // What is claimed and not made.
  void give_back();
  // Advances; false where nothing could be done now. Throws where it failed.
  bool step(Lane& lane, const float* theta);
  void send(Lane& lane, const float* theta);
  // False where it has not come whole.
  bool receive(Lane& lane);
  // Tells what has come.
  void add_up(const float* theta, Covered& done, Covered& first);
  // Of a compressed connection: what came is, or says, what the server's values are.
  void decode(std::uint32_t index, const Lane& lane, std::span<float> values);
  void drop(Lane& lane);
  // What is under way over its connection is lost.
  static void forget(Lane& lane);
  std::size_t server_of(const Lane& lane) const {
    return static_cast<std::size_t>(&lane - lanes_.data());
  }
  Lateness& lateness(const Lane& lane) { return standings_->servers[server_of(lane)]; }
  // Its server has answered.
  void heard(Lane& lane);
  // Its server has been waited for in vain, for so many seconds.
  void late(Lane& lane, double seconds);

  const std::size_t dimension_, parts_;
  const Codec codec_;
  std::vector<Lane> lanes_;    // by servers
  Conversation conversation_;  // likewise; a connection's mark is how often its server was late
  std::vector<std::size_t> unfinished_;
  // With a codec: of each fragment, whether its values have been exchanged as they are over the
  // lane's connection; then what its server knows of theta, and what is known here of its values.
  std::vector<bool> kept_;
  std::vector<float> told_, heard_;
  AlignedArray<float> other_;
  float alpha_ = 0;
  bool old_reply_ = false;
  // Of the exchange under way: what is to come, by turn; what has come; of what this thread makes
  // the first contact.
  std::vector<std::uint32_t> wanted_, came_, claimed_;
  bool all_ = true;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order_;  // bits of `missed` turned, fragment
  // Of each fragment: it was sent, or is to be, before a first contact; which this thread makes.
  std::vector<bool> before_, first_;
  std::vector<bool> under_way_;
  ExactCount exact_;
  const std::shared_ptr<Standings> standings_;
  std::atomic<std::uint64_t> not_finite_{0};  // relaxed: a count
};

}  // namespace leashed
