// Rows of tables that a policy server has, for who evaluates.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "leashed/cluster/asked_rows.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

// Workers have theirs by their lanes (cluster/remote_server.h): what a RowStore does for them
// throws.
class LookedRows final : public RowStore {
 public:
  // Has the rows come; where they are not to, what is read is of no use, and keep_on() says so.
  using Ask = std::function<void(AskedRows& rows, const std::function<bool()>& keep_on)>;
  // over: whether nobody has the rows any more. What is given must stay.
  LookedRows(const ServedTables& tables, const std::atomic<bool>& over, Ask ask)
      : tables_(tables), over_(over), ask_(std::move(ask)) {}

  std::unique_ptr<BatchRows> make_batch() const override;
  void read(std::size_t reader, BatchView& batch, BatchRows& rows,
            const std::function<bool()>& keep_on) override;
  std::size_t readers() const override { return 1; }  // who looks on has one connection
  bool forsaken() const override { return over_.load(std::memory_order_relaxed); }
  void reach(std::uint64_t) override {}  // the server counts updates

  void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) override;
  void pull(std::size_t worker, BatchView& batch, BatchRows& rows) override;
  RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) override;
  void drop(std::size_t worker, BatchRows& rows) override;
  RowPublication leave(std::size_t worker) override;

 private:
  struct Asked;

  const ServedTables& tables_;
  const std::atomic<bool>& over_;
  const Ask ask_;
};

}  // namespace leashed
