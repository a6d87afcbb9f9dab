// Table::save and Table::load.
#include <algorithm>

#include "leashed/base/error.h"
#include "leashed/staleness/statistics.h"
#include "leashed/table/saved.h"
#include "leashed/table/table.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::size_t kPart = 1024;  // rows between two looks at signals

}  // namespace

void Table::save(const std::string& path, const std::string& description, const Watch& watch) {
  Seat seat(*this, watch);
  const std::size_t floats = rows_->floats();
  const auto copy = update_kernels().copy_racy;
  SavedHeader header{.description = description,
                     .floats = floats,
                     .steps = steps_.load(kRelaxed),
                     .touched = touched_.load(kRelaxed),
                     .period = period_.load(kRelaxed)};
  if (const auto* gathered = staleness_->statistics()) gathered->save(header.staleness);
  SavedWriter file(path, header);
  std::size_t seen = 0;
  const auto add = [&](std::uint64_t id, std::uint32_t row) {
    if (watch && seen++ % kPart == 0) watch();
    SavedRow saved{id, 0, 0, 0};
    if (settings_.versions) {
      const RowHead& head = rows_->head(row);
      saved.version = head.version.load(kRelaxed);
      if (saved.version & RowHead::kDead) return;  // evicted since it was found
      saved.touched = head.touched.load(kRelaxed);
      saved.period = head.period.load(kRelaxed);
    }
    copy(file.add(saved), rows_->values(row), floats);
  };
  if (index_) {
    index_->each(add);
  } else {
    for (std::size_t i = 0; i < capacity_; ++i) add(i, static_cast<std::uint32_t>(i));
  }
  file.finish();
}

// All seats: then nobody uses the table, and who would like to waits.
class Table::Alone {
 public:
  explicit Alone(Table& table) : table_(table) {
    for (; seats_ < kSeats; ++seats_) {
      // Acquire, release: as a seat's own.
      if (!table.slots_[seats_].taken.exchange(true, std::memory_order_acquire)) continue;
      release();
      throw Error("table '" + table.settings_.name +
                  "' is in use; load it when no thread reads or updates it");
    }
  }
  ~Alone() { release(); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  void release() {
    while (seats_ > 0) table_.slots_[--seats_].taken.store(false, std::memory_order_release);
  }

  Table& table_;
  std::size_t seats_ = 0;
};

void Table::load(const std::string& path, const std::string& description, const Watch& watch) {
  std::size_t rows = 0;
  SavedRow row;
  SavedReader file(path);
  { const Alone nobody(*this); }  // said now, not after all of the file has been read
  // All of it is looked at before anything changes, and while the table is free: what `watch` calls
  // may use it.
  if (file.header().description != description || file.header().floats != rows_->floats()) {
    throw Error("'" + path + "' is of another table than '" + settings_.name +
                "': " + file.header().description + ", and not " + description);
  }
  for (; file.next(row); ++rows) {
    if (watch && rows % kPart == 0) watch();
    check(&row.id, 1);
  }
  if (grows() ? rows > capacity_ : rows != capacity_) {
    throw Error("'" + path + "' has " + std::to_string(rows) + " rows, table '" + settings_.name +
                "' " + std::to_string(capacity_));
  }
  const Alone alone(*this);
  file.rewind();
  if (grows()) clear();  // else all rows are in the file
  if (admission_) admission_->clear();
  const SavedHeader& header = file.header();
  steps_.store(header.steps, kRelaxed);
  touched_.store(header.touched, kRelaxed);
  period_.store(header.period, kRelaxed);
  if (auto* gathered = staleness_->statistics()) gathered->restore(header.staleness);
  while (const float* values = file.next(row)) {
    std::uint32_t to = static_cast<std::uint32_t>(row.id);
    if (index_) {
      to = index_->insert(row.id, row.touched, row.period).row;
      if (to == IdIndex::kNone) {
        throw Error("'" + path + "': the rows do not fit table '" + settings_.name + "'");
      }
    }
    if (settings_.versions) {
      RowHead& head = rows_->head(to);
      head.version.store(row.version, kRelaxed);
      head.touched.store(row.touched, kRelaxed);
      head.period.store(row.period, kRelaxed);
    }
    std::copy_n(values, rows_->floats(), rows_->values(to));
  }
}

}  // namespace leashed
