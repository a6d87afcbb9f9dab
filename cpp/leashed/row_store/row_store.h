// Where the rows of a batch come from and where their gradients go, for workers and for who
// evaluates: what a discipline is for the parameter vector. Gradient sources never see a table;
// they get the rows that were read, and add to their gradients (data/id_columns.h).
//
// A worker's calls, with the batches it has in hand, the current one and those ahead, each with a
// BatchRows that stays with it (two of them, where ahead() is 1):
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
//                with its BatchRows
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
// Evaluation: store.read(reader, view, rows); source.evaluate(theta, view, workspace). It admits,
// counts and versions nothing.
//
// Workers are numbered from 0, and so are readers: threads that evaluate at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "leashed/data/batch_view.h"
#include "leashed/table/row_publication.h"

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

class RowStore {
 public:
  virtual ~RowStore() = default;

  virtual std::unique_ptr<BatchRows> make_batch() const = 0;
  // How many batches behind the current one a worker is to prefetch, in their order.
  virtual std::size_t ahead() const { return 1; }

  // Before any worker: where workers wait for others, they no more do once that is set; what they
  // pull then is of no use.
  virtual void follow(const std::atomic<bool>& /*stopped*/) {}
  // Whether workers wait for others.
  virtual bool waits() const { return false; }
  // Whether nobody has rows any more that somebody may wait for: the run is to be stopped.
  virtual bool forsaken() const { return false; }

  // Combines the ids of each table's features, finds their rows, and admits new ones. Throws Error
  // where an id is no row of its table. Uses the view's columns, nothing else.
  virtual void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) = 0;
  // Fills in the view's tables and places: valid until push or drop. Gradients are 0.
  virtual void pull(std::size_t worker, BatchView& batch, BatchRows& rows) = 0;
  // Applies the rows' gradients, or has them applied: what has become of those of pushes since it
  // was told last, which is this one's where rows are of this process.
  virtual RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) = 0;
  // The worker waits for its next batch: what it has pushed goes on to where it is applied.
  virtual void settle(std::size_t /*worker*/) {}
  // Lets the rows go without an update.
  virtual void drop(std::size_t worker, BatchRows& rows) = 0;
  // The run has come so far: whoever saves a table now finds it in its steps. Of any thread.
  virtual void reach(std::uint64_t updates) = 0;
  // The worker takes part no more. What has become of its pushes since it was told last.
  virtual RowPublication leave(std::size_t worker) = 0;

  // prefetch and pull for who evaluates: an id that has no row reads what it would begin with, and
  // no gradient is wanted. Valid until the reader's next read. Who waits for others asks now and
  // then whether to; where it is not, what is read is of no use. Null: it is.
  virtual void read(std::size_t reader, BatchView& batch, BatchRows& rows,
                    const std::function<bool()>& keep_on = nullptr) = 0;
  // How many threads may.
  virtual std::size_t readers() const = 0;
};

}  // namespace leashed
