// Every mode on a stream: each row is trained on once, whoever gets it; where leases go to others,
// who is late finds the rows that were granted to it; and what is due is told in the middle.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "all_modes.h"
#include "leashed/data/stream_batches.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "numbers.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

constexpr std::size_t kRows = kNumbers, kBatch = 4, kWorkers = 3;

ModeTrainResult run(const CountingSource& source, Choice mode, double term_ns, std::uint64_t passes,
                    std::vector<std::pair<double, std::uint32_t>> commands = {}) {
  RowStream stream(std::make_unique<Numbers>(), layout_of_numbers(),
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

}  // namespace

TEST_CASE("each row of a stream is one worker's, once a pass") {
  for (const Choice& mode : all_modes()) {
    for (const std::uint64_t passes : {1, 2}) {
      CAPTURE(mode.name);
      CAPTURE(passes);
      const CountingSource source;
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
    CountingSource source;
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
