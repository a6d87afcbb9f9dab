#include "leashed/server/row_holder.h"

#include <algorithm>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {
namespace {

// A table's part of what lies one table after the other begins on a line of its own.
std::size_t whole_lines(std::size_t floats) {
  constexpr std::size_t kLine = kCacheLine / sizeof(float);
  return (floats + kLine - 1) / kLine * kLine;
}

// Batches differ by little: with some more than is needed now there is hardly ever a next time.
std::size_t with_room(std::size_t n) { return n + n / 8; }

void reach_size(AlignedArray<float>& memory, std::size_t n) {
  if (memory.size() < n) memory = AlignedArray<float>(with_room(n));
}

template <class T>
void resize(std::vector<T>& memory, std::size_t n) {
  if (memory.capacity() < n) {
    memory.clear();  // of no use any more, so not to be copied
    memory.reserve(with_room(n));
  }
  memory.resize(n);
}

}  // namespace

RowHolder::RowHolder(std::vector<std::shared_ptr<Table>> tables,
                     std::vector<std::size_t> features_of_tables, std::uint64_t begun)
    : tables_(std::move(tables)),
      features_of_tables_(std::move(features_of_tables)),
      held_(tables_.size()),
      found_(tables_.size(), features_of_tables_.size()),
      copies_(tables_.size()) {
  for (const auto& table : tables_) {
    evicts_.push_back(table->evicts());
    begun_.push_back(table->steps() - std::min(table->steps(), begun));
    seats_.push_back(Seat::keep(table->seats()));
    if (seats_.back()) continue;
    throw Error("table '" + table->settings().name + "' is used by " +
                std::to_string(Seats::kKept) + " threads already; end some");
  }
}

RowHolder::~RowHolder() {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t]->reach_steps(begun_[t] + steps_);
    for (const auto& [row, _] : held_[t]) tables_[t]->release(row);
  }
}

void RowHolder::hold(std::size_t table, std::uint32_t row) {
  if (!evicts_[table] || row == IdIndex::kNone) return;
  if (held_[table][row]++ == 0) tables_[table]->hold(row);
}

void RowHolder::release(std::size_t table, std::uint32_t row) {
  if (!evicts_[table] || row == IdIndex::kNone) return;
  const auto one = held_[table].find(row);
  if (--one->second > 0) return;
  held_[table].erase(one);
  tables_[table]->release(row);
}

void RowHolder::pull(const BatchView& batch, PulledRows& pulled) {
  release(pulled.keys);
  pulled.counts.clear();
  pulled.counts.reserve(tables_.size());  // so that nothing fails once rows are held
  combine_batch(features_of_tables_, batch, combiner_, found_);
  std::size_t floats = 0, entries = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    floats += copies_of(t, found_.located[t].ids.size());
  }
  for (const auto& of : found_.entries) entries += of.size();
  reach_size(pulled.copies, floats);
  resize(pulled.places, entries);
  float* copies = pulled.copies.data();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    copies_[t] = copies;
    copies += copies_of(t, found_.located[t].ids.size());
  }
  std::uint32_t* places = pulled.places.data();
  for (const auto& of : found_.entries) places = std::ranges::copy(of, places).out;
  find_and_copy(pulled.keys, copies_);
  for (const RowKeys::Part& part : pulled.keys.parts) pulled.counts.push_back(part.count);
}

void RowHolder::pull(std::span<const std::span<const std::uint64_t>> ids, RowKeys& keys,
                     std::span<float* const> to) {
  release(keys);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    found_.located[t].ids.assign(ids[t].begin(), ids[t].end());
  }
  find_and_copy(keys, to);
}

void RowHolder::look(std::span<const std::span<const std::uint64_t>> ids,
                     std::span<float* const> to) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Located& located = found_.located[t];
    located.ids.assign(ids[t].begin(), ids[t].end());
    tables_[t]->locate(*seats_[t], located, false);
    tables_[t]->pull(located, to[t]);
    located.release();
  }
}

void RowHolder::find_and_copy(RowKeys& keys, std::span<float* const> to) try {
  std::size_t count = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t]->locate(*seats_[t], found_.located[t], true);
    count += found_.located[t].rows.size();
  }
  keys.parts.reserve(tables_.size());
  resize(keys.rows, count);
  resize(keys.versions, count);
  resize(keys.ids, count);
  std::size_t first = 0;
  // What is held is what has a part, whatever fails in between.
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Located& located = found_.located[t];
    const std::size_t n = located.rows.size();
    if (t + 1 < tables_.size()) tables_[t + 1]->expect_pull(found_.located[t + 1]);
    tables_[t]->pull(located, to[t]);
    std::ranges::copy(located.rows, keys.rows.data() + first);
    std::ranges::copy(located.versions, keys.versions.data() + first);
    std::ranges::copy(located.ids, keys.ids.data() + first);
    first += n;
    const RowPublication& missed = located.missed;
    keys.parts.push_back({.unadmitted = static_cast<std::uint32_t>(missed.unadmitted),
                          .deferred = static_cast<std::uint32_t>(missed.deferred),
                          .refused = static_cast<std::uint32_t>(missed.refused)});
    std::uint32_t& held = keys.parts[t].count;
    if (!evicts_[t]) held = static_cast<std::uint32_t>(n);
    for (; held < n; ++held) hold(t, located.rows[held]);
    located.release();
  }
} catch (...) {  // no such row, or out of memory
  for (Located& located : found_.located) located.release();
  release(keys);
  throw;
}

