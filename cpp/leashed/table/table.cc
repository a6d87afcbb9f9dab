#include "leashed/table/table.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr std::size_t kLeastRows = 64;  // of a table that grows
constexpr std::size_t kMostRows = std::numeric_limits<std::uint32_t>::max() - 2;
constexpr std::size_t kMostFloats = std::size_t{1} << 20;  // of a row
constexpr std::size_t kLeastKept = std::size_t{1} << 20;   // bytes, from one update to the next
constexpr std::size_t kReadAhead = 16;                     // rows that are prefetched, to be read
constexpr std::size_t kBlock = 32;                         // rows that are updated at once
constexpr std::size_t kPart = 4096;                        // rows between two looks at signals
constexpr std::uint32_t kToAdmit = IdIndex::kNone - 1;  // for the row of an id that is to get one
constexpr std::size_t kLine = kCacheLine / sizeof(float);

IdIndex::Settings index_settings(std::size_t rows, bool evicts) {
  const auto bits = static_cast<int>(std::bit_width(rows / 2048));
  const auto shard_bits = static_cast<unsigned>(std::clamp(bits, 0, 10));
  const std::size_t rows_per_shard = rows >> shard_bits;
  return {.rows = rows,
          .shard_bits = shard_bits,
          .reserve = evicts ? std::max<std::size_t>(4, rows_per_shard / 16) : 0};
}

// Bytes of a row, beside its own.
std::size_t holds_of(const IdIndex::Settings& index) {
  return index.reserve > 0 ? RowHolds::kBytes : 0;
}

// Of all that a growing table of so many rows may keep.
std::size_t bytes_for(const IdIndex::Settings& index, std::size_t row, bool filters) {
  return IdIndex::rows_of(index) * (row + holds_of(index)) + IdIndex::most_bytes(index) +
         (filters ? Admission::bytes(index.rows) : 0);
}

// Whether the version that was read is one that the row has yet to reach: then it was of a row that
// is gone, whose id has got another.
bool is_ahead(std::uint32_t read, std::uint32_t now) {
  return static_cast<std::int32_t>(now - (read & ~RowHead::kDead)) < 0;
}

bool is_gone(std::uint32_t read, std::uint32_t now) {
  return (now & RowHead::kDead) != 0 || is_ahead(read, now);
}

std::uint32_t updates_between(std::uint32_t read, std::uint32_t now) {
  return is_ahead(read, now) ? 0 : (now - (read & ~RowHead::kDead)) / RowHead::kUpdate;
}

}  // namespace

// For update().
struct Table::Scratch {
  Combiner combiner;
  Located located;
  std::vector<std::uint32_t> places;
  AlignedArray<float> sums;

  std::size_t bytes() const {
    const std::size_t numbers =
        places.capacity() + located.rows.capacity() + located.versions.capacity();
    return combiner.bytes() + numbers * sizeof(std::uint32_t) +
           located.ids.capacity() * sizeof(std::uint64_t) + sums.size() * sizeof(float);
  }
};

std::size_t Table::bytes_per_row(std::size_t dim, const Choice& rule, const Choice& staleness,
                                 bool versions) {
  const std::size_t last_update = make_staleness(staleness)->stage_aware() ? 1 : 0;
  return Rows::bytes_of_row(RowRule(rule).floats(dim) + last_update, versions);
}

