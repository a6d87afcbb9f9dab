// Bytes from one process to another through a ring in memory that both map: one writes, one reads.
// models/byte_ring.pml is its model.
//
// Both count bytes from the beginning. `tail` is how many the writer has published, `head` how many
// the reader has used; what lies between them is the reader's, the rest of the ring the writer's.
// They move by whole grains.
//
// Who finds nothing to do may sleep, and is woken by a bell that the owner of the rings has:
//   sleep    the sleeper sets its flag, then looks at the other's count once more; it sleeps where
//            that has not moved, else it clears its flag
//   publish  the other moves its count, then looks at the flag; where it is set it clears it, and
//            rings
// Flag and count are stored and loaded in one order that all agree on (seq_cst): of the two, each
// storing one and then loading the other, at least one finds what the other has stored. So nobody
// sleeps while there is something to do. A bell may come late, to who has gone on already.
//
// The writer is woken when half of the ring is free. Before that the reader has something to read,
// and so does not wait for the writer.
//
// The other side is not believed: each keeps its own count for itself, and one of the other's that
// cannot be is an error. What lies in the ring may change under the reader, who copies what it
// decides by.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "leashed/net/connection_error.h"

namespace leashed {

inline constexpr std::size_t kGrain = 64;  // a cache line

// Of one ring, as both map it; zeros at first.
struct RingWords {
  alignas(kGrain) std::atomic<std::uint64_t> tail;
  alignas(kGrain) std::atomic<std::uint64_t> head;
  alignas(kGrain) std::atomic<std::uint32_t> reader_sleeps;
  alignas(kGrain) std::atomic<std::uint32_t> writer_sleeps;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// One process's view of a ring. Its bytes are mapped twice, one behind the other, so that what lies
// across the end is in one piece.
struct RingView {
  RingWords* words;
  std::byte* bytes;
  std::size_t capacity;  // a power of two of grains

  std::byte* at(std::uint64_t count) const { return bytes + (count & (capacity - 1)); }
  // How much lies between two counts, whole grains of it.
  std::size_t between(std::uint64_t head, std::uint64_t tail) const {
    if (tail - head > capacity) {
      throw ConnectionError(ConnectionError::Reason::refused,
                            "the other side's counts in shared memory cannot be");
    }
    return tail - head;
  }
};

class RingWriter {
 public:
  explicit RingWriter(const RingView& ring) : ring_(ring) {}

  // Where to write.
  std::span<std::byte> room() const { return room(std::memory_order_acquire); }
  // What has been written there is the reader's. True where a bell must be rung.
  bool publish(std::size_t bytes) {
    tail_ += bytes;
    // Hands the bytes to the reader, whose load of it acquires them; ordered before the load of the
    // flag (see above).
    ring_.words->tail.store(tail_, std::memory_order_seq_cst);
    std::atomic<std::uint32_t>& flag = ring_.words->reader_sleeps;
    // Cleared by one only, so that it rings once. Relaxed: hands nothing over.
    return flag.load(std::memory_order_seq_cst) && flag.exchange(0, std::memory_order_relaxed);
  }
  // False where it must not sleep, since there is room.
  bool sleep() {
    // Ordered before the load of `head` (see above).
    ring_.words->writer_sleeps.store(1, std::memory_order_seq_cst);
    return room(std::memory_order_seq_cst).empty();
  }
  // Relaxed: where the reader has not seen it, a bell comes for nothing.
  void wake() { ring_.words->writer_sleeps.store(0, std::memory_order_relaxed); }

 private:
  // The reader's store of `head` hands the room back: what it has read there is not overwritten
  // before.
  std::span<std::byte> room(std::memory_order order) const {
    const std::uint64_t head = ring_.words->head.load(order);
    const std::size_t room = ring_.capacity - ring_.between(head, tail_);
    return {ring_.at(tail_), room & ~(kGrain - 1)};
  }

  const RingView ring_;
  std::uint64_t tail_ = 0;
};

class RingReader {
 public:
  explicit RingReader(const RingView& ring) : ring_(ring) {}

  // What there is to read.
  std::span<const std::byte> bytes() { return bytes(std::memory_order_acquire); }
  // So much of it is the writer's again. True where a bell must be rung.
  bool used(std::size_t bytes) {
    head_ += bytes;
    // Hands the room to the writer, whose load of it acquires it; ordered before the load of the
    // flag (see above).
    ring_.words->head.store(head_, std::memory_order_seq_cst);
    std::atomic<std::uint32_t>& flag = ring_.words->writer_sleeps;
    // Cleared by one only, so that it rings once. Relaxed: hands nothing over.
    return flag.load(std::memory_order_seq_cst) && seen_ - head_ <= ring_.capacity / 2 &&
           flag.exchange(0, std::memory_order_relaxed);
  }
  // False where it must not sleep, since there is something to read.
  bool sleep() {
    // Ordered before the load of `tail` (see above).
    ring_.words->reader_sleeps.store(1, std::memory_order_seq_cst);
    return bytes(std::memory_order_seq_cst).empty();
  }
  // Relaxed: where the writer has not seen it, a bell comes for nothing.
  void wake() { ring_.words->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  // The writer's store of `tail` hands over the bytes before it.
  std::span<const std::byte> bytes(std::memory_order order) {
    seen_ = ring_.words->tail.load(order);
    return {ring_.at(head_), ring_.between(head_, seen_) & ~(kGrain - 1)};
  }

  const RingView ring_;
  std::uint64_t head_ = 0;
  std::uint64_t seen_ = 0;  // of `tail`
};

}  // namespace leashed
