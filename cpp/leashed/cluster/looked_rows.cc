#include "leashed/cluster/looked_rows.h"

#include "leashed/base/error.h"

namespace leashed {

struct LookedRows::Asked final : BatchRows {
  explicit Asked(const ServedTables& tables) : rows(tables, false) {}
  AskedRows rows;
};

namespace {

[[noreturn]] void refuse() { throw Error("these rows are for who evaluates, and no worker's"); }

}  // namespace

std::unique_ptr<BatchRows> LookedRows::make_batch() const {
  return std::make_unique<Asked>(tables_);
}

void LookedRows::read(std::size_t, BatchView& batch, BatchRows& rows,
                      const std::function<bool()>& keep_on) {
  AskedRows& asked = static_cast<Asked&>(rows).rows;
  asked.combine(batch);
  ask_(asked, keep_on);
  asked.show(batch);
}

void LookedRows::prefetch(std::size_t, const BatchView&, BatchRows&) { refuse(); }
void LookedRows::pull(std::size_t, BatchView&, BatchRows&) { refuse(); }
RowPublication LookedRows::push(std::size_t, BatchRows&, const RowStep&) { refuse(); }
void LookedRows::drop(std::size_t, BatchRows&) { refuse(); }
RowPublication LookedRows::leave(std::size_t) { refuse(); }

}  // namespace leashed
