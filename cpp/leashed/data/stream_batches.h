// Batches of a stream's rows: batch k has its rows k·B to (k+1)·B − 1, whoever reads and takes
// them. The last may have fewer.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "leashed/data/batch_source.h"
#include "leashed/data/numbered_rows.h"

namespace leashed {

// A stream, and which of its features that are ids a model reads, in its order.
struct StreamedData {
  struct Feature {
    std::size_t number;
    std::size_t most;  // ids of a row
  };
  NumberedRows* stream = nullptr;
  std::vector<Feature> features = {};
  // Of a feature that has one id a row, which the model need not read: whose each row is.
  std::optional<std::size_t> users = {};
};

class StreamBatches final : public BatchSource {
 public:
  // Each batch is filled once; `data` must stay, and has been started.
  StreamBatches(const StreamedData& data, std::size_t batch_size, std::uint64_t seed)
      : data_(data), batch_size_(batch_size), seed_(seed) {}

  void fill(std::uint64_t k, Batch& batch) const override {
    fill_span(k * batch_size_, batch_size_, batch);
  }
  // Those of them that there are. Each is asked for once.
  void fill_span(std::uint64_t first, std::size_t count, Batch& batch) const override;
  // The same of rows that have been taken, and are in its block.
  void show(std::uint64_t first, Batch& batch) const;
  bool has(std::uint64_t k) const override { return data_.stream->has(k * batch_size_); }
  std::uint64_t pass(std::uint64_t k) const override { return data_.stream->pass(k * batch_size_); }
  const RowLayout& layout() const { return data_.stream->layout(); }

 private:
  const StreamedData& data_;
  const std::size_t batch_size_;
  const std::uint64_t seed_;
};

}  // namespace leashed
