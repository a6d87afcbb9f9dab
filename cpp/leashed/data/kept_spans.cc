#include "leashed/data/kept_spans.h"

namespace leashed {

void KeptSpans::fill_span(std::uint64_t first, std::size_t count, Batch& batch) const {
  const std::lock_guard lock(mutex_);
  if (const auto kept = kept_.find(first); kept != kept_.end()) {
    if (!batch.streamed) batch.streamed = std::make_unique<StreamedRows>(batches_.layout());
    batch.streamed->block = kept->second;
    batch.streamed->waited_seconds = 0;
    return batches_.show(first, batch);
  }
  batches_.fill_span(first, count, batch);
  kept_.emplace(first, batch.streamed->block);
}

void KeptSpans::hold(std::uint64_t first, std::uint64_t) const {
  const std::lock_guard lock(mutex_);
  ++holders_[first].count;
}

void KeptSpans::let_go(std::uint64_t first, std::uint64_t count, bool in_time) const {
  const std::lock_guard lock(mutex_);
  Holders& holders = holders_[first];
  if (holders.count > 0) --holders.count;
  holders.used |= in_time;
  if (holders.count > 0 || !holders.used) return;
  holders_.erase(first);
  kept_.erase(kept_.lower_bound(first), kept_.lower_bound(first + count));
}

}  // namespace leashed
