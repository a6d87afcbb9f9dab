// Numbers of rows, standardised by what the rows before them came to: x becomes (x − mean) / σ, of
// each column its own, found in double precision while rows come in order.
//
// Rows are added up 256 at a time, about the first of them, and merged into what there was (Chan,
// Golub and LeVeque, 1979). What a row is standardised by changes at fixed rows only: every 256th
// at first, later whenever an eighth more have come, and at the end. So it depends on nothing but
// the rows before it. Where nothing is known at first, the first 256 rows stand for themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace leashed {

// Of so many rows: the mean of each column, and the sum of the squared distances from it.
struct NumberMoments {
  std::uint64_t rows = 0;
  std::vector<double> mean, squares;

  void merge(const NumberMoments& more);
};

// What a column's mean and 1/σ are; of one that does not vary 1/σ is 1, of one that is left as it
// is the mean 0 too.
struct NumberScales {
  std::vector<double> mean, factor;

  void apply(const float* row, float* to) const;  // which may be the same
};

class StandardNumbers {
 public:
  // Of the columns those that `which` says; what rows before came to, of 0 or more of them.
  StandardNumbers(std::vector<bool> which, NumberMoments begun);

  // The next rows, [rows][columns]; after finish() nothing is added. From one thread at a time.
  void add(const float* x, std::size_t rows);
  // That there are no more.
  void finish();
  // Whether it is known what the rows that have come are standardised by.
  bool ready() const { return ready_; }
  // Standardises rows that have come, the first of them by its number; those of a later pass too.
  void scale(float* x, std::uint64_t first, std::size_t rows) const;

  // Rows before have been used. From any thread, as what follows.
  void reach(std::uint64_t row);
  std::uint64_t reached() const;
  // What the rows come to by which that row is standardised, as far as rows have come.
  NumberMoments moments(std::uint64_t row) const;
  // What the row behind those used is standardised by; null: it is not known yet.
  std::shared_ptr<const NumberScales> scales() const;

 private:
  struct Entry {
    std::uint64_t first;  // the row from which on it counts
    NumberMoments moments;
    std::shared_ptr<const NumberScales> scales;
  };
  void settle();                                // what has been added up is merged
  void publish(std::uint64_t first);            // all that is merged counts from there on
  const Entry& entry(std::uint64_t row) const;  // under the lock

  const std::vector<bool> which_;
  NumberMoments total_;
  std::vector<double> about_, sums_, squares_;  // of the rows that are added up
  std::size_t added_ = 0;
  std::uint64_t seen_ = 0, next_;
  bool ready_, finished_ = false;

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // under it, as the next
  std::uint64_t reached_ = 0;
};

}  // namespace leashed
