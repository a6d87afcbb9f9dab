#include "leashed/data/make_batches.h"

#include "leashed/data/indexed_batches.h"
#include "leashed/data/kept_spans.h"
#include "leashed/data/pass_batches.h"
#include "leashed/data/run_batches.h"
#include "leashed/data/stream_batches.h"

namespace leashed {

std::unique_ptr<const BatchSource> make_batches(const DatasetView& data, std::size_t batch_size,
                                                std::uint64_t seed, const StreamedData* stream,
                                                bool whole_passes, bool again) {
  if (stream && again) return std::make_unique<KeptSpans>(*stream, batch_size, seed);
  if (stream) return std::make_unique<StreamBatches>(*stream, batch_size, seed);
  if (data.sparse) return std::make_unique<RunBatches>(data, batch_size, seed);
  if (whole_passes) return std::make_unique<PassBatches>(data, batch_size, seed);
  return std::make_unique<IndexedBatches>(data, batch_size, seed);
}

}  // namespace leashed
