#include "leashed/server/served_rows.h"

#include <algorithm>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/team.h"

namespace leashed {

ServedRows::ServedRows(const GradientSource& source,
                       const std::vector<std::shared_ptr<Table>>& tables, std::uint64_t begun) {
  if (const std::size_t read = source.tables().size(); tables.size() != read) {
    throw Error("tables must be the " + std::to_string(read) + " that the source reads, got " +
                std::to_string(tables.size()));
  }
  if (tables.empty()) return;
  const std::size_t readers = std::min(processors(), LocalRows::kReaders);
  holder_ = std::make_unique<RowHolder>(tables, source.features_of_tables(), begun);
  readers_ = std::make_unique<LocalRows>(tables, source.features_of_tables(), 0, readers, false);
}

}  // namespace leashed
