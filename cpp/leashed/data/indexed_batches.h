// Batches of rows that lie anywhere in memory: pointers to them, in the sampler's order.
#pragma once

#include "leashed/data/batch_source.h"
#include "leashed/data/sampler.h"

namespace leashed {

class IndexedBatches final : public BatchSource {
 public:
  IndexedBatches(const DatasetView& data, std::size_t batch_size, std::uint64_t seed)
      : data_(data), batch_size_(batch_size), seed_(seed), sampler_(seed, data.rows, batch_size) {}

  void fill(std::uint64_t k, Batch& batch) const override {
    fill_span(k * batch_size_, batch_size_, batch);
  }
  void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const override;
  std::uint64_t pass(std::uint64_t k) const override { return sampler_.pass(k); }

 private:
  const DatasetView data_;
  const std::size_t batch_size_;
  const std::uint64_t seed_;
  const Sampler sampler_;
};

}  // namespace leashed
