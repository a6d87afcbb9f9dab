#include "leashed/row_store/local_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "leashed/base/error.h"

namespace leashed {

struct LocalRows::LocalBatch final : BatchRows, FoundRows {
  LocalBatch(std::size_t tables, std::size_t features)
      : FoundRows(tables, features), rows(tables), gradients(tables) {}

  void let_go() {
    for (Located& each : located) each.release();
  }

  std::vector<TableRows> rows;  // by table
  std::vector<AlignedArray<float>> gradients;
};

struct alignas(kCacheLine) LocalRows::Member {
  std::vector<std::unique_ptr<Seat>> seats;  // by table; empty: it has left
  Combiner combiner;
  const LocalBatch* current = nullptr;  // in lockstep: what all fold
  std::uint64_t steps = 0;              // of the run, when it last pushed
  // Recorded: the steps that it has begun, and in which its rows are found, and pushed or dropped;
  // of one that has left infinitely many. Release, and acquire by those after it: what it has
  // changed in the tables comes first.
  std::uint64_t steps_begun = 0;
  std::atomic<std::uint64_t> counts[2]{};

  void reach(Count count, std::uint64_t step) {
    counts[count].store(step, std::memory_order_release);
    counts[count].notify_all();
  }
  // What it folds.
  Located folded;
  AlignedArray<float> sums;
};

LocalRows::LocalRows(std::vector<std::shared_ptr<Table>> tables,
                     std::vector<std::size_t> features_of_tables, std::size_t workers,
                     std::size_t readers, bool lockstep, std::uint64_t begun, bool for_caller,
                     bool recorded)
    : tables_(std::move(tables)),
      features_of_tables_(std::move(features_of_tables)),
      workers_(workers),
      readers_(readers),
      lockstep_(lockstep),
      recorded_(recorded),
      members_(std::make_unique<Member[]>(workers + readers)) {
  for (const std::size_t table : features_of_tables_) {
    if (table >= tables_.size()) throw Error("a feature is of a table that there is not");
  }
  for (const auto& table : tables_)
    begun_.push_back(table->steps() - std::min(table->steps(), begun));
  // All of them now: nobody waits for one in the middle of a run.
  for (std::size_t m = 0; m < workers + readers; ++m) {
    for (const auto& table : tables_) {
      members_[m].seats.push_back(Seat::keep(table->seats(), for_caller));
      if (!members_[m].seats.back()) {
        throw Error("table '" + table->settings().name + "' can be used by " +
                    std::to_string(Seats::kKept) +
                    " threads of trainings and evaluations at once; use fewer threads");
      }
    }
  }
}

LocalRows::~LocalRows() = default;

std::unique_ptr<BatchRows> LocalRows::make_batch() const {
  return std::make_unique<LocalBatch>(tables_.size(), features_of_tables_.size());
}

void LocalRows::locate(Member& member, const BatchView& batch, LocalBatch& rows, bool admits) {
  combine_batch(features_of_tables_, batch, member.combiner, rows);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t]->locate(*member.seats[t], rows.located[t], admits);
  }
}

void LocalRows::show(const LocalBatch& rows, BatchView& batch) const {
  batch.tables = rows.rows;
  batch.places = rows.places.data();
}

void LocalRows::prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) {
  if (!recorded_) locate(members_[worker], batch, static_cast<LocalBatch&>(rows), true);
}

// f() of the worker's step once all workers before it have done it, or left.
template <class F>
auto LocalRows::in_turn(std::size_t worker, Count count, const F& f) {
  struct Done {
    ~Done() { member.reach(count, member.steps_begun); }  // whatever f() throws
    Member& member;
    const Count count;
  } const done{members_[worker], count};
  for (std::size_t w = 0; w < worker; ++w) {
    std::atomic<std::uint64_t>& of = members_[w].counts[count];
    for (std::uint64_t n; (n = of.load(std::memory_order_acquire)) < done.member.steps_begun;) {
      of.wait(n, std::memory_order_acquire);
    }
  }
  return f();
}

void LocalRows::pull(std::size_t worker, BatchView& batch, BatchRows& rows) {
  auto& local = static_cast<LocalBatch&>(rows);
  if (recorded_) {
    ++members_[worker].steps_begun;
    in_turn(worker, kFound, [&] { locate(members_[worker], batch, local, true); });
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Located& located = local.located[t];
    if (t + 1 < tables_.size()) tables_[t + 1]->expect_pull(local.located[t + 1]);
    tables_[t]->pull(located);
    const std::size_t count = located.ids.size(), stride = tables_[t]->gradient_stride();
    AlignedArray<float>& gradient = local.gradients[t];
    if (gradient.size() < count * stride) gradient = AlignedArray<float>(count * stride);
    std::fill_n(gradient.data(), count * stride, 0.0f);
    local.rows[t] = {count, tables_[t]->dim(), stride, located.values.data(), gradient.data()};
  }
  members_[worker].current = &local;
  show(local, batch);
}

