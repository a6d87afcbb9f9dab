// Who hands out the batches of a training to its workers: numbers of data in memory or of a stream,
// leases of a master, runs of sparse updates. A worker claims a place, and learns what is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "leashed/base/aligned.h"
#include "leashed/data/batch_source.h"
#include "leashed/engine/leases.h"

namespace leashed {

class Observers;

struct Claim {
  std::uint64_t place = 0;  // in the order of this training's claims
  std::uint64_t k = 0;      // the number of the batch, or the first of a run's
  std::uint64_t count = 1;  // batches of the run
  Batch batch;
};

class Feed {
 public:
  using Given = Leases::Claim;
  // Places from which on, of how many workers that take every step together (0: they do not), and
  // how many are claimed at once, from a multiple of that also where the training goes on from the
  // middle of it.
  struct Places {
    std::uint64_t first;
    std::size_t together, at_once;
  };

  explicit Feed(const Places& places)
      : next_(places.first / places.at_once * places.at_once), places_(places) {}
  virtual ~Feed() = default;
  Feed(const Feed&) = delete;

  // Of the worker's n-th claim.
  std::uint64_t place(std::size_t worker, std::uint64_t n) {
    if (places_.together > 0) return places_.first + n * places_.together + worker;
    return next_.fetch_add(places_.at_once, std::memory_order_relaxed);
  }
  // Whether there are so many batches from that place on; `waiting`: it is not known in so many
  // seconds.
  virtual Given has(std::uint64_t place, std::uint64_t count, double seconds) = 0;
  // Makes it what is at its place.
  virtual Given fill(Claim& claim, double seconds) = 0;
  // Of a run, the batches behind so many that lie one after another and are of one pass, at most
  // `batches` of them, and how many these are.
  virtual BatchView part(const Claim& claim, std::uint64_t done, std::uint64_t& batches) const;

 protected:
  std::uint64_t first() const { return places_.first; }
  bool lockstep() const { return places_.together > 0; }

 private:
  // Relaxed: distinct places are all that is asked of it. Its line has nothing else on it: what a
  // kind of feed has lies behind `places_`, where nobody writes.
  alignas(kCacheLine) std::atomic<std::uint64_t> next_;
  alignas(kCacheLine) const Places places_;
};

struct Training;

// That of a training. What of it is to hear of steps is added to its observers.
std::unique_ptr<Feed> make_feed(Training& training, Leases* leases, bool streamed);

}  // namespace leashed
