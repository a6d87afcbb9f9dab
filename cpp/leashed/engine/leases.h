// Batch numbers that are handed to a training from outside while it runs, a span at a time, and
// what has become of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <tuple>
#include <vector>

namespace leashed {

struct Lease {
  std::uint64_t ticket, first, count;  // batches [first, first + count)
};

class Leases {
 public:
  // (What follows is for whoever hands them out.) Nothing once the end was told.
  void give(const Lease& lease);
  // Takes back what is not claimed; of what is, used() and apart() tell nothing any more.
  void revoke();
  // Batches used of what was taken back, before or since, that used() had not told.
  std::uint64_t astray() const;
  // No more will come. `beyond`: batches that the run has in all; where workers take every step
  // together, what their last step lacks comes from there on.
  void end(std::uint64_t beyond);
  // (ticket, batches used) of those that were not all used when this was last asked. In the order
  // of the span: what one worker uses after another's that is not done does not count yet.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used();
  // Those used behind one that is not: (ticket, first from the span's first, count). For when
  // nobody goes on.
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> apart() const;
  // Batches given and not claimed.
  std::uint64_t left() const;

  // The number of the j-th batch from the beginning, which is thereby claimed. Waits until it is
  // there, or until it is known not to come (then false), at most so long: `waiting` then.
  enum class Claim { given, none, waiting };
  Claim claim(std::uint64_t j, double seconds, std::uint64_t& k);
  // The same for who takes it in any case: what was not given comes from beyond the run's batches.
  Claim claim_beyond(std::uint64_t j, double seconds, std::uint64_t& k);
  // The next that nobody has claimed, with its j, for who comes without one: claims nothing that it
  // does not get. Not beside the two above.
  Claim take(double seconds, std::uint64_t& j, std::uint64_t& k);
  // Training on the j-th is over.
  void use(std::uint64_t j);
  // A worker's, when it begins to wait for a batch, having done all of its steps, and when it has
  // one; and how many wait.
  void rest(bool rests) { resting_.fetch_add(rests ? 1 : -1, std::memory_order_acq_rel); }
  int resting() const { return resting_.load(std::memory_order_acquire); }

 private:
  struct Span {
    Lease lease;
    std::uint64_t begin;         // j of its first
    std::uint64_t prefix = 0;    // batches used, without a gap
    std::deque<bool> beyond{};   // of those behind them: which are used
    std::uint64_t told = ~0ull;  // what used() has told
    bool revoked = false;
  };
  const Span* find(std::uint64_t j) const;
  std::uint64_t number(std::uint64_t j) const;
  Claim wait(std::uint64_t j, double seconds, std::unique_lock<std::mutex>& lock);

  // Release by a worker that begins to wait, acquire by who asks: what the worker has done is
  // there.
  std::atomic<int> resting_{0};
  mutable std::mutex mutex_;
  std::condition_variable more_;
  // Under the lock.
  std::deque<Span> spans_;  // not all used, or not told so
  std::uint64_t given_ = 0, claimed_ = 0, beyond_ = 0, astray_ = 0;
  bool ended_ = false;
};

}  // namespace leashed
