#include "leashed/simulation/played_data.h"

#include <limits>
#include <optional>

#include "leashed/data/make_batches.h"
#include "leashed/simulation/simulate.h"

namespace leashed {
namespace {

constexpr double kBetweenLooks = 0.05;  // seconds

}  // namespace

PlayedData::PlayedData(const DatasetView& data, const SimulationOptions& options, Watch& watch)
    : batch_size_(options.batch_size),
      stream_(options.stream ? options.stream->stream : nullptr),
      watch_(watch),
      batches_(make_batches(data, options.batch_size, options.seed, options.stream, false, true)),
      reading_(options.stream, 0) {}

std::uint64_t PlayedData::examples(std::uint64_t most) {
  if (!stream_) return most;
  std::optional<std::uint64_t> known;
  while (!(known = stream_->rows(most, kBetweenLooks))) {
    if (watch_.looked()) return 0;
  }
  return *known;
}

}  // namespace leashed