Table::Table(const Settings& settings, const Watch& watch)
    : settings_(settings),
      initial_(settings.initial, settings.seed, settings.number),
      rule_(settings.rule),
      staleness_(make_staleness(settings.staleness)),
      kernels_(row_kernels()),
      slots_(std::make_unique<Slot[]>(kSeats)) {
  const std::string name = "table '" + settings.name + "' ";
  if (settings.dim == 0 || settings.dim > kMostFloats) {
    throw Error(name + "needs a dim from 1 to " + std::to_string(kMostFloats));
  }
  if (!settings.versions && (grows() || rule_.swaps() || settings.staleness.name != "none")) {
    throw Error(name + "needs versions: it grows, or has SWAP or a staleness policy");
  }
  if (evicts() && settings.evict != "age" && settings.evict != "norm") {
    throw Error("unknown eviction '" + settings.evict + "'; choose one of: none, age, norm");
  }
  const std::size_t row = Rows::bytes_of_row(floats(), settings.versions);
  const std::size_t limit = settings.max_bytes;
  const auto too_small = [&](std::size_t rows, std::size_t bytes) {
    throw Error(name + "of " + std::to_string(rows) + " rows needs " + std::to_string(bytes) +
                " bytes; max_bytes is " + std::to_string(limit));
  };
  if (!grows()) {
    capacity_ = settings.rows;
    if (capacity_ > kMostRows) {
      throw Error(name + "may have " + std::to_string(kMostRows) + " rows, not " +
                  std::to_string(capacity_));
    }
    most_bytes_ = capacity_ * row;
    if (limit && most_bytes_ > limit) too_small(capacity_, most_bytes_);
  } else {
    if (limit == 0) throw Error(name + "grows, so it needs max_bytes");
    const auto bytes = [&](std::size_t rows) {
      return bytes_for(index_settings(rows, evicts()), row, settings.admit_after > 1);
    };
    if (bytes(kLeastRows) > limit) too_small(kLeastRows, bytes(kLeastRows));
    // The most rows that fit: the index's memory goes up by steps.
    std::size_t fits = kLeastRows, too_many = std::min<std::size_t>(limit / row, kToAdmit - 2) + 1;
    while (fits + 1 < too_many) {
      const std::size_t middle = std::midpoint(fits, too_many);
      (bytes(middle) <= limit ? fits : too_many) = middle;
    }
    index_settings_ = index_settings(fits, evicts());
    capacity_ = IdIndex::rows_of(index_settings_);
    most_bytes_ = bytes(fits);
  }
  make_rows(watch);
}

// Where others were within it at a fork, what they were putting in place of something else may be
// there no more: it stays.
Table::~Table() {
  if (forks_.load(kRelaxed) == forks() || was_idle()) return;
  for (std::size_t i = 0; i < kSeats; ++i) static_cast<void>(slots_[i].scratch.release());
  static_cast<void>(marks_.release());
  static_cast<void>(index_.release());
  static_cast<void>(rows_.release());
}

// A shard is locked only by who has a seat.
bool Table::was_idle() const {
  const std::uint64_t forker = forking_thread();
  const auto is_free = [forker](const std::atomic<std::uint64_t>& user) {
    const std::uint64_t whose = user.load(std::memory_order_acquire);
    return whose == kNobody || whose == forker;
  };
  for (std::size_t i = 0; i < kSeats; ++i) {
    if (!is_free(slots_[i].user)) return false;
  }
  return is_free(tracker_);
}

// Nothing is changed but the number. So any threads of the child may come at once: each finds what
// the parent left, or else a seat that another one has taken since. That one has stored the number
// before: the store is seen by who sees the seat, since that is taken with release, and loaded with
// acquire in was_idle().
void Table::adopt() {
  const std::uint64_t now = forks();
  if (was_idle()) return forks_.store(now, kRelaxed);
  if (forks_.load(kRelaxed) == now) return;
  throw Error("table '" + settings_.name +
              "' was in use by another thread, or by a training, when this process was forked, and "
              "may be half changed here; fork while nobody uses it, or start the process by "
              "\"spawn\", and load a table there from a file");
}

void Table::make_rows(const Watch& watch) {
  if (grows()) {
    if (settings_.admit_after > 1) {
      admission_ = std::make_unique<Admission>(index_settings_.rows, settings_.admit_after);
    }
    return clear();
  }
  rows_ = std::make_unique<Rows>(capacity_, floats(), settings_.versions);
  if (initial_.zero() && rule_.initial_state() == 0) return;  // as memory comes
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (watch && i % kPart == 0) watch();
    begin(i, rows_->values(static_cast<std::uint32_t>(i)));
  }
}

// Rows that nobody has used yet take no memory, so both may be there for a moment.
void Table::clear() {
  auto rows = std::make_unique<Rows>(capacity_, floats(), settings_.versions);
  const auto begin = [this](std::uint64_t id, float* values) { this->begin(id, values); };
  std::shared_ptr<RowHolds> holds;
  IdIndex::Score score;
  if (evicts()) {
    holds = std::make_shared<RowHolds>(capacity_, kSeats);
    score = [this](RowHead& head, const float* values) { return this->score(head, values); };
  }
  index_ = std::make_unique<IdIndex>(*rows, index_settings_, begin, holds.get(), std::move(score));
  holds_ = std::move(holds);
  rows_ = std::move(rows);
}

