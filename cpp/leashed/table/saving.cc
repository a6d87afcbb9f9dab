#include "leashed/table/saving.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/staleness/statistics.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr std::size_t kLookRows = 1024;                    // rows between two looks at signals
constexpr auto kSettled = std::chrono::milliseconds(200);  // in which a step ends, as a rule
constexpr auto kWait = std::chrono::microseconds(100);  // between two looks at what is waited for

}  // namespace

struct TableFiles::Changed {
  std::uint64_t id;
  IdIndex::Handle handle;
  std::uint32_t version;
  std::uint16_t touched;
};

// What was saved last of each row.
struct TableFiles::Marks {
  static constexpr std::uint64_t kNone = 0;  // in place of an id; that of 0 always has its row
  // With kDead: it may have been updated while it was copied, so that what is saved is not of it.
  // After 2^31 updates between two files a row would pass for unchanged, or never updated.
  std::vector<std::uint32_t> versions;
  std::vector<std::uint64_t> ids;  // of a table that grows
  // Of one that evicts, where an id may come back to the version that it had, and a row that is
  // compared may be said to have been touched later, which is no update.
  std::vector<std::uint32_t> incarnations;
  std::vector<std::uint16_t> touched;

  void make_room(std::size_t rows, bool grows, bool evicts);
  bool has(const Changed& row) const;
  void set(const Changed& row);
};

TableFiles::TableFiles(Table& table)
    : table_(table),
      growth_(table.growth_),
      seed_(table.settings_.seed),
      number_(table.settings_.number),
      rest_(table.rule_.initial_state()) {}

// As the table's.
TableFiles::~TableFiles() {
  if (!table_.seats_.is_whole()) static_cast<void>(marks_.release());
}

void TableFiles::fail(const std::string& what) const {
  throw Error("table '" + table_.settings_.name + "' " + what);
}

void TableFiles::require_versions() const {
  if (!table_.settings_.versions) fail("cannot tell which rows change: it has no versions");
}

SavedHeader TableFiles::header(const std::string& description) const {
  SavedHeader header{.description = description,
                     .floats = growth_.rows_->floats(),
                     .steps = table_.steps_.load(kRelaxed),
                     .touched = growth_.touched_.load(kRelaxed),
                     .period = table_.period_.load(kRelaxed)};
  if (const auto* gathered = table_.staleness_->statistics()) gathered->save(header.staleness);
  return header;
}

void TableFiles::save(const std::string& path, const std::string& description, const Watch& watch) {
  const Seat seat(table_.seats_, watch);
  const auto reading = growth_.read(seat);
  const std::size_t floats = growth_.rows_->floats();
  const auto copy = update_kernels().copy_racy;
  SavedWriter file(path, header(description));
  std::size_t seen = 0;
  growth_.each([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kLookRows == 0) watch();
    const std::uint32_t row = handle.row;
    SavedRow saved{id, 0, 0, 0};
    if (table_.settings_.versions) {
      const RowHead& head = growth_.rows_->head(row);
      saved.version = head.version.load(kRelaxed);
      if (saved.version & RowHead::kDead) return;  // evicted since it was found
      saved.touched = head.touched.load(kRelaxed);
      saved.period = head.period.load(kRelaxed);
    }
    copy(file.add(saved), growth_.rows_->values(row), floats);
  });
  file.finish();
}

void TableFiles::Marks::make_room(std::size_t rows, bool grows, bool evicts) {
  if (rows <= versions.size()) return;
  rows = std::max(rows, versions.size() + versions.size() / 2);
  versions.resize(rows, RowHead::kDead);
  if (grows) ids.resize(rows, kNone);
  if (!evicts) return;
  incarnations.resize(rows);
  touched.resize(rows);
}

bool TableFiles::Marks::has(const Changed& row) const {
  const std::size_t at = row.handle.row;
  return versions[at] == row.version &&
         (incarnations.empty() ||
          (incarnations[at] == row.handle.incarnation && touched[at] == row.touched));
}

