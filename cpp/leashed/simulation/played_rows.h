// The rows of tables in virtual time: those that workers have pulled, by the thread that plays
// them, and those that whoever evaluates reads.
#pragma once

#include <memory>
#include <vector>

#include "leashed/model/gradient_source.h"
#include "leashed/server/row_holder.h"
#include "leashed/table/local_rows.h"

namespace leashed {

class PlayedRows {
 public:
  // Throws Error where these are not the tables that the source reads.
  PlayedRows(const GradientSource& source, const std::vector<std::shared_ptr<Table>>& tables);

  // Null where the source reads no tables.
  RowHolder* holder() { return holder_.get(); }
  RowStore* readers() { return readers_.get(); }

 private:
  std::unique_ptr<RowHolder> holder_;
  std::unique_ptr<LocalRows> readers_;
};

}  // namespace leashed
