#include "leashed/cluster/asked_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "leashed/base/error.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/row_memory.h"
#include "leashed/table/no_row.h"

namespace leashed {

AskedRows::AskedRows(const ServedTables& tables, bool trains)
    : served_(tables),
      trains_(trains),
      found_(tables.tables.size(), tables.features_of_tables.size()),
      of_(tables.servers),
      server_of_(tables.tables.size()),
      pointers_(tables.tables.size()),
      gradients_(tables.tables.size()),
      rows_(tables.tables.size()) {
  for (std::size_t t = 0; t < tables.tables.size(); ++t) {
    for (std::size_t s = 0; s < of_.size(); ++s) {
      if (of_.size() == 1 || tables.placement->has(t, s)) of_[s].tables.push_back(t);
    }
  }
}

template <class F>
void AskedRows::each(std::size_t table, std::size_t server, const F& f) const {
  const std::size_t n = found_.located[table].ids.size();
  const std::uint16_t* const of = of_.size() > 1 ? server_of_[table].data() : nullptr;
  for (std::size_t i = 0; i < n; ++i) {
    if (!of || of[i] == server) f(i);
  }
}

void AskedRows::combine(const BatchView& batch) {
  combine_batch(served_.features_of_tables, batch, combiner_, found_);
  for (std::size_t t = 0; t < served_.tables.size(); ++t) {
    const ServedTable& table = served_.tables[t];
    for (const std::uint64_t id : found_.located[t].ids) {
      if (table.rows != 0 && id >= table.rows) throw no_row(table.name, id, table.rows);
    }
  }
  if (of_.size() > 1) place_ids();
  for (std::size_t s = 0; s < of_.size(); ++s) ask(s, batch.size);
}

void AskedRows::place_ids() {
  for (std::size_t t = 0; t < served_.tables.size(); ++t) {
    const std::vector<std::uint64_t>& ids = found_.located[t].ids;
    server_of_[t].resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      server_of_[t][i] = static_cast<std::uint16_t>((*served_.placement)(t, ids[i]));
    }
  }
}

void AskedRows::ask(std::size_t server, std::size_t examples) {
  Of& of = of_[server];
  const std::size_t tables = of.tables.size();
  const std::size_t words = sizeof(LookupHead) / sizeof(std::uint64_t) + (tables + 1) / 2;
  of.ask.resize(words);
  of.ask[words - 1] = 0;  // a count may be missing there
  of.floats = 0;
  const LookupHead head{trains_ ? 1u : 0u, static_cast<std::uint32_t>(tables)};
  std::memcpy(of.ask.data(), &head, sizeof head);
  for (std::size_t k = 0; k < tables; ++k) {
    const std::size_t t = of.tables[k], before = of.ask.size();
    each(t, server, [&](std::size_t i) { of.ask.push_back(found_.located[t].ids[i]); });
    const auto count = static_cast<std::uint32_t>(of.ask.size() - before);
    auto* const counts = reinterpret_cast<std::byte*>(of.ask.data()) + sizeof head;
    std::memcpy(counts + k * sizeof count, &count, sizeof count);
    of.floats += count * served_.tables[t].dim;
  }
  check_size(of, examples);
  reach_floats(of.values, of.floats);
}

void AskedRows::check_size(const Of& of, std::size_t examples) const {
  const auto check = [&](std::uint64_t bytes, Kind kind, const char* what) {
    if (bytes <= kModeLimits[kind]) return;
    throw Error("a batch of " + std::to_string(examples) + " examples takes " +
                std::to_string(bytes >> 20) + " MiB of " + what + " at the policy server, and a " +
                "frame has " + std::to_string(kModeLimits[kind] >> 20) +
                (trains_ ? ": give a smaller batch_size"
                         : "; evaluations take so many at once, whatever batch_size is: give "
                           "smaller rows, or train on one machine"));
  };
  check(of.ask.size() * sizeof(std::uint64_t), kLookup, "ids");
  check(of.floats * sizeof(float), kRows, "rows");
}

void AskedRows::show(BatchView& batch) {
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    pointers_[t].resize(found_.located[t].ids.size());
  }
  for (std::size_t s = 0; s < of_.size(); ++s) {
    const float* value = of_[s].values.data();
    for (const std::size_t t : of_[s].tables) {
      each(t, s, [&, dim = served_.tables[t].dim](std::size_t i) {
        pointers_[t][i] = value;
        value += dim;
      });
    }
  }
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    const std::size_t n = pointers_[t].size(), dim = served_.tables[t].dim;
    rows_[t] = {n, dim, dim, pointers_[t].data(), nullptr};
    if (!trains_) continue;
    reach_floats(gradients_[t], n * dim);
    std::fill_n(gradients_[t].data(), n * dim, 0.0f);
    rows_[t].gradient = gradients_[t].data();
  }
  batch.tables = rows_;
  batch.places = found_.places.data();
}

std::span<const AskedRows::Bytes> AskedRows::gradients(std::size_t server) {
  Of& of = of_[server];
  of.pushed.clear();
  if (of_.size() == 1) {
    for (const TableRows& rows : rows_) {
      if (rows.count > 0)
        of.pushed.push_back(std::as_bytes(std::span(rows.gradient, rows.count * rows.stride)));
    }
    return of.pushed;
  }
  reach_floats(of.sent, of.floats);
  float* to = of.sent.data();
  for (const std::size_t t : of.tables) {
    each(t, server, [&, dim = served_.tables[t].dim](std::size_t i) {
      to = std::copy_n(gradients_[t].data() + i * dim, dim, to);
    });
  }
  if (of.floats > 0) of.pushed.push_back(std::as_bytes(std::span(of.sent.data(), of.floats)));
  return of.pushed;
}

}  // namespace leashed
