// Rows that tell their numbers, of a stream or in memory, and a source that counts those that it is
// given.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "leashed/data/row_stream.h"
#include "leashed/model/gradient_source.h"
#include "leashed/modes/policy_threads.h"

namespace leashed {

inline constexpr std::size_t kNumbers = 1003;

inline RowLayout layout_of_numbers() {
  RowLayout made{2};
  made.classes = false;
  return made;
}

// Row i is (i, 3 i) → i.
class Numbers final : public RowOrigin {
 public:
  explicit Numbers(std::size_t rows = kNumbers) : rows_(rows) {}

  std::unique_ptr<Part> next(const std::atomic<bool>&) override {
    if (row_ == rows_) return nullptr;
    auto part = std::make_unique<Numbered>();
    part->first = row_;
    part->count = std::min(kPart, rows_ - row_);
    row_ += part->count;
    return part;
  }
  bool rewind() override {
    row_ = 0;
    return true;
  }
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "line"; }

 private:
  static constexpr std::size_t kPart = 7;
  struct Numbered final : Part {
    ParsedRows parse() const override {
      ParsedRows rows;
      rows.block = RowBlock(layout_of_numbers());
      rows.lines = count;
      rows.block.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto number = static_cast<float>(first + i);
        rows.block.x[2 * i] = number;
        rows.block.x[2 * i + 1] = 3 * number;
        rows.block.values[i] = number;
      }
      return rows;
    }
    std::size_t first, count;
  };

  const std::vector<std::string> names_ = {"numbers"};
  const std::size_t rows_;
  std::size_t row_ = 0;
};

// Counts the rows that it is given.
class CountingSource final : public GradientSource {
 public:
  CountingSource() { describe({.dimension = 2, .features = 2, .classes = 0, .classifies = false}); }
  std::unique_ptr<Workspace> make_workspace() const override {
    return std::make_unique<Workspace>();
  }
  float gradient(const float*, const BatchView& batch, float* gradient, Workspace&,
                 const std::atomic<bool>&) const override {
    {
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < batch.size; ++i) {
        const float number = batch.rows[i][0];
        wrong += batch.rows[i][1] != 3 * number || batch.targets.values[i] != number;
        ++seen.at(static_cast<std::size_t>(number));
      }
      if (++calls % 5 == 2) std::this_thread::yield();
    }
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    gradient[0] = gradient[1] = 0;
    return 1;
  }
  Evaluation evaluate(const float*, const BatchView& batch, Workspace&) const override {
    return {0, 0, batch.size};
  }

  std::chrono::microseconds pause{0};
  mutable std::mutex mutex;
  mutable std::vector<std::uint32_t> seen = std::vector<std::uint32_t>(kNumbers);
  mutable std::uint64_t calls = 0, wrong = 0;
};

inline std::uint64_t pushed(const ModeTrainResult& result) {
  std::uint64_t all = 0;
  for (const std::uint64_t each : result.counts.worker_examples) all += each;
  return all;
}

}  // namespace leashed
