// How fast Sync and GBA would be, from how long each node's batches take. A batch takes its node as
// long in either mode, and only what it waits for differs, so both are predicted from either, and
// neither has to be tried.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "leashed/policy/gba.h"

namespace leashed::modes {

class Forecast {
 public:
  struct Settings {
    std::int64_t window_ns;  // how long is measured before each look
    std::uint32_t windows;   // how many looks in turn have to say the same
    double gain, h;          // GBA over Sync: above gain (1 + h) GBA, below gain (1 − h) Sync
    double capacity;         // examples a second that the servers take from GBA; 0: any
  };

  explicit Forecast(const Settings& settings) : set_(settings) {}

  void granted(Node node, const Lease& lease, Time now) {
    if (node >= paces_.size()) paces_.resize(std::size_t{node} + 1);
    Pace& pace = paces_[node];
    pace.ticket = lease.ticket;
    pace.examples = lease.count;
    pace.since = now.ns;
  }
  void pushed(Node node, std::uint64_t ticket, Time now) {
    if (node >= paces_.size() || paces_[node].ticket != ticket) return;
    Pace& pace = paces_[node];
    pace.ticket = 0;
    pace.busy += static_cast<double>(now.ns - pace.since);
    pace.done += static_cast<double>(pace.examples);
  }

  // At a window's end which mode is faster for long enough now; else none. `present` and `leased`
  // tell of a node whether it is there, and whether it has a batch.
  template <class Present, class Leased>
  std::optional<Gba::Mode> look(Time now, const Present& present, const Leased& leased) {
    if (end_ == 0) end_ = now.ns + set_.window_ns;
    if (now.ns < end_) return std::nullopt;
    end_ = now.ns + set_.window_ns;
    const double ratio = measure(now, present, leased);
    above_ = ratio > set_.gain * (1 + set_.h) ? above_ + 1 : 0;
    below_ = ratio > 0 && ratio < set_.gain * (1 - set_.h) ? below_ + 1 : 0;
    if (above_ >= set_.windows) return Gba::Mode::gba;
    if (below_ >= set_.windows) return Gba::Mode::sync;
    return std::nullopt;
  }

  void visit(Archive& archive) { archive(end_, above_, below_, paces_); }

 private:
  struct Pace {
    std::uint64_t ticket = 0, examples = 0;  // of the batch it has; 0: none
    std::int64_t since = 0;
    double busy = 0, done = 0;  // ns and examples in this window
    double each = 0;            // ns an example, by the last window that knew

    void visit(Archive& archive) { archive(ticket, examples, since, busy, done, each); }
  };

  // GBA's rate Σ 1/t over Sync's n / max t, t the time an example takes a node; 0 while none is
  // known.
  template <class Present, class Leased>
  double measure(Time now, const Present& present, const Leased& leased) {
    double slowest = 0, sum = 0, n = 0;
    for (Node node = 0; node < paces_.size(); ++node) {
      Pace& pace = paces_[node];
      if (pace.done > 0) pace.each = pace.busy / pace.done;
      pace.busy = pace.done = 0;
      double each = pace.each;
      if (!leased(node)) pace.ticket = 0;  // lost
      if (pace.ticket != 0) {              // a batch that is not over yet tells of its node too
        each = std::max(
            each, static_cast<double>(now.ns - pace.since) / static_cast<double>(pace.examples));
      }
      if (each <= 0 || !present(node)) continue;
      slowest = std::max(slowest, each);
      sum += 1 / each;
      n += 1;
    }
    if (n == 0) return 0;
    if (set_.capacity > 0) sum = std::min(sum, set_.capacity * 1e-9);
    return sum * slowest / n;
  }

  Settings set_;
  std::int64_t end_ = 0;
  std::uint32_t above_ = 0, below_ = 0;
  std::vector<Pace> paces_;
};

}  // namespace leashed::modes
