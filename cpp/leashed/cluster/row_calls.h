// Look-ups and updates of one table whose rows embedding servers hold, by calls of one thread: each
// step of a worker (row_store/row_store.h) by itself, for loops that are not the engine's.
//
// A look-up that an update is to follow has a number. At most one more of them than are asked for
// ahead are kept: one more lets go of the oldest. Nothing waits but values(), look(), finish(), and
// ask() for memory of pushes that are under way; `watch` is asked meanwhile, and what it throws
// ends that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "leashed/cluster/remote_rows.h"

namespace leashed {

class RowCalls {
 public:
  using Watch = std::function<bool()>;
  // rows: with tables apart. worker: nobody else's.
  RowCalls(std::shared_ptr<RemoteRows> rows, std::size_t worker);

  std::size_t dim() const { return rows_->dim(table_); }
  // Asks for the rows of ids, of which those without one may get one; the number. Throws Error
  // where one is no row of the table, or they are too many for a frame; RowsAway, as all that
  // follows, where a server does not answer, or nobody has the rows any more.
  std::uint64_t ask(std::span<const std::uint64_t> ids, const Watch& watch);
  bool keeps(std::uint64_t number) const;
  // How many ids a look-up has; 0 of one that is not kept.
  std::size_t count(std::uint64_t number) const;
  // Of each of these the row, once it is there: to[count][dim].
  void values(std::uint64_t number, float* to, const Watch& watch);
  // One step with a gradient [count][dim] of each, those of one id added in their order; the
  // look-up is over. What became of pushes before. Throws Error, and has changed nothing, where a
  // gradient is not finite.
  RowPublication update(std::uint64_t number, const float* gradients, const Watch& watch);
  // Copies rows, behind all updates so far: to[n][dim]. Changes nothing, and no id gets a row.
  void look(std::span<const std::uint64_t> ids, float* to, const Watch& watch);
  // Waits until all updates so far are applied. What became of pushes before.
  RowPublication finish(const Watch& watch);
  // It takes part no more; what is under way is waited for, whatever happens.
  void leave();

 private:
  // Of one look-up.
  struct Looked {
    std::uint64_t number = 0;  // 0: none
    bool there = false;
    std::uint32_t offsets[2];
    std::vector<IdColumn> columns;  // by table
    BatchView view{};
    std::unique_ptr<BatchRows> rows;
  };
  void make(Looked& looked) const;
  // A batch of one example, which has all of the ids.
  void show(Looked& looked, std::span<const std::uint64_t> ids) const;
  Looked& find(std::uint64_t number);
  void await(Looked& looked);
  void copy(const Looked& looked, float* to) const;
  void drop(Looked& looked);
  void require_served() const;

  const std::shared_ptr<RemoteRows> rows_;
  const std::size_t worker_, table_;
  std::vector<Looked> kept_;
  Looked read_;
  std::uint64_t asked_ = 0;
};

}  // namespace leashed
