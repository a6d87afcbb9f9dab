#include "leashed/table/table.h"

#include <algorithm>
#include <bit>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/table/finite.h"
#include "leashed/table/kernels.h"
#include "leashed/table/no_row.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr std::size_t kMostFloats = std::size_t{1} << 20;  // of a row
constexpr std::size_t kLeastKept = std::size_t{1} << 20;   // bytes, from one update to the next
constexpr std::size_t kReadAhead = 16;                     // rows that are prefetched, to be read
constexpr std::size_t kBlock = 32;                         // rows that are updated at once
constexpr std::size_t kPart = 4096;                        // rows between two looks at signals
constexpr std::size_t kLine = kCacheLine / sizeof(float);

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

std::size_t Table::checked_floats() const {
  const std::string name = "table '" + settings_.name + "' ";
  if (dim() == 0 || dim() > kMostFloats) {
    throw Error(name + "needs a dim from 1 to " + std::to_string(kMostFloats));
  }
  const bool needs_versions =
      settings_.rows == 0 || rule_.swaps() || settings_.staleness.name != "none";
  if (!settings_.versions && needs_versions) {
    throw Error(name + "needs versions: it grows, or has SWAP or a staleness policy");
  }
  return floats();
}

Table::Table(const Settings& settings, const Watch& watch)
    : settings_(settings),
      initial_(settings.initial, settings.seed, settings.number),
      rule_(settings.rule),
      staleness_(make_staleness(settings.staleness)),
      kernels_(row_kernels()),
      seats_(settings.name),
      growth_(
          settings_, checked_floats(),
          settings.rows > 0 && initial_.zero() && rule_.initial_state() == 0
              ? IdIndex::Initialise()  // as memory comes
              : [this](std::uint64_t id, float* values) { begin(id, values); },
          seats_, watch),
      scratch_(std::make_unique<std::unique_ptr<Scratch>[]>(Seats::kAll)) {}

// Where others were within it at a fork, what they were putting in place of something else may be
// there no more: it stays.
Table::~Table() {
  if (seats_.is_whole()) return;
  for (std::size_t i = 0; i < Seats::kAll; ++i) static_cast<void>(scratch_[i].release());
  static_cast<void>(growth_.index_.release());
  static_cast<void>(growth_.rows_.release());
}

void Table::begin(std::uint64_t id, float* values) const {
  initial_(id, values, dim());
  std::fill_n(values + dim(), rule_.floats(dim()) - dim(), rule_.initial_state());
  if (staleness_->stage_aware()) last_update(values).store(0, kRelaxed);
}

std::size_t Table::gradient_stride() const {
  return dim() < kLine ? std::bit_ceil(dim()) : (dim() + kLine - 1) / kLine * kLine;
}

void Table::check(const std::uint64_t* ids, std::size_t n) const {
  if (grows()) return;
  for (std::size_t i = 0; i < n; ++i) {
    if (growth_.fixed_.has(ids[i])) continue;
    if (growth_.fixed_.is_elsewhere(ids[i])) {
      throw Error("id " + std::to_string(static_cast<std::int64_t>(ids[i])) + " of table '" +
                  settings_.name + "' has its row elsewhere: here are " +
                  std::to_string(settings_.shards.count()) + " of " +
                  std::to_string(RowPlacement::kShards) + " shards; ask the server that has it");
    }
    throw no_row(settings_.name, ids[i], settings_.rows);
  }
}

void Located::release() {
  if (!holds) return;
  for (const std::uint32_t row : rows) {
    if (row < holds->rows()) holds->release(row);
  }
  holds.reset();
}

void Table::locate(Seat& seat, Located& located, bool admits) {
  const std::vector<std::uint64_t>& ids = located.ids;
  const std::size_t n = ids.size();
  check(ids.data(), n);
  located.release();
  located.missed = {};
  located.rows.resize(n);
  std::size_t found = n;
  if (grows()) {
    located.holds = growth_.holds_;
    found = growth_.locate(ids, located.rows, admits, period_.load(kRelaxed), located.missed);
  } else {
    for (std::size_t i = 0; i < n; ++i) located.rows[i] = growth_.fixed_.row(ids[i]);
  }
  if (!admits) return;
  Growth::add(growth_.counts_[seat.number()].asked, n);
  Growth::add(growth_.counts_[seat.number()].found, found);
}