void Table::begin(std::uint64_t id, float* values) const {
  initial_(id, values, dim());
  std::fill_n(values + dim(), rule_.floats(dim()) - dim(), rule_.initial_state());
  if (staleness_->stage_aware()) last_update(values).store(0, kRelaxed);
}

float Table::score(RowHead& head, const float* values) const {
  if (settings_.evict == "norm") return -kernels_.sum_of_squares(values, dim());
  // Modulo 2^16: who is found to be older than half of that stays so old.
  constexpr std::uint16_t kOldest = 0x8000, kNewer = 0xFF00;
  const std::uint16_t now = time();
  std::uint16_t touched = head.touched.load(kRelaxed);
  const auto age = static_cast<std::uint16_t>(now - touched);
  if (age >= kNewer) return 0;  // touched after `now`
  if (age > kOldest) {
    const auto oldest = static_cast<std::uint16_t>(now - kOldest);
    head.touched.compare_exchange_strong(touched, oldest, kRelaxed);
  }
  return std::min(age, kOldest);
}

// In sixteenths of the table's rows.
std::uint16_t Table::time() const {
  return static_cast<std::uint16_t>(touched_.load(kRelaxed) /
                                    std::max<std::size_t>(1, capacity_ / 16));
}

std::size_t Table::Seat::take(Table& table, std::size_t most, std::uint64_t user) {
  table.require_whole();
  for (std::size_t number = 0; number < most; ++number) {
    if (table.slots_[number].take(user)) return number;
  }
  return kSeats;
}

Table::Seat::Seat(Table& table, const Watch& watch)
    : Seat(table, [&] {
        const std::uint64_t user = thread_number();
        std::size_t number = take(table, kSeats, user);
        while (number == kSeats) {
          if (watch) watch();
          std::this_thread::sleep_for(std::chrono::microseconds(100));
          number = take(table, kSeats, user);
        }
        return number;
      }()) {}

std::unique_ptr<Table::Seat> Table::Seat::keep(Table& table, bool for_caller) {
  const std::size_t number = take(table, kKept, for_caller ? thread_number() : kKeeper);
  if (number == kSeats) return nullptr;
  return std::unique_ptr<Seat>(new Seat(table, number));
}

Table::Seat::~Seat() {
  Slot& slot = table_.slots_[number_];
  // In the child of a fork the threads that had it are no more, wherever they were.
  if (slot.user.load(kRelaxed) == kKeeper && table_.forks_.load(kRelaxed) != forks()) return;
  slot.user.store(kNobody, std::memory_order_release);
}

std::size_t Table::gradient_stride() const {
  return dim() < kLine ? std::bit_ceil(dim()) : (dim() + kLine - 1) / kLine * kLine;
}

void Table::check(const std::uint64_t* ids, std::size_t n) const {
  if (grows()) return;
  for (std::size_t i = 0; i < n; ++i) {
    if (ids[i] < capacity_) continue;
    throw Error("id " + std::to_string(static_cast<std::int64_t>(ids[i])) +
                " is no row of table '" + settings_.name + "', which has rows 0 to " +
                std::to_string(capacity_ - 1));
  }
}

std::uint32_t Table::admit(std::uint64_t id, RowPublication& missed) {
  const IdIndex::Entry entry = index_->insert(id, time(), period_.load(kRelaxed));
  if (entry.outcome == IdIndex::Outcome::deferred) ++missed.deferred;
  if (entry.outcome == IdIndex::Outcome::refused) ++missed.refused;
  return entry.row;
}

void Located::release() {
  if (!holds) return;
  for (const std::uint32_t row : rows) {
    if (row < holds->rows()) holds->release(row);
  }
  holds.reset();
}