void TableFiles::Marks::set(const Changed& row) {
  const std::size_t at = row.handle.row;
  versions[at] = row.version;
  if (!ids.empty()) ids[at] = row.id;
  if (incarnations.empty()) return;
  incarnations[at] = row.handle.incarnation;
  touched[at] = row.touched;
}

// The right to what was saved last. Not a bare lock: the handler of a signal that comes in between
// would wait for the very thread that it runs on, and a forked child for one that it has not.
class TableFiles::Tracking {
 public:
  Tracking(TableFiles& files, const Watch& watch) : files_(files) {
    while (!takes()) {
      if (watch) watch();
      std::this_thread::sleep_for(kWait);
    }
  }
  // Throws Error where another thread has it.
  explicit Tracking(TableFiles& files) : files_(files) {
    if (!takes()) files.fail("is being saved; load it afterwards");
  }
  ~Tracking() { files_.table_.seats_.give_back(Seats::kTracker); }
  Tracking(const Tracking&) = delete;

 private:
  // Throws Error where this thread has it.
  bool takes() {
    Seats& seats = files_.table_.seats_;
    seats.require_whole();
    if (seats.take(Seats::kTracker, thread_number())) return true;
    if (seats.user(Seats::kTracker) == thread_number()) {
      files_.fail(
          "is being saved, by the call that a signal's handler has come into; do this when that "
          "has returned");
    }
    return false;
  }

  TableFiles& files_;
};

std::uint64_t TableFiles::save_tracked(const std::string& path, const std::string& description,
                                       bool quiet, const Watch& watch, bool flush) {
  return save_anew(path, description, quiet, watch, flush, false);
}

std::uint64_t TableFiles::save_touched(const std::string& path, const std::string& description,
                                       bool quiet, const Watch& watch, bool flush) {
  return save_anew(path, description, quiet, watch, flush, true);
}

std::uint64_t TableFiles::save_anew(const std::string& path, const std::string& description,
                                    bool quiet, const Watch& watch, bool flush, bool touched) {
  const Tracking tracking(*this, watch);
  require_versions();
  marks_.reset();
  ++tracked_;
  SavedHeader begin = header(description);
  if (touched && !growth_.grows() && !shown_.load(kRelaxed)) begin.rest = rest_;
  save_since(std::make_unique<Marks>(), path, std::move(begin), quiet, watch, flush);
  return tracked_;
}

std::uint64_t TableFiles::save_changes(const std::string& path, const std::string& description,
                                       bool quiet, const Watch& watch, bool flush) {
  const Tracking tracking(*this, watch);
  if (!marks_) fail("has no file that changes could follow; save all");
  SavedHeader begin = header(description);
  begin.changes = true;
  ++tracked_;
  save_since(std::move(marks_), path, std::move(begin), quiet, watch, flush);
  return tracked_;
}

std::uint64_t TableFiles::track(const Watch& watch) {
  const Tracking tracking(*this, watch);
  require_versions();
  auto marks = std::make_unique<Marks>();
  std::vector<std::uint64_t> gone;
  for (const Changed& row : changed(*marks, gone, watch)) marks->set(row);
  marks_ = std::move(marks);
  return ++tracked_;
}

