#include "leashed/cluster/row_calls.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "leashed/table/finite.h"
#include "leashed/table/kernels.h"

namespace leashed {
namespace {

constexpr std::uint32_t kNothing[2] = {0, 0};

// While it is there the worker's waits ask `watch`.
struct Watched {
  Watched(RemoteRows& of, std::size_t number, const RowCalls::Watch& watch)
      : rows(of), worker(number) {
    rows.watch(worker, &watch);
  }
  ~Watched() { rows.watch(worker, nullptr); }
  Watched(const Watched&) = delete;

  RemoteRows& rows;
  const std::size_t worker;
};

}  // namespace

RowCalls::RowCalls(std::shared_ptr<RemoteRows> rows, std::size_t worker)
    : rows_(std::move(rows)), worker_(worker), table_(worker % rows_->tables()) {
  if (worker >= rows_->workers()) throw Error("a worker that there is not");
  kept_.resize(1 + rows_->look_ahead());
  for (Looked& each : kept_) make(each);
  make(read_);
}

void RowCalls::make(Looked& looked) const {
  looked.rows = rows_->make_batch();
  looked.columns.resize(rows_->tables(), {.offsets = kNothing});
}

void RowCalls::show(Looked& looked, std::span<const std::uint64_t> ids) const {
  if (ids.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error("a look-up of " + std::to_string(ids.size()) + " ids: give fewer at once");
  }
  looked.offsets[0] = 0;
  looked.offsets[1] = static_cast<std::uint32_t>(ids.size());
  looked.columns[table_] = {.ids = ids.data(), .offsets = looked.offsets};
  looked.view = {};
  looked.view.size = 1;
  looked.view.columns = looked.columns;
}

void RowCalls::require_served() const {
  if (rows_->forsaken()) throw RowsAway("nobody has the rows any more: the run is over");
}

RowCalls::Looked& RowCalls::find(std::uint64_t number) {
  const auto found = std::ranges::find(kept_, number, &Looked::number);
  if (number == 0 || found == kept_.end()) throw Error("a look-up that is not kept");
  return *found;
}

bool RowCalls::keeps(std::uint64_t number) const {
  return number != 0 && std::ranges::count(kept_, number, &Looked::number) > 0;
}

std::size_t RowCalls::count(std::uint64_t number) const {
  const auto found = std::ranges::find(kept_, number, &Looked::number);
  return number == 0 || found == kept_.end() ? 0 : found->offsets[1];
}

std::uint64_t RowCalls::ask(std::span<const std::uint64_t> ids, const Watch& watch) {
  require_served();
  const Watched watched(*rows_, worker_, watch);
  Looked& looked = *std::ranges::min_element(kept_, {}, &Looked::number);  // free, or the oldest
  drop(looked);
  show(looked, ids);
  rows_->prefetch(worker_, looked.view, *looked.rows);
  looked.there = false;
  return looked.number = ++asked_;
}

void RowCalls::await(Looked& looked) {
  if (looked.there) return;
  rows_->pull(worker_, looked.view, *looked.rows);
  require_served();
  looked.there = true;
}

void RowCalls::values(std::uint64_t number, float* to, const Watch& watch) {
  const Watched watched(*rows_, worker_, watch);
  Looked& looked = find(number);
  await(looked);
  copy(looked, to);
}

void RowCalls::copy(const Looked& looked, float* to) const {
  const TableRows& rows = looked.view.tables[table_];
  const std::uint32_t* const places = looked.view.places[table_];
  for (std::size_t i = 0; i < looked.offsets[1]; ++i, to += rows.dim) {
    std::memcpy(to, rows.values[places[i]], rows.dim * sizeof(float));
  }
}

RowPublication RowCalls::update(std::uint64_t number, const float* gradients, const Watch& watch) {
  Looked& looked = find(number);
  require_finite(gradients, looked.offsets[1], dim());
  require_served();
  const Watched watched(*rows_, worker_, watch);
  await(looked);
  const TableRows& rows = looked.view.tables[table_];
  const std::size_t floats = rows.count * rows.stride;
  std::fill_n(rows.gradient, floats, 0.0f);
  row_kernels().add(rows.gradient, rows.stride, gradients, looked.view.places[table_],
                    looked.offsets[1], rows.dim);
  require_finite_sums(rows.gradient, floats);
  looked.number = 0;
  return rows_->push(worker_, *looked.rows, {});
}

void RowCalls::drop(Looked& looked) {
  if (looked.number == 0) return;
  looked.number = 0;
  rows_->drop(worker_, *looked.rows);
}

void RowCalls::look(std::span<const std::uint64_t> ids, float* to, const Watch& watch) {
  require_served();
  const Watched watched(*rows_, worker_, watch);
  show(read_, ids);
  if (!rows_->look(worker_, read_.view, *read_.rows)) require_served();
  copy(read_, to);
}

RowPublication RowCalls::finish(const Watch& watch) {
  const Watched watched(*rows_, worker_, watch);
  if (!rows_->finish(worker_)) require_served();
  return rows_->told(worker_);
}

void RowCalls::leave() {
  for (Looked& each : kept_) drop(each);
  rows_->leave(worker_);
}

}  // namespace leashed
