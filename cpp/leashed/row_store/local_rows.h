// The rows of tables in this process: a worker combines the ids of its batch, copies their rows,
// and updates them row by row, without a lock (Hogwild).
//
// Copies, since a batch's rows are on as many pages: whoever comes back to a row in the table after
// all the others waits for its page once more. And while one table's rows are read or updated the
// first of the next table are fetched, of which the last would else wait for each.
//
// In lockstep rows are folded instead: each worker owns the ids whose hash modulo the number of
// workers is its own, adds up the gradients of all workers' batches in the order of the workers,
// and makes one update of their mean. Then results do not depend on who comes when (with tables
// whose ids all have rows, and policies that gather no statistics; of any tables where they are
// recorded, since then workers find and update rows one after the other in their order: find them
// when a batch is pulled).
#pragma once

#include <memory>
#include <vector>

#include "leashed/row_store/combine_batch.h"
#include "leashed/row_store/row_store.h"
#include "leashed/table/combine.h"
#include "leashed/table/table.h"

namespace leashed {

class LocalRows final : public RowStore {
 public:
  // As many as are worth it.
  static constexpr std::size_t kReaders = 64;

  // Of each feature the table's number among `tables`; begun: updates of the run before this
  // training, which the tables have made too. for_caller: the calling thread alone uses it.
  // recorded: of one worker, or those in lockstep, nothing depends on who comes when.
  // Throws Error where there are not so many tables, or a table has no seats left for all workers
  // and readers.
  LocalRows(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> features_of_tables,
            std::size_t workers, std::size_t readers, bool lockstep, std::uint64_t begun = 0,
            bool for_caller = false, bool recorded = false);
  ~LocalRows() override;

  std::unique_ptr<BatchRows> make_batch() const override;
  void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) override;
  void pull(std::size_t worker, BatchView& batch, BatchRows& rows) override;
  RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) override;
  void drop(std::size_t worker, BatchRows& rows) override;
  void reach(std::uint64_t updates) override;
  RowPublication leave(std::size_t worker) override;
  std::size_t readers() const override { return readers_; }
  void read(std::size_t reader, BatchView& batch, BatchRows& rows,
            const std::function<bool()>& keep_on = nullptr) override;

 private:
  struct LocalBatch;
  struct Member;
  enum Count : std::uint8_t { kFound, kPushed };

  void locate(Member& member, const BatchView& batch, LocalBatch& rows, bool admits);
  template <class F>
  auto in_turn(std::size_t worker, Count count, const F& f);
  void show(const LocalBatch& rows, BatchView& batch) const;
  RowPublication update_rows(std::size_t worker, LocalBatch& local, const RowStep& step);
  // t: of the table, as Table::push has it.
  RowPublication fold(std::size_t worker, std::size_t table, std::uint64_t t);

  const std::vector<std::shared_ptr<Table>> tables_;
  const std::vector<std::size_t> features_of_tables_;
  std::vector<std::uint64_t> begun_;  // by table: the steps it had made before the run
  const std::size_t workers_, readers_;
  const bool lockstep_, recorded_;
  const std::unique_ptr<Member[]> members_;
};

}  // namespace leashed
