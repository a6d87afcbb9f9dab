#include "leashed/table/growth.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/base/team.h"
#include "leashed/staleness/registry.h"
#include "leashed/table/kernels.h"
#include "leashed/table/row_rule.h"

namespace leashed {
namespace {

constexpr std::size_t kLeastRows = 64;  // of a table that grows
constexpr std::size_t kMostRows = std::numeric_limits<std::uint32_t>::max() - 2;
constexpr std::size_t kAhead = 16;          // ids whose slots are on their way into the cache
constexpr std::size_t kPart = 4096;         // rows between two looks at signals
constexpr std::size_t kAlone = 16 * kPart;  // rows that one thread begins
constexpr std::uint32_t kToAdmit = IdIndex::kNone - 1;  // for the row of an id that is to get one

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

}  // namespace

std::size_t bytes_per_row(std::size_t dim, const Choice& rule, const Choice& staleness,
                          bool versions) {
  const std::size_t last_update = make_staleness(staleness)->stage_aware() ? 1 : 0;
  return Rows::bytes_of_row(RowRule(rule).floats(dim) + last_update, versions);
}

Growth::Growth(const TableSettings& settings, std::size_t floats, IdIndex::Initialise begin,
               Seats& seats, const TableWatch& watch)
    : settings_(settings),
      floats_(floats),
      begin_(std::move(begin)),
      fixed_(settings.rows, settings.shards),
      seats_(seats),
      counts_(std::make_unique<Counts[]>(Seats::kAll)) {
  const std::string name = "table '" + settings.name + "' ";
  if (evicts() && settings.evict != "age" && settings.evict != "norm") {
    throw Error("unknown eviction '" + settings.evict + "'; choose one of: none, age, norm");
  }
  const std::size_t row = Rows::bytes_of_row(floats, settings.versions);
  const std::size_t limit = settings.max_bytes;
  const auto too_small = [&](std::size_t rows, std::size_t bytes) {
    throw Error(name + "of " + std::to_string(rows) + " rows needs " + std::to_string(bytes) +
                " bytes; max_bytes is " + std::to_string(limit));
  };
  if (!grows()) {
    capacity_ = fixed_.count();
    if (capacity_ > kMostRows) {
      throw Error(name + "may have " + std::to_string(kMostRows) + " rows, not " +
                  std::to_string(capacity_));
    }
    most_bytes_ = capacity_ * row;
    if (limit && most_bytes_ > limit) too_small(capacity_, most_bytes_);
    rows_ = std::make_unique<Rows>(capacity_, floats_, settings.versions);
    if (!begin_) return;  // as memory comes
    begin_all(watch);
    return;
  }
  if (limit == 0) throw Error(name + "grows, so it needs max_bytes");
  if (!fixed_.all()) {
    throw Error(name + "grows, so it has all shards; give it rows, or leave its shards");
  }
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
  if (settings.admit_after > 1) {
    admission_ = std::make_unique<Admission>(index_settings_.rows, settings.admit_after);
  }
  clear();
}

// By as many threads as there are processors, where there are many rows: what each begins with is
// its id's matter alone.
void Growth::begin_all(const TableWatch& watch) {
  // Relaxed: distinct numbers are all that is asked; the rows are seen after Team::finish.
  std::atomic<std::size_t> next{0};
  const auto part = [&] {
    const std::size_t first = next.fetch_add(kPart, kRelaxed);
    const std::size_t end = std::min(first + kPart, capacity_);
    for (std::size_t i = first; i < end; ++i) {
      const auto row = static_cast<std::uint32_t>(i);
      begin_(fixed_.id(row), rows_->values(row));
    }
    return end == first + kPart;  // there may be more
  };
  Team team;
  if (capacity_ > kAlone) {
    team.begin(processors() - 1, [&] {
      while (part()) {
      }
    });
  }
  struct Finish {
    ~Finish() {
      next.store(end, kRelaxed);  // where the caller's watch has thrown
      team.finish();
    }
    Team& team;
    std::atomic<std::size_t>& next;
    std::size_t end;
  } const finish{team, next, capacity_};
  do {
    if (watch) watch();
  } while (part());
}

// Rows that nobody has used yet take no memory, so both may be there for a moment.
void Growth::clear() {
  auto rows = std::make_unique<Rows>(capacity_, floats_, settings_.versions);
  std::shared_ptr<RowHolds> holds;
  IdIndex::Score score;
  if (evicts()) {
    holds = std::make_shared<RowHolds>(capacity_, Seats::kAll);
    score = [this](RowHead& head, const float* values) { return this->score(head, values); };
  }
  index_ = std::make_unique<IdIndex>(*rows, index_settings_, begin_, holds.get(), std::move(score));
  holds_ = std::move(holds);
  rows_ = std::move(rows);
}

float Growth::score(RowHead& head, const float* values) const {
  if (settings_.evict == "norm") return -row_kernels().sum_of_squares(values, settings_.dim);
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

std::uint16_t Growth::time() const {
  return static_cast<std::uint16_t>(touched_.load(kRelaxed) /
                                    std::max<std::size_t>(1, capacity_ / 16));
}

// Slots, and who holds rows, are on their way into the cache before they are looked at.
std::size_t Growth::locate(const std::vector<std::uint64_t>& ids, std::vector<std::uint32_t>& rows,
                           bool admits, std::uint16_t period, RowPublication& missed) {
  const std::size_t n = ids.size(), behind = holds_ ? kAhead : 0;
  for (std::size_t i = 0; i < n + kAhead + behind; ++i) {
    if (i < n) index_->prefetch(ids[i]);
    if (i >= kAhead && i < n + kAhead) {
      std::uint32_t& row = rows[i - kAhead];
      row = index_->find(ids[i - kAhead]);
      if (holds_ && row != IdIndex::kNone) holds_->prefetch(row);
    }
    if (holds_ && i >= kAhead + behind) {
      std::uint32_t& row = rows[i - kAhead - behind];
      row = index_->hold(ids[i - kAhead - behind], row);
    }
  }
  std::size_t found = n, to_admit = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (rows[i] != IdIndex::kNone) continue;
    --found;
    if (!admits) continue;
    if (admission_ && !admission_->sighted(ids[i])) {
      ++missed.unadmitted;
      continue;
    }
    rows[i] = kToAdmit;
    ++to_admit;
  }
  for (std::size_t i = 0; to_admit > 0; ++i) {
    if (rows[i] != kToAdmit) continue;
    const IdIndex::Entry entry = index_->insert(ids[i], time(), period);
    if (entry.outcome == IdIndex::Outcome::deferred) ++missed.deferred;
    if (entry.outcome == IdIndex::Outcome::refused) ++missed.refused;
    rows[i] = entry.row;
    --to_admit;
  }
  return found;
}

std::optional<Epochs::Section> Growth::read(const Seat& seat) const {
  if (!holds_) return std::nullopt;
  return std::optional<Epochs::Section>(std::in_place, holds_->reads(), seat.number());
}

void Growth::count(const Seat& seat, const RowPublication& p) {
  Counts& counts = counts_[seat.number()];
  for (std::size_t i = 0; i < p.kSums.size(); ++i) add(counts.sums[i], p.*p.kSums[i]);
  if (p.stalest > counts.stalest.load(kRelaxed)) counts.stalest.store(p.stalest, kRelaxed);
  Octaves& octaves = octaves_[seat.number() % octaves_.size()];
  for (std::size_t i = 0; i < p.octaves.size(); ++i) {
    if (p.octaves[i]) octaves.counts[i].fetch_add(p.octaves[i], kRelaxed);
  }
}

Growth::Refusals Growth::refusals() const {
  Refusals sum;
  for (std::size_t i = 0; i < Seats::kAll; ++i) {
    sum.asked += counts_[i].asked.load(kRelaxed);
    sum.refused += counts_[i].sums[RowPublication::kRefused].load(kRelaxed);
  }
  return sum;
}

TableStatistics Growth::statistics(const TableWatch& watch) const {
  const Seat seat(seats_, watch);  // so that nothing is loaded meanwhile
  TableStatistics s;
  RowPublication& u = s.updates;
  for (std::size_t one = 0; one < Seats::kAll; ++one) {
    const Counts& counts = counts_[one];
    s.asked += counts.asked.load(kRelaxed);
    s.found += counts.found.load(kRelaxed);
    s.scratch += counts.scratch.load(kRelaxed);
    for (std::size_t i = 0; i < u.kSums.size(); ++i) u.*u.kSums[i] += counts.sums[i].load(kRelaxed);
    u.stalest = std::max(u.stalest, counts.stalest.load(kRelaxed));
  }
  for (const Octaves& octaves : octaves_) {
    for (std::size_t i = 0; i < u.kOctaves; ++i) u.octaves[i] += octaves.counts[i].load(kRelaxed);
  }
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
