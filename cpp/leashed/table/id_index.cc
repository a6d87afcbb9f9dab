#include "leashed/table/id_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr unsigned kLeastBits = 6;  // of a segment's slots
constexpr std::size_t kWorst = 4;   // rows that are evicted of those that are compared
constexpr std::size_t kTries = 8;   // rows that may wait before one that is free

// In which the thread begins a row.
thread_local AlignedArray<float> own_row;

// Slots for so many rows, of which at most 0.6 are to be in use.
unsigned bits_for(std::size_t rows) {
  unsigned bits = kLeastBits;
  while (3 * (std::size_t{1} << bits) < 5 * rows) ++bits;
  return bits;
}

std::size_t rows_per_shard(const IdIndex::Settings& settings) {
  return std::max<std::size_t>(1, settings.rows >> settings.shard_bits);
}

}  // namespace

IdIndex::Segment IdIndex::Segment::make(unsigned bits, std::byte* memory) {
  static_assert((std::size_t{1} << kLeastBits) * sizeof(Slot) > 64);
  const Segment made{reinterpret_cast<Slot*>(memory), bits};
  for (std::size_t i = 0; i < slots(bits); ++i) made.table[i].id.store(kEmpty, kRelease);
  return made;
}

void IdIndex::Segment::put(std::uint64_t id, std::uint64_t hash, Handle handle) const {
  std::size_t i = first(hash);
  while (table[i].id.load(kRelaxed) != kEmpty) i = next(i);
  table[i].handle.store(handle, kRelease);
  table[i].id.store(id, kRelease);
}

struct alignas(kCacheLine) IdIndex::Shard {
  // Relaxed: counted without the lock.
  std::atomic<std::uint64_t> deferred{0}, refused{0};
  // An id was refused, and none will get a row. Release where it is stored, acquire where it is
  // loaded: who sees it sees all ids that have one.
  std::atomic<bool> full{false};

  // A row that an id has no more, and what it waits for.
  struct Left {
    std::uint32_t row, number;
  };

  // Under the lock.
  std::mutex lock;
  Segment owned;
  std::size_t used = 0;         // slots of it that are not empty
  std::byte* memory = nullptr;  // that all but the first segment lie in
  std::size_t bytes = 0;        // of it, that have been written to
  // A ring of so many rows that have left, from `oldest` on.
  std::unique_ptr<Left[]> limbo;
  std::size_t places = 0, oldest = 0, waiting = 0;
  std::size_t unused = 0;  // rows that it may take and never has
  std::size_t live = 0, hand = 0;
  std::uint64_t inserted = 0, evicted = 0;

  std::size_t at_hand() const { return unused + waiting; }
  // The k-th from the oldest on.
  Left& left(std::size_t k) { return limbo[(oldest + k) % places]; }
  // Of the ring: all of it, once there is anything in it.
  std::size_t limbo_bytes() const { return evicted > 0 ? places * sizeof(Left) : 0; }
};

std::size_t IdIndex::rows_of(const Settings& settings) {
  return kSpecial + slots(settings.shard_bits) * rows_per_shard(settings);
}

// Of one shard's segments but the first: two of the largest.
std::size_t IdIndex::segment_bytes(const Settings& settings) {
  return 2 * Segment::bytes(bits_for(rows_per_shard(settings)));
}

// Of one shard: who finds fewer free than are to be evicts a few at once.
std::size_t IdIndex::ring_places(const Settings& settings) {
  return settings.reserve == 0 ? 0 : settings.reserve + kWorst;
}

// Of all else that there is from the start.
std::size_t IdIndex::shard_bytes(const Settings& settings) {
  return slots(settings.shard_bits) *
         (sizeof(Current) + sizeof(Shard) + Segment::bytes(kLeastBits));
}

std::size_t IdIndex::most_bytes(const Settings& settings) {
  const std::size_t ring = ring_places(settings) * sizeof(Shard::Left);
  return slots(settings.shard_bits) * (segment_bytes(settings) + ring) + shard_bytes(settings);
}

