// How a table's rows go to files and come back.
#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/staleness/statistics.h"
#include "leashed/table/saved.h"
#include "leashed/table/table.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr std::size_t kLookRows = 1024;                    // rows between two looks at signals
constexpr auto kSettled = std::chrono::milliseconds(200);  // in which a step ends, as a rule
constexpr auto kWait = std::chrono::microseconds(100);  // between two looks at what is waited for

}  // namespace

SavedHeader Table::header(const std::string& description) const {
  SavedHeader header{.description = description,
                     .floats = rows_->floats(),
                     .steps = steps_.load(kRelaxed),
                     .touched = touched_.load(kRelaxed),
                     .period = period_.load(kRelaxed)};
  if (const auto* gathered = staleness_->statistics()) gathered->save(header.staleness);
  return header;
}

template <class F>
void Table::each_row(F&& f) const {
  if (index_) return index_->each(f);
  for (std::size_t i = 0; i < capacity_; ++i) {
    f(i, IdIndex::Handle{static_cast<std::uint32_t>(i), 0});
  }
}

void Table::save(const std::string& path, const std::string& description, const Watch& watch) {
  const Seat seat(*this, watch);
  const auto reading = read(seat);
  const std::size_t floats = rows_->floats();
  const auto copy = update_kernels().copy_racy;
  SavedWriter file(path, header(description));
  std::size_t seen = 0;
  each_row([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kLookRows == 0) watch();
    const std::uint32_t row = handle.row;
    SavedRow saved{id, 0, 0, 0};
    if (settings_.versions) {
      const RowHead& head = rows_->head(row);
      saved.version = head.version.load(kRelaxed);
      if (saved.version & RowHead::kDead) return;  // evicted since it was found
      saved.touched = head.touched.load(kRelaxed);
      saved.period = head.period.load(kRelaxed);
    }
    copy(file.add(saved), rows_->values(row), floats);
  });
  file.finish();
}

