#include "leashed/data/run_batches.h"

namespace leashed {

void RunBatches::fill(std::uint64_t k, Batch& batch) const {
  std::size_t one = 0;
  batch.view = follow(k, 1, one);
}

}  // namespace leashed