IdIndex::IdIndex(Rows& rows, const Settings& settings, Initialise initialise, RowHolds* holds,
                 Score score)
    : rows_(rows),
      settings_(settings),
      initialise_(std::move(initialise)),
      holds_(holds),
      score_(std::move(score)),
      rows_per_shard_(rows_per_shard(settings)),
      segment_bytes_(segment_bytes(settings)),
      first_segments_(slots(settings.shard_bits), Segment::bytes(kLeastBits), "a table's index"),
      segments_(slots(settings.shard_bits), segment_bytes_, "a table's index"),
      current_(std::make_unique<Current[]>(slots(settings.shard_bits))),
      shards_(std::make_unique<Shard[]>(slots(settings.shard_bits))) {
  if (rows.count() < rows_of(settings) || rows.count() >= kNone) {
    throw Error("an index of " + std::to_string(rows_of(settings)) + " rows cannot use " +
                std::to_string(rows.count()));
  }
  for (std::size_t k = 0; k < slots(settings.shard_bits); ++k) {
    Shard& shard = shards_[k];
    shard.memory = segments_.data() + k * segment_bytes_;
    // Empty as the memory comes: what no id is put into takes none.
    static_assert(kEmpty == 0);
    std::byte* const first = first_segments_.data() + k * Segment::bytes(kLeastBits);
    shard.owned = {reinterpret_cast<Segment::Slot*>(first), kLeastBits};
    current_[k].segment.store(shard.owned.word(), kRelaxed);
    shard.places = ring_places(settings);
    shard.limbo = std::make_unique_for_overwrite<Shard::Left[]>(shard.places);
    shard.unused = rows_per_shard_;
  }
  for (const std::uint64_t id : {kEmpty, kTomb}) initialise_(id, rows_.values(special_row(id)));
}

IdIndex::~IdIndex() = default;

// Who holds the lock and is not running keeps others from inserting: so what takes long, beginning
// a row and comparing those to evict, is done without it, and who would be refused for good does
// not take it.
IdIndex::Entry IdIndex::insert(std::uint64_t id, std::uint16_t touched, std::uint16_t period,
                               bool may_evict) {
  const auto held = [this](std::uint32_t row, Outcome outcome) -> Entry {
    if (holds_) holds_->hold(row);
    return {row, outcome};
  };
  if (is_special(id)) return held(special_row(id), Outcome::known);
  const std::uint64_t hash = mix(id);
  Shard& shard = shards_[shard_of(hash)];
  if (shard.full.load(kAcquire)) {
    if (const std::uint32_t row = find(id); row != kNone) return {row, Outcome::known};
    shard.refused.fetch_add(1, kRelaxed);
    return {kNone, Outcome::refused};
  }
  const float* const values = begun(id);
  std::unique_lock lock(shard.lock, std::try_to_lock);
  if (!lock) {
    shard.deferred.fetch_add(1, kRelaxed);
    return {kNone, Outcome::deferred};
  }
  if (const std::uint32_t row = shard.owned.find(id, hash); row != kNone) {
    return held(row, Outcome::known);
  }
  const std::uint32_t row = take_row(shard);
  if (row != kNone) {
    make_room(shard);
    rows_.head(row).version.store(0, kRelaxed);
    rows_.head(row).touched.store(touched, kRelaxed);
    rows_.head(row).period.store(period, kRelaxed);
    // Racy: somebody may be comparing what the row was before.
    update_kernels().copy_racy(rows_.values(row), values, rows_.floats());
    if (holds_) holds_->hold(row);
    ++shard.inserted;
    shard.owned.put(id, hash, {row, static_cast<std::uint32_t>(shard.inserted)});
    ++shard.used;
    ++shard.live;
  } else {
    shard.refused.fetch_add(1, kRelaxed);
    if (!score_) shard.full.store(true, kRelease);
  }
  if (score_ && may_evict && shard.at_hand() < settings_.reserve) {
    const Sample sample = sampled(shard);
    lock.unlock();
    evict(shard, sample);
  }
  return {row, row == kNone ? Outcome::refused : Outcome::inserted};
}