// Slots, and who holds rows, are on their way into the cache before they are looked at.
void Table::find(Located& located) {
  const std::vector<std::uint64_t>& ids = located.ids;
  const std::size_t n = ids.size(), behind = holds_ ? kAhead : 0;
  for (std::size_t i = 0; i < n + kAhead + behind; ++i) {
    if (i < n) index_->prefetch(ids[i]);
    if (i >= kAhead && i < n + kAhead) {
      std::uint32_t& row = located.rows[i - kAhead];
      row = index_->find(ids[i - kAhead]);
      if (holds_ && row != IdIndex::kNone) holds_->prefetch(row);
    }
    if (holds_ && i >= kAhead + behind) {
      std::uint32_t& row = located.rows[i - kAhead - behind];
      row = index_->hold(ids[i - kAhead - behind], row);
    }
  }
  located.holds = holds_;
}

void Table::locate(Seat& seat, Located& located, bool admits) {
  const std::vector<std::uint64_t>& ids = located.ids;
  const std::size_t n = ids.size();
  check(ids.data(), n);
  located.release();
  located.missed = {};
  located.rows.resize(n);
  std::size_t found = n;
  if (!grows()) {
    for (std::size_t i = 0; i < n; ++i) {
      located.rows[i] = static_cast<std::uint32_t>(ids[i]);
    }
  } else {
    find(located);
    std::size_t to_admit = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (located.rows[i] != IdIndex::kNone) continue;
      --found;
      if (!admits) continue;
      if (admission_ && !admission_->sighted(ids[i])) {
        ++located.missed.unadmitted;
        continue;
      }
      located.rows[i] = kToAdmit;
      ++to_admit;
    }
    for (std::size_t i = 0; to_admit > 0; ++i) {
      if (located.rows[i] != kToAdmit) continue;
      located.rows[i] = admit(ids[i], located.missed);
      --to_admit;
    }
  }
  if (!admits) return;
  slots_[seat.number_].add(kAsked, n);
  slots_[seat.number_].add(kFound, found);
}

std::optional<Epochs::Section> Table::read(const Seat& seat) {
  if (!holds_) return std::nullopt;
  return std::optional<Epochs::Section>(std::in_place, holds_->reads(), seat.number_);
}

void Table::expect_pull(const Located& located) const {
  const std::size_t n = std::min(located.rows.size(), kReadAhead);
  for (std::size_t i = 0; i < n; ++i) prefetch(located.rows[i], dim());
}

void Table::expect_push(const Located& located) const {
  const std::size_t n = std::min(located.rows.size(), kBlock);
  for (std::size_t i = 0; i < n; ++i) prefetch(located.rows[i], rows_->floats());
}

void Table::make_room(Located& located) const {
  const std::size_t n = located.ids.size();
  located.values.resize(n);
  located.versions.resize(n);
  if (located.copies.size() < n * dim()) located.copies = AlignedArray<float>(n * dim());
}

void Table::pull(Located& located) {
  make_room(located);
  pull(located, located.copies.data());
}

void Table::pull(Located& located, float* copies) {
  const std::size_t n = located.ids.size();
  located.values.resize(n);
  located.versions.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kReadAhead < n) prefetch(located.rows[i + kReadAhead], dim());
    const std::uint32_t row = located.rows[i];
    float* const copy = copies + i * dim();
    const bool has_row = row != IdIndex::kNone;
    if (!has_row) initial_(located.ids[i], copy, dim());
    located.versions[i] = version(row);
    located.values[i] = has_row ? rows_->values(row) : copy;
  }
  kernels_.gather(copies, located.values.data(), n, dim());
  for (std::size_t i = 0; i < n; ++i) located.values[i] = copies + i * dim();
}

std::uint32_t Table::version(std::uint32_t row) const {
  if (row == IdIndex::kNone || !settings_.versions) return 0;
  return rows_->head(row).version.load(kRelaxed);
}

void Table::reach(std::uint16_t period) {
  if (RowRule::after(period, period_.load(kRelaxed))) period_.store(period, kRelaxed);
}

void Table::reach_steps(std::uint64_t steps) {
  std::uint64_t before = steps_.load(kRelaxed);
  while (before < steps && !steps_.compare_exchange_weak(before, steps, kRelaxed)) {
  }
}

void Table::factors(const std::uint32_t* tau, const std::uint32_t* rows, std::size_t n,
                    float* factors) const {
  if (!staleness_->stage_aware()) return staleness_->factors(tau, n, factors);
  for (std::size_t i = 0; i < n; ++i) {
    const float moved = last_update(rows_->values(rows[i])).load(kRelaxed);
    factors[i] = static_cast<float>(staleness_->factor(staleness_->staged(tau[i], moved)));
  }
}

