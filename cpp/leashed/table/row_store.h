// Where the rows of a batch come from and where their gradients go, for workers and for who
// evaluates: what a discipline is for the parameter vector. Gradient sources never see a table;
// they get the rows that were read, and add to their gradients (data/id_columns.h).
//
// A worker's calls, with the two batches it has in hand, each with a BatchRows that stays with it:
//
//   look_ahead   batches.fill(k, next);  store.prefetch(worker, next.view, next_rows)
//   step         swap(current, next); look_ahead
//                view = discipline.read(worker)
//                store.pull(worker, current.view, current_rows)
//                source.gradient(view.theta, current.view, ...)  // adds to the rows' gradients
//                p = discipline.publish(worker, gradient)
//                store.push(worker, current_rows, {p.published ? p.t : view.t})
//   withdrawn    no gradient, one that is not finite, or p.abandoned: store.drop(worker,
//                current_rows) in place of push
//   at its end   store.leave(worker), whatever the reason; what is prefetched then is let go of
//
// A dense gradient that the persistence bound dropped or a policy excluded still pushes its rows:
// each row decides for itself. Where there is a batch ahead or not makes no difference to what is
// read, but for how early; a batch is prefetched before it is pulled, pulled before it is pushed,
// and pushed or dropped before its BatchRows is prefetched into again. One behind the end of the
// run is not prefetched: its ids are not to be admitted (where another worker ends the run first,
// or what ends it is not a number of batches or updates, one may have been).
//
// Under a discipline in lockstep every worker calls push between its publish and its next proceed:
// then all workers' rows are there, and none of them is prefetched into before all have been
// folded.
//
// Evaluation: store.read(reader, view, rows); source.evaluate(theta, view, workspace);
// store.release(reader) once it reads no more rows. It admits, counts and versions nothing.
//
// Workers are numbered from 0, and so are readers: threads that evaluate at once.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/data/batch_view.h"

namespace leashed {

// One batch's rows and their gradients; the store that makes it knows what is in it.
class BatchRows {
 public:
  virtual ~BatchRows() = default;
};

// What the update of rows needs to know of its place in the run.
struct RowStep {
  std::uint64_t t = 0;  // updates of the parameter vector before this one
};

// What became of the gradients of a batch's distinct rows: each is one of these. A row's staleness
// is the number of others' updates of that row between pull and push.
struct RowPublication {
  // Staleness by its binary digits: 0; 1; 2 and 3; 4 to 7; … It is a difference of versions.
  static constexpr std::size_t kOctaves = 33;
  using Octaves = std::array<std::uint64_t, kOctaves>;

  std::uint64_t applied = 0;
  std::uint64_t folded = 0;      // in lockstep: into another worker's gradient of that row
  std::uint64_t late = 0;        // the row had been evicted
  std::uint64_t excluded = 0;    // by the staleness policy
  std::uint64_t unadmitted = 0;  // the id has not been seen often enough
  std::uint64_t deferred = 0;    // the id had no row, and somebody else changed its shard then
  std::uint64_t refused = 0;     // the id had no row, and there was no room
  std::uint64_t staleness = 0;   // of those applied, the sum
  std::uint64_t stalest = 0;     // of those applied, the largest
  Octaves octaves{};             // of those applied, how many

  void add(const RowPublication& other);
  void apply(std::uint32_t tau);
};

class RowStore {
 public:
  virtual ~RowStore() = default;

  virtual std::unique_ptr<BatchRows> make_batch() const = 0;

  // Combines the ids of each table's features, finds their rows, and admits new ones. Throws Error
  // where an id is no row of its table. Uses the view's columns, nothing else.
  virtual void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) = 0;
  // Fills in the view's tables and places: valid until push or drop. Gradients are 0.
  virtual void pull(std::size_t worker, BatchView& batch, BatchRows& rows) = 0;
  // Applies the rows' gradients.
  virtual RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) = 0;
  // Lets the rows go without an update.
  virtual void drop(std::size_t worker, BatchRows& rows) = 0;
  // The worker takes part no more.
  virtual void leave(std::size_t worker) = 0;

  // prefetch and pull for who evaluates: an id that has no row reads what it would begin with, and
  // no gradient is wanted. Valid until the reader's next read or release.
  // How many threads may.
  virtual std::size_t readers() const = 0;
  virtual void read(std::size_t reader, BatchView& batch, BatchRows& rows) = 0;
  virtual void release(std::size_t reader) = 0;
};

inline void RowPublication::add(const RowPublication& other) {
  applied += other.applied;
  folded += other.folded;
  late += other.late;
  excluded += other.excluded;
  unadmitted += other.unadmitted;
  deferred += other.deferred;
  refused += other.refused;
  staleness += other.staleness;
  if (other.stalest > stalest) stalest = other.stalest;
  for (std::size_t i = 0; i < kOctaves; ++i) octaves[i] += other.octaves[i];
}

inline void RowPublication::apply(std::uint32_t tau) {
  ++applied;
  staleness += tau;
  if (tau > stalest) stalest = tau;
  ++octaves[std::bit_width(tau)];
}

}  // namespace leashed
