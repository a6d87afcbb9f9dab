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
  std::vector<std::size_t> all;
  combine_batch(features_of_tables, batch, combiner, found, {}, all);
}

void combine_batch(const std::vector<std::size_t>& features_of_tables, const BatchView& batch,
                   Combiner& combiner, FoundRows& found, const std::vector<bool>& later,
                   std::vector<std::size_t>& earlier) {
  const std::size_t features = features_of_tables.size();
  if (batch.columns.size() != features) {
    throw Error("a batch has " + std::to_string(batch.columns.size()) + " features of ids, and " +
                std::to_string(features) + " are of tables");
  }
  earlier.resize(found.located.size());
  for (std::size_t t = 0; t < found.located.size(); ++t) {
    std::size_t entries = 0;
    for (std::size_t f = 0; f < features; ++f) {
      if (features_of_tables[f] != t) continue;
      found.entries[f].resize(entries_of(batch.columns[f], batch.size));
      found.places[f] = found.entries[f].data();
      entries += found.entries[f].size();
    }
    combiner.begin(entries, found.located[t].ids);
    const auto add = [&](bool those) {
      for (std::size_t f = 0; f < features; ++f) {
        if (features_of_tables[f] != t || (!later.empty() && later[f]) != those) continue;
        combiner.add(batch.columns[f].ids, found.entries[f].size(), found.entries[f].data());
      }
    };
    add(false);
    earlier[t] = found.located[t].ids.size();
    if (!later.empty()) add(true);
  }
}

}  // namespace leashed
