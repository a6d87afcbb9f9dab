// A cluster that plays a schedule drawn from a seed against a mode, and keeps a ledger of every
// example: workers of different speeds that join, leave, return, go silent, and come too late.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/policy/server_policy.h"

namespace leashed::modes {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t n) { return philox(seed_, 1, draws_++)[0] % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t seed_, draws_ = 0;
};

struct Schedule {
  std::uint32_t workers = 4;
  bool faults = false;    // leave, join, return
  bool silences = false;  // and vanish with a lease: needs a term
  std::int64_t even = 0;  // ns that every batch takes; 0: drawn
};

// All that may be asked of an answer in words, so that answers can be compared.
inline std::string words(const Action& a, const Out& out) {
  std::string s = std::to_string(static_cast<int>(a.kind));
  for (const std::uint64_t part :
       {std::uint64_t{a.node}, a.lease.ticket, a.lease.number, a.lease.first, a.lease.count,
        a.lease.token, a.version, a.ticket, std::uint64_t{a.slot}, std::uint64_t{a.n},
        std::uint64_t{a.c}, static_cast<std::uint64_t>(a.divisor),
        static_cast<std::uint64_t>(a.at.ns), static_cast<std::uint64_t>(a.why)}) {
    s.append(" ").append(std::to_string(part));
  }
  if (a.kind == Action::Kind::apply) {
    for (const Slot& slot : out.slots(a)) s.append(" s").append(std::to_string(slot.index));
  }
  if (a.kind == Action::Kind::meet) {
    for (const Node node : out.nodes(a)) s.append(" m").append(std::to_string(node));
  }
  return s;
}

class Cluster {
 public:
  Cluster(const Choice& choice, const Schedule& schedule, std::uint64_t seed)
      : machine(make_server_policy(choice)),
        examples(static_cast<std::uint64_t>(choice["examples"])),
        applied(examples, 0),
        dropped(examples, 0),
        dice_(seed),
        schedule_(schedule),
        switches_(choice.name == "switching" || choice.name == "automatic") {
    for (Node w = 0; w < schedule.workers; ++w) {
      workers_.push_back({.there = true, .speed = 1 + static_cast<std::int64_t>(dice_.below(20))});
      at(0, {Event::Kind::pull, w});
    }
  }

  Cluster(const Cluster&) = delete;  // `takes` knows where it is
  Cluster& operator=(const Cluster&) = delete;

  void at(std::int64_t ns, const Event& event) { queue_.push({ns, event, sequence_++}); }

  // Until nothing is left to happen; everybody who is there has ended then.
  void run() {
    while (!queue_.empty()) {
      const auto [ns, event, sequence] = queue_.top();
      queue_.pop();
      now = ns;
      happen(event);
      REQUIRE(sequence_ < 2'000'000);
    }
  }

