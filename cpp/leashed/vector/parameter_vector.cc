#include "leashed/vector/parameter_vector.h"

#include <algorithm>
#include <bit>
#include <string>

#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr int kSlotShift = 48;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kSlotShift) - 1;
constexpr std::size_t kMaxSlots = std::size_t{1} << (64 - kSlotShift);
constexpr std::size_t kWordBits = 64;

constexpr std::size_t slot_of(std::uint64_t word) { return word >> kSlotShift; }
constexpr std::uint64_t count_of(std::uint64_t word) { return word & kCountMask; }

std::size_t words_for(std::size_t slots) { return (slots + kWordBits - 1) / kWordBits; }

}  // namespace

ParameterVector::ParameterVector(const float* initial, std::size_t length, std::size_t workers,
                                 std::size_t readers, std::uint64_t t)
    : length_(length),
      // Two slots even for a pool of readers only: the published one and one to replace it.
      capacity_(std::max<std::size_t>(2 * workers + readers, 2)) {
  if (capacity_ > kMaxSlots) {
    throw Error("2 * workers + readers is " + std::to_string(capacity_) + "; at most " +
                std::to_string(kMaxSlots) + " vectors are possible");
  }
  slots_ = std::make_unique<Slot[]>(capacity_);
  free_ = std::make_unique<FreeWord[]>(words_for(capacity_));
  for (std::size_t i = 0; i < capacity_; ++i) {  // relaxed: no other thread knows this object yet
    free_[i / kWordBits].bits.fetch_or(std::uint64_t{1} << i % kWordBits,
                                       std::memory_order_relaxed);
  }
  Draft first = claim();
  std::copy(initial, initial + length, first.data());
  slots_[first.slot_].t = t;
  // Release: pairs with the acquire of every pin; the threads that pin may already be running.
  published_.store(std::uint64_t{first.slot_} << kSlotShift, std::memory_order_release);
  first.forget();
}

ParameterVector::Pin ParameterVector::pin() {
  // Acquire: pairs with the release CAS in publish (the pins in between are read-modify-writes and
  // continue its release sequence), so the vector's values and t are visible.
  return Pin(this, slot_of(published_.fetch_add(1, std::memory_order_acquire)));
}

void ParameterVector::release(std::size_t slot) {
  // Release: this reader's loads come before whatever the next owner writes. Acquire: whoever
  // reaches 0 takes over the other readers' releases before it recycles.
  if (slots_[slot].counter.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(slot);
}

ParameterVector::Draft ParameterVector::claim() {
  const std::size_t words = words_for(capacity_);
  for (std::size_t w = 0;; w = w + 1 < words ? w + 1 : 0) {
    // Relaxed: a hint where to look; the fetch_and decides.
    std::uint64_t bits = free_[w].bits.load(std::memory_order_relaxed);
    while (bits) {
      const std::uint64_t bit = bits & -bits;
      // Acquire: pairs with the release in recycle, so the last reader is done with the buffer.
      bits = free_[w].bits.fetch_and(~bit, std::memory_order_acquire);
      if (bits & bit) {
        const std::size_t index = w * kWordBits + static_cast<std::size_t>(std::countr_zero(bit));
        Draft draft(this, index);
        if (!slots_[index].values) {
          slots_[index].values = AlignedArray<float>(length_);
          allocated_.fetch_add(1, std::memory_order_relaxed);  // telemetry; orders nothing
        }
        return draft;
      }
    }
  }
}

bool ParameterVector::publish(Pin& old, Draft& next, std::uint64_t updates) {
  slots_[next.slot_].t = slots_[old.place_].t + updates;
  // Relaxed: a guess that the CAS checks.
  std::uint64_t word = published_.load(std::memory_order_relaxed);
  while (slot_of(word) == old.place_) {
    // Release: pairs with the acquire in pin. A failure brings nothing that is read.
    if (published_.compare_exchange_weak(word, std::uint64_t{next.slot_} << kSlotShift,
                                         std::memory_order_release, std::memory_order_relaxed)) {
      next.forget();
      old.forget();
      transfer(old.place_, count_of(word));
      return true;
    }
  }
  return false;
}

void ParameterVector::transfer(std::size_t slot, std::uint64_t external_count) {
  const auto rest = static_cast<std::int64_t>(external_count) - 1;
  // As in release: orders this thread's and the other readers' loads before the next owner's
  // writes.
  if (slots_[slot].counter.fetch_add(rest, std::memory_order_acq_rel) + rest == 0) recycle(slot);
}

void ParameterVector::recycle(std::size_t slot) {
  // The counter is 0 again, by read-modify-writes alone. Release: pairs with the acquire in claim.
  free_[slot / kWordBits].bits.fetch_or(std::uint64_t{1} << slot % kWordBits,
                                        std::memory_order_release);
}

std::size_t ParameterVector::live() const {
  std::size_t free = 0;
  for (std::size_t w = 0; w < words_for(capacity_); ++w) {
    free += static_cast<std::size_t>(
        std::popcount(free_[w].bits.load(std::memory_order_relaxed)));  // telemetry
  }
  // One is always published; where it moves from word to word meanwhile, it is not seen.
  return std::max<std::size_t>(capacity_ - free, 1);
}

}  // namespace leashed
