// The batches of a training in virtual time, of rows in memory or of a stream, whose rows are kept
// for as long as a worker has them.
#pragma once

#include <cstdint>
#include <memory>

#include "leashed/data/batch_source.h"
#include "leashed/data/reading.h"
#include "leashed/simulation/watch.h"

namespace leashed {

struct SimulationOptions;

class PlayedData {
 public:
  PlayedData(const DatasetView& data, const SimulationOptions& options, Watch& watch);

  const BatchSource& batches() const { return *batches_; }
  bool streamed() const { return stream_ != nullptr; }
  // How many examples there are, or `most` where these are fewer; looks at signals while it waits.
  // 0: the run is stopped.
  std::uint64_t examples(std::uint64_t most);
  // Whether there is such a batch, which then is there as a whole.
  bool has(std::uint64_t k) { return examples((k + 1) * batch_size_) > k * batch_size_; }
  void let_go(std::uint64_t k) const { batches_->let_go(k * batch_size_, batch_size_, true); }

 private:
  const std::size_t batch_size_;
  NumberedRows* const stream_;  // null: there is none
  Watch& watch_;
  const std::unique_ptr<const BatchSource> batches_;
  const Reading reading_;
};

}  // namespace leashed