std::vector<TableFiles::Changed> TableFiles::changed(Marks& marks, std::vector<std::uint64_t>& gone,
                                                     const Watch& watch) {
  const Seat seat(table_.seats_, watch);
  const auto reading = growth_.read(seat);
  std::vector<Changed> changed;
  std::vector<bool> lives(growth_.index_ ? marks.ids.size() : 0);
  if (!growth_.index_) marks.make_room(growth_.capacity_, false, false);
  const auto forget = [&](std::size_t row) {
    if (marks.ids[row] == Marks::kNone) return;
    gone.push_back(marks.ids[row]);
    marks.ids[row] = Marks::kNone;
    marks.versions[row] = RowHead::kDead;
  };
  std::size_t seen = 0;
  growth_.each([&](std::uint64_t id, IdIndex::Handle handle) {
    if (watch && seen++ % kLookRows == 0) watch();
    const RowHead& head = growth_.rows_->head(handle.row);
    const Changed now{id, handle, head.version.load(kRelaxed), head.touched.load(kRelaxed)};
    if (now.version & RowHead::kDead) return;
    if (growth_.index_) {
      marks.make_room(handle.row + 1, true, growth_.evicts());
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

bool TableFiles::settle(const Watch& watch) {
  // All updates that are counted from here on begin after this.
  const std::uint64_t number = table_.pushes_.begin();
  const auto end = std::chrono::steady_clock::now() + kSettled;
  while (table_.pushes_.oldest() < number) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (watch) watch();
    std::this_thread::sleep_for(kWait);
  }
  return true;
}

bool TableFiles::tracks(const Watch& watch) {
  const Tracking tracking(*this, watch);
  return marks_ != nullptr;
}

// An update of a row is counted first, and then made. So what was copied is of the version it is
// saved with where all updates that had been counted were over before, and none was counted until
// the copy began; one that is counted later makes the row another one for the next file. Any other
// row is saved once more with that. models/row_changes.pml has the steps. Of a row of which none
// was counted none is made: it is as it began, and one that follows makes it another one.
void TableFiles::save_since(std::unique_ptr<Marks> marks, const std::string& path,
                            SavedHeader header, bool quiet, const Watch& watch, bool flush) {
  std::vector<std::uint64_t> gone;
  const std::vector<Changed> rows = changed(*marks, gone, watch);
  if (header.changes) header.gone = std::move(gone);
  const bool settled = quiet || settle(watch);
  const Seat seat(table_.seats_, watch);
  const auto reading = growth_.read(seat);
  const auto copy = update_kernels().copy_racy;
  SavedWriter file(path, header);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (watch && i % kLookRows == 0) watch();
    const auto& [id, handle, before, _] = rows[i];
    // Evicted, which the next file tells. Where it is back in that row by now, its incarnation is
    // another than the scan's, which is kept: the next file has it once more.
    if (growth_.index_ && growth_.index_->find(id) != handle.row) continue;
    const RowHead& head = growth_.rows_->head(handle.row);
    const std::uint32_t version = head.version.load(kRelaxed);
    if (version & RowHead::kDead) continue;
    const std::uint16_t touched = head.touched.load(kRelaxed);
    if (header.rest && version == 0) {
      marks->set({id, handle, version, touched});
      continue;
    }
    copy(file.add({id, version, touched, head.period.load(kRelaxed)}),
         growth_.rows_->values(handle.row), growth_.rows_->floats());
    const bool is_of_it = settled && version == before;
    marks->set({id, handle, is_of_it ? version : version | RowHead::kDead, touched});
  }
  file.finish(flush);
  marks_ = std::move(marks);
}

// All seats: then nobody uses the table, and who would like to waits.
class TableFiles::Alone {
 public:
  explicit Alone(const TableFiles& files) : seats_(files.table_.seats_) {
    seats_.require_whole();
    const std::uint64_t user = thread_number();
    for (; taken_ < Seats::kAll; ++taken_) {
      if (seats_.take(taken_, user)) continue;
      release();
      files.fail("is in use; load it when no thread reads or updates it");
    }
  }
  ~Alone() { release(); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  void release() {
    while (taken_ > 0) seats_.give_back(--taken_);
  }

  Seats& seats_;
  std::size_t taken_ = 0;
};

// Of a fixed table, with so many ids, they are bits: a set of ten million takes seconds.
class SeenIds {
 public:
  explicit SeenIds(std::uint64_t fixed) : fixed_(fixed) {}

  // Whether it is new.
  bool insert(std::uint64_t id) {
    if (id >= fixed_.size()) return others_.insert(id).second;
    const bool seen = fixed_[id];
    fixed_[id] = true;
    return !seen;
  }
  bool contains(std::uint64_t id) const {
    return id < fixed_.size() ? fixed_[id] : others_.contains(id);
  }

 private:
  std::vector<bool> fixed_;
  std::unordered_set<std::uint64_t> others_;
};

// The files of a table, the first of all its rows, the others of changes, in their order.
class SavedFiles {
 public:
  // ids: of a fixed table; 0: it is none.
  SavedFiles(const std::vector<std::string>& paths, std::uint64_t ids) : ids_(ids) {
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
  const SavedHeader& oldest() const { return files_.front()->header(); }
  const SavedHeader& newest() const { return files_.back()->header(); }

  // f(row, values) of each id's newest row, from the newest file to the oldest. Which these are is
  // decided the first time.
  template <class F>
  void each(F&& f) {
    const bool decided = !newest_.empty();
    std::vector<std::vector<bool>> newest(decided ? 0 : files_.size());
    SeenIds seen(decided ? 0 : ids_);
    SavedRow row;
    for (std::size_t i = files_.size(); i-- > 0;) {
      SavedReader& file = *files_[i];
      file.rewind();
      for (std::size_t k = 0; const float* values = file.next(row); ++k) {
        if (!decided) newest[i].push_back(i > 0 ? seen.insert(row.id) : !seen.contains(row.id));
        if (decided ? newest_[i].at(k) : newest[i].back()) f(row, values);
      }
      if (decided) continue;
      for (const std::uint64_t id : file.header().gone) seen.insert(id);
    }
    if (!decided) newest_ = std::move(newest);
  }

 private:
  const std::uint64_t ids_;
  std::vector<std::unique_ptr<SavedReader>> files_;
  std::vector<std::vector<bool>> newest_;  // by file and row, once that is known
};

namespace {

// The first few shards by number, and how many there are more.
std::string named(const RowPlacement::Shards& shards) {
  constexpr std::size_t kNamed = 4;
  std::string told;
  std::size_t seen = 0;
  for (std::size_t shard = 0; shard < RowPlacement::kShards; ++shard) {
    if (!shards[shard] || seen++ >= kNamed) continue;
    told += (seen > 1 ? ", " : "") + std::to_string(shard);
  }
  if (seen > kNamed) told += " and " + std::to_string(seen - kNamed) + " more";
  return told;
}

}  // namespace

// The files of all parts.
class TableFiles::Loading {
 public:
  Loading(const TableFiles& to, const std::vector<Part>& parts, const RowPlacement::Shards& here)
      : to_(to), growth_(to.growth_), name_("table '" + to.table_.settings_.name + "'") {
    for (const Part& part : parts) {
      if (part.paths.empty()) to_.fail("needs a file to load");
      files_.push_back(std::make_unique<SavedFiles>(part.paths, to.table_.settings_.rows));
      parts_.push_back(&part);
      if (const auto both = part.shards & found_; both.any()) {
        throw Error("'" + part.paths[0] + "' has shards " + named(both) + " of " + name_ +
                    ", which another file has too");
      }
      found_ |= part.shards;
    }
    wanted_ = growth_.grows() ? here : here & to.table_.settings_.shards;
    if (const auto missing = wanted_ & ~found_; missing.any()) {
      throw Error("no file has shards " + named(missing) + " of " + name_ +
                  "; load those of all servers that have some of it");
    }
  }

  void check_headers() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const auto& [paths, description, shards, capacity] = *parts_[p];
      for (std::size_t i = 0; i < paths.size(); ++i) {
        const SavedHeader& header = (*files_[p])[i].header();
        if (header.description == description && header.floats == growth_.rows_->floats() &&
            !(header.rest && growth_.grows())) {
          continue;
        }
        throw Error("'" + paths[i] + "' is of another table than " + name_ + ": " +
                    header.description + ", and not " + description);
      }
    }
  }

  // All rows are looked at.
  void check_rows(const Watch& watch) {
    std::array<std::size_t, RowPlacement::kShards> of{};
    std::size_t seen = 0, rows = 0;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      files_[p]->each([&](const SavedRow& row, const float*) {
        if (watch && seen++ % kLookRows == 0) watch();
        if (!parts_[p]->shards[shard_of(row)] && !is_always_there(row)) {
          throw Error("'" + parts_[p]->paths.back() + "' has id " + std::to_string(row.id) +
                      " of " + name_ + ", whose shard, " + std::to_string(shard_of(row)) +
                      ", is said to be elsewhere");
        }
        if (!wants(p, row)) return;
        to_.table_.check(&row.id, 1);
        ++of[shard_of(row)];
        ++rows;
      });
    }
    for (std::size_t shard = 0; !growth_.grows() && shard < of.size(); ++shard) {
      const std::size_t all = growth_.fixed_.count_of(shard);
      if (!wanted_[shard] || !rest_of(shard) || of[shard] >= all) continue;
      rows += all - of[shard];
      of[shard] = all;
    }
    const std::string begin = "'" + parts_[0]->paths.back() + "' has " + std::to_string(rows) +
                              " rows, " + name_ + " " + std::to_string(growth_.capacity_);
    if (growth_.grows() && rows > growth_.capacity_) throw Error(begin);
    if (growth_.grows() || rows == growth_.capacity_) return;
    RowPlacement::Shards others;
    for (std::size_t shard = 0; shard < of.size(); ++shard) {
      others[shard] = wanted_[shard] && of[shard] != growth_.fixed_.count_of(shard);
    }
    throw Error(begin + ": not those of shards " + named(others) +
                "; load the files of all servers that have some of it");
  }

  // What is known of them as a whole.
  SavedHeader merged() const {
    SavedHeader all = files_[0]->newest();
    all.touched = 0;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const SavedHeader& header = files_[p]->newest();
      all.steps = std::max(all.steps, header.steps);
      all.period = std::max(all.period, header.period);
      all.touched = std::max(all.touched, scaled(p));
      if (p == 0) continue;
      all.staleness.resize(std::max(all.staleness.size(), header.staleness.size()));
      for (std::size_t i = 0; i < header.staleness.size(); ++i) {
        all.staleness[i] += header.staleness[i];
      }
    }
    return all;
  }

  // Of a shard that is wanted: the state of rows that no file has, which are as they begin.
  // Nothing: all rows are in files.
  std::optional<float> rest_of(std::size_t shard) const {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p]->shards[shard]) return files_[p]->oldest().rest;
    }
    return {};
  }
  // The same of all shards; nothing, too, where they are several.
  std::optional<float> rest() const {
    const std::optional<float> first = files_[0]->oldest().rest;
    for (const auto& files : files_) {
      if (files->oldest().rest != first) return {};
    }
    return first;
  }

  // f(row, values, path) of each that is wanted; how long ago it was touched is as of `now`.
  template <class F>
  void each(std::uint64_t now, F&& f) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const auto younger = static_cast<std::uint16_t>(time_of(now) - time_of(scaled(p)));
      files_[p]->each([&](SavedRow row, const float* values) {
        if (!wants(p, row)) return;
        row.touched = static_cast<std::uint16_t>(row.touched + younger);
        f(row, values, parts_[p]->paths.back());
      });
    }
  }

 private:
  static std::size_t sixteenth(std::size_t capacity) {
    return std::max<std::size_t>(1, capacity / 16);
  }
  // What a part has counted, as a table of this size would that tells ages alike.
  std::uint64_t scaled(std::size_t p) const {
    const std::uint64_t touched = files_[p]->newest().touched;
    const std::size_t there = sixteenth(parts_[p]->capacity), here = sixteenth(growth_.capacity_);
    return parts_[p]->capacity == 0 || there == here ? touched : touched / there * here;
  }
  std::uint64_t time_of(std::uint64_t touched) const {
    return touched / sixteenth(growth_.capacity_);
  }
  std::size_t shard_of(const SavedRow& row) const {
    return RowPlacement::shard_of(growth_.grows(), row.id);
  }
  // In any table that grows, wherever its shard is.
  bool is_always_there(const SavedRow& row) const {
    return growth_.grows() && (row.id == 0 || row.id == ~std::uint64_t{0});
  }
  bool wants(std::size_t p, const SavedRow& row) const {
    const std::size_t shard = shard_of(row);
    return wanted_[shard] && parts_[p]->shards[shard];
  }

  const TableFiles& to_;
  const Growth& growth_;
  const std::string name_;
  std::vector<const Part*> parts_;
  std::vector<std::unique_ptr<SavedFiles>> files_;
  RowPlacement::Shards found_, wanted_;
};