void RowHolder::visit(Archive& archive, RowKeys& keys) {
  std::vector<bool> has(archive.reads() ? 0 : keys.rows.size());
  for (std::size_t i = 0; i < has.size(); ++i) has[i] = keys.rows[i] != IdIndex::kNone;
  archive(keys.parts, keys.ids, keys.versions, has);
  if (!archive.reads()) return;
  archive.require(keys.parts.size() == tables_.size());
  std::size_t count = 0;
  for (const RowKeys::Part& part : keys.parts) count += part.count;
  archive.require(keys.ids.size() == count && keys.versions.size() == count && has.size() == count);
  keys.rows.resize(count);
  std::size_t first = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t n = std::exchange(keys.parts[t].count, 0);
    Located& located = found_.located[t];
    located.ids.assign(keys.ids.begin() + static_cast<std::ptrdiff_t>(first),
                       keys.ids.begin() + static_cast<std::ptrdiff_t>(first + n));
    tables_[t]->locate(*seats_[t], located, false);
    for (std::size_t i = 0; i < n; ++i) {
      keys.rows[first + i] = has[first + i] ? located.rows[i] : IdIndex::kNone;
      hold(t, keys.rows[first + i]);
      ++keys.parts[t].count;
    }
    located.release();
    first += n;
  }
}

void RowHolder::show(const PulledRows& pulled, BatchView& batch, ShownRows& shown,
                     AlignedArray<float>& gradients) const {
  shown.tables.resize(tables_.size());
  shown.values.resize(tables_.size());
  shown.places.resize(features_of_tables_.size());
  std::size_t floats = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) floats += gradients_of(t, pulled.counts[t]);
  reach_size(gradients, floats);
  std::fill_n(gradients.data(), floats, 0.0f);
  const float* copies = pulled.copies.data();
  float* gradient = gradients.data();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t n = pulled.counts[t], dim = tables_[t]->dim();
    std::vector<const float*>& values = shown.values[t];
    values.resize(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = copies + i * dim;
    shown.tables[t] = {n, dim, tables_[t]->gradient_stride(), values.data(), gradient};
    copies += copies_of(t, n);
    gradient += gradients_of(t, n);
  }
  const std::uint32_t* places = pulled.places.data();
  for (std::size_t f = 0; f < shown.places.size(); ++f) {
    shown.places[f] = places;
    places += batch.size ? batch.columns[f].end(batch.size - 1) : 0;
  }
  batch.tables = shown.tables;
  batch.places = shown.places.data();
}

void RowHolder::renew(PulledRows& pulled, const RowPlacement& placement, std::size_t server) {
  RowKeys& keys = pulled.keys;
  float* copies = pulled.copies.data();
  std::size_t first = 0;
  std::vector<std::size_t> which;
  AlignedArray<float> values;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t n = keys.parts[t].count, dim = tables_[t]->dim();
    Located& located = found_.located[t];
    located.rows.clear();
    which.clear();
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t row = keys.rows[first + i];
      if (row == IdIndex::kNone || placement(t, keys.ids[first + i]) != server) continue;
      which.push_back(i);
      located.rows.push_back(row);
    }
    if (which.empty()) {
      first += n;
      copies += copies_of(t, n);
      continue;
    }
    located.ids.resize(which.size());  // which only rows that are not there begin from
    reach_size(values, which.size() * dim);
    tables_[t]->pull(located, values.data());
    for (std::size_t k = 0; k < which.size(); ++k) {
      std::copy_n(values.data() + k * dim, dim, copies + which[k] * dim);
      keys.versions[first + which[k]] = located.versions[k];
    }
    first += n;
    copies += copies_of(t, n);
  }
}

