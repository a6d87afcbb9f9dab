#include "leashed/data/stream_batches.h"

#include <numeric>

namespace leashed {

void StreamBatches::fill_span(std::uint64_t first, std::size_t count, Batch& batch) const {
  NumberedRows& stream = *data_.stream;
  if (!batch.streamed) batch.streamed = std::make_unique<StreamedRows>(stream.layout());
  StreamedRows& own = *batch.streamed;
  own.block.clear();
  own.waited_seconds = 0;
  stream.take(first, count, own.block, own.waited_seconds);
  show(first, batch);
}

void StreamBatches::show(std::uint64_t first, Batch& batch) const {
  const NumberedRows& stream = *data_.stream;
  StreamedRows& own = *batch.streamed;
  own.first = first;
  own.pass_rows = stream.pass_rows();
  const std::size_t rows = own.block.rows(), numbers = stream.layout().numbers;
  batch.view.targets = own.block.targets();
  batch.view.size = rows;
  batch.view.drawing = {seed_, first};
  if (stream.layout().columns > 0) {
    const RowBlock::Bag& entries = own.block.bags.front();
    own.columns.assign(entries.ids.begin(), entries.ids.end());
    batch.view.sparse = {entries.offsets.data(), own.columns.data(), entries.weights.data()};
    return;
  }
  batch.rows.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) batch.rows[i] = own.block.x.data() + i * numbers;
  batch.view.rows = batch.rows.data();
  if (data_.features.empty() && !data_.users) return;
  own.block.features(own.all);
  if (data_.users) {
    const IdFeature& users = own.all[*data_.users];
    batch.users.resize(rows);
    for (std::size_t i = 0; i < rows; ++i) batch.users[i] = users.ids[i * users.stride];
    batch.view.targets.users = batch.users.data();
  }
  if (data_.features.empty()) return;
  own.read.clear();
  for (const auto& [number, most] : data_.features) {
    own.read.push_back(own.all[number]);
    own.read.back().most = most;
  }
  batch.indices.resize(rows);
  std::iota(batch.indices.begin(), batch.indices.end(), 0);
  batch.view.columns = batch.columns.gather(own.read, batch.indices);
}

}  // namespace leashed