  std::uint32_t waiting() const {
    return static_cast<std::uint32_t>(
        std::count_if(workers_.begin(), workers_.end(),
                      [](const Worker& w) { return w.there && w.waits && !w.ended; }));
  }
  std::uint32_t there() const {
    return static_cast<std::uint32_t>(
        std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.there; }));
  }
  const Lease& lease_of(std::uint64_t ticket) const { return leases_.at(ticket); }

  ServerPolicy machine;
  const std::uint64_t examples;
  std::vector<int> applied, dropped;  // how often, for each example
  std::int64_t now = 0;
  std::vector<std::string> told;  // all answers, where asked for
  bool tell = false;
  std::function<void(const Event&, const Out&)> watch = [](const Event&, const Out&) {};
  // How long a batch takes a worker that begins it now.
  std::function<std::int64_t(Node, std::int64_t)> takes = [this](Node node, std::int64_t) {
    if (schedule_.even > 0) return schedule_.even;
    const std::int64_t drawn = workers_[node].speed * static_cast<std::int64_t>(1 + dice_.below(4));
    return dice_.one_in(30) ? 50 * drawn : drawn;
  };

 private:
  struct Worker {
    bool there = false, waits = false, ended = false, silent = false;
    std::uint64_t ticket = 0;  // computing
    std::int64_t speed = 1;
  };
  struct Due {
    std::int64_t ns;
    Event event;
    std::uint64_t sequence;
    bool operator<(const Due& other) const {  // the greatest comes first
      return std::tuple(other.ns, other.event.kind, other.sequence) <
             std::tuple(ns, event.kind, sequence);
    }
  };

  void happen(const Event& event) {
    Worker* w = event.node < workers_.size() ? &workers_[event.node] : nullptr;
    switch (event.kind) {
      case Event::Kind::pull:
        if (!w->there || w->silent || w->waits || w->ticket != 0 || w->ended) return;
        w->waits = true;
        break;
      case Event::Kind::push:
        if (!w->there || w->silent || w->ticket != event.ticket) return;
        w->ticket = 0;
        at(now, {Event::Kind::pull, event.node});
        break;
      case Event::Kind::leave:
        if (!w->there || event.node == 0) return;  // somebody has to stay
        *w = {.there = false, .speed = w->speed};
        break;
      case Event::Kind::join:
        if (w->there) return;
        *w = {.there = true, .speed = w->speed};
        at(now, {Event::Kind::pull, event.node});
        break;
      default:
        break;
    }
    out_.clear();
    machine.on(event, {now}, out_);
    const Lease* pushed = event.kind == Event::Kind::push ? &leases_.at(event.ticket) : nullptr;
    bool counted = pushed == nullptr;
    for (const Action& a : out_.actions()) counted = carry_out(a, pushed) || counted;
    if (!counted) count(*pushed, applied);  // peers: the model that it is in is its own
    watch(event, out_);
    if (tell) {
      for (const Action& a : out_.actions()) told.push_back(words(a, out_));
    }
    if (schedule_.faults) disturb();
  }

  // Whether it says what became of the push.
  bool carry_out(const Action& a, const Lease* pushed) {
    switch (a.kind) {
      case Action::Kind::grant: {
        Worker& w = workers_.at(a.node);
        REQUIRE(w.there);
        REQUIRE(w.ticket == 0);  // it waits, or has just pushed: SHAT does not wait for the pull
        if (a.lease.count == 0) return false;  // the answer before the end
        REQUIRE(a.lease.first + a.lease.count <= examples);
        REQUIRE(leases_.emplace(a.lease.ticket, a.lease).second);
        const Lease& first = batches_.emplace(a.lease.number, a.lease).first->second;
        REQUIRE(a.lease.first == first.first);  // what comes back stays what it was
        REQUIRE(a.lease.count == first.count);
        if (!switches_) REQUIRE(a.lease.token >= first.token);
        REQUIRE(a.version >= version_);
        w.waits = false;
        w.ticket = a.lease.ticket;
        if (schedule_.silences && there() > 1 && a.node > 0 && dice_.one_in(20)) {
          w.silent = true;
          if (dice_.one_in(2)) at(now + 500, {Event::Kind::leave, a.node});
          return false;
        }
        at(now + takes(a.node, now), {Event::Kind::push, a.node, a.lease.ticket, a.version});
        return false;
      }
      case Action::Kind::hold:
        REQUIRE(pushed != nullptr);
        REQUIRE(slots_.emplace(a.slot, *pushed).second);
        return true;
      case Action::Kind::apply: {
        std::uint64_t before = 0;
        for (const Slot& slot : out_.slots(a)) {
          const Lease lease = slots_.at(slot.index);
          REQUIRE(lease.number + 1 > before);  // in order of batch number
          before = lease.number + 1;
          REQUIRE(slot.weight == 1);
          slots_.erase(slot.index);
          count(lease, applied);
        }
        REQUIRE(a.divisor >= 1);
        REQUIRE(a.version > version_);
        version_ = a.version;
        return false;
      }
      case Action::Kind::drop:
        if (a.why == Why::late) return true;  // it went to another
        count(leases_.at(a.ticket), dropped);
        std::erase_if(slots_, [&](const auto& s) { return s.second.ticket == a.ticket; });
        return a.why == Why::straggler;
      case Action::Kind::exchange:
        count(leases_.at(a.ticket), applied);
        return true;
      case Action::Kind::meet: {
        const auto nodes = out_.nodes(a);
        REQUIRE(nodes.size() > 1);
        REQUIRE(std::set<Node>(nodes.begin(), nodes.end()).size() == nodes.size());
        return false;
      }
      case Action::Kind::wake:
        REQUIRE(a.at.ns > now);
        at(a.at.ns, {Event::Kind::wake});
        return false;
      case Action::Kind::end:
        workers_.at(a.node).ended = true;
        return false;
    }
    return false;
  }

  static void count(const Lease& lease, std::vector<int>& in) {
    for (std::uint64_t i = 0; i < lease.count; ++i) ++in[lease.first + i];
  }

  void disturb() {
    if (!dice_.one_in(12)) return;
    const Node node = static_cast<Node>(dice_.below(workers_.size() + 1));
    if (node == workers_.size()) {
      if (node < 12) {
        workers_.push_back({.speed = 1 + static_cast<std::int64_t>(dice_.below(20))});
        at(now, {Event::Kind::join, node});
      }
      return;
    }
    at(now + static_cast<std::int64_t>(dice_.below(5)),
       {workers_[node].there ? Event::Kind::leave : Event::Kind::join, node});
  }

  Dice dice_;
  Schedule schedule_;
  bool switches_;  // which gives batches that wait a token anew
  std::vector<Worker> workers_;
  std::priority_queue<Due> queue_;
  std::uint64_t sequence_ = 0, version_ = 0;
  std::map<std::uint64_t, Lease> leases_;   // by ticket
  std::map<std::uint64_t, Lease> batches_;  // by number
  std::map<std::uint32_t, Lease> slots_;
  Out out_;

 public:
  bool nothing_held() const { return slots_.empty(); }
};

}  // namespace leashed::modes
