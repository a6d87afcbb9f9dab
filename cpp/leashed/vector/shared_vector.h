// SharedVector: a ParameterVector that processes share, any of which may be killed at any step.
//
// A count of readers that a dead one took part in could never be given back, so here nothing is
// counted: whatever a participant holds stands under its name (docs/shared_memory.md argues the
// safety, models/shared_vector.pml checks it; the steps below carry the model's names).
//   Vectors live in a fixed pool of slots. `published` is one word: t (48 bits) and the slot that
//   holds version t (16 bits); t never repeats, so neither does the word. A *seat* is a
//   participant's place: its identity, and one word for each pin that it may hold. Each slot has a
//   word for the seat that has claimed it, 0: nobody.
//     join      CAS of a seat's identity from 0 to one's own.
//     pin       announce: store the slot in a word of one's seat; then load `published` again. If
//               it has not changed, the slot was published after the announcement, and nobody
//               claims a slot that is announced. Otherwise announce what it is now.
//     release   store 0 in that word.
//     claim     CAS of a slot's word from 0 to one's seat; then look whether it is published or
//               announced: if so, store 0 back and try another.
//     publish   CAS of `published` from (old, t) to (new, t + 1), then store 0 in new's word: from
//               then on being published protects it. The old slot is free as soon as nobody
//               announces it: there is nothing to recycle.
//     reap      whoever finds a seat's process dead takes the seat over, by a CAS of its identity
//     to
//               one's own, stores 0 in its words and in those of the slots that it had claimed, and
//               then in its identity. If the reaper dies half-way, the seat is again a dead one's.
//   Bound: with k pins a seat, p seats use at most (k + 1) p slots, dead or alive, so a pool of
//   that size never makes anybody wait for a dead one to be found.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/process.h"
#include "leashed/vector/shared_memory.h"

namespace leashed {

class SharedVector {
 public:
  // Pins that a participant may hold at once: one to update with, and views.
  static constexpr std::size_t kPins = 3;

  // Under `name`, for so many participants: a pool for vectors of `length` floats, with `initial`
  // as version 0, or in place of a pool one vector that is changed in place. The description is for
  // whoever attaches.
  static SharedVector create(const std::string& name, const float* initial, std::size_t length,
                             std::size_t participants, bool in_place, std::string_view description);
  static SharedVector attach(const std::string& name);

  class Participant;

  std::size_t length() const { return header().length; }
  std::size_t participants() const { return header().seats; }
  std::size_t slots() const { return header().slots; }
  bool in_place() const { return header().slots == 1; }
  std::string_view description() const;
  // Updates published.
  std::uint64_t t() const;
  // Slots in use now, and the pids of those who take part.
  std::size_t live() const;
  std::vector<pid_t> pids() const;
  // Releases what dead participants held. Throws Error where this is not the process that attached.
  void reap();
  void require_mine() const;
  bool is_mine() const { return memory_.is_mine(); }

 private:
  struct Header {
    char magic[8];
    std::uint64_t version;
    std::uint64_t bytes;  // of everything
    std::uint64_t length, seats, slots;
    std::uint64_t description_bytes;
    std::uint64_t pid_namespace;
    alignas(kCacheLine) std::atomic<std::uint64_t> published;
  };
  struct alignas(kCacheLine) Seat {
    std::atomic<ProcessId> identity;
    std::atomic<std::uint64_t> pins[kPins];  // slot + 1; 0: none
  };
  // Of the parts, in bytes from the beginning: processes see the memory at different addresses.
  struct Offsets {
    Offsets(std::size_t length, std::size_t seats, std::size_t slots, std::size_t description);
    std::size_t seats, claims, description, vectors, stride, end;
  };

  explicit SharedVector(SharedMemory memory);
  static Offsets check(const std::string& name, const SharedMemory& memory);
  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  Seat& seat(std::size_t i) const {
    return reinterpret_cast<Seat*>(memory_.data() + offsets_.seats)[i];
  }
  // The seat that has claimed the slot, + 1; 0: none.
  std::atomic<std::uint64_t>& claimed(std::size_t slot) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + offsets_.claims)[slot];
  }
  float* vector(std::size_t slot) const {
    return reinterpret_cast<float*>(memory_.data() + offsets_.vectors + slot * offsets_.stride);
  }
  bool announced(std::size_t slot) const;
  bool published(std::size_t slot) const;
  void clear(std::size_t seat);
  std::size_t join();

  SharedMemory memory_;
  Offsets offsets_;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // and so free of its address
};

// One thread's part in the vector. The vector must outlive it and stay where it is.
class SharedVector::Participant {
 public:
  // Throws Error where every seat is taken by a living process.
  explicit Participant(SharedVector& vector);
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  ~Participant();

  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept { *this = std::move(other); }
    Pin& operator=(Pin&& other) noexcept {
      release();
      owner_ = std::exchange(other.owner_, nullptr);
      index_ = other.index_;
      word_ = other.word_;
      return *this;
    }
    ~Pin() { release(); }

    const float* data() const;
    std::uint64_t t() const;
    explicit operator bool() const { return owner_ != nullptr; }
    void release() {
      if (owner_) std::exchange(owner_, nullptr)->release(index_);
    }

   private:
    friend class Participant;
    Pin(Participant* owner, std::size_t index, std::uint64_t word)
        : owner_(owner), index_(index), word_(word) {}
    Participant* owner_ = nullptr;
    std::size_t index_ = 0;  // of the seat's word that announces it
    std::uint64_t word_ = 0;
  };

  class Draft {
   public:
    Draft() = default;
    Draft(Draft&& other) noexcept { *this = std::move(other); }
    Draft& operator=(Draft&& other) noexcept {
      recycle();
      owner_ = std::exchange(other.owner_, nullptr);
      slot_ = other.slot_;
      return *this;
    }
    ~Draft() { recycle(); }

    float* data();
    explicit operator bool() const { return owner_ != nullptr; }

   private:
    friend class Participant;
    Draft(Participant* owner, std::size_t slot) : owner_(owner), slot_(slot) {}
    void recycle() {
      if (owner_) std::exchange(owner_, nullptr)->recycle(slot_);
    }
    Participant* owner_ = nullptr;
    std::size_t slot_ = 0;
  };

  // As ParameterVector's: the latest vector, an own one, and the one replaced by the other.
  Pin pin() { return pin(0); }
  Draft claim();  // one at a time
  bool publish(Pin& old, Draft& next);

  // A pin beside that of pin(); throws Error where kPins − 1 of these are held.
  Pin view();

  // In place: the one vector, and the version that an update of it replaces, counted.
  float* data() { return vector_.vector(0); }
  std::uint64_t count();
  // The same, if the version is still `t`.
  bool count(std::uint64_t& t);

  SharedVector& vector() { return vector_; }

 private:
  Pin pin(std::size_t index);
  void release(std::size_t index);
  void recycle(std::size_t slot);

  SharedVector& vector_;
  const std::size_t index_;  // of the seat
  Seat& seat_;
  bool held_[kPins] = {};
};

}  // namespace leashed