void Table::expect_pull(const Located& located) const {
  const std::size_t n = std::min(located.rows.size(), kReadAhead);
  for (std::size_t i = 0; i < n; ++i) prefetch(located.rows[i], dim());
}

void Table::expect_push(const Located& located) const {
  const std::size_t n = std::min(located.rows.size(), kBlock);
  for (std::size_t i = 0; i < n; ++i) prefetch(located.rows[i], growth_.rows_->floats());
}

void Table::pull(Located& located) {
  const std::size_t floats = located.ids.size() * dim();
  if (located.copies.size() < floats) located.copies = AlignedArray<float>(floats);
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
    located.values[i] = has_row ? growth_.rows_->values(row) : copy;
  }
  kernels_.gather(copies, located.values.data(), n, dim());
  for (std::size_t i = 0; i < n; ++i) located.values[i] = copies + i * dim();
}

std::uint32_t Table::version(std::uint32_t row) const {
  if (row == IdIndex::kNone || !settings_.versions) return 0;
  return growth_.rows_->head(row).version.load(kRelaxed);
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
    const float moved = last_update(growth_.rows_->values(rows[i])).load(kRelaxed);
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
  const Epochs::Section section(pushes_, seat.number());
  const Coefficients coefficients = rule_.coefficients(t);
  if (!settings_.versions) {
    const RowPublication result = push_uncounted(located, gradient, stride, coefficients);
    growth_.count(seat, result);
    return result;
  }
  const float base = coefficients.scale;
  const bool swaps = rule_.swaps();
  const std::uint16_t period = swaps ? rule_.period(t) : 0;
  if (swaps && RowRule::after(period, period_.load(kRelaxed))) period_.store(period, kRelaxed);
  const bool excludes = !weighed && staleness_->excludes();
  const bool observed = !weighed && staleness_->statistics() != nullptr;
  const bool staged = staleness_->stage_aware();
  const bool grows = this->grows();
  const std::uint16_t now = grows ? growth_.time() : 0;
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
      if (i + kBlock < n) prefetch(located.rows[i + kBlock], growth_.rows_->floats());
      if (located.rows[i] == IdIndex::kNone) continue;
      RowHead& head = growth_.rows_->head(located.rows[i]);
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
      RowHead& head = growth_.rows_->head(numbers[k]);
      if (excludes) {
        if (damping[k] == 0) {
          ++result.excluded;
          continue;
        }
        if (!count_update(head, i, tau[k])) continue;
      }
      if (grows) head.touched.store(now, kRelaxed);
      updates[applied++] = {growth_.rows_->values(numbers[k]), gradient + i * stride,
                            base * damping[k], swaps ? rule_.keep(head, period) : 1};
      result.apply(tau[k]);
      if (observed) staleness_->observe(tau[k]);
    }
    rule_.pass()(updates, applied, dim(), coefficients, staged ? moved : nullptr);
    if (!staged) continue;
    for (std::size_t k = 0; k < applied; ++k)
      last_update(updates[k].values).store(moved[k], kRelaxed);
  }
  if (grows) growth_.touched_.fetch_add(result.applied, kRelaxed);
  growth_.count(seat, result);
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
      if (i + kBlock < n) prefetch(located.rows[i + kBlock], growth_.rows_->floats());
      updates[i - begin] = {growth_.rows_->values(located.rows[i]), gradient + i * stride,
                            coefficients.scale, 1};
    }
    rule_.pass()(updates, end - begin, dim(), coefficients, nullptr);
  }
  RowPublication result = located.missed;
  result.applied = result.octaves[0] = n;
  return result;
}

std::vector<std::uint64_t> Table::ids(const Watch& watch) {
  constexpr std::size_t kPart = 1024;  // rows between two looks at signals
  std::vector<std::uint64_t> found;
  const Seat seat(seats_, watch);
  if (grows()) {
    growth_.each([&](std::uint64_t id, IdIndex::Handle) {
      if (watch && found.size() % kPart == 0) watch();
      found.push_back(id);
    });
  }
  return found;
}

