// Global batch gradients aggregation (gba, 4.1): m gradients make a step, nobody waits, and what is
// more than iota steps stale by its token is dropped (eq. 1). The printed token ⌊i/K⌋ does not
// repeat each value m times as the text says; ⌊i/m⌋ does.
//
// Live switching: a command turns the mode into Sync, or back. To Sync leases are given out only
// until what is held and what is out make whole steps, to GBA only until Sync's round is over; then
// nothing is under way, and the other mode goes on with the next example. Batches may differ in
// size: no hyper-parameter has to change where m GBA batches are as many examples as one of each
// worker's for Sync.
#pragma once

#include <cstdint>
#include <string>

#include "leashed/policy/coordinated.h"
#include "leashed/policy/gradient_buffer.h"
#include "leashed/policy/round.h"

namespace leashed::modes {

class Gba : public Coordinated<Gba> {
 public:
  enum class Mode : std::uint32_t { sync, gba };  // a command's argument

  struct Settings {
    std::uint32_t m;                  // gradients a step
    std::uint64_t iota;               // the staleness that is tolerated
    bool divide_by_m;                 // rather than by the number kept
    std::uint64_t sync_batch, batch;  // examples of a lease in either mode
    Mode start;
  };

  Gba(const Job& job, const Settings& settings)
      : Coordinated(job, pulled_gradients()),
        set_(settings),
        mode_(settings.start),
        wanted_(settings.start) {
    leases_.set_batch(std::max(set_.batch, set_.sync_batch));  // the largest
    leases_.set_batch(mode_ == Mode::gba ? set_.batch : set_.sync_batch);
    begin(job.workers);
  }

  Mode mode() const { return mode_; }
  Mode wanted() const { return wanted_; }

 private:
  friend Coordinated;

  void visit_own(Archive& archive) {
    archive(mode_, wanted_, step_, first_, first_token_);
    archive.require(mode_ <= Mode::gba && wanted_ <= Mode::gba);
    round_.visit(archive, [this](Node node) { return present(node); });
    const bool sync = mode_ == Mode::sync;
    buffer_.visit(archive, sync ? round_.given() + 1 : set_.m);
    archive.require(
        !sync || (buffer_.size() == round_.given() && (buffer_.empty() || round_.awaited(n_) > 0)));
    if (archive.reads()) change();  // at the end of the data it had not come to that
  }
  bool admits(Node node) const {
    if (mode_ == Mode::sync) return !round_.has(node);
    return wanted_ == Mode::gba || (buffer_.size() + leases_.out()) % set_.m != 0;
  }
  std::uint64_t token() const {
    if (mode_ == Mode::sync) return step_;
    return first_token_ + (leases_.next_number() - first_) / set_.m;
  }
  std::uint64_t step() const { return step_; }
  bool arrived(Node node, const LeaseList::Taken& taken, Time, Out& out) {
    buffer_.hold(taken.lease, out);
    if (mode_ == Mode::sync) round_.give(node);
    return close(out);
  }
  void entered(Node node) { round_.enter(node); }
  void departed(Node node, Out& out) {
    round_.depart(node);
    close(out);
  }
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
    if (mode_ == Mode::sync) {
      buffer_.apply_all(step_, version_, out);
    } else {
      buffer_.flush(step_, set_.iota, set_.divide_by_m ? set_.m : 0, version_, out);
    }
    ++step_;
    round_.begin();
  }

  // Whether others may go on.
  bool close(Out& out) {
    const bool full = mode_ == Mode::sync ? !buffer_.empty() && round_.awaited(n_) == 0
                                          : buffer_.size() == set_.m;
    if (full) finish(out);
    return change() || (full && mode_ == Mode::sync);
  }

  // Between two steps, when nothing is under way.
  bool change() {
    if (wanted_ == mode_ || !buffer_.empty() || leases_.out() > 0) return false;
    mode_ = wanted_;
    first_ = leases_.renew(step_, set_.m);
    first_token_ = step_;
    leases_.set_batch(mode_ == Mode::gba ? set_.batch : set_.sync_batch);
    round_.begin();
    return true;
  }

  Settings set_;
  Mode mode_, wanted_;
  std::uint64_t step_ = 0;                     // k: also of steps of which nothing was kept
  std::uint64_t first_ = 0, first_token_ = 0;  // where batches are counted from, and its token
  GradientBuffer buffer_;
  Round round_;
};

}  // namespace leashed::modes