void RowHolder::split(RowKeys& keys, const float* gradients, const RowPlacement& placement,
                      std::span<RowPush*> pushes) {
  const std::size_t tables = tables_.size();
  std::size_t first = 0;
  std::vector<std::size_t> floats(pushes.size());
  for (RowPush* push : pushes) {
    release(push->keys);  // what was never carried out
    push->keys.rows.clear();
    push->keys.versions.clear();
    push->keys.ids.clear();
    push->keys.parts.reserve(tables);
  }
  for (std::size_t t = 0; t < tables; ++t) {
    const RowKeys::Part& part = keys.parts[t];
    for (RowPush* push : pushes) push->keys.parts.emplace_back();
    std::size_t without_row = 0;  // a server of one of these
    for (std::size_t i = first; i < first + part.count; ++i) {
      const std::size_t server = placement(t, keys.ids[i]);
      if (keys.rows[i] == IdIndex::kNone) without_row = server;
      RowKeys& to = pushes[server]->keys;
      to.rows.push_back(keys.rows[i]);
      to.versions.push_back(keys.versions[i]);
      to.ids.push_back(keys.ids[i]);
      hold(t, keys.rows[i]);
      ++to.parts[t].count;
    }
    first += part.count;
    for (std::size_t s = 0; s < pushes.size(); ++s) {
      floats[s] += gradients_of(t, pushes[s]->keys.parts[t].count);
    }
    RowKeys::Part& counted = pushes[without_row]->keys.parts[t];
    counted.unadmitted = part.unadmitted;
    counted.deferred = part.deferred;
    counted.refused = part.refused;
  }
  std::vector<float*> to(pushes.size());
  for (std::size_t s = 0; s < pushes.size(); ++s) {
    reach_size(pushes[s]->gradients, floats[s]);
    to[s] = pushes[s]->gradients.data();
  }
  first = 0;
  for (std::size_t t = 0; t < tables; ++t) {
    const std::size_t n = keys.parts[t].count, stride = tables_[t]->gradient_stride();
    std::vector<std::size_t> places(pushes.size());
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t s = placement(t, keys.ids[first + i]);
      std::copy_n(gradients + i * stride, stride, to[s] + places[s]++ * stride);
    }
    first += n;
    gradients += gradients_of(t, n);
    for (std::size_t s = 0; s < pushes.size(); ++s) to[s] += gradients_of(t, places[s]);
  }
  release(keys);
}

RowPublication RowHolder::push(RowKeys& keys, const float* gradients, std::uint64_t t) {
  return push_each(keys, t, [&](std::size_t table) {
    const float* const first = gradients;
    gradients += gradients_of(table, keys.parts[table].count);
    return std::pair(first, tables_[table]->gradient_stride());
  });
}

RowPublication RowHolder::push(RowKeys& keys, std::span<const float* const> gradients,
                               std::uint64_t t) {
  return push_each(keys, t, [&](std::size_t table) {
    return std::pair(gradients[table], tables_[table]->dim());
  });
}

template <class Of>
RowPublication RowHolder::push_each(RowKeys& keys, std::uint64_t t, const Of& of) {
  RowPublication result;
  std::size_t first = 0;
  const auto locate_next = [&](std::size_t table) {
    locate(keys, table, first, found_.located[table]);
    first += keys.parts[table].count;
    tables_[table]->expect_push(found_.located[table]);
  };
  if (!tables_.empty()) locate_next(0);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (i + 1 < tables_.size()) locate_next(i + 1);
    const auto [gradients, stride] = of(i);
    result.add(tables_[i]->push(*seats_[i], found_.located[i], gradients, stride, begun_[i] + t));
  }
  steps_ = std::max(steps_, t + 1);
  release(keys);
  return result;
}

RowPublication RowHolder::push_apart(RowKeys& keys, std::size_t table, const float* gradients) {
  Table& of = *tables_[table];
  Located& located = found_.located[table];
  locate(keys, table, 0, located);
  const RowPublication result =
      of.push(*seats_[table], located, gradients, of.dim(), of.take_step());
  release(keys);
  return result;
}

void RowHolder::release(RowKeys& keys) {
  std::size_t first = 0;
  for (std::size_t t = 0; t < keys.parts.size(); ++t) {
    const std::size_t end = first + keys.parts[t].count;
    for (std::size_t i = first; evicts_[t] && i < end; ++i) release(t, keys.rows[i]);
    first = end;
  }
  keys.parts.clear();
}

RowPublication RowHolder::push_weighed(std::size_t table, const Located& located,
                                       const float* gradients, const float* factors,
                                       std::uint64_t t) {
  steps_ = std::max(steps_, t + 1);
  Table& of = *tables_[table];
  return of.push(*seats_[table], located, gradients, of.gradient_stride(), begun_[table] + t,
                 factors);
}

void RowHolder::locate(const RowKeys& keys, std::size_t table, std::size_t first,
                       Located& located) const {
  const RowKeys::Part& part = keys.parts[table];
  const auto some = [&](const std::vector<std::uint32_t>& all, std::vector<std::uint32_t>& of) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    of.assign(begin, begin + part.count);
  };
  some(keys.rows, located.rows);
  some(keys.versions, located.versions);
  located.missed = {};
  located.missed.unadmitted = part.unadmitted;
  located.missed.deferred = part.deferred;
  located.missed.refused = part.refused;
}

std::size_t RowHolder::copies_of(std::size_t table, std::size_t count) const {
  return whole_lines(count * tables_[table]->dim());
}

std::size_t RowHolder::gradients_of(std::size_t table, std::size_t count) const {
  return whole_lines(count * tables_[table]->gradient_stride());
}

}  // namespace leashed