void IdIndex::get_ready() const {
  if (own_row.size() < rows_.floats()) own_row = AlignedArray<float>(rows_.floats());
}

// What a row of that id begins with; until the thread asks for another one's. Seldom in vain: who
// inserts has just looked, and the lock is held for moments.
const float* IdIndex::begun(std::uint64_t id) const {
  get_ready();
  initialise_(id, own_row.data());
  return own_row.data();
}

IdIndex::Current& IdIndex::current(const Shard& shard) const {
  return current_[&shard - shards_.get()];
}

// For one slot more.
void IdIndex::make_room(Shard& shard) {
  const Segment& segment = shard.owned;
  const std::size_t all = slots(segment.bits);
  const bool largest = segment.bits == bits_for(rows_per_shard_);
  // One that can grow does so earlier, for probes are shorter then.
  if (largest ? 4 * (shard.used + 1) <= 3 * all : 5 * (shard.used + 1) <= 3 * all) return;
  const bool grows = !largest && 20 * shard.live > 9 * all;
  rebuild(shard, segment.bits + (grows ? 1 : 0));
}

// Where the shard's segment does not lie: each lies at a multiple of its size, in memory for two of
// the largest.
std::byte* IdIndex::place_for(const Shard& shard, unsigned bits) const {
  const std::size_t bytes = Segment::bytes(bits);
  const auto* const begin = reinterpret_cast<const std::byte*>(shard.owned.table);
  const auto* const end = begin + Segment::bytes(shard.owned.bits);
  std::byte* place = shard.memory;
  while (begin < place + bytes && place < end) place += bytes;
  return place;
}

// What lives, without tombs. Who looks into what was there before sees that it has begun.
void IdIndex::rebuild(Shard& shard, unsigned bits) {
  Current& current = this->current(shard);
  current.rebuilds.store(current.rebuilds.load(kRelaxed) + 1, kRelease);
  std::byte* const memory = place_for(shard, bits);
  const Segment before = shard.owned, next = Segment::make(bits, memory);
  shard.used = 0;
  for (std::size_t i = 0; i < slots(before.bits); ++i) {
    const std::uint64_t id = before.table[i].id.load(kRelaxed);
    if (is_special(id)) continue;
    next.put(id, mix(id), before.table[i].handle.load(kRelaxed));
    ++shard.used;
  }
  current.segment.store(next.word(), kRelease);
  shard.bytes =
      std::max(shard.bytes, static_cast<std::size_t>(memory - shard.memory) + Segment::bytes(bits));
  shard.owned = next;
  shard.hand = 0;
}

// One that has left, or else one that was never used. Those that are held are few, for none leaves
// that was a moment before: they go to the end of the ring.
std::uint32_t IdIndex::take_row(Shard& shard) {
  std::size_t tries = std::min(kTries, shard.waiting);
  const std::uint64_t oldest = tries > 0 ? holds_->reads().oldest() : Epochs::kLeft;
  for (; tries > 0; --tries) {
    const Shard::Left left = shard.left(0);
    shard.oldest = (shard.oldest + 1) % shard.places;
    if (holds_->is_free(left.row, left.number, oldest)) {
      --shard.waiting;
      return left.row;
    }
    shard.left(shard.waiting - 1) = left;
  }
  if (shard.unused == 0) return kNone;
  --shard.unused;
  // In the order in which ids come, whatever their shards: those in use lie close together.
  return next_row_.fetch_add(1, kRelaxed);
}