Table::Digest Table::digest(const Watch& watch) {
  const Seat seat(*this, watch);
  const auto reading = read(seat);
  const auto copy = update_kernels().copy_racy;
  std::vector<float> values(rows_->floats());
  Digest sums{};
  std::size_t seen = 0;
  each_row([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kLookRows == 0) watch();
    const std::uint32_t version =
        settings_.versions ? rows_->head(handle.row).version.load(kRelaxed) : RowHead::kUpdate;
    if (version < RowHead::kUpdate) return;
    copy(values.data(), rows_->values(handle.row), values.size());
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

void Table::Marks::make_room(std::size_t rows, bool grows, bool evicts) {
  if (rows <= versions.size()) return;
  rows = std::max(rows, versions.size() + versions.size() / 2);
  versions.resize(rows, RowHead::kDead);
  if (grows) ids.resize(rows, kNone);
  if (!evicts) return;
  incarnations.resize(rows);
  touched.resize(rows);
}

bool Table::Marks::has(const Changed& row) const {
  const std::size_t at = row.handle.row;
  return versions[at] == row.version &&
         (incarnations.empty() ||
          (incarnations[at] == row.handle.incarnation && touched[at] == row.touched));
}

void Table::Marks::set(const Changed& row) {
  const std::size_t at = row.handle.row;
  versions[at] = row.version;
  if (!ids.empty()) ids[at] = row.id;
  if (incarnations.empty()) return;
  incarnations[at] = row.handle.incarnation;
  touched[at] = row.touched;
}

// The right to what was saved last. Not a bare lock: the handler of a signal that comes in between
// would wait for the very thread that it runs on, and a forked child for one that it has not.
class Table::Tracking {
 public:
  Tracking(Table& table, const Watch& watch) : table_(table) {
    while (!takes()) {
      if (watch) watch();
      std::this_thread::sleep_for(kWait);
    }
  }
  // Throws Error where another thread has it.
  explicit Tracking(Table& table) : table_(table) {
    if (takes()) return;
    throw Error("table '" + table.settings_.name + "' is being saved; load it afterwards");
  }
  ~Tracking() { table_.tracker_.store(kNobody, std::memory_order_release); }
  Tracking(const Tracking&) = delete;

 private:
  // Throws Error where this thread has it.
  bool takes() {
    table_.require_whole();
    std::uint64_t who = kNobody;
    if (table_.tracker_.compare_exchange_strong(who, thread_number(), std::memory_order_acq_rel,
                                                kRelaxed)) {
      return true;
    }
    if (who != thread_number()) return false;
    throw Error("table '" + table_.settings_.name +
                "' is being saved, by the call that a signal's handler has come into; do this when "
                "that has returned");
  }

  Table& table_;
};

std::uint64_t Table::save_tracked(const std::string& path, const std::string& description,
                                  bool quiet, const Watch& watch) {
  const Tracking tracking(*this, watch);
  if (!settings_.versions) {
    throw Error("table '" + settings_.name + "' cannot tell which rows change: it has no versions");
  }
  marks_.reset();
  ++tracked_;
  save_since(std::make_unique<Marks>(), path, header(description), quiet, watch);
  return tracked_;
}

std::uint64_t Table::save_changes(const std::string& path, const std::string& description,
                                  bool quiet, const Watch& watch) {
  const Tracking tracking(*this, watch);
  if (!marks_) {
    throw Error("table '" + settings_.name + "' has no file that changes could follow; save all");
  }
  SavedHeader begin = header(description);
  begin.changes = true;
  ++tracked_;
  save_since(std::move(marks_), path, std::move(begin), quiet, watch);
  return tracked_;
}

std::uint64_t Table::track(const Watch& watch) {
  const Tracking tracking(*this, watch);
  if (!settings_.versions) {
    throw Error("table '" + settings_.name + "' cannot tell which rows change: it has no versions");
  }
  auto marks = std::make_unique<Marks>();
  std::vector<std::uint64_t> gone;
  for (const Changed& row : changed(*marks, gone, watch)) marks->set(row);
  marks_ = std::move(marks);
  return ++tracked_;
}

std::vector<Table::Changed> Table::changed(Marks& marks, std::vector<std::uint64_t>& gone,
                                           const Watch& watch) {
  const Seat seat(*this, watch);
  const auto reading = read(seat);
  std::vector<Changed> changed;
  std::vector<bool> lives(index_ ? marks.ids.size() : 0);
  if (!index_) marks.make_room(capacity_, false, false);
  const auto forget = [&](std::size_t row) {
    if (marks.ids[row] == Marks::kNone) return;
    gone.push_back(marks.ids[row]);
    marks.ids[row] = Marks::kNone;
    marks.versions[row] = RowHead::kDead;
  };
  std::size_t seen = 0;
  each_row([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kLookRows == 0) watch();
    const RowHead& head = rows_->head(handle.row);
    const Changed now{id, handle, head.version.load(kRelaxed), head.touched.load(kRelaxed)};
    if (now.version & RowHead::kDead) return;
    if (index_) {
      marks.make_room(handle.row + 1, true, evicts());
      if (handle.row < lives.size()) lives[handle.row] = true;
      if (marks.ids[handle.row] != id) forget(handle.row);
    }
    if (!marks.has(now)) changed.push_back(now);
  });
  for (std::size_t row = 0; row < lives.size(); ++row) {
    if (!lives[row]) forget(row);
  }
  return changed;
}

bool Table::settle(const Watch& watch) {
  // All updates that are counted from here on begin after this.
  const std::uint64_t number = pushes_.begin();
  const auto end = std::chrono::steady_clock::now() + kSettled;
  while (pushes_.oldest() < number) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (watch) watch();
    std::this_thread::sleep_for(kWait);
  }
  return true;
}

// An update of a row is counted first, and then made. So what was copied is of the version it is
// saved with where all updates that had been counted were over before, and none was counted until
// the copy began; one that is counted later makes the row another one for the next file. Any other
// row is saved once more with that. models/row_changes.pml has the steps.
bool Table::tracks(const Watch& watch) {
  const Tracking tracking(*this, watch);
  return marks_ != nullptr;
}

void Table::save_since(std::unique_ptr<Marks> marks, const std::string& path, SavedHeader header,
                       bool quiet, const Watch& watch) {
  std::vector<std::uint64_t> gone;
  const std::vector<Changed> rows = changed(*marks, gone, watch);
  if (header.changes) header.gone = std::move(gone);
  const bool settled = quiet || settle(watch);
  const Seat seat(*this, watch);
  const auto reading = read(seat);
  const auto copy = update_kernels().copy_racy;
  SavedWriter file(path, header);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (watch && i % kLookRows == 0) watch();
    const auto& [id, handle, before, _] = rows[i];
    // Evicted, which the next file tells. Where it is back in that row by now, its incarnation is
    // another than the scan's, which is kept: the next file has it once more.
    if (index_ && index_->find(id) != handle.row) continue;
    const RowHead& head = rows_->head(handle.row);
    const std::uint32_t version = head.version.load(kRelaxed);
    if (version & RowHead::kDead) continue;
    const std::uint16_t touched = head.touched.load(kRelaxed);
    copy(file.add({id, version, touched, head.period.load(kRelaxed)}), rows_->values(handle.row),
         rows_->floats());
    const bool is_of_it = settled && version == before;
    marks->set({id, handle, is_of_it ? version : version | RowHead::kDead, touched});
  }
  file.finish();
  marks_ = std::move(marks);
}

