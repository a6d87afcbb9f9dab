// Rows that are read while they are used, in order, by threads of their own, with a bounded number
// of them in memory.
//
// The protocol. Reading threads take parts from the origin one after another, under a lock, so
// parts are numbered in the order of the rows. Each turns its part into rows outside of any lock
// and puts them into the part's place in the ring. Whoever completes the first incomplete place
// commits it and those complete behind it: only there rows get their numbers, lines theirs and bad
// lines are judged, so nothing of that depends on how many threads read. Rows are taken by number,
// each once, by whoever; a place whose rows are all taken goes when it is the first. A thread takes
// another part only where there is room in the ring, or somebody waits for rows that are not in it:
// so the ring cannot be too small for a batch or a window.
//
// With a window the rows are in a random order within each that many rows, a function of the seed
// and the window's number.
//
// Numbers that are to be standardised are so when their place is committed, in the order in which
// they were read. Places are measured before they are committed: the first ones wait until it is
// known what they are standardised by.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/data/numbered_rows.h"
#include "leashed/data/row_origin.h"
#include "leashed/data/standard_numbers.h"

namespace leashed {

// All that there was to read has not one row.
class NoRows : public Error {
 public:
  using Error::Error;
};

// What was read, of the first pass.
struct ReadCounts {
  struct Bad {
    std::string file, reason;
    std::uint64_t number;
  };
  std::uint64_t rows = 0, lines = 0, bad = 0, bytes = 0;
  std::vector<Bad> first_bad = {};  // at most ParsedRows::kKept
};

class RowStream final : public NumberedRows {
 public:
  struct Settings {
    std::size_t threads = 1;
    std::size_t places = 8;    // in the ring
    std::uint64_t passes = 1;  // 0: as many as are asked for
    bool skip_bad = false;     // else the first bad line is an error
    std::uint64_t window = 0;  // rows; 0: in order
    std::uint64_t seed = 0;    // of the order within a window
  };

  RowStream(std::unique_ptr<RowOrigin> origin, const RowLayout& layout, const Settings& settings);
  RowStream(const RowStream&) = delete;
  // Whoever takes has ended.
  ~RowStream() override;

  // Numbers are to be standardised, beginning with what rows before came to. Once, before start().
  void standardise(std::vector<bool> which, NumberMoments begun);
  // What they are standardised by; null: they are not.
  const StandardNumbers* standard() const override { return numbers_.get(); }
  // Rows before `first` will not be taken. Once; a call after that changes nothing. Reads with
  // fewer threads where the system starts no more; throws Error where it starts none.
  void start(std::uint64_t first = 0) override;
  // In place of it: this thread alone reads all that there is, of a stream of one pass, before
  // anybody takes; what reading throws is thrown to who takes. Throws Error where it is not so.
  void read_here();
  // Appends rows [first, first + count), fewer where the stream ends or is stopped; waits for them,
  // and adds the seconds to `waited`. Throws what reading has thrown, Error where a line is bad
  // and not to be skipped, and NoRows. From any thread, each row once.
  std::size_t take(std::uint64_t first, std::size_t count, RowBlock& to, double& waited) override;
  // The same of the rows behind those that were taken this way before, whoever took them. Waits so
  // many seconds; false where what it waits for is not there then, and nothing was taken. What it
  // throws, it throws again whenever rows are asked for that are not there, from whatever thread.
  bool take_next(std::size_t count, RowBlock& to, double seconds);
  // Appends copies of the first rows that will be taken, so many or as many as come before the end
  // or what reading throws; they stay. Waits as take_next does. While nobody takes; throws Error
  // where somebody has.
  bool look(std::size_t count, RowBlock& to, double seconds);
  // Whether there is such a row; waits until that is known. False once it is stopped.
  bool has(std::uint64_t row) override;
  // How many rows there are, or `most` where these are fewer; waits so many seconds until that is
  // known. None: it is not. 0 once it is stopped.
  std::optional<std::uint64_t> rows(std::uint64_t most, double seconds) override;
  // Rows of a pass, where one of a later pass than the first has been taken; 0: not known yet.
  std::uint64_t pass_rows() const override { return pass_rows_.load(std::memory_order_relaxed); }
  // Ends all waiting, and reading soon.
  void stop() override;
  // And waits until it has ended. From any thread.
  void end() override;
  ReadCounts counts() const;