RowPublication LocalRows::push(std::size_t worker, BatchRows& rows, const RowStep& step) {
  const auto update = [&] { return update_rows(worker, static_cast<LocalBatch&>(rows), step); };
  return recorded_ ? in_turn(worker, kPushed, update) : update();
}

RowPublication LocalRows::update_rows(std::size_t worker, LocalBatch& local, const RowStep& step) {
  Member& member = members_[worker];
  RowPublication result;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::uint64_t before = begun_[t] + step.t;
    if (!lockstep_ && t + 1 < tables_.size()) tables_[t + 1]->expect_push(local.located[t + 1]);
    result.add(lockstep_
                   ? fold(worker, t, before)
                   : tables_[t]->push(*member.seats[t], local.located[t], local.gradients[t].data(),
                                      local.rows[t].stride, before));
  }
  member.steps = std::max(member.steps, step.t + 1);
  // In lockstep others may still fold what it has found: until it prefetches again.
  if (!lockstep_) local.let_go();
  return result;
}

// The rows of one table that the worker owns. Rows found by others are held by them, since they
// prefetch again only when all are past their push.
RowPublication LocalRows::fold(std::size_t worker, std::size_t table, std::uint64_t t) {
  Member& member = members_[worker];
  Located& folded = member.folded;
  std::size_t most = 0;
  for (std::size_t w = 0; w < workers_; ++w) {
    most += members_[w].current->located[table].ids.size();
  }
  member.combiner.begin(most, folded.ids);
  folded.rows.clear();
  folded.versions.clear();
  folded.missed = members_[worker].current->located[table].missed;
  const std::size_t stride = tables_[table]->gradient_stride();
  if (member.sums.size() < most * stride) member.sums = AlignedArray<float>(most * stride);
  for (std::size_t w = 0; w < workers_; ++w) {
    const LocalBatch& batch = *members_[w].current;
    const Located& located = batch.located[table];
    for (std::size_t i = 0; i < located.ids.size(); ++i) {
      if ((located.ids[i] * 0x9E3779B97F4A7C15 >> 32) % workers_ != worker) continue;
      std::uint32_t place = 0;
      member.combiner.add(&located.ids[i], 1, &place);
      float* const sum = member.sums.data() + place * stride;
      const float* const gradient = batch.gradients[table].data() + i * stride;
      if (place == folded.rows.size()) {
        folded.rows.push_back(located.rows[i]);
        folded.versions.push_back(located.versions[i]);
        std::copy_n(gradient, stride, sum);
        continue;
      }
      if (folded.rows[place] == IdIndex::kNone) {
        folded.rows[place] = located.rows[i];
        folded.versions[place] = located.versions[i];
      } else if (located.rows[i] != IdIndex::kNone) {
        ++folded.missed.folded;
      }
      for (std::size_t j = 0; j < stride; ++j) sum[j] += gradient[j];
    }
  }
  const float share = 1 / static_cast<float>(workers_);
  for (std::size_t j = 0; j < folded.ids.size() * stride; ++j) member.sums[j] *= share;
  return tables_[table]->push(*member.seats[table], folded, member.sums.data(), stride, t);
}

void LocalRows::drop(std::size_t worker, BatchRows& rows) {
  static_cast<LocalBatch&>(rows).let_go();
  members_[worker].reach(kPushed, members_[worker].steps_begun);
}

void LocalRows::reach(std::uint64_t updates) {
  for (std::size_t t = 0; t < tables_.size(); ++t) tables_[t]->reach_steps(begun_[t] + updates);
}

// What it has found stays held, by its batches.
RowPublication LocalRows::leave(std::size_t worker) {
  Member& member = members_[worker];
  reach(member.steps);
  member.seats.clear();
  for (const Count count : {kFound, kPushed}) {
    member.reach(count, std::numeric_limits<std::uint64_t>::max());
  }
  return {};
}

void LocalRows::read(std::size_t reader, BatchView& batch, BatchRows& rows,
                     const std::function<bool()>& /*keep_on*/) {
  auto& local = static_cast<LocalBatch&>(rows);
  Member& member = members_[workers_ + reader];
  locate(member, batch, local, false);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Located& located = local.located[t];
    tables_[t]->pull(located);
    local.rows[t] = {located.ids.size(), tables_[t]->dim(), tables_[t]->gradient_stride(),
                     located.values.data(), nullptr};
    located.release();  // copies are read
  }
  show(local, batch);
}

}  // namespace leashed
