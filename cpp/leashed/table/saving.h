// A table's rows in files: all of them, or those that are others than in the files before; and how
// they come back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/table/saved.h"
#include "leashed/table/table.h"

namespace leashed {

// One for each table, which stays.
class TableFiles {
 public:
  using Watch = TableWatch;
  explicit TableFiles(Table& table);
  ~TableFiles();

  // Writes all rows while others go on; the same bits where nobody writes meanwhile. `description`
  // is kept with them. Throws Error where the file cannot be written.
  void save(const std::string& path, const std::string& description, const Watch& watch = {});
  // As save(), of a table whose rows have versions, and from then on save_changes() writes the rows
  // that are others than in the files so written, and the ids that have none any more. `quiet`: it
  // is certain that nobody updates rows meanwhile. Where it throws, or what was written is not
  // kept, all rows have to be saved anew. Who comes while another thread does either waits; within
  // either, in what `watch` calls, it is Error. The how manieth change it was of what is tracked:
  // where the next one's number is not the next, somebody else has saved changes between. `flush`:
  // the file is on the disk then; else whoever calls sees to that.
  std::uint64_t save_tracked(const std::string& path, const std::string& description, bool quiet,
                             const Watch& watch = {}, bool flush = true);
  std::uint64_t save_changes(const std::string& path, const std::string& description, bool quiet,
                             const Watch& watch = {}, bool flush = true);
  // As save_tracked(), of a fixed table without the rows that have never been updated, as far as
  // that is known. Who loads it has them as they begin.
  std::uint64_t save_touched(const std::string& path, const std::string& description, bool quiet,
                             const Watch& watch = {}, bool flush = true);
  // The rows are those of files that have just been loaded; what is saved next are changes of them.
  std::uint64_t track(const Watch& watch = {});
  // Somebody has, from now on, where rows lie, and may change them without an update.
  void shown() { shown_.store(true, std::memory_order_relaxed); }
  // Whether save_changes() has files to follow.
  bool tracks(const Watch& watch = {});
  // What rows begin with: of files, where it is another seed's.
  struct Begins {
    std::uint64_t seed;
    std::uint32_t number;
  };
  // What one of several tables has saved, each of which has rows of shards of its own: the file of
  // all its rows, and those of changes that follow, as they were described.
  struct Part {
    std::vector<std::string> paths;
    std::string description;
    RowPlacement::Shards shards;  // of which it has rows
    std::size_t capacity = 0;     // rows that the table had room for; 0: as many as here
  };
  // The rows of these, in place of those here: of all ids, or of the shards `here`. Throws Error,
  // and has changed nothing, where two have one shard, or none has one that is wanted; where a file
  // is damaged, or not of that description; where rows do not fit, or somebody uses the table.
  // `begins`: what rows begin with from then on, where it is another seed's.
  void load(const std::vector<Part>& parts, const RowPlacement::Shards& here,
            const Watch& watch = {}, std::optional<Begins> begins = {});
  // The same of the files of one that had all rows, or the same ones. Of files of more shards than
  // are here it takes its own.
  void load(const std::vector<std::string>& paths, const std::string& description,
            const Watch& watch = {}, std::optional<Begins> begins = {});
  // What rows begin with now: as it was made, or of the files that it has loaded since.
  Begins begins() const {
    return {seed_.load(std::memory_order_relaxed), number_.load(std::memory_order_relaxed)};
  }

 private:
  class Alone;
  class Tracking;
  struct Changed;
  struct Marks;

  [[noreturn]] void fail(const std::string& what) const;
  void require_versions() const;
  SavedHeader header(const std::string& description) const;
  // Nothing is tracked of before.
  std::uint64_t save_anew(const std::string& path, const std::string& description, bool quiet,
                          const Watch& watch, bool flush, bool touched);
  void save_since(std::unique_ptr<Marks> marks, const std::string& path, SavedHeader header,
                  bool quiet, const Watch& watch, bool flush);
  // The rows that are not as they were saved; ids that were saved and have no row go to `gone`.
  std::vector<Changed> changed(Marks& marks, std::vector<std::uint64_t>& gone, const Watch& watch);
  // Whether, a little later, every update of rows is over that was under way.
  bool settle(const Watch& watch);
  class Loading;
  void begin(const Loading& files, bool anew);
  void put(SavedRow row, const float* values, const std::string& path);

  Table& table_;
  Growth& growth_;  // the table's
  // Relaxed: numbers that are read also while another thread loads, each as it was before or is
  // after.
  std::atomic<std::uint64_t> seed_;
  std::atomic<std::uint32_t> number_;
  std::unique_ptr<Marks> marks_;  // null: nothing is tracked
  std::uint64_t tracked_ = 0;     // how often that has changed
  // The state with which a row of a fixed table has begun that was never updated. Nothing: such a
  // row may be another one, of a file that has rows without versions. Changed by who tracks.
  std::optional<float> rest_;
  // Any row may be another one. Relaxed: whoever is told of such a change, by whatever means, is
  // told of this as well, which came before.
  std::atomic<bool> shown_{false};
};

// What a user has, who does all of that.
struct SavedTable : Table, TableFiles {
  explicit SavedTable(const TableSettings& settings, const TableWatch& watch = {})
      : Table(settings, watch), TableFiles(static_cast<Table&>(*this)) {}
};

}  // namespace leashed