void TableFiles::load(const std::vector<std::string>& paths, const std::string& description,
                      const Watch& watch, std::optional<Begins> begins) {
  const auto all = RowPlacement::Shards().set();
  load({{paths, description, all}}, all, watch, begins);
}

void TableFiles::load(const std::vector<Part>& parts, const RowPlacement::Shards& here,
                      const Watch& watch, std::optional<Begins> begins) {
  if (parts.empty()) fail("needs a file to load");
  Loading files(*this, parts, here);
  { const Alone nobody(*this); }  // said now, not after all of the files have been read
  // All of them are looked at before anything changes, and while the table is free: what `watch`
  // calls may use it.
  files.check_headers();
  files.check_rows(watch);
  const SavedHeader header = files.merged();
  const Tracking tracking(*this);
  const Alone alone(*this);
  if (growth_.index_) growth_.index_->get_ready();
  marks_.reset();
  ++tracked_;
  const Initial before = table_.initial_;
  if (begins) table_.initial_ = Initial(table_.settings_.initial, begins->seed, begins->number);
  try {
    if (growth_.grows()) growth_.clear();
  } catch (...) {
    table_.initial_ = before;
    throw;
  }
  if (begins) {
    seed_.store(begins->seed, kRelaxed);
    number_.store(begins->number, kRelaxed);
  }
  if (growth_.admission_) growth_.admission_->clear();
  table_.steps_.store(header.steps, kRelaxed);
  growth_.touched_.store(header.touched, kRelaxed);
  table_.period_.store(header.period, kRelaxed);
  if (auto* gathered = table_.staleness_->statistics()) gathered->restore(header.staleness);
  const std::optional<float> rest = files.rest();
  if (!growth_.grows()) begin(files, begins || shown_.load(kRelaxed) || !rest_ || rest_ != rest);
  rest_ = rest;
  files.each(header.touched, [&](const SavedRow& row, const float* values,
                                 const std::string& path) { put(row, values, path); });
}

