// A table of rows, served to trainings and to calls: θ, the rule's states and a version each,
// looked up, read and updated by any number of threads at once, row by row, without a lock
// (Hogwild). Fixed: ids 0 to rows − 1, or those of some shards of them, which have their rows from
// the start. Growing: any 64-bit id, of which as many have a row as there is memory for; which
// those are, and what has been counted, is in growth.h, and how rows go to files in saving.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/staleness/registry.h"
#include "leashed/table/combine.h"
#include "leashed/table/growth.h"
#include "leashed/table/initial.h"
#include "leashed/table/row_rule.h"

namespace leashed {

// Distinct rows that somebody reads, and then updates: those of a table that evicts are held until
// they are released, or others are located in their place.
struct Located {
  Located() = default;
  ~Located() { release(); }
  Located(const Located&) = delete;
  Located& operator=(const Located&) = delete;
  void release();

  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> rows;      // IdIndex::kNone: the id has none
  std::vector<const float*> values;     // θ as it was read, or what it would begin with
  std::vector<std::uint32_t> versions;  // when it was read; 0 where rows have none
  AlignedArray<float> copies;           // of θ
  RowPublication missed;                // of gradients that make no update of their own, why
  std::shared_ptr<RowHolds> holds;      // of each row; null: none is held
};

class Table {
 public:
  using Watch = TableWatch;
  using Settings = TableSettings;
  // Throws Error where a setting is none for a table, or the limit cannot hold it.
  explicit Table(const Settings& settings, const Watch& watch = {});
  ~Table();

  const Settings& settings() const { return settings_; }
  Seats& seats() { return seats_; }
  const Growth& growth() const { return growth_; }
  std::size_t dim() const { return settings_.dim; }
  bool grows() const { return growth_.grows(); }
  bool evicts() const { return growth_.evicts(); }
  // Floats from one gradient to the next, so that none is on more lines than it must be.
  std::size_t gradient_stride() const;

  // Finds the rows of located.ids; where it admits, ids that have none are counted, and get one
  // when they have come often enough. What it held before is released. Throws Error where one has
  // no row here of a fixed table.
  void locate(Seat& seat, Located& located, bool admits);
  // Where it evicts: one more holds a row that somebody holds, or one less does. Where it does not,
  // nothing is done.
  void hold(std::uint32_t row) {
    if (growth_.holds_) growth_.holds_->hold(row);
  }
  void release(std::uint32_t row) {
    if (growth_.holds_) growth_.holds_->release(row);
  }
  // Has the first rows that pull() or push() reads brought into the cache, while other tables' are
  // read; the others follow by themselves.
  void expect_pull(const Located& located) const;
  void expect_push(const Located& located) const;
  // Copies their values, and takes their versions before; to copies[i · dim ...], or to what is
  // kept with them.
  void pull(Located& located, float* copies);
  void pull(Located& located);
  // Applies gradient[i · stride ...] to the i-th. t: updates of the model before this one. weighed:
  // where the gradients have been, what the i-th is damped by.
  RowPublication push(Seat& seat, const Located& located, const float* gradient, std::size_t stride,
                      std::uint64_t t, const float* weighed = nullptr);

  // For an update that is put together of the gradients of several, while nobody else updates the
  // table. factors[i]: what the staleness policy makes of the i-th row's now, which it takes note
  // of; 0 where it leaves the gradient out, which is counted, or the row is gone, or the id had
  // none.
  void weigh(const Located& located, float* factors, RowPublication& missed);

  // For threads that come and go. θ of each id, and its version; ids may repeat. Changes nothing.
  void lookup(const std::uint64_t* ids, std::size_t n, float* values, std::uint32_t* versions,
              const Watch& watch = {});
  // Of a table that grows: those that have a row, in no order.
  std::vector<std::uint64_t> ids(const Watch& watch = {});
  // One step with n gradients: those of one id are added in their order. Versions: of when the
  // gradients' rows were read (of an id's first gradient); null: now. Throws Error, and has changed
  // nothing, where an id is no row or a gradient is not finite.
  RowPublication update(const std::uint64_t* ids, std::size_t n, const float* gradients,
                        const std::uint32_t* versions, const Watch& watch = {});
  // Of a fixed table that has all its rows: where θ of the first row lies, for good, and floats
  // from one row to the next.
  struct InPlace {
    float* first;
    std::size_t stride;
  };
  InPlace in_place();
  // Steps made so far: by update(), and by models that were trained on the table.
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // One more is made: its number, from 0 on.
  std::uint64_t take_step() { return steps_.fetch_add(1, std::memory_order_relaxed); }
  // At least so many have been made.
  void reach_steps(std::uint64_t steps);

  // Of the rows that have been updated (of a table without versions, of all), what each is: id, how
  // often, θ and the rule's states; the same whatever order they lie in. While nobody updates them.
  using Digest = std::array<std::uint64_t, 2>;
  Digest digest(const Watch& watch = {});

 private:
  friend class TableFiles;
  struct Scratch;

  // Of a row: θ, the rule's states, and under a stage-aware policy |Δθ| of the last update.
  std::size_t floats() const { return rule_.floats(dim()) + (staleness_->stage_aware() ? 1 : 0); }
  // Those, where the settings are a table's; else throws Error.
  std::size_t checked_floats() const;
  // Relaxed: it is a float of the row as the others are, and orders nothing.
  std::atomic_ref<float> last_update(float* values) const {
    return std::atomic_ref<float>(values[rule_.floats(dim())]);
  }
  // What the policy makes of the staleness of so many rows.
  void factors(const std::uint32_t* tau, const std::uint32_t* rows, std::size_t n,
               float* factors) const;
  void begin(std::uint64_t id, float* values) const;
  void check(const std::uint64_t* ids, std::size_t n) const;
  void tidy(const Seat& seat);
  // The head of a row and so many of its floats.
  void prefetch(std::uint32_t row, std::size_t floats) const {
    if (row == IdIndex::kNone) return;
    const auto end = reinterpret_cast<std::uintptr_t>(growth_.rows_->values(row) + floats);
    const std::uintptr_t begin =
        end - floats * sizeof(float) - (settings_.versions ? sizeof(RowHead) : 0);
    for (std::uintptr_t line = begin / kCacheLine * kCacheLine; line < end; line += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(line), 1);
    }
    asm volatile("");  // else a call that only fetches is left out
  }
  RowPublication push_uncounted(const Located& located, const float* gradient, std::size_t stride,
                                const Coefficients& coefficients);
  std::uint32_t version(std::uint32_t row) const;

  const Settings settings_;
  Initial initial_;  // changed by who has all seats
  const RowRule rule_;
  const std::unique_ptr<const StalenessPolicy> staleness_;
  const RowKernels& kernels_;
  // Sections of seats, in which they update rows.
  Epochs pushes_{Seats::kAll};
  Seats seats_;
  Growth growth_;
  const std::unique_ptr<std::unique_ptr<Scratch>[]> scratch_;  // of each seat
  std::atomic<std::uint64_t> steps_{0};
  // The last period of SWAP's. Relaxed: it orders nothing.
  std::atomic<std::uint16_t> period_{0};
};

}  // namespace leashed
