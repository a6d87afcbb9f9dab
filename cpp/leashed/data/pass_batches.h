// Batches of rows that lie anywhere in memory, none of which reaches from one pass over the data
// into the next: for who judges a pass by the losses that its gradients find.
#pragma once

#include <algorithm>

#include "leashed/data/indexed_batches.h"

namespace leashed {

class PassBatches final : public BatchSource {
 public:
  PassBatches(const DatasetView& data, std::size_t batch_size, std::uint64_t seed)
      : rows_(data.rows),
        per_pass_((data.rows + batch_size - 1) / batch_size),
        batches_(data, batch_size, seed) {}

  // The batches of a pass are as large as each other, to one row: in a last one of what is left
  // over each row would count up to batch_size times. Those with a row more come last, so that rows
  // can be fetched while the batch before is worked on (Worker::step).
  void fill(std::uint64_t k, Batch& batch) const override {
    const std::uint64_t place = k % per_pass_;
    const std::uint64_t size = rows_ / per_pass_, larger = rows_ % per_pass_;
    const std::uint64_t more = place - std::min(place, per_pass_ - larger);
    batches_.fill_span(pass(k) * rows_ + place * size + more,
                       size + (place >= per_pass_ - larger ? 1 : 0), batch);
  }
  void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const override {
    batches_.fill_span(first, count, batch);
  }
  std::uint64_t pass(std::uint64_t k) const override { return k / per_pass_; }

 private:
  const std::uint64_t rows_, per_pass_;
  const IndexedBatches batches_;
};

}  // namespace leashed
