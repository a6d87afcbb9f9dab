// Peer to peer: nobody holds the parameters, and the machine only says who meets whom when a node
// comes with its model. Algorithms differ in that alone:
//
//   chance      one of the others at random, with a probability, who does not stop for it: SwarmSGD
//               (Nadiradze et al., NeurIPS 2021) after H local steps; GoSGD (Blot et al., 2016)
//               after each step with probability p, here without its weights of the gossiped sum
//   neighbour   the next or the one before on a ring, by a coin: AD-PSGD (Lian et al., ICML 2018)
//   round       all wait for all, then neighbours on the ring meet in pairs, the other way round
//               every second time: D-PSGD (Lian et al., NIPS 2017) as shat (2.2) tells it, with one
//               other node an iteration
//   groups      Prague (Luo et al., ASPLOS 2020): who comes without a group has all that are
//   without
//               divided into groups at random (its global division), but those more than `lag`
//               batches behind; a group meets when all of it have come, and only they wait
//
// SGP's push-sum weights are left out. Not verified against the papers, which were not at hand:
// Prague's division and GoSGD's exchange are as others tell them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/policy/clocks.h"
#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Peers : public Coordinated<Peers> {
 public:
  struct Meetings {
    enum class Kind : std::uint8_t { chance, neighbour, round, groups } kind;
    double probability = 1;  // chance
    std::uint32_t size = 2;  // groups
    std::uint64_t lag = 0;   // groups
    std::uint64_t seed = 0;
  };

  static constexpr bool kHolds = false;

  Peers(const Job& job, const Meetings& meetings, std::uint32_t local_steps)
      : Coordinated(job, own_models(local_steps)), set_(meetings) {
    begin(job.workers);
  }

 private:
  friend Coordinated;
  using Kind = Meetings::Kind;

  void visit_own(Archive& archive) {
    clocks_.visit(archive, [this](Node node) { return present(node); });
    archive.of_each(peers_);
    archive(groups_, free_, rounds_, draws_);
    if (!archive.reads()) return;
    std::vector<std::uint32_t> empty, free = free_;
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      group.missing = 0;
      for (const Node node : group.nodes) {
        archive.require(present(node) && peers_[node].group == kNone);
        peers_[node].group = g;
        group.missing += !peers_[node].waits;
      }
      if (group.nodes.empty()) empty.push_back(g);
      archive.require(group.nodes.empty() || group.missing > 0);
    }
    std::ranges::sort(free);
    archive.require(free == empty);
    there_.clear();
    waiting_ = 0;
    const bool rounds = set_.kind == Kind::round;
    for (Node node = 0; node < peers_.size(); ++node) {
      const Peer& peer = peers_[node];
      if (present(node)) there_.push_back(node);
      archive.require(!peer.waits || (present(node) && (rounds || peer.group != kNone)));
      waiting_ += rounds && peer.waits;
    }
    archive.require(waiting_ == 0 || waiting_ < n_);
  }

  struct Peer {
    bool waits = false;           // for its group, or for the round
    std::uint32_t group = kNone;  // groups

    void visit(Archive& archive) {
      archive(waits);
      if (archive.reads()) group = kNone;
    }
  };
  struct Group {
    std::vector<Node> nodes;
    std::uint32_t missing;

    void visit(Archive& archive) { archive(nodes); }
  };
  static constexpr std::uint32_t kNone = ~0u;

  bool admits(Node node) const { return !peers_[node].waits; }

  bool arrived(Node node, const LeaseList::Taken&, Time, Out& out) {
    clocks_.tick(node);
    switch (set_.kind) {
      case Kind::chance:
        if (n_ > 1 && chance() < set_.probability) meet_other(node, other_than(node), out);
        return false;
      case Kind::neighbour:
        if (n_ > 1) meet_other(node, beside(node, below(2) == 0), out);
        return false;
      case Kind::round:
        waiting_ += !peers_[node].waits;
        peers_[node].waits = true;
        return end_round(out);
      case Kind::groups:
        if (peers_[node].group == kNone) divide(node);
        return come(node, out);
    }
    return false;
  }

  void entered(Node node) {
    if (node >= peers_.size()) peers_.resize(std::size_t{node} + 1);
    peers_[node] = {};
    clocks_.enter(node);
    there_.insert(std::lower_bound(there_.begin(), there_.end(), node), node);
  }

  void departed(Node node, Out& out) {
    clocks_.leave(node);
    there_.erase(std::lower_bound(there_.begin(), there_.end(), node));
    Peer& peer = peers_[node];
    if (set_.kind == Kind::round) {
      waiting_ -= peer.waits;
      peer.waits = false;
      end_round(out);
    }
    if (peer.group == kNone) return;
    Group& group = groups_[peer.group];
    std::erase(group.nodes, node);
    group.missing -= !peer.waits;
    const std::uint32_t left = std::exchange(peer, Peer{}).group;
    if (group.missing == 0) close(left, out);
  }

  // Who still waits meets those who wait with it.
  void finish(Out& out) {
    if (set_.kind == Kind::round) pair_up(out);
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (group.nodes.empty()) continue;
      std::erase_if(group.nodes, [&](Node node) {
        if (peers_[node].waits) return false;
        peers_[node].group = kNone;
        return true;
      });
      close(g, out);
    }
  }

  // Randomness that depends on the seed and on how often it was asked, and on nothing else.
  std::uint32_t draw() { return philox(set_.seed, kStream, draws_++)[0]; }
  double chance() { return draw() * 0x1p-32; }
  std::uint32_t below(std::size_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{draw()} * n) >> 32);
  }

  std::size_t place_of(Node node) const {
    return static_cast<std::size_t>(std::lower_bound(there_.begin(), there_.end(), node) -
                                    there_.begin());
  }
  Node other_than(Node node) {
    const std::size_t i = below(there_.size() - 1);
    return there_[i + (i >= place_of(node) ? 1 : 0)];
  }
  Node beside(Node node, bool after) const {
    const std::size_t size = there_.size();
    return there_[(place_of(node) + (after ? 1 : size - 1)) % size];
  }

  void meet_other(Node node, Node other, Out& out) {
    out.meet();
    out.list(node);
    out.list(other);
    ++version_;
  }

  bool end_round(Out& out) {
    if (waiting_ == 0 || waiting_ < n_) return false;
    pair_up(out);
    return true;
  }
  void pair_up(Out& out) {
    queue_.clear();
    for (const Node node : there_) {
      if (std::exchange(peers_[node].waits, false)) queue_.push_back(node);
    }
    waiting_ = 0;
    if (queue_.size() < 2) return;
    // On a ring of two both ways round are the same.
    const std::size_t shift = queue_.size() > 2 ? rounds_++ % 2 : 0;
    for (std::size_t i = 0; i + 1 < queue_.size(); i += 2) {
      meet_other(queue_[i + shift], queue_[(i + 1 + shift) % queue_.size()], out);
    }
  }

  void divide(Node node) {
    queue_.clear();
    for (const Node other : there_) {
      const bool behind = clocks_.of(other) + set_.lag < clocks_.of(node);
      if (other != node && peers_[other].group == kNone && !behind) queue_.push_back(other);
    }
    for (std::size_t i = queue_.size(); i > 1; --i) std::swap(queue_[i - 1], queue_[below(i)]);
    queue_.push_back(node);
    while (queue_.size() > 1) {
      const std::uint32_t g = new_group();
      for (std::uint32_t i = 0; i < set_.size && !queue_.empty(); ++i) {
        groups_[g].nodes.push_back(queue_.back());
        peers_[queue_.back()].group = g;
        queue_.pop_back();
      }
      groups_[g].missing = static_cast<std::uint32_t>(groups_[g].nodes.size());
    }
  }
  std::uint32_t new_group() {
    if (free_.empty()) {
      groups_.emplace_back();
      return static_cast<std::uint32_t>(groups_.size() - 1);
    }
    const std::uint32_t g = free_.back();
    free_.pop_back();
    return g;
  }

  bool come(Node node, Out& out) {
    const std::uint32_t g = peers_[node].group;
    if (g == kNone || peers_[node].waits) return false;
    peers_[node].waits = true;
    if (--groups_[g].missing > 0) return false;
    close(g, out);
    return true;
  }
  void close(std::uint32_t g, Out& out) {
    Group& group = groups_[g];
    if (group.nodes.size() > 1) {
      out.meet();
      ++version_;
    }
    for (const Node node : group.nodes) {
      if (group.nodes.size() > 1) out.list(node);
      peers_[node] = {};
    }
    group.nodes.clear();
    free_.push_back(g);
  }

  static constexpr std::uint64_t kStream = 0x70656572;  // "peer"

  Meetings set_;
  Clocks clocks_;
  std::vector<Peer> peers_;
  std::vector<Node> there_;  // ascending: the ring
  std::vector<Group> groups_;
  std::vector<std::uint32_t> free_;
  std::vector<Node> queue_;
  std::uint32_t waiting_ = 0;
  std::uint64_t rounds_ = 0, draws_ = 0;
};

}  // namespace leashed::modes
