// SharedVector: a ParameterVector that processes share, any of which may be killed at any step.
//
// A count of readers that a dead one took part in could never be given back, so here nothing is
// counted: whatever a participant holds stands under its name (docs/shared_memory.md argues the
// safety, models/shared_vector.pml checks it; the steps below carry the model's names).
//   Vectors live in a fixed pool of slots. `published` is one word: t (48 bits) and the slot that
//   holds version t (16 bits); t never repeats, so neither does the word. A *seat* is a
//   participant's place: its identity, and one word for each pin that it may hold. Each slot has a
//   word for the seat that has claimed it, 0: nobody.
//     join      CAS of a seat's identity from 0 to one's own, which never comes again
//     (presence.h).
//     pin       announce: store the slot in a word of one's seat; then load `published` again. If
//               it has not changed, the slot was published after the announcement, and nobody
//               claims a slot that is announced. Otherwise announce what it is now.
//     release   store 0 in that word.
//     claim     CAS of a slot's word from 0 to one's seat; then look whether it is published or
//               announced: if so, store 0 back and try another.
//     publish   CAS of `published` from (old, t) to (new, t + 1), then store 0 in new's word: from
//               then on being published protects it. The old slot is free as soon as nobody
//               announces it: there is nothing to recycle.
//     reap      whoever finds a seat's participant dead takes the seat over, by a CAS of its
//               identity to one's own, stores 0 in its words and in those of the slots that it had
//               claimed, and then in its identity. If the reaper dies half-way, the seat is again a
//               dead one's. Who has called exec is as dead as who was killed.
//   Bound: with k pins a seat, p seats use at most (k + 1) p slots, dead or alive, so a pool of
//   that size never makes anybody wait for a dead one to be found.
//
// Whoever may write to the memory may also damage it. So nothing that is read from it is used as a
// place before it is checked: the sizes once, on attaching, of which each process keeps its own
// copy; the published slot at every pin. The words of seats and slots are only compared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/vector/handle.h"
#include "leashed/vector/presence.h"
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
  // Throws Error, which names the file, where it is none, or damaged.
  static SharedVector attach(const std::string& name);

  class Participant;

  std::size_t length() const { return sizes_.length; }
  std::size_t participants() const { return sizes_.seats; }
  std::size_t slots() const { return sizes_.slots; }
  bool in_place() const { return sizes_.slots == 1; }
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
  struct Sizes {
    std::uint64_t length, seats, slots;
    std::uint64_t description;  // in bytes
  };
  struct Header {
    char magic[8];
    std::uint64_t version;
    std::uint64_t bytes;  // of everything
    Sizes sizes;
    std::uint64_t pid_namespace;
    std::atomic<std::uint64_t> presences;  // so far
    alignas(kCacheLine) std::atomic<std::uint64_t> published;
  };
  struct alignas(kCacheLine) Seat {
    std::atomic<ParticipantId> identity;
    std::atomic<std::uint64_t> pins[kPins];  // slot + 1; 0: none
  };
  // Of the parts, in bytes from the beginning: processes see the memory at different addresses.
  struct Offsets {
    explicit Offsets(const Sizes& sizes);
    std::size_t seats, claims, description, vectors, stride, end;
  };

  SharedVector(SharedMemory memory, const Sizes& sizes);
  // Of memory that is what it should be.
  static Sizes checked(const SharedMemory& memory);
  void check_words() const;
  [[noreturn]] static void refuse_damaged(const SharedMemory& memory);
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
  std::uint64_t next_presence() const;
  void reap(ParticipantId me);
  void clear(std::size_t seat);
  std::size_t join(ParticipantId me);

  SharedMemory memory_;
  Sizes sizes_;
  Offsets offsets_;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // and so free of its address
};

// One thread's part in the vector. The vector must outlive it and stay where it is.
class SharedVector::Participant {
 public:
  // Throws Error where every seat is taken by one that is present.
  explicit Participant(SharedVector& vector);
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  ~Participant();

  // By the word of the seat that announces it, and the published word found then.
  struct Announced {
    std::size_t index = 0;
    std::uint64_t word = 0;
  };
  using Pin = leashed::Pin<Participant, Announced>;
  using Draft = leashed::Draft<Participant>;

  // As ParameterVector's: the latest vector, an own one, and the one replaced by the other.
  Pin pin() { return pin(0); }
  Draft claim();  // one at a time
  // Always with t + 1: the word is (slot, t) and nothing else, so one that kept t, as
  // ParameterVector's may, would let it repeat. Only the pin on `old` would then stand between a
  // pending CAS and ABA, and that is not what the model has checked.
  bool publish(Pin& old, Draft& next);

  // A pin beside that of pin(); throws Error where kPins − 1 of these are held.
  Pin view();

  // In place: the one vector, and the version that an update of it replaces, counted.
  float* data() { return vector_.vector(0); }
  std::uint64_t t() const { return vector_.t(); }
  std::uint64_t count();
  // The same, if the version is still `t`; else `t` is what it is.
  bool count(std::uint64_t& t);

  SharedVector& vector() { return vector_; }

 private:
  friend Pin;
  friend Draft;
  const float* data_at(const Announced& place) const;
  std::uint64_t t_at(const Announced& place) const;
  float* draft_at(std::size_t slot) { return vector_.vector(slot); }

  Pin pin(std::size_t index);
  void release(const Announced& place);
  void recycle(std::size_t slot);

  SharedVector& vector_;
  const Presence presence_;
  const std::size_t index_;  // of the seat
  Seat& seat_;
  bool held_[kPins] = {};
};

}  // namespace leashed