void Table::weigh(const Located& located, float* factors, RowPublication& missed) {
  const std::size_t n = located.rows.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t row = located.rows[i];
    factors[i] = row == IdIndex::kNone ? 0 : 1;
    if (row == IdIndex::kNone || !settings_.versions) continue;
    const std::uint32_t now = version(row);
    if (is_gone(located.versions[i], now)) {
      factors[i] = 0;
      ++missed.late;
      continue;
    }
    const std::uint32_t tau = updates_between(located.versions[i], now);
    this->factors(&tau, &row, 1, &factors[i]);
    if (factors[i] == 0) {
      ++missed.excluded;
    } else if (staleness_->statistics()) {
      staleness_->observe(tau);
    }
  }
}

RowPublication Table::push(Seat& seat, const Located& located, const float* gradient,
                           std::size_t stride, std::uint64_t t, const float* weighed) {
  const Epochs::Section section(pushes_, seat.number_);
  const Coefficients coefficients = rule_.coefficients(t);
  if (!settings_.versions) {
    const RowPublication result = push_uncounted(located, gradient, stride, coefficients);
    count(seat, result);
    return result;
  }
  const float base = coefficients.scale;
  const bool swaps = rule_.swaps();
  const std::uint16_t period = swaps ? rule_.period(t) : 0;
  if (swaps) reach(period);
  const bool excludes = !weighed && staleness_->excludes();
  const bool observed = !weighed && staleness_->statistics() != nullptr;
  const bool staged = staleness_->stage_aware();
  const std::uint16_t now = grows() ? time() : 0;
  const std::size_t n = located.rows.size();
  RowPublication result = located.missed;

  RowUpdate updates[kBlock];
  std::uint32_t which[kBlock], numbers[kBlock], tau[kBlock];
  float damping[kBlock], moved[kBlock];
  // Counts the update; false where the row is gone.
  const auto count_update = [&](RowHead& head, std::size_t i, std::uint32_t& tau) {
    const std::uint32_t before = head.version.fetch_add(RowHead::kUpdate, kRelaxed);
    tau = updates_between(located.versions[i], before);
    const bool late = is_gone(located.versions[i], before);
    result.late += late;
    return !late;
  };
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, n);
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kBlock < n) prefetch(located.rows[i + kBlock], rows_->floats());
      if (located.rows[i] == IdIndex::kNone) continue;
      RowHead& head = rows_->head(located.rows[i]);
      which[count] = static_cast<std::uint32_t>(i);
      numbers[count] = located.rows[i];
      if (excludes) {  // what is left out is no update
        tau[count++] = updates_between(located.versions[i], head.version.load(kRelaxed));
      } else {
        count += count_update(head, i, tau[count]);
      }
    }
    if (weighed) {
      for (std::size_t k = 0; k < count; ++k) damping[k] = weighed[which[k]];
    } else {
      factors(tau, numbers, count, damping);
    }
    std::size_t applied = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = which[k];
      RowHead& head = rows_->head(numbers[k]);
      if (excludes) {
        if (damping[k] == 0) {
          ++result.excluded;
          continue;
        }
        if (!count_update(head, i, tau[k])) continue;
      }
      if (grows()) head.touched.store(now, kRelaxed);
      updates[applied++] = {rows_->values(numbers[k]), gradient + i * stride, base * damping[k],
                            swaps ? rule_.keep(head, period) : 1};
      result.apply(tau[k]);
      if (observed) staleness_->observe(tau[k]);
    }
    rule_.pass()(updates, applied, dim(), coefficients, staged ? moved : nullptr);
    if (!staged) continue;
    for (std::size_t k = 0; k < applied; ++k)
      last_update(updates[k].values).store(moved[k], kRelaxed);
  }
  if (grows()) touched_.fetch_add(result.applied, kRelaxed);
  count(seat, result);
  return result;
}

