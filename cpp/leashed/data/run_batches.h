// Batches of sparse rows that lie one after another.
#pragma once

#include "leashed/data/batch_source.h"
#include "leashed/data/run_sampler.h"

namespace leashed {

class RunBatches final : public BatchSource {
 public:
  RunBatches(const DatasetView& data, std::size_t batch_size, std::uint64_t seed)
      : data_(data), sampler_(seed, data.rows, batch_size) {}

  void fill(std::uint64_t k, Batch& batch) const override;
  // Copies only what lies in several places.
  void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const override;
  std::uint64_t pass(std::uint64_t k) const override { return sampler_.pass(k); }

  // Batches that are worth claiming together: most of them follow each other.
  std::size_t run() const { return sampler_.run(); }
  // The rows of batches k, k + 1, …, as many of the `most` next ones as follow each other, and how
  // many these are. For who makes a run of updates: no virtual call.
  BatchView follow(std::uint64_t k, std::size_t most, std::size_t& batches) const {
    const auto [first, count, found] = sampler_.rows(k, most);
    batches = found;
    return {nullptr, data_.targets.from(first), count, nullptr, data_.sparse.from(first)};
  }

 private:
  const DatasetView data_;
  const RunSampler sampler_;
};

}  // namespace leashed
