#include "leashed/vector/shared_vector.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "leashed/base/error.h"
#include "leashed/base/fault.h"

namespace leashed {
namespace {

constexpr char kMagic[8] = {'L', 'E', 'A', 'S', 'H', 'E', 'D', 'V'};
constexpr std::uint64_t kVersion = 2;  // of the layout
constexpr int kSlotBits = 16;
constexpr std::size_t kMostSlots = std::size_t{1} << kSlotBits;
// There is a free slot at every moment, and it takes others' updates to miss it: who looks at so
// many in vain looks at words that nobody has written.
constexpr std::size_t kLooks = std::size_t{1} << 24;

constexpr std::size_t published_slot(std::uint64_t word) { return word & (kMostSlots - 1); }
constexpr std::uint64_t t_of(std::uint64_t word) { return word >> kSlotBits; }
constexpr std::uint64_t word_of(std::size_t slot, std::uint64_t t) { return t << kSlotBits | slot; }

constexpr std::size_t up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

SharedVector::Offsets::Offsets(const Sizes& sizes)
    : seats(up(sizeof(Header), kCacheLine)),
      claims(seats + sizes.seats * sizeof(Seat)),
      description(claims + sizes.slots * sizeof(std::uint64_t)),
      vectors(up(description + sizes.description, kCacheLine)),
      stride(up(sizes.length * sizeof(float), kCacheLine)),
      end(vectors + sizes.slots * stride) {}

SharedVector::SharedVector(SharedMemory memory, const Sizes& sizes)
    : memory_(std::move(memory)), sizes_(sizes), offsets_(sizes) {}

SharedVector SharedVector::create(const std::string& name, const float* initial, std::size_t length,
                                  std::size_t participants, bool in_place,
                                  std::string_view description) {
  constexpr std::size_t kMost = kMostSlots / (kPins + 1);
  if (participants > kMost) {
    throw Error("participants must be at most " + std::to_string(kMost) + ", got " +
                std::to_string(participants));
  }
  const std::size_t slots = in_place ? 1 : (kPins + 1) * participants;
  const Sizes sizes{length, participants, slots, description.size()};
  const Offsets offsets(sizes);
  const std::uint64_t names = pid_namespace();
  SharedMemory made = SharedMemory::create(name, offsets.end, [&](std::byte* memory) {
    // The memory is zero; nobody else knows of it yet.
    Header& header = *new (memory) Header{};
    std::copy_n(kMagic, sizeof(kMagic), header.magic);
    header.version = kVersion;
    header.bytes = offsets.end;
    header.sizes = sizes;
    header.pid_namespace = names;
    std::memcpy(memory + offsets.description, description.data(), description.size());
    std::memcpy(memory + offsets.vectors, initial, length * sizeof(float));
  });
  return SharedVector(std::move(made), sizes);
}

void SharedVector::refuse_damaged(const SharedMemory& memory) {
  throw Error(memory.path() + " is damaged; end its participants and remove it");
}

SharedVector::Sizes SharedVector::checked(const SharedMemory& memory) {
  const std::string& path = memory.path();
  if (memory.size() < sizeof(Header)) throw Error(path + " is truncated; remove it");
  const Header& header = *reinterpret_cast<const Header*>(memory.data());
  if (!std::equal(kMagic, kMagic + sizeof(kMagic), header.magic)) {
    throw Error(path + " holds no leashed vector; choose another name");
  }
  if (header.version != kVersion) {
    throw Error(path + " has layout version " + std::to_string(header.version) +
                ", this release shares version " + std::to_string(kVersion) +
                "; use one release of leashed in all processes");
  }
  if (header.bytes != memory.size()) {
    throw Error(path + " should have " + std::to_string(header.bytes) + " bytes and has " +
                std::to_string(memory.size()) + ": it is truncated; remove it");
  }
  const Sizes sizes = header.sizes;
  // Each fits by itself, so that their sum does not wrap; then together.
  const auto fits = [&](std::uint64_t n, std::size_t bytes) { return n <= memory.size() / bytes; };
  const bool pool = sizes.slots == (kPins + 1) * sizes.seats && sizes.slots <= kMostSlots;
  if (!fits(sizes.seats, sizeof(Seat)) || !(pool || sizes.slots == 1) ||
      !fits(sizes.length, sizeof(float)) || !fits(sizes.description, 1) ||
      Offsets(sizes).end != memory.size()) {
    refuse_damaged(memory);
  }
  if (header.pid_namespace != pid_namespace()) {
    throw Error(path +
                " is shared by processes of another pid namespace (container), whose death "
                "could not be told from here; run all of them in one");
  }
  return sizes;
}

void SharedVector::check_words() const {
  // Relaxed: they are only looked at.
  bool sound = published_slot(header().published.load(std::memory_order_relaxed)) < slots();
  for (std::size_t i = 0; i < participants(); ++i) {
    for (const auto& pin : seat(i).pins) sound &= pin.load(std::memory_order_relaxed) <= slots();
  }
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    sound &= claimed(slot).load(std::memory_order_relaxed) <= participants();
  }
  if (!sound) refuse_damaged(memory_);
}

SharedVector SharedVector::attach(const std::string& name) {
  SharedMemory memory = SharedMemory::attach(name);
  const Sizes sizes = checked(memory);
  SharedVector vector(std::move(memory), sizes);
  vector.check_words();
  return vector;
}

std::string_view SharedVector::description() const {
  return {reinterpret_cast<const char*>(memory_.data() + offsets_.description), sizes_.description};
}

std::uint64_t SharedVector::t() const {
  // Acquire: what whoever reads t does next is not older than it. Pairs with publish and count.
  return t_of(header().published.load(std::memory_order_acquire));
}

void SharedVector::require_mine() const {
  if (!memory_.is_mine()) {
    throw Error("this process was forked from the one that attached; attach in this one, too");
  }
}

// Whether a participant has announced the slot. seq_cst: these loads, that of `published` before
// them and the claiming CAS before that stand in one order with the announcements and with the
// loads of `published` after them: whoever announced too late to be seen here finds the slot
// replaced, and does not read it. Acquire, which is part of it: takes over the reads of those who
// have stored something else since (release), before the slot's next owner writes.
bool SharedVector::announced(std::size_t slot) const {
  for (std::size_t i = 0; i < participants(); ++i) {
    for (const auto& pin : seat(i).pins) {
      if (pin.load(std::memory_order_seq_cst) == slot + 1) return true;
    }
  }
  return false;
}

bool SharedVector::published(std::size_t slot) const {
  return published_slot(header().published.load(std::memory_order_seq_cst)) ==
         slot;  // as in announced
}

std::size_t SharedVector::live() const {
  // Of one moment, for the vector would else be missed that moves between two looks.
  const std::size_t current = published_slot(header().published.load(std::memory_order_relaxed));
  std::size_t live = 0;
  for (std::size_t slot = 0; slot < slots(); ++slot) {  // relaxed: telemetry
    live += slot == current || announced(slot) || claimed(slot).load(std::memory_order_relaxed);
  }
  return live;
}

std::vector<pid_t> SharedVector::pids() const {
  std::vector<pid_t> pids;
  for (std::size_t i = 0; i < participants(); ++i) {
    const ParticipantId id = seat(i).identity.load(std::memory_order_relaxed);  // telemetry
    if (id && is_present(memory_, id)) pids.push_back(pid_of(id));
  }
  return pids;
}

// The seat's own participant is dead, or is the caller.
void SharedVector::clear(std::size_t index) {
  // Release: pairs with the acquire in announced and claim. What the dead one did cannot come
  // later.
  for (auto& pin : seat(index).pins) pin.store(0, std::memory_order_release);
  fault_point("unpinned");
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    // Relaxed: nobody but the seat's participant, and who has taken the seat over, stores there.
    if (claimed(slot).load(std::memory_order_relaxed) == index + 1) {
      claimed(slot).store(0, std::memory_order_release);
    }
  }
  fault_point("cleared");
  // Release: pairs with the acquire in join and reap.
  seat(index).identity.store(0, std::memory_order_release);
}

