// A table of rows: θ, the rule's states and a version each, changed by any number of threads at
// once, row by row, without a lock (Hogwild). Fixed: rows 0 to rows − 1, the id is the row.
// Growing: any 64-bit id, of which as many have a row as there is memory for (id_index.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/choice.h"
#include "leashed/base/forked.h"
#include "leashed/staleness/registry.h"
#include "leashed/table/admission.h"
#include "leashed/table/combine.h"
#include "leashed/table/epochs.h"
#include "leashed/table/id_index.h"
#include "leashed/table/initial.h"
#include "leashed/table/row_holds.h"
#include "leashed/table/row_publication.h"
#include "leashed/table/row_rule.h"
#include "leashed/table/rows.h"
#include "leashed/table/saved.h"

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
  // Called now and then while something lasts. What it throws ends that, which then has changed
  // nothing.
  using Watch = std::function<void()>;
  struct Settings {
    std::string name;           // in messages
    std::size_t dim = 0;        // floats of a row
    std::size_t rows = 0;       // 0: it grows
    std::size_t max_bytes = 0;  // of all that it keeps; 0: no limit, where rows are given
    Choice initial, rule, staleness;
    std::uint32_t admit_after = 1;  // batches that must have had an id before it gets a row
    std::string evict = "none";     // or age, or norm: which rows make room for new ones
    std::uint64_t seed = 0;
    std::uint32_t number = 0;  // among the tables of one seed
    // Whether rows have heads. Without, of a fixed table alone, nobody can tell how stale a
    // gradient is, and a row is as much shorter.
    bool versions = true;
  };
  // Throws Error where a setting is none for a table, or the limit cannot hold it.
  explicit Table(const Settings& settings, const Watch& watch = {});
  ~Table();

  // The right to use the table, of one thread at a time. In the child of a fork there is none where
  // another thread had one, or a training: then it throws Error.
  class Seat {
   public:
    // Waits while others have all of them.
    explicit Seat(Table& table, const Watch& watch = {});
    // One of those that trainings keep for long; null: they have all of these. For whatever threads
    // there are, or for the calling one alone, which may fork as it may within a call.
    static std::unique_ptr<Seat> keep(Table& table, bool for_caller = false);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    friend class Table;
    Seat(Table& table, std::size_t number) : table_(table), number_(number) {}
    // The number of one that is taken now for that user, of the first so many; none: kSeats.
    static std::size_t take(Table& table, std::size_t most, std::uint64_t user);

    Table& table_;
    const std::size_t number_;
  };
  static constexpr std::size_t kKept = 1152, kSeats = kKept + 64;

  const Settings& settings() const { return settings_; }
  std::size_t dim() const { return settings_.dim; }
  bool grows() const { return settings_.rows == 0; }
  bool evicts() const { return settings_.evict != "none"; }
  // Floats from one gradient to the next, so that none is on more lines than it must be.
  std::size_t gradient_stride() const;

  // Finds the rows of located.ids; where it admits, ids that have none are counted, and get one
  // when they have come often enough. What it held before is released. Throws Error where one is no
  // row of a fixed table.
  void locate(Seat& seat, Located& located, bool admits);
  // Where it evicts: one more holds a row that somebody holds, or one less does. Where it does not,
  // nothing is done.
  void hold(std::uint32_t row) {
    if (holds_) holds_->hold(row);
  }
  void release(std::uint32_t row) {
    if (holds_) holds_->release(row);
  }
  // Has the first rows that pull() or push() reads brought into the cache, while other tables' are
  // read; the others follow by themselves.
  void expect_pull(const Located& located) const;
  void expect_push(const Located& located) const;
  // Copies their values, and takes their versions before; to copies[i · dim ...], or to what is
  // kept with them.
  void pull(Located& located, float* copies);
  void pull(Located& located);
  // Applies gradient[i · stride ...] to the i-th. t: updates of the model before this one.
  RowPublication push(Seat& seat, const Located& located, const float* gradient, std::size_t stride,
                      std::uint64_t t) {
    return push(seat, located, gradient, stride, t, nullptr);
  }

  // For an update that is put together of the gradients of several, while nobody else updates the
  // table. factors[i]: what the staleness policy makes of the i-th row's now, which it takes note
  // of; 0 where it leaves the gradient out, which is counted, or the row is gone, or the id had
  // none.
  void weigh(const Located& located, float* factors, RowPublication& missed);
  // As push, of gradients that have been weighed: the i-th is damped by factors[i].
  RowPublication push_weighed(Seat& seat, const Located& located, const float* gradient,
                              std::size_t stride, std::uint64_t t, const float* factors) {
    return push(seat, located, gradient, stride, t, factors);
  }

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
  // Steps made so far: by update(), and by models that were trained on the table.
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // At least so many have been made.
  void reach_steps(std::uint64_t steps);

  struct Statistics {
    std::size_t rows = 0, capacity = 0;     // that ids have, and may have
    std::size_t bytes = 0, most_bytes = 0;  // of rows, index and filter
    std::size_t scratch = 0;                // that update() keeps beside them
    std::size_t bytes_per_row = 0;
    std::uint64_t steps = 0;
    std::uint64_t asked = 0, found = 0;  // distinct ids of batches that train
    std::uint64_t admitted = 0, evicted = 0, rebuilt = 0;
    RowPublication updates;
  };
  Statistics statistics(const Watch& watch = {});
  // Of the distinct ids of batches that train those that got no row for want of room, so far; waits
  // for nobody, and nobody for it.
  struct Refusals {
    std::uint64_t asked = 0, refused = 0;
  };
  Refusals refusals() const;
  // Of a row of a table that would be made so. Throws Error where the rule or policy is none.
  static std::size_t bytes_per_row(std::size_t dim, const Choice& rule, const Choice& staleness,
                                   bool versions);

  // Of the rows that have been updated (of a table without versions, of all), what each is: id, how
  // often, θ and the rule's states; the same whatever order they lie in. While nobody updates them.
  using Digest = std::array<std::uint64_t, 2>;
  Digest digest(const Watch& watch = {});

  // Writes all rows while others go on; the same bits where nobody writes meanwhile. `description`
  // is kept with them. Throws Error where the file cannot be written.
  void save(const std::string& path, const std::string& description, const Watch& watch = {});
  // As save(), of a table whose rows have versions, and from then on save_changes() writes the rows
  // that are others than in the files so written, and the ids that have none any more. `quiet`: it
  // is certain that nobody updates rows meanwhile. Where it throws, or what was written is not
  // kept, all rows have to be saved anew. Who comes while another thread does either waits; within
  // either, in what `watch` calls, it is Error. The how manieth change it was of what is tracked:
  // where the next one's number is not the next, somebody else has saved changes between.
  std::uint64_t save_tracked(const std::string& path, const std::string& description, bool quiet,
                             const Watch& watch = {});
  std::uint64_t save_changes(const std::string& path, const std::string& description, bool quiet,
                             const Watch& watch = {});
  // The rows are those of files that have just been loaded; what is saved next are changes of them.
  std::uint64_t track(const Watch& watch = {});
  // Whether save_changes() has files to follow.
  bool tracks(const Watch& watch = {});
  // The rows of a file, changed by those that follow, in place of these. Throws Error, and has
  // changed nothing, where one is damaged, of another description, or somebody uses the table; and
  // where rows do not fit. `begins`: what rows begin with from then on, where it is another seed's.
  struct Begins {
    std::uint64_t seed;
    std::uint32_t number;
  };
  void load(const std::vector<std::string>& paths, const std::string& description,
            const Watch& watch = {}, std::optional<Begins> begins = {});
  void load(const std::string& path, const std::string& description, const Watch& watch = {}) {
    load(std::vector{path}, description, watch);
  }
  // What rows begin with now: as it was made, or of the files that it has loaded since.
  Begins begins() const {
    return {seed_.load(std::memory_order_relaxed), number_.load(std::memory_order_relaxed)};
  }

 private:
  // Ids whose slots are on their way into the cache.
  static constexpr std::size_t kAhead = 16;

  enum Count {
    kAsked,
    kFound,
    kApplied,
    kLate,
    kExcluded,
    kFolded,
    kUnadmitted,
    kDeferred,
    kRefused,
    kStaleness,
    kStalest,
    kCounts
  };
  struct Scratch;
  static constexpr std::uint64_t kNobody = 0, kKeeper = ~std::uint64_t{0};
  // What belongs to a seat, whoever has it.
  struct alignas(kCacheLine) Slot {
    // Whose it is: nobody's, or of the thread of that number, or kept, for threads of a training.
    // Acquire where it is taken, release where it is given back: the next who has it sees the
    // scratch as it was left. Release where it is taken, too: pairs with require_whole().
    std::atomic<std::uint64_t> user{kNobody};
    // Written by who has the seat alone. Relaxed: counts.
    std::array<std::atomic<std::uint64_t>, kCounts> counts{};
    std::unique_ptr<Scratch> scratch;
    // Bytes of it between two updates. Written by who has the seat alone. Relaxed: a count.
    std::atomic<std::size_t> kept{0};

    bool take(std::uint64_t by) {
      std::uint64_t nobody = kNobody;
      return user.load(std::memory_order_relaxed) == kNobody &&
             user.compare_exchange_strong(nobody, by, std::memory_order_acq_rel,
                                          std::memory_order_relaxed);
    }
    void add(Count count, std::uint64_t n) {
      counts[count].store(counts[count].load(std::memory_order_relaxed) + n,
                          std::memory_order_relaxed);
    }
  };

  class Alone;
  class Tracking;

  struct Changed {
    std::uint64_t id;
    IdIndex::Handle handle;
    std::uint32_t version;
    std::uint16_t touched;
  };
  // What was saved last of each row.
  struct Marks {
    static constexpr std::uint64_t kNone = 0;  // in place of an id; that of 0 always has its row
    // With kDead: it may have been updated while it was copied, so that what is saved is not of it.
    // After 2^31 updates between two files a row would pass for unchanged.
    std::vector<std::uint32_t> versions;
    std::vector<std::uint64_t> ids;  // of a table that grows
    // Of one that evicts, where an id may come back to the version that it had, and a row that is
    // compared may be said to have been touched later, which is no update.
    std::vector<std::uint32_t> incarnations;
    std::vector<std::uint16_t> touched;

    void make_room(std::size_t rows, bool grows, bool evicts);
    bool has(const Changed& row) const;
    void set(const Changed& row);
  };

  // Of a row: θ, the rule's states, and under a stage-aware policy |Δθ| of the last update.
  std::size_t floats() const { return rule_.floats(dim()) + (staleness_->stage_aware() ? 1 : 0); }
  // Relaxed: it is a float of the row as the others are, and orders nothing.
  std::atomic_ref<float> last_update(float* values) const {
    return std::atomic_ref<float>(values[rule_.floats(dim())]);
  }
  // What the policy makes of the staleness of so many rows.
  void factors(const std::uint32_t* tau, const std::uint32_t* rows, std::size_t n,
               float* factors) const;
  // At the beginning of all that takes a seat, or tracks. Throws Error in the child of a fork where
  // the table may be half changed, and waiting for who had it would never end.
  void require_whole() {
    if (forks_.load(std::memory_order_relaxed) != forks()) adopt();
  }
  void adopt();
  // Whether nobody else had anything of it when the process was forked.
  bool was_idle() const;
  SavedHeader header(const std::string& description) const;
  // f(id, handle) of each row that an id has; the caller has a seat.
  template <class F>
  void each_row(F&& f) const;
  void save_since(std::unique_ptr<Marks> marks, const std::string& path, SavedHeader header,
                  bool quiet, const Watch& watch);
  // The rows that are not as they were saved; ids that were saved and have no row go to `gone`.
  std::vector<Changed> changed(Marks& marks, std::vector<std::uint64_t>& gone, const Watch& watch);
  // Whether, a little later, every update of rows is over that was under way.
  bool settle(const Watch& watch);
  void put(const SavedRow& row, const float* values, const std::string& path);
  void make_rows(const Watch& watch);
  // Of one that grows: no id has a row. Throws, and has changed nothing.
  void clear();
  // Has it hold what pull() copies.
  void make_room(Located& located) const;
  void begin(std::uint64_t id, float* values) const;
  float score(RowHead& head, const float* values) const;
  std::uint16_t time() const;
  void check(const std::uint64_t* ids, std::size_t n) const;
  void tidy(Slot& slot);
  // Of a table that grows: the row of each id, held where it evicts.
  void find(Located& located);
  // In which the seat finds rows and copies them: none is another id's meanwhile.
  std::optional<Epochs::Section> read(const Seat& seat);
  std::uint32_t admit(std::uint64_t id, RowPublication& missed);
  // The head of a row and so many of its floats.
  void prefetch(std::uint32_t row, std::size_t floats) const {
    if (row == IdIndex::kNone) return;
    const auto end = reinterpret_cast<std::uintptr_t>(rows_->values(row) + floats);
    const std::uintptr_t begin =
        end - floats * sizeof(float) - (settings_.versions ? sizeof(RowHead) : 0);
    for (std::uintptr_t line = begin / kCacheLine * kCacheLine; line < end; line += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(line), 1);
    }
    asm volatile("");  // else a call that only fetches is left out
  }
  RowPublication push(Seat& seat, const Located& located, const float* gradient, std::size_t stride,
                      std::uint64_t t, const float* weighed);
  RowPublication push_uncounted(const Located& located, const float* gradient, std::size_t stride,
                                const Coefficients& coefficients);
  std::uint32_t version(std::uint32_t row) const;
  void reach(std::uint16_t period);
  void count(Seat& seat, const RowPublication& publication);

  const Settings settings_;
  // What initial_ is of. Relaxed: numbers that are read also while another thread loads, each as it
  // was before or is after.
  std::atomic<std::uint64_t> seed_{settings_.seed};
  std::atomic<std::uint32_t> number_{settings_.number};
  Initial initial_;  // changed by who has all seats
  const RowRule rule_;
  const std::unique_ptr<const StalenessPolicy> staleness_;
  const RowKernels& kernels_;
  std::size_t capacity_, most_bytes_;
  IdIndex::Settings index_settings_{};
  // Sections of seats, in which they update rows.
  Epochs pushes_{kSeats};
  // Of the process, when it was made, or found to be whole. Relaxed, but in adopt().
  std::atomic<std::uint64_t> forks_{forks()};
  const std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Rows> rows_;
  std::shared_ptr<RowHolds> holds_;  // where it evicts
  std::unique_ptr<IdIndex> index_;   // where it grows
  std::unique_ptr<Admission> admission_;
  // The number of the thread that has marks_ now. Acquire where it is taken, release where it is
  // given back: the next sees them as they were left. Release where it is taken, too: as of a seat.
  std::atomic<std::uint64_t> tracker_{kNobody};
  std::unique_ptr<Marks> marks_;  // null: nothing is tracked
  std::uint64_t tracked_ = 0;     // how often that has changed
  std::atomic<std::uint64_t> steps_{0};
  // Rows updated so far, by which ages are told, and the last period of SWAP's. Relaxed: they order
  // nothing.
  alignas(kCacheLine) std::atomic<std::uint64_t> touched_{0};
  std::atomic<std::uint16_t> period_{0};
  // Updates of rows by their staleness, in parts, of which a seat adds to one. Relaxed: counts.
  struct alignas(kCacheLine) Octaves {
    std::array<std::atomic<std::uint64_t>, RowPublication::kOctaves> counts{};
  };
  std::array<Octaves, 8> octaves_{};
};

}  // namespace leashed
