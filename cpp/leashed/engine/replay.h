// A recorded training (trace.h), made again by one thread.
//
// Each worker's next published gradient is computed as soon as the version that it was computed on
// is there, and kept until its turn, which is that of its t. So no version is kept: a worker reads
// only after its own last update, as it did then. Bit for bit where a read was of one version:
// Sequential, Synchronous, Locked, Leashed. Under Hogwild a read saw parts of several; replayed is
// the training in which each saw exactly the updates counted before it.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "leashed/discipline/discipline.h"
#include "leashed/engine/trace_reader.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

struct ReplayOptions {
  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  std::size_t workers;
  std::size_t batch_size;
  std::uint64_t seed;
  bool lockstep;               // the discipline's
  std::uint64_t until = kAll;  // t to stop at
  // Asked about every 20 ms; true: stop. May throw.
  std::function<bool()> interrupted = {};
};

struct Replayed {
  bool interrupted = false;  // the rest is of then
  std::uint64_t t = 0;       // updates, from the run's beginning
  std::vector<float> parameters;
  // The update that led to them, if there was one: its record (in lockstep the first worker's), the
  // parameters before it, its gradient (in lockstep the mean) and its batch's loss, what the
  // staleness policy multiplied it by (by variable: the largest).
  bool any = false;
  std::size_t worker = 0;
  TraceRecord last;
  std::vector<float> before, gradient;
  double loss = 0, factor = 1;
  // Gradients read of in the trace, by outcome.
  std::uint64_t published = 0, dropped = 0, excluded = 0, given_up = 0;
  // Whether the trace has the training's end, and it was reached; then by how much the parameters
  // differ from those at the end, 0 where they are the same bit for bit.
  bool ended = false;
  double difference = 0;
};

// `context` is what the recorded training began with. Throws Error where the trace does not go to
// `until`, before anything is computed; or the records contradict each other, or lack an update
// before the end that the trace has.
Replayed replay(const GradientSource& source, const DatasetView& data,
                const DisciplineContext& context, const Trace& trace, const ReplayOptions& options);

}  // namespace leashed