  const RowLayout& layout() const override { return layout_; }

 private:
  struct Place {
    ParsedRows rows;
    std::uint64_t pass = 0;
    std::uint64_t first = 0;  // the number of its first row
    std::uint64_t left = 0;   // rows that are not taken
    std::size_t file = 0, bytes = 0;
    std::uint64_t lines_before = 0;
    bool begins_file = false, complete = false;
  };

  // A reading thread's; false at the end.
  void read();
  bool read_part();
  bool begin_pass();
  // Under the lock, all that follow.
  bool has_room() const;
  void commit();
  void measure(Place& place);
  void settle(std::unique_lock<std::mutex>& lock);
  void judge(Place& place);
  void want(std::uint64_t rows);
  // Throws what reading has thrown, where that many rows will not be there. False once stopped.
  bool come(std::uint64_t rows) const;
  // Waits at most so many seconds; false where it is not known then whether there are so many.
  template <class Rows>
  bool wait_known(const Rows& rows, std::unique_lock<std::mutex>& lock, double seconds);
  bool wait(std::uint64_t rows, std::unique_lock<std::mutex>& lock, double& waited);
  // The numbers of the rows at those positions, all of which are there.
  void rows_at(std::uint64_t first, std::size_t count, std::vector<std::uint64_t>& rows) const;
  // The number of rows that have to be there for those positions.
  std::uint64_t needed(std::uint64_t first, std::size_t count) const;
  struct Piece {
    Place* place;
    std::size_t begin, end;
  };
  // Where rows [first, first + count) lie, which are there.
  std::vector<Piece> pieces_of(std::uint64_t first, std::size_t count);
  // What there is of rows [first, first + count), which are waited for no more.
  std::size_t take_known(std::uint64_t first, std::size_t count, RowBlock& to,
                         std::unique_lock<std::mutex>& lock);
  // Rows [first, first + count) that are there, to where it is not null; without the lock
  // meanwhile.
  void take_there(std::uint64_t first, std::size_t count, RowBlock* to,
                  std::unique_lock<std::mutex>& lock);
  void fail(std::exception_ptr error);
  bool over() const { return stopped_ || failure_ || ended_; }

  const std::unique_ptr<RowOrigin> origin_;
  const RowLayout layout_;
  const Settings settings_;
  // Relaxed: tells whoever reads for a long time to look at what is under the lock.
  std::atomic<bool> stop_{false};
  // Of a pass; 0 while the first lasts. Relaxed: who has taken a row of a later one has been under
  // the lock since it was written.
  std::atomic<std::uint64_t> pass_rows_{0};

  // Of the origin; taken before mutex_. What the origin does may want the GIL, which whoever takes
  // mutex_ may have: so never under that one.
  std::mutex reading_;
  std::uint64_t pass_ = 0;  // under reading_

  mutable std::mutex mutex_;
  std::condition_variable more_, room_, settled_;
  // Under mutex_.
  std::deque<Place> ring_;
  std::uint64_t removed_ = 0;     // places that are no more in the ring
  std::uint64_t measured_ = 0;    // places, from the stream's beginning
  std::uint64_t seen_ = 0;        // rows in them
  std::uint64_t committed_ = 0;   // places, at most as many
  std::uint64_t end_ = 0;         // rows committed
  std::uint64_t wanted_ = 0;      // rows that somebody waits for
  std::uint64_t first_ = 0;       // positions before are not taken
  std::uint64_t next_ = 0;        // that take_next takes
  std::uint64_t pass_begin_ = 0;  // rows of the passes before the one that is read
  std::uint64_t lines_ = 0;       // of the file that is committed
  bool stopped_ = false, ended_ = false;
  bool started_ = false;
  bool given_ = false;  // rows to who takes
  bool begun_ = true;   // what is to be left out of the first window is
  std::exception_ptr failure_;
  ReadCounts counts_;
  std::unique_ptr<StandardNumbers> numbers_;

  std::mutex ending_;  // of the threads
  std::vector<std::jthread> threads_;
};

}  // namespace leashed
