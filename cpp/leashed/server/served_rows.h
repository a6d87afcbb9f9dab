// The rows of tables that workers pull from a server, and whoever evaluates reads: the first by one
// thread at a time, the others by theirs, whatever the first does.
#pragma once

#include <memory>
#include <vector>

#include "leashed/model/gradient_source.h"
#include "leashed/row_store/local_rows.h"
#include "leashed/server/row_holder.h"

namespace leashed {

class ServedRows {
 public:
  // begun: updates of the run that the tables have made already. Throws Error where these are not
  // the tables that the source reads.
  ServedRows(const GradientSource& source, const std::vector<std::shared_ptr<Table>>& tables,
             std::uint64_t begun = 0);

  // Null where the source reads no tables.
  RowHolder* holder() { return holder_.get(); }
  RowStore* readers() { return readers_.get(); }

 private:
  std::unique_ptr<RowHolder> holder_;
  std::unique_ptr<LocalRows> readers_;
};

}  // namespace leashed
