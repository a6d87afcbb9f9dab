// What a replay of a recorded training is asked for, and what it tells.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "leashed/engine/step_observer.h"
#include "leashed/server/sharding.h"
#include "leashed/trace/trace_reader.h"

namespace leashed {

class Discipline;
class RowStore;
struct StreamedData;

struct ReplayOptions {
  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  std::size_t workers;
  std::size_t batch_size;
  std::uint64_t seed;
  std::uint64_t until = kAll;  // t to stop at
  // Asked about every 20 ms; true: stop. May throw.
  std::function<bool()> interrupted = {};
  // As of TrainOptions, and the batches before that the training began with. Null: the data.
  const StreamedData* stream = nullptr;
  std::uint64_t used = 0;
  // Who has the parameters, where updates were made in place; null: they are made of gradients.
  Discipline* in_place = nullptr;
  RowStore* rows = nullptr;  // as of TrainOptions, as they were at the beginning
  // By a mode, whether rows of a lease are those of when the records say that they were looked up,
  // rather than of its grant.
  bool looks_up = false;
  // Likewise, of several servers that decided alike what each had of the parameters, and of each
  // table which one had all of its rows; none: one server, and rows that were spread.
  Sharding sharding = {};
  std::vector<std::uint32_t> servers_of_tables = {};
  // Told what they were told then, but times; of gradients that were not published, which are not
  // computed again, what became of them alone.
  std::vector<StepObserver*> observers = {};
};

// A gradient, or a model, that was part of an update.
struct ReplayedPart {
  std::size_t worker;
  TraceRecord record;
  double loss;    // of its batch
  double factor;  // what the staleness policy multiplied it by; by variable: the largest
};

struct Replayed {
  bool interrupted = false;  // the rest is of then
  std::uint64_t t = 0;       // updates, from the run's beginning
  std::vector<float> parameters = {};
  // The update that led to them, if there was one: in lockstep of a gradient of each worker, by a
  // mode of what it summed, in that order.
  std::vector<ReplayedPart> last = {};
  // The parameters before it, and the gradient that the rule was given: of several their mean, by a
  // mode with the factors in it; empty where it was of models.
  std::vector<float> before = {}, gradient = {};
  // Gradients read of in the trace, by outcome.
  std::uint64_t published = 0, dropped = 0, excluded = 0, given_up = 0;
  // Whether the trace has the training's end, and it was reached; then by how much the parameters
  // differ from those at the end, 0 where they are the same bit for bit; infinite where rows of
  // tables do, of which it has digests.
  bool ended = false;
  double difference = 0;
  Found observed = {};                       // by its observers
  std::vector<std::uint64_t> end_rows = {};  // and the tables' digests there, as the trace has them
};

// `last` is the last update in the trace. Throws Error where it is before options.until.
void require_recorded(const ReplayOptions& options, std::uint64_t last);

// Says how the result stands to the training's end. Throws Error where records are missing.
void compare_with_end(Replayed& result, const Trace& trace, const ReplayOptions& options);
// And the tables' rows, by their digests; after that, where the end was reached.
void compare_rows(Replayed& result, const std::vector<std::uint64_t>& rows);

// Asks whether to stop, now and then.
class Interruption {
 public:
  explicit Interruption(const std::function<bool()>& asked) : asked_(asked) {}

  bool operator()();

 private:
  const std::function<bool()>& asked_;
  double next_look_ = 0;
};

}  // namespace leashed