std::uint64_t SharedVector::next_presence() const {
  require_mine();
  // Relaxed: a number that nobody else has, and no more.
  return header().presences.fetch_add(1, std::memory_order_relaxed) + 1;
}

void SharedVector::reap() {
  const Presence reaper(memory_, next_presence());
  reap(reaper.id());
}

void SharedVector::reap(ParticipantId me) {
  for (std::size_t i = 0; i < participants(); ++i) {
    // The CAS decides; who is gone does not come back under this identity.
    ParticipantId id = seat(i).identity.load(std::memory_order_relaxed);
    if (id == 0 || is_present(memory_, id)) continue;
    // Acquire: pairs with the release of an earlier reaper's clear.
    if (seat(i).identity.compare_exchange_strong(id, me, std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      fault_point("taken over");
      clear(i);
    }
  }
}

std::size_t SharedVector::join(ParticipantId me) {
  reap(me);
  for (std::size_t i = 0; i < participants(); ++i) {
    ParticipantId nobody = 0;
    // Acquire: pairs with the release in clear.
    if (seat(i).identity.compare_exchange_strong(nobody, me, std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      fault_point("joined");
      return i;
    }
  }
  throw Error("all " + std::to_string(participants()) +
              " participants have their seats; create it with more participants");
}

SharedVector::Participant::Participant(SharedVector& vector)
    : vector_(vector),
      presence_(vector.memory_, vector.next_presence()),
      index_(vector.join(presence_.id())),
      seat_(vector.seat(index_)) {}

SharedVector::Participant::~Participant() {
  if (vector_.memory_.is_mine()) vector_.clear(index_);
}

const float* SharedVector::Participant::data_at(const Announced& place) const {
  return vector_.vector(published_slot(place.word));
}

std::uint64_t SharedVector::Participant::t_at(const Announced& place) const {
  return t_of(place.word);
}

SharedVector::Participant::Pin SharedVector::Participant::pin(std::size_t index) {
  const std::atomic<std::uint64_t>& published = vector_.header().published;
  std::uint64_t word = published.load(std::memory_order_relaxed);  // looked at again below
  for (;;) {
    // seq_cst, both: see announced. The load's acquire pairs with the release CAS in publish, so
    // the vector's values are visible.
    seat_.pins[index].store(published_slot(word) + 1, std::memory_order_seq_cst);
    fault_point("announced");
    const std::uint64_t again = published.load(std::memory_order_seq_cst);
    if (again == word) break;
    word = again;
  }
  held_[index] = true;
  Pin pin(this, {index, word});
  if (published_slot(word) >= vector_.slots()) refuse_damaged(vector_.memory_);
  fault_point("pinned");
  return pin;
}

SharedVector::Participant::Pin SharedVector::Participant::view() {
  for (std::size_t index = 1; index < kPins; ++index) {
    if (!held_[index]) return pin(index);
  }
  throw Error("too many views are alive at once, at most " + std::to_string(kPins - 1) +
              " of each participant; drop some, or copy them");
}

void SharedVector::Participant::release(const Announced& place) {
  if (!vector_.memory_.is_mine()) return;
  held_[place.index] = false;
  // Release: this reader's loads come before what the slot's next owner writes. Pairs with the
  // acquire in announced.
  seat_.pins[place.index].store(0, std::memory_order_release);
  fault_point("released");
}

SharedVector::Participant::Draft SharedVector::Participant::claim() {
  for (std::size_t look = 0; look < kLooks; ++look) {
    const std::size_t slot = look % vector_.slots();
    std::atomic<std::uint64_t>& claimed = vector_.claimed(slot);
    // Guesses, so that hardly ever a slot is claimed in vain.
    std::uint64_t nobody = claimed.load(std::memory_order_relaxed);
    if (nobody || vector_.published(slot) || vector_.announced(slot)) continue;
    // Acquire: pairs with the release of whoever gave the slot up without publishing it; seq_cst:
    // see announced.
    if (!claimed.compare_exchange_strong(nobody, index_ + 1, std::memory_order_seq_cst,
                                         std::memory_order_relaxed)) {
      continue;
    }
    fault_point("claimed");
    if (!vector_.published(slot) && !vector_.announced(slot)) return Draft(this, slot);
    recycle(slot);
  }
  refuse_damaged(vector_.memory_);
}

bool SharedVector::Participant::publish(Pin& old, Draft& next) {
  std::uint64_t word = old.place_.word;
  fault_point("filled");
  // Release: pairs with the acquire in pin. seq_cst: see announced. A failure brings nothing that
  // is read.
  if (!vector_.header().published.compare_exchange_strong(word, word_of(next.slot_, t_of(word) + 1),
                                                          std::memory_order_seq_cst,
                                                          std::memory_order_relaxed)) {
    return false;
  }
  fault_point("published");
  next.recycle();
  old.release();
  return true;
}

void SharedVector::Participant::recycle(std::size_t slot) {
  if (!vector_.memory_.is_mine()) return;
  // Release: pairs with the acquire of the CAS in claim.
  vector_.claimed(slot).store(0, std::memory_order_release);
  fault_point("recycled");
}

std::uint64_t SharedVector::Participant::count() {
  // As Hogwild counts: release for what was written before, acquire for what is written after.
  return t_of(vector_.header().published.fetch_add(word_of(0, 1), std::memory_order_acq_rel));
}

bool SharedVector::Participant::count(std::uint64_t& t) {
  std::uint64_t word = word_of(0, t);
  const bool counted = vector_.header().published.compare_exchange_strong(
      word, word_of(0, t + 1), std::memory_order_acq_rel, std::memory_order_relaxed);
  if (published_slot(word) != 0) refuse_damaged(vector_.memory_);  // or it would never be counted
  t = t_of(word);
  return counted;
}

}  // namespace leashed