// All seats: then nobody uses the table, and who would like to waits.
class Table::Alone {
 public:
  explicit Alone(Table& table) : table_(table) {
    table.require_whole();
    const std::uint64_t user = thread_number();
    for (; seats_ < kSeats; ++seats_) {
      if (table.slots_[seats_].take(user)) continue;
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
    // Release: as a seat's own.
    while (seats_ > 0) table_.slots_[--seats_].user.store(kNobody, std::memory_order_release);
  }

  Table& table_;
  std::size_t seats_ = 0;
};

namespace {

// The files of a table, the first of all its rows, the others of changes, in their order.
class SavedFiles {
 public:
  explicit SavedFiles(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<SavedReader>(path));
      const bool follows = files_.size() > 1;
      if (files_.back()->header().changes != follows) {
        throw Error("'" + path + "' has " +
                    (follows ? "all rows of a table, and no changes of others"
                             : "changes alone; load the file of all rows before it"));
      }
    }
  }

  SavedReader& operator[](std::size_t i) { return *files_[i]; }
  const SavedHeader& newest() const { return files_.back()->header(); }

  // f(row, values) of each id's newest row, from the newest file to the oldest.
  template <class F>
  void each(F&& f) {
    std::unordered_set<std::uint64_t> decided;
    SavedRow row;
    for (std::size_t i = files_.size(); i-- > 0;) {
      SavedReader& file = *files_[i];
      file.rewind();
      while (const float* values = file.next(row)) {
        if (i > 0 ? decided.insert(row.id).second : !decided.contains(row.id)) f(row, values);
      }
      decided.insert(file.header().gone.begin(), file.header().gone.end());
    }
  }

 private:
  std::vector<std::unique_ptr<SavedReader>> files_;
};

}  // namespace

void Table::load(const std::vector<std::string>& paths, const std::string& description,
                 const Watch& watch, std::optional<Begins> begins) {
  if (paths.empty()) throw Error("table '" + settings_.name + "' needs a file to load");
  SavedFiles files(paths);
  { const Alone nobody(*this); }  // said now, not after all of the files have been read
  // All of them are looked at before anything changes, and while the table is free: what `watch`
  // calls may use it.
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const SavedHeader& header = files[i].header();
    if (header.description == description && header.floats == rows_->floats()) continue;
    throw Error("'" + paths[i] + "' is of another table than '" + settings_.name +
                "': " + header.description + ", and not " + description);
  }
  const std::string& path = paths.back();
  std::size_t rows = 0;
  files.each([&](const SavedRow& row, const float*) {
    if (watch && rows % kLookRows == 0) watch();
    ++rows;
    check(&row.id, 1);
  });
  if (grows() ? rows > capacity_ : rows != capacity_) {
    throw Error("'" + path + "' has " + std::to_string(rows) + " rows, table '" + settings_.name +
                "' " + std::to_string(capacity_));
  }
  const Tracking tracking(*this);
  const Alone alone(*this);
  if (index_) index_->get_ready();
  marks_.reset();
  ++tracked_;
  const Initial before = initial_;
  if (begins) initial_ = Initial(settings_.initial, begins->seed, begins->number);
  try {
    if (grows()) clear();  // else all rows are in the files
  } catch (...) {
    initial_ = before;
    throw;
  }
  if (begins) {
    seed_.store(begins->seed, kRelaxed);
    number_.store(begins->number, kRelaxed);
  }
  if (admission_) admission_->clear();
  const SavedHeader& header = files.newest();
  steps_.store(header.steps, kRelaxed);
  touched_.store(header.touched, kRelaxed);
  period_.store(header.period, kRelaxed);
  if (auto* gathered = staleness_->statistics()) gathered->restore(header.staleness);
  files.each([&](const SavedRow& row, const float* values) { put(row, values, path); });
}

void Table::put(const SavedRow& row, const float* values, const std::string& path) {
  std::uint32_t to = static_cast<std::uint32_t>(row.id);
  if (index_) {
    // As many as the files have, which were rows of one table at once.
    to = index_->insert(row.id, row.touched, row.period, false).row;
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
  release(to);
}

}  // namespace leashed
