// A trainer's synchronisation with others, over connections that are made elsewhere and handed in.
// In the background (cluster/background.h) or by its workers (cluster/foreground.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leashed/cluster/pace.h"
#include "leashed/cluster/ring_group.h"
#include "leashed/cluster/round.h"
#include "leashed/cluster/server_links.h"
#include "leashed/engine/synchronisation.h"

namespace leashed {

struct SyncPlan {
  Synchroniser machine;
  Pace pace;
  std::size_t dimension;
  std::vector<std::uint32_t> owner;  // the server that holds each fragment
  std::size_t servers;
  std::size_t parts = 1;  // a round takes one of so many parts of the vector in turn
  double timeout;         // seconds that a round may last
  CustomMix custom = {};
  Codec codec = Codec::none;  // of what is sent
  // Goes on where another was: theta is as the servers know it, and stays; and what trainers that
  // sum have together beside it (Round::states), or nothing.
  bool goes_on = false;
  std::vector<float> states = {};
  // Of workers that synchronise by themselves, where each was; empty: they begin. With more workers
  // than there were it is that of one more than once.
  std::vector<WithinGap> within = {};
};

class TrainerSync : public Synchronisation {
 public:
  // Threads that exchange with servers on connections of their own.
  std::size_t slots() const { return links_.size(); }
  // As of ServerLinks.
  bool missing(std::size_t slot, std::size_t server) const {
    return links_.at(slot)->missing(server);
  }
  bool adopt(std::size_t slot, std::size_t server, int socket, bool checked, Transport wish,
             double patience) {
    return links_.at(slot)->adopt(server, socket, checked, wish, patience);
  }
  ServerLinks& links(std::size_t slot) { return *links_.at(slot); }
  RingGroup& ring() { return ring_; }
  const RoundCounters& counters() const { return counters_; }
  // Of workers that all wait for batches. On hold nothing is exchanged with servers; with the other
  // trainers rounds go on until all has been in one that any of them has trained. At rest nothing
  // is under way, nor begins unless another trainer begins it.
  virtual void hold(bool holds) = 0;
  virtual bool at_rest() = 0;
  // Of who is at rest: Round::states.
  virtual std::span<const float> states() const = 0;
  // Likewise: SyncPlan::within, for who goes on.
  virtual std::vector<WithinGap> within() const { return {}; }
  // Bytes to and from all that this synchronises with, as WireCount has them.
  WireSum traffic() const;
  Transfers transfers() const;
  // Whether there is nothing more to train: not where workers come and go.
  bool workers_ended() const { return workers_ended_.load(std::memory_order_acquire); }
  // Rounds, and connections with servers, that were given up for values that are not finite.
  std::uint64_t not_finite() const;
  // Exchanges with servers in a row that the fragment which has waited longest has not come in.
  std::uint32_t lag() const;

 protected:
  // `exchanging` threads.
  TrainerSync(const SyncPlan& plan, std::size_t exchanging);

  // By the last worker, after all others; the last rounds are next.
  void end_workers();
  Round make_round(std::size_t slot);
  bool uses_servers() const { return !links_.empty(); }
  // The deadline of a round that begins now.
  Deadline deadline(const std::atomic<bool>& cancelled) const;
  // Takes over what the servers, or the others in `round`, have; asks now and then whether to go on
  // waiting for connections. Throws Error where this is not made for that training.
  void take_over(const Synchronised& training, Round& round, const std::function<bool()>& go_on);

  const SyncPlan plan_;
  RoundCounters counters_;

 private:
  bool begun_ = false;
  // Release in end_workers(), acquire in workers_ended(): who sees it finds what all workers have
  // told of their leases.
  std::atomic<bool> workers_ended_{false};
  std::shared_ptr<Standings> standings_;  // null: without servers
  std::vector<std::unique_ptr<ServerLinks>> links_;
  RingGroup ring_;
};

// For so many workers.
std::unique_ptr<TrainerSync> make_trainer_sync(const SyncPlan& plan, std::size_t workers);

}  // namespace leashed
