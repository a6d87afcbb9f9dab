// Where a worker's mini-batches come from: batch k is the same whichever thread asks for it, and
// when. They are spans of one stream of examples, of which who leases spans of other lengths
// (modes) asks for those.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/data/batch_view.h"
#include "leashed/data/gathered_columns.h"
#include "leashed/data/gathered_rows.h"
#include "leashed/data/row_block.h"

namespace leashed {

// Rows that came out of a stream, where nobody else has them.
struct StreamedRows {
  explicit StreamedRows(const RowLayout& layout) : block(layout) {}

  RowBlock block;
  std::vector<IdFeature> all, read;   // of the stream, and of those the model's
  std::vector<std::int32_t> columns;  // of sparse rows
  double waited_seconds = 0;          // until they had been read
  std::uint64_t first = 0;            // the number of the first among all that are read
  std::uint64_t pass_rows = 0;        // of a pass; 0: they are all of the first
};

// A batch and the memory that its source gathers it in; one thread's.
struct Batch {
  BatchView view{nullptr, Targets(), 0};
  std::vector<std::size_t> indices;
  std::vector<const float*> rows;
  std::vector<std::int32_t> labels;
  std::vector<float> values, weights;
  std::vector<std::uint64_t> users;
  GatheredColumns columns;
  GatheredRows sparse;
  std::unique_ptr<StreamedRows> streamed;  // null: rows lie in memory
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Makes it batch k. From any thread; the one virtual call for a batch.
  virtual void fill(std::uint64_t k, Batch& batch) const = 0;
  // Makes it so many examples of the stream.
  virtual void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const = 0;
  // Whether there is such a batch; waits until that is known.
  virtual bool has(std::uint64_t) const { return true; }
  // The pass over the data in which batch k begins.
  virtual std::uint64_t pass(std::uint64_t k) const = 0;
  // Where rows come once: somebody will ask for spans that begin among these examples; and will no
  // more, who was in time or not. When one was, nobody else is told to.
  virtual void hold(std::uint64_t /*first*/, std::uint64_t /*count*/) const {}
  virtual void let_go(std::uint64_t /*first*/, std::uint64_t /*count*/, bool /*in_time*/) const {}
};

}  // namespace leashed
