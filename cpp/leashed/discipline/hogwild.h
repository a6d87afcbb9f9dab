// HOGWILD! (leashed-sgd, Algorithm 4): no synchronisation at all; threads copy theta and update it
// in place while others do the same, through the racy kernels of update/kernels.h. The variant
// without the local copy computes the gradient straight on the shared vector.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "leashed/discipline/in_place.h"
#include "leashed/discipline/local_copy.h"
#include "leashed/discipline/open.h"
#include "leashed/sparse/racy_runs.h"
#include "leashed/update/kernels.h"

namespace leashed {

// One of Hogwild's updates in parts, for one thread that plays many and lets time pass between
// them: what publish does at once. It is counted when it is made.
class HogwildUpdate {
 public:
  // Whether the policy left it out: then there is nothing to apply.
  const Publication& result() const { return result_; }
  // Each part once; together they are all of theta. Under a stage-aware policy each begins and ends
  // with a variable.
  void apply(std::size_t begin, std::size_t end) const;

 private:
  friend class Hogwild;
  HogwildUpdate(const Updater& updater, float* buffer, const float* gradient)
      : updater_(&updater), buffer_(buffer), gradient_(gradient) {}

  const Updater* updater_;
  float* buffer_;
  const float* gradient_;
  Updater::Update update_{};
  std::vector<double> variables_;  // what update_ refers to
  Publication result_;
};

class Hogwild final : public InPlace, public Open {
 public:
  Hogwild(const DisciplineContext& context, bool copy);

  View read(std::size_t worker) override;
  Publication publish(std::size_t worker, float* gradient) override;
  void withdraw(std::size_t) override {}

  // What read and publish do, for who takes their parts apart; only with a copy.
  View begin_read(std::size_t worker);
  void read_part(std::size_t worker, std::size_t begin, std::size_t end);
  HogwildUpdate begin(std::size_t worker, const float* gradient);

  // (Where sparse runs have weight decay, some of it may be yet to come, as for any other reader.)
  void transform(std::size_t begin, std::size_t end, const Transform& f) override {
    transform_parts(begin, end, f);
  }
  Open* open() override { return this; }
  std::unique_ptr<Held> hold() override;
  Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) override;
  Publication push_sparse(const SparseGradient& gradient, std::uint64_t t_read) override;
  // (As in read.)
  std::uint64_t updates() override { return t_.load(std::memory_order_acquire); }
  bool counts_alone() const override { return true; }
  void with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) override;
  void with_state(const std::function<void(const DisciplineState&)>& f) override;
  std::size_t live_vectors() const override {
    return 1 + (runs_ ? runs_->copies() : copy_ ? workers_.size() : 0);
  }
  SparseRuns* sparse_runs() override { return runs_ ? &*runs_ : nullptr; }

 private:
  // The monitor's copy is taken; its version.
  std::uint64_t copy(std::size_t length);
  // And gets the decay that it misses.
  void complete();
  // The vector as count_and_update.h has it.
  struct Counted {
    float* data() const { return theta; }
    // Relaxed: a guess that the CAS in count checks; what a failed CAS finds is only compared with.
    std::uint64_t t() const { return counter.load(std::memory_order_relaxed); }
    // Release: whoever reads this count with acquire (read, hold, copy) also sees what this thread
    // wrote before; acquire: its own writes do not come before the count is taken. Which of the
    // other threads' writes a reader sees is left to chance: that is Hogwild.
    std::uint64_t count() { return counter.fetch_add(1, std::memory_order_acq_rel); }
    bool count(std::uint64_t& t) {
      return counter.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel,
                                           std::memory_order_relaxed);
    }
    float* theta;
    std::atomic<std::uint64_t>& counter;
  };

  const bool copy_;
  const UpdateKernels& kernels_ = update_kernels();
  std::vector<LocalCopy> workers_;
  // One shared counter, incremented once an update before its first write
  // (docs/readings.md#words-that-differ).
  alignas(kCacheLine) std::atomic<std::uint64_t> t_;
  std::optional<RacyRuns> runs_;
};

}  // namespace leashed
