// Spans of a stream, whose rows come once, for several who may ask for the same: a lease that goes
// to another. They are kept until one has used them in time and all have let them go. From any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "leashed/data/stream_batches.h"

namespace leashed {

class KeptSpans final : public BatchSource {
 public:
  KeptSpans(const StreamedData& data, std::size_t batch_size, std::uint64_t seed)
      : batches_(data, batch_size, seed), batch_size_(batch_size) {}

  void fill(std::uint64_t k, Batch& batch) const override {
    fill_span(k * batch_size_, batch_size_, batch);
  }
  // The same span as then, where it is one that is kept.
  void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const override;
  bool has(std::uint64_t k) const override { return batches_.has(k); }
  std::uint64_t pass(std::uint64_t k) const override { return batches_.pass(k); }
  void hold(std::uint64_t first, std::uint64_t count) const override;
  void let_go(std::uint64_t first, std::uint64_t count, bool in_time) const override;

 private:
  const StreamBatches batches_;
  const std::size_t batch_size_;
  mutable std::mutex mutex_;
  struct Holders {
    std::uint32_t count = 0;
    bool used = false;
  };
  // Under the lock, by the first example.
  mutable std::map<std::uint64_t, RowBlock> kept_;
  mutable std::map<std::uint64_t, Holders> holders_;  // of what is asked for in one or more spans
};

}  // namespace leashed