// Of a fixed table, whose ids all have rows: each gets what its gradient says.
RowPublication Table::push_uncounted(const Located& located, const float* gradient,
                                     std::size_t stride, const Coefficients& coefficients) {
  const std::size_t n = located.rows.size();
  RowUpdate updates[kBlock];
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, n);
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kBlock < n) prefetch(located.rows[i + kBlock], rows_->floats());
      updates[i - begin] = {rows_->values(located.rows[i]), gradient + i * stride,
                            coefficients.scale, 1};
    }
    rule_.pass()(updates, end - begin, dim(), coefficients, nullptr);
  }
  RowPublication result = located.missed;
  result.applied = result.octaves[0] = n;
  return result;
}

void Table::count(Seat& seat, const RowPublication& p) {
  Slot& slot = slots_[seat.number_];
  slot.add(kApplied, p.applied);
  slot.add(kLate, p.late);
  slot.add(kExcluded, p.excluded);
  slot.add(kFolded, p.folded);
  slot.add(kUnadmitted, p.unadmitted);
  slot.add(kDeferred, p.deferred);
  slot.add(kRefused, p.refused);
  slot.add(kStaleness, p.staleness);
  auto& stalest = slot.counts[kStalest];
  if (p.stalest > stalest.load(kRelaxed)) stalest.store(p.stalest, kRelaxed);
  Octaves& octaves = octaves_[seat.number_ % octaves_.size()];
  for (std::size_t i = 0; i < p.octaves.size(); ++i) {
    if (p.octaves[i]) octaves.counts[i].fetch_add(p.octaves[i], kRelaxed);
  }
}

std::vector<std::uint64_t> Table::ids(const Watch& watch) {
  constexpr std::size_t kPart = 1024;  // rows between two looks at signals
  std::vector<std::uint64_t> found;
  const Seat seat(*this, watch);
  if (index_) {
    index_->each([&](std::uint64_t id, IdIndex::Handle) {
      if (watch && found.size() % kPart == 0) watch();
      found.push_back(id);
    });
  }
  return found;
}

