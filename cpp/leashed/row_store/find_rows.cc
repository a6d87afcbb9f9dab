#include "leashed/row_store/find_rows.h"

#include "leashed/base/error.h"

namespace leashed {
namespace {

std::size_t entries_of(const IdColumn& column, std::size_t size) {
  return size ? column.end(size - 1) : 0;
}

}  // namespace

void find_rows(const std::vector<std::shared_ptr<Table>>& tables,
               const std::vector<std::size_t>& features_of_tables,
               std::span<const std::unique_ptr<Seat>> seats, const BatchView& batch, bool admits,
               Combiner& combiner, FoundRows& found) {
  const std::size_t features = features_of_tables.size();
  if (batch.columns.size() != features) {
    throw Error("a batch has " + std::to_string(batch.columns.size()) + " features of ids, and " +
                std::to_string(features) + " are of tables");
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::size_t entries = 0;
    for (std::size_t f = 0; f < features; ++f) {
      if (features_of_tables[f] != t) continue;
      found.entries[f].resize(entries_of(batch.columns[f], batch.size));
      found.places[f] = found.entries[f].data();
      entries += found.entries[f].size();
    }
    Located& located = found.located[t];
    combiner.begin(entries, located.ids);
    for (std::size_t f = 0; f < features; ++f) {
      if (features_of_tables[f] != t) continue;
      combiner.add(batch.columns[f].ids, found.entries[f].size(), found.entries[f].data());
    }
    tables[t]->locate(*seats[t], located, admits);
  }
}

}  // namespace leashed