// The next rows under the hand.
IdIndex::Sample IdIndex::sampled(Shard& shard) {
  const Segment segment = shard.owned;
  Sample sample;
  sample.rebuilds = current(shard).rebuilds.load(kRelaxed);
  for (std::size_t seen = 0; seen < slots(segment.bits) && sample.count < sample.candidates.size();
       ++seen) {
    shard.hand = segment.next(shard.hand);
    if (is_special(segment.table[shard.hand].id.load(kRelaxed))) continue;
    const std::uint32_t row = segment.table[shard.hand].handle.load(kRelaxed).row;
    sample.candidates[sample.count++] = {0, row, shard.hand};
  }
  return sample;
}

// The worst of the sample that nobody holds: what is held is in use, and would be of no use to
// anybody else yet. Without the lock a row may begin anew for another id, and what is compared is
// of both: then its slot is a tomb.
void IdIndex::evict(Shard& shard, Sample sample) {
  const auto begin = sample.candidates.begin();
  const auto end = std::remove_if(begin, begin + sample.count, [this](const Candidate& each) {
    return holds_->is_held(each.row);
  });
  for (auto each = begin; each != end; ++each) {
    const float score = score_(rows_.head(each->row), rows_.values(each->row));
    each->score = std::isnan(score) ? std::numeric_limits<float>::infinity() : score;
  }
  const auto worst = begin + std::min<std::ptrdiff_t>(kWorst, end - begin);
  std::partial_sort(begin, worst, end,
                    [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  const std::unique_lock lock(shard.lock, std::try_to_lock);
  // Else the next who inserts sees to it.
  if (!lock || current(shard).rebuilds.load(kRelaxed) != sample.rebuilds ||
      shard.at_hand() >= settings_.reserve) {
    return;
  }
  std::size_t count = 0;
  for (auto each = begin; each != worst; ++each) {
    std::atomic<std::uint64_t>& id = shard.owned.table[each->slot].id;
    if (is_special(id.load(kRelaxed))) continue;  // somebody else has evicted it
    if (holds_->is_held(each->row)) continue;     // since then
    id.store(kTomb, kRelease);
    rows_.head(each->row).version.fetch_or(RowHead::kDead, kRelaxed);
    shard.left(shard.waiting++) = {each->row, 0};
    ++count;
  }
  if (count == 0) return;
  const std::uint32_t number = holds_->leave();
  for (std::size_t k = 1; k <= count; ++k) shard.left(shard.waiting - k).number = number;
  shard.live -= count;
  shard.evicted += count;
}

IdIndex::Counts IdIndex::counts() const {
  Counts counts;
  counts.bytes = shard_bytes(settings_);
  counts.rows = next_row_.load(kRelaxed);
  for (std::size_t k = 0; k < slots(settings_.shard_bits); ++k) {
    Shard& shard = shards_[k];
    const std::lock_guard lock(shard.lock);
    counts.inserted += shard.inserted;
    counts.evicted += shard.evicted;
    counts.refused += shard.refused.load(kRelaxed);
    counts.rebuilt += current_[k].rebuilds.load(kRelaxed);
    counts.deferred += shard.deferred.load(kRelaxed);
    counts.live += shard.live;
    counts.bytes += shard.bytes + shard.limbo_bytes();
  }
  return counts;
}

void IdIndex::each(const std::function<void(std::uint64_t, Handle)>& f) const {
  std::vector<std::pair<std::uint64_t, Handle>> found;
  for (std::size_t k = 0; k < slots(settings_.shard_bits); ++k) {
    whole(k, [&](Segment segment) {
      found.clear();
      for (std::size_t i = 0; i < slots(segment.bits); ++i) {
        const std::uint64_t id = segment.table[i].id.load(kAcquire);
        if (!is_special(id)) found.emplace_back(id, segment.table[i].handle.load(kAcquire));
      }
    });
    for (const auto& [id, handle] : found) f(id, handle);
  }
  for (const std::uint64_t id : {kEmpty, kTomb}) f(id, {special_row(id), 0});
}

}  // namespace leashed