void Table::lookup(const std::uint64_t* ids, std::size_t n, float* values, std::uint32_t* versions,
                   const Watch& watch) {
  check(ids, n);
  const Seat seat(seats_, watch);
  constexpr std::size_t kRows = 256;
  const float* rows[kRows];
  for (std::size_t begin = 0; begin < n; begin += kRows) {
    if (watch) watch();
    const auto reading = growth_.read(seat);  // no longer than that, and never while `watch` lasts
    const std::size_t count = std::min(kRows, n - begin);
    const std::uint64_t* const some = ids + begin;
    if (grows()) {
      for (std::size_t i = 0; i < count; ++i) growth_.index_->prefetch(some[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t row = growth_.find(some[i]);
      float* const to = values + (begin + i) * dim();
      if (row == IdIndex::kNone) initial_(some[i], to, dim());
      rows[i] = row == IdIndex::kNone ? to : growth_.rows_->values(row);
      if (versions) versions[begin + i] = version(row);
    }
    kernels_.gather(values + begin * dim(), rows, count, dim());
  }
}

Table::InPlace Table::in_place() {
  if (grows()) throw Error("table '" + settings_.name + "' grows: its rows lie where they do");
  if (!growth_.fixed_.all()) {
    throw Error("table '" + settings_.name + "' has some of its rows here: which, their ids say");
  }
  return {growth_.rows_->values(0), growth_.rows_->bytes_per_row() / sizeof(float)};
}

RowPublication Table::update(const std::uint64_t* ids, std::size_t n, const float* gradients,
                             const std::uint32_t* versions, const Watch& watch) {
  check(ids, n);
  require_finite(gradients, n, dim());
  Seat seat(seats_, watch);
  std::unique_ptr<Scratch>& kept = scratch_[seat.number()];
  if (!kept) kept = std::make_unique<Scratch>();
  Scratch& scratch = *kept;
  struct Tidy {
    Table& table;
    const Seat& seat;
    ~Tidy() { table.tidy(seat); }
  };
  const Tidy tidy{*this, seat};
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
    require_finite_sums(sums, distinct * stride);
  }
  // Before any id is counted: there may be no memory.
  located.rows.reserve(distinct);
  located.versions.resize(distinct);
  if (grows()) growth_.index_->get_ready();
  locate(seat, located, true);
  if (versions) {
    for (std::size_t i = n; i-- > 0;) located.versions[scratch.places[i]] = versions[i];
  } else {
    for (std::size_t i = 0; i < distinct; ++i) located.versions[i] = version(located.rows[i]);
  }
  return push(seat, located, sums, stride, take_step());
}

// What updates need is kept for the next ones, but of one that was far larger than the table.
void Table::tidy(const Seat& seat) {
  std::unique_ptr<Scratch>& scratch = scratch_[seat.number()];
  scratch->located.release();
  std::size_t bytes = scratch->bytes();
  if (bytes > std::max(kLeastKept, growth_.most_bytes_ / 32)) {
    scratch.reset();
    bytes = 0;
  }
  growth_.counts_[seat.number()].scratch.store(bytes, kRelaxed);
}

Table::Digest Table::digest(const Watch& watch) {
  const Seat seat(seats_, watch);
  const auto reading = growth_.read(seat);
  const auto copy = update_kernels().copy_racy;
  std::vector<float> values(growth_.rows_->floats());
  Digest sums{};
  std::size_t seen = 0;
  growth_.each([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kPart == 0) watch();
    const std::uint32_t version = settings_.versions
                                      ? growth_.rows_->head(handle.row).version.load(kRelaxed)
                                      : RowHead::kUpdate;
    if (version < RowHead::kUpdate) return;
    copy(values.data(), growth_.rows_->values(handle.row), values.size());
    std::uint64_t a = id, b = ~id;
    const auto mix = [&a, &b](std::uint32_t word) {
      a = (a ^ word) * 0x9E3779B97F4A7C15;
      b = (b ^ word) * 0xBF58476D1CE4E5B9;
      a ^= a >> 32;
      b ^= b >> 29;
    };
    mix(version);
    for (const float value : values) mix(std::bit_cast<std::uint32_t>(value));
    sums[0] += a;
    sums[1] += b;
  });
  return sums;
}

}  // namespace leashed
