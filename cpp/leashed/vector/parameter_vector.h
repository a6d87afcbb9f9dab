// ParameterVector (leashed-sgd, Algorithm 1): one published vector that any thread reads without
// waiting and replaces with a compare-and-swap.
//
// The protocol ("split count"; docs/reclamation.md argues its safety, models/split_count.pml checks
// it; the steps below carry the model's names)
//   Vectors live in a fixed pool of *slots*; a slot's header is never freed, its buffer is
//   allocated when first used and then recycled. `published_` is one word: the index of the
//   published slot (16 bits) and the *external count* (48 bits), the number of pins taken through
//   the word since the slot was published. Each slot has a signed counter of its own for releases.
//     pin       fetch_add(1) on the word. Its result names the slot: nothing to validate, no retry.
//     release   fetch_sub(1) on the slot's counter.
//     claim     takes a free slot from a bitmap; the draft is private until it is published.
//     publish   with the old vector still pinned: CAS the word from (old, count) to (new, 0). While
//               it is pinned the old slot cannot be recycled, so it cannot come back: no ABA. Where
//               only the count moved, the CAS is repeated as it is.
//     transfer  after a successful publish: fetch_add(count − 1) on the old slot's counter. It
//               carries the external count over and drops the publisher's own pin.
//     recycle   whoever brings a counter to 0 gives the slot back to the bitmap; exactly one does,
//               since before the transfer the counter is negative or was never touched, and after
//               it counts down the pins that are left.
//   Bound: m workers (each at most one pin and one draft) and r other readers use at most 2m + r
//   slots, so a pool of that size never makes a claim wait for a reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/base/aligned.h"
#include "leashed/vector/handle.h"

namespace leashed {

class ParameterVector {
 public:
  // A pool for vectors of `length` floats, `workers` threads that update and `readers` others that
  // may hold one pin each at the same time. Publishes `initial` as version t.
  ParameterVector(const float* initial, std::size_t length, std::size_t workers,
                  std::size_t readers, std::uint64_t t = 0);

  ParameterVector(const ParameterVector&) = delete;
  ParameterVector& operator=(const ParameterVector&) = delete;

  using Pin = leashed::Pin<ParameterVector, std::size_t>;  // by its slot
  using Draft = leashed::Draft<ParameterVector>;

  Pin pin();
  Draft claim();
  // Replaces `old` by `next`, whose t becomes old.t() + `updates`, and gives up both; or, where
  // another vector has been published since `old` was pinned, returns false and keeps both. With
  // none of them t stays old.t(): a synchronisation is not an update. Then equal t does not mean
  // the same vector; nothing here compares t.
  bool publish(Pin& old, Draft& next, std::uint64_t updates = 1);

  std::size_t length() const { return length_; }
  std::size_t capacity() const { return capacity_; }
  // Slots in use now, and slots whose buffer was ever needed (the most that were in use at once).
  std::size_t live() const;
  // (Relaxed: telemetry.)
  std::size_t allocated() const { return allocated_.load(std::memory_order_relaxed); }

 private:
  friend Pin;
  friend Draft;
  struct alignas(kCacheLine) Slot {
    std::atomic<std::int64_t> counter{0};
    std::uint64_t t = 0;  // written before publish, read only through a pin
    AlignedArray<float> values;
  };
  // Bit set: slot free.
  struct alignas(kCacheLine) FreeWord {
    std::atomic<std::uint64_t> bits{0};
  };

  const float* data_at(std::size_t slot) const { return slots_[slot].values.data(); }
  std::uint64_t t_at(std::size_t slot) const { return slots_[slot].t; }
  float* draft_at(std::size_t slot) { return slots_[slot].values.data(); }

  void release(std::size_t slot);
  void transfer(std::size_t slot, std::uint64_t external_count);
  void recycle(std::size_t slot);

  const std::size_t length_;
  const std::size_t capacity_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<FreeWord[]> free_;
  alignas(kCacheLine) std::atomic<std::uint64_t> published_{0};
  alignas(kCacheLine) std::atomic<std::size_t> allocated_{0};
};

}  // namespace leashed
