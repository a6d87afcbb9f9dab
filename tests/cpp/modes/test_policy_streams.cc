// Every mode on a stream: each row is trained on once, whoever gets it; where leases go to others,
// who is late finds the rows that were granted to it; and what is due is told in the middle.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "all_modes.h"
#include "leashed/data/stream_batches.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

constexpr std::size_t kRows = 1003, kPart = 7, kBatch = 4, kWorkers = 3;

RowLayout layout() {
  RowLayout made{2};
  made.classes = false;
  return made;
}

// Row i is (i, 3 i) → i.
class Numbers final : public RowOrigin {
 public:
  std::unique_ptr<Part> next(const std::atomic<bool>&) override {
    if (row_ == kRows) return nullptr;
    auto part = std::make_unique<Numbered>();
    part->first = row_;
    part->count = std::min(kPart, kRows - row_);
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
  struct Numbered final : Part {
    ParsedRows parse() const override {
      ParsedRows rows;
      rows.block = RowBlock(layout());
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
  std::size_t row_ = 0;
};

// Counts the rows that it is given.
class Counting final : public GradientSource {
 public:
  std::size_t dimension() const override { return 2; }
  std::size_t features() const override { return 2; }
  std::size_t classes() const override { return 0; }
  bool classifies() const override { return false; }
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
  mutable std::vector<std::uint32_t> seen = std::vector<std::uint32_t>(kRows);
  mutable std::uint64_t calls = 0, wrong = 0;
};

ModeTrainResult run(const Counting& source, Choice mode, double term_ns, std::uint64_t passes,
                    std::vector<std::pair<double, std::uint32_t>> commands = {}) {
  RowStream stream(std::make_unique<Numbers>(), layout(),
                   {.threads = 2, .places = 2, .passes = passes});
  const StreamedData data{&stream};
  mode.settings.insert({{"workers", static_cast<double>(kWorkers)},
                        {"batch", static_cast<double>(kBatch)},
                        {"examples", 0},
                        {"term_ns", term_ns}});
  const auto rule = make_rule({"sgd", {{"lr", 0.02}}});
  const std::vector<float> initial(2);
  const DisciplineContext context{initial.data(), 2, kWorkers, 1, *rule};
  ModeTrainOptions options{kWorkers, kBatch, 7, {}, 0, std::move(commands)};
  options.stream = &data;
  options.terms = term_ns > 0;
  return train_mode(source, {nullptr, {}, 0, 2}, nullptr, make_server_policy(mode), context,
                    options, {});
}

std::uint64_t pushed(const ModeTrainResult& result) {
  std::uint64_t all = 0;
  for (const std::uint64_t each : result.counts.worker_examples) all += each;
  return all;
}

}  // namespace

TEST_CASE("each row of a stream is one worker's, once a pass") {
  for (const Choice& mode : all_modes()) {
    for (const std::uint64_t passes : {1, 2}) {
      CAPTURE(mode.name);
      CAPTURE(passes);
      const Counting source;
      const bool switches = mode.name == "switching";
      const ModeTrainResult result =
          switches ? run(source, mode, 0, passes, {{1e-4, 1}}) : run(source, mode, 0, passes);
      CHECK(result.training.reason == StopReason::epochs);
      CHECK(pushed(result) == passes * kRows);
      CHECK(source.wrong == 0);
      CHECK(source.seen == std::vector<std::uint32_t>(kRows, static_cast<std::uint32_t>(passes)));
    }
  }
}

TEST_CASE("a lease of a stream that goes to another has the rows that it had") {
  std::uint64_t late = 0;
  for (const Choice& mode : all_modes()) {
    CAPTURE(mode.name);
    Counting source;
    source.pause = std::chrono::microseconds(200);
    const ModeTrainResult result = run(source, mode, 1e3, 2);
    CHECK(result.training.reason == StopReason::epochs);
    CHECK(source.wrong == 0);
    for (const std::uint32_t times : source.seen) CHECK(times >= 2);
    CHECK(pushed(result) - result.counts.late == 2 * kRows);
    late += result.counts.late;
  }
  CHECK(late > 0);
}
