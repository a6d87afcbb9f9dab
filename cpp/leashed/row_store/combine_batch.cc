#include "leashed/row_store/combine_batch.h"

#include "leashed/base/error.h"

namespace leashed {
namespace {

std::size_t entries_of(const IdColumn& column, std::size_t size) {
  return size ? column.end(size - 1) : 0;
}

}  // namespace

void combine_batch(const std::vector<std::size_t>& features_of_tables, const BatchView& batch,
                   Combiner& combiner, FoundRows& found) {
  const std::size_t features = features_of_tables.size();
  if (batch.columns.size() != features) {
    throw Error("a batch has " + std::to_string(batch.columns.size()) + " features of ids, and " +
                std::to_string(features) + " are of tables");
  }
  for (std::size_t t = 0; t < found.located.size(); ++t) {
    std::size_t entries = 0;
    for (std::size_t f = 0; f < features; ++f) {
      if (features_of_tables[f] != t) continue;
      found.entries[f].resize(entries_of(batch.columns[f], batch.size));
      found.places[f] = found.entries[f].data();
      entries += found.entries[f].size();
    }
    combiner.begin(entries, found.located[t].ids);
    for (std::size_t f = 0; f < features; ++f) {
      if (features_of_tables[f] != t) continue;
      combiner.add(batch.columns[f].ids, found.entries[f].size(), found.entries[f].data());
    }
  }
}

}  // namespace leashed