void Table::lookup(const std::uint64_t* ids, std::size_t n, float* values, std::uint32_t* versions,
                   const Watch& watch) {
  check(ids, n);
  const Seat seat(*this, watch);
  constexpr std::size_t kRows = 256;
  const float* rows[kRows];
  for (std::size_t begin = 0; begin < n; begin += kRows) {
    if (watch) watch();
    const auto reading = read(seat);  // no longer than that, and never while `watch` lasts
    const std::size_t count = std::min(kRows, n - begin);
    const std::uint64_t* const some = ids + begin;
    if (index_) {
      for (std::size_t i = 0; i < count; ++i) index_->prefetch(some[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t row =
          index_ ? index_->find(some[i]) : static_cast<std::uint32_t>(some[i]);
      float* const to = values + (begin + i) * dim();
      if (row == IdIndex::kNone) initial_(some[i], to, dim());
      rows[i] = row == IdIndex::kNone ? to : rows_->values(row);
      if (versions) {
        versions[begin + i] = version(row);
      }
    }
    kernels_.gather(values + begin * dim(), rows, count, dim());
  }
}

RowPublication Table::update(const std::uint64_t* ids, std::size_t n, const float* gradients,
                             const std::uint32_t* versions, const Watch& watch) {
  check(ids, n);
  const std::size_t bad = update_kernels().first_not_finite(gradients, n * dim());
  if (bad < n * dim()) {
    throw Error("gradients[" + std::to_string(bad / dim()) + ", " + std::to_string(bad % dim()) +
                "] is " + std::to_string(gradients[bad]) + "; every value must be finite");
  }
  Seat seat(*this, watch);
  std::unique_ptr<Scratch>& kept = slots_[seat.number_].scratch;
  if (!kept) kept = std::make_unique<Scratch>();
  Scratch& scratch = *kept;
  struct Tidy {
    Table& table;
    Slot& slot;
    ~Tidy() {
      slot.scratch->located.release();
      table.tidy(slot);
    }
  };
  const Tidy tidy{*this, slots_[seat.number_]};
  Located& located = scratch.located;
  scratch.places.resize(n);
  scratch.combiner.begin(n, located.ids);
  // Rows change behind the last of these parts, and then all of them do.
  const auto in_parts = [&](const auto& work) {
    for (std::size_t first = 0; first < n; first += kPart) {
      if (watch) watch();
      work(first, std::min(kPart, n - first));
    }
  };
  in_parts([&](std::size_t first, std::size_t count) {
    scratch.combiner.add(ids + first, count, scratch.places.data() + first);
  });
  const std::size_t distinct = located.ids.size();
  const float* sums = gradients;
  std::size_t stride = dim();
  if (distinct < n) {
    stride = gradient_stride();
    if (scratch.sums.size() < distinct * stride) {
      scratch.sums = AlignedArray<float>(distinct * stride);
    }
    std::fill_n(scratch.sums.data(), distinct * stride, 0.0f);
    in_parts([&](std::size_t first, std::size_t count) {
      kernels_.add(scratch.sums.data(), stride, gradients + first * dim(),
                   scratch.places.data() + first, count, dim());
    });
    sums = scratch.sums.data();
    if (update_kernels().first_not_finite(sums, distinct * stride) < distinct * stride) {
      throw Error("the gradients of an id add up to what is not finite; scale them down");
    }
  }
  // Before any id is counted: there may be no memory.
  located.rows.reserve(distinct);
  located.versions.resize(distinct);
  if (index_) index_->get_ready();
  locate(seat, located, true);
  if (versions) {
    for (std::size_t i = n; i-- > 0;) located.versions[scratch.places[i]] = versions[i];
  } else {
    for (std::size_t i = 0; i < distinct; ++i) located.versions[i] = version(located.rows[i]);
  }
  return push(seat, located, sums, stride, steps_.fetch_add(1, kRelaxed));
}

// What updates need is kept for the next ones, but of one that was far larger than the table.
void Table::tidy(Slot& slot) {
  std::size_t bytes = slot.scratch->bytes();
  if (bytes > std::max(kLeastKept, most_bytes_ / 32)) {
    slot.scratch.reset();
    bytes = 0;
  }
  slot.kept.store(bytes, kRelaxed);
}

Table::Refusals Table::refusals() const {
  Refusals sum;
  for (std::size_t i = 0; i < kSeats; ++i) {
    sum.asked += slots_[i].counts[kAsked].load(kRelaxed);
    sum.refused += slots_[i].counts[kRefused].load(kRelaxed);
  }
  return sum;
}

Table::Statistics Table::statistics(const Watch& watch) {
  const Seat seat(*this, watch);  // so that nothing is loaded meanwhile
  Statistics s;
  std::array<std::uint64_t, kCounts> sums{};
  for (std::size_t i = 0; i < kSeats; ++i) {
    for (std::size_t k = 0; k < kCounts; ++k) {
      const std::uint64_t count = slots_[i].counts[k].load(kRelaxed);
      sums[k] = k == kStalest ? std::max(sums[k], count) : sums[k] + count;
    }
    s.scratch += slots_[i].kept.load(kRelaxed);
  }
  s.asked = sums[kAsked];
  s.found = sums[kFound];
  s.updates = {.applied = sums[kApplied],
               .folded = sums[kFolded],
               .late = sums[kLate],
               .excluded = sums[kExcluded],
               .unadmitted = sums[kUnadmitted],
               .deferred = sums[kDeferred],
               .refused = sums[kRefused],
               .staleness = sums[kStaleness],
               .stalest = sums[kStalest]};
  for (const Octaves& octaves : octaves_) {
    for (std::size_t i = 0; i < octaves.counts.size(); ++i) {
      s.updates.octaves[i] += octaves.counts[i].load(kRelaxed);
    }
  }
  s.steps = steps();
  s.capacity = capacity_;
  s.most_bytes = most_bytes_;
  s.bytes_per_row = rows_->bytes_per_row();
  s.rows = capacity_;
  s.bytes = capacity_ * s.bytes_per_row;
  if (index_) {
    const IdIndex::Counts counts = index_->counts();
    s.rows = counts.live + 2;  // the two ids that always have one
    s.bytes = counts.rows * (s.bytes_per_row + holds_of(index_settings_)) + counts.bytes +
              (admission_ ? Admission::bytes(index_settings_.rows) : 0);
    s.admitted = counts.inserted;
    s.evicted = counts.evicted;
    s.rebuilt = counts.rebuilt;
  }
  return s;
}

}  // namespace leashed
