// A batch as functions from outside take it (src/leashed/include/leashed.h): examples by their
// numbers, and the rows of tables copied together, since few languages take pointers to pointers,
// and since others write to a row meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "leashed/data/batch_view.h"

namespace leashed {

// Example i lies at base + numbers[i] · features.
struct NumberedExamples {
  void number(const BatchView& batch, std::size_t features);

  const float* base = nullptr;
  std::vector<std::int64_t> numbers;
};

// The examples of a batch that is soon to come, where they are few enough to stay in a core's
// cache: a function that walks along one after another would wait for memory at the start of each.
void fetch_examples(const float* const* rows, std::size_t size, std::size_t features);

// How entries and rows are counted: through all features and, in floats, all tables; or in each
// feature and each table from 0.
enum class Counted { through, apart };

// Where the rows and entries of a batch are copied to.
struct FlatRows {
  std::int64_t* offsets;  // [features of ids][batch + 1]: entries of example i from i to i + 1
  std::int64_t* places;   // [entries]: where the entry's row is
  float* weights;         // [entries]
  float* values;          // [floats], one table after another
};

// How a batch's rows lie there: tables one after another, and so do features' entries. Memory of
// one thread; what it has grown to it keeps.
class FlatLayout {
 public:
  void measure(const BatchView& batch);
  // Of the batch that was measured.
  void copy(const BatchView& batch, std::span<const std::size_t> features_of_tables,
            Counted counted, const FlatRows& to) const;

  std::size_t offsets() const { return (entry_begins_.size() - 1) * (batch_ + 1); }
  std::size_t entries() const { return entry_begins_.back(); }
  std::size_t floats() const { return float_begins_.back(); }
  // Of each feature its first entry, of each table its first float, and the ends.
  std::span<const std::size_t> entry_begins() const { return entry_begins_; }
  std::span<const std::size_t> float_begins() const { return float_begins_; }
  // Of each table its distinct rows.
  std::span<const std::int64_t> counts() const { return counts_; }

 private:
  std::size_t batch_ = 0;
  std::vector<std::size_t> entry_begins_ = {0}, float_begins_ = {0};
  std::vector<std::int64_t> counts_;
};

// Adds gradients that lie as values do to those of the batch's rows.
void add_row_gradients(const float* gradients, const BatchView& batch);

}  // namespace leashed
