// Global batch gradients aggregation (gba, 4.1): m gradients make an update, nobody waits, and what
// is more than iota steps stale by its token is dropped (eq. 1). The printed token ⌊i/K⌋ does not
// repeat each value m times as the text says; ⌊i/m⌋ does.
//
// Live switching: a command turns the mode into Sync, or back. Leases are given out until what is
// held and what is out make whole steps; when the last of them closes nothing is under way, and the
// other mode goes on with the next example. Both aggregate the same number of examples, m·batch, so
// that no hyper-parameter changes, though batches may differ in size.
#pragma once

#include <cstdint>
#include <string>

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"
#include "leashed/policy/step_share.h"

namespace leashed::modes {

class Gba : public Coordinated<Gba> {
 public:
  enum class Mode : std::uint32_t { sync, gba };  // a command's argument

  struct Settings {
    std::uint32_t m;                  // gradients an update
    std::uint64_t iota;               // the staleness that is tolerated
    bool divide_by_m;                 // rather than by the number kept
    std::uint32_t sync_m;             // gradients an update while Sync
    std::uint64_t batch, sync_batch;  // examples a gradient; m batch = sync_m sync_batch
    Mode start;
  };

  Gba(const Job& job, const Settings& settings)
      : Coordinated(job, pulled_gradients()),
        set_(settings),
        mode_(settings.start),
        wanted_(settings.start) {
    leases_.set_batch(mode_ == Mode::gba ? set_.batch : set_.sync_batch);
    begin(job.workers);
  }

  Mode mode() const { return mode_; }
  Mode wanted() const { return wanted_; }

 private:
  friend Coordinated;

  std::uint32_t m() const { return mode_ == Mode::gba ? set_.m : set_.sync_m; }

  bool admits(Node node) const {
    const std::uint64_t taken = buffer_.size() + leases_.out();
    if (wanted_ != mode_ && taken % m() == 0 && !leases_.returned()) return false;
    return mode_ == Mode::gba || (taken < m() && share_.admits(node, m() - taken, n_));
  }
  std::uint64_t token() const { return first_token_ + (leases_.next_number() - first_) / m(); }
  void granted(Node node) {
    if (mode_ == Mode::sync) share_.take(node);
  }
  bool arrived(Node, const LeaseList::Taken& taken, Time, Out& out) {
    buffer_.hold(taken.lease, out);
    if (buffer_.size() < m()) return false;
    finish(out);
    return change() || mode_ == Mode::sync;
  }
  void departed(Node node, Out&) { share_.depart(node); }
  void command(std::uint32_t argument) {
    if (argument > static_cast<std::uint32_t>(Mode::gba)) {
      throw Error("a command's argument must be 0, Sync, or 1, GBA, not " +
                  std::to_string(argument));
    }
    wanted_ = static_cast<Mode>(argument);
    change();
  }
  void finish(Out& out) {
    if (buffer_.empty()) return;
    const bool sync = mode_ == Mode::sync;
    buffer_.flush(version_++, sync ? kAnyStaleness : set_.iota, set_.divide_by_m ? m() : 0, out);
    share_.begin();
  }

  // Between two steps, when nothing is under way.
  bool change() {
    if (wanted_ == mode_ || !buffer_.empty() || leases_.out() > 0 || leases_.returned()) {
      return false;
    }
    mode_ = wanted_;
    first_ = leases_.next_number();
    first_token_ = version_;
    leases_.set_batch(mode_ == Mode::gba ? set_.batch : set_.sync_batch);
    share_.begin();
    return true;
  }

  Settings set_;
  Mode mode_, wanted_;
  std::uint64_t first_ = 0, first_token_ = 0;  // the present mode's first batch, and its token
  GradientBuffer buffer_;
  StepShare share_;
};

}  // namespace leashed::modes
