// The mini-batches of a training on that data, or on the stream, where there is one.
// `whole_passes`: none reaches from one pass over the data into the next (those of sparse rows
// never do). `again`: a span may be asked for again, until it is let go.
#pragma once

#include <cstdint>
#include <memory>

#include "leashed/data/batch_source.h"
#include "leashed/data/dataset_view.h"

namespace leashed {

struct StreamedData;

std::unique_ptr<const BatchSource> make_batches(const DatasetView& data, std::size_t batch_size,
                                                std::uint64_t seed,
                                                const StreamedData* stream = nullptr,
                                                bool whole_passes = false, bool again = false);

}  // namespace leashed