// Rows of a fixed table that the files may not have. Not `anew`: those that were never updated are
// as they are to be.
void TableFiles::begin(const Loading& files, bool anew) {
  std::array<std::optional<float>, RowPlacement::kShards> rest;
  for (std::size_t shard = 0; shard < rest.size(); ++shard) rest[shard] = files.rest_of(shard);
  const std::size_t dim = table_.dim(), state = table_.rule_.floats(dim) - dim;
  std::vector<float> values(growth_.rows_->floats());
  for (std::size_t i = 0; i < growth_.capacity_; ++i) {
    const auto row = static_cast<std::uint32_t>(i);
    if (!anew && table_.settings_.versions &&
        growth_.rows_->head(row).version.load(kRelaxed) == 0) {
      continue;
    }
    const std::uint64_t id = growth_.fixed_.id(row);
    const auto& begins = rest[RowPlacement::shard_of(false, id)];
    if (!begins) continue;
    table_.begin(id, values.data());
    std::fill_n(values.data() + dim, state, *begins);
    put({id, 0, 0, 0}, values.data(), {});
  }
}

void TableFiles::put(SavedRow row, const float* values, const std::string& path) {
  // Of a table that grows as many as the files have, which were rows of one table at once.
  const std::uint32_t to = growth_.index_
                               ? growth_.index_->insert(row.id, row.touched, row.period, false).row
                               : growth_.fixed_.row(row.id);
  if (to == IdIndex::kNone) {
    throw Error("'" + path + "': the rows do not fit table '" + table_.settings_.name + "'");
  }
  if (table_.settings_.versions) {
    RowHead& head = growth_.rows_->head(to);
    head.version.store(row.version, kRelaxed);
    head.touched.store(row.touched, kRelaxed);
    head.period.store(row.period, kRelaxed);
  }
  std::copy_n(values, growth_.rows_->floats(), growth_.rows_->values(to));
  table_.release(to);
}

}  // namespace leashed
