// A backend for loops of somebody else's: one parameter vector under a discipline, an update rule
// and a staleness policy, for threads that read it, compute whatever they like, and push gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/backend/members.h"
#include "leashed/backend/readable.h"
#include "leashed/base/choice.h"
#include "leashed/engine/leases.h"
#include "leashed/engine/synchronisation.h"
#include "leashed/update/layout.h"

namespace leashed {

class Discipline;
class Rule;
class StalenessPolicy;

class Engine final : public Readable {
 public:
  struct Parts {
    Choice discipline, rule, staleness;
    std::size_t workers;  // threads that push
    std::size_t readers;  // views alive at once
    std::vector<std::size_t> variable_ends = {};
    bool check_finite = true;  // else a gradient with NaN or infinity is applied as it is
    // To go on from: theta and the rule's state, as `state` gives them, and the version.
    const float* state = nullptr;
    std::uint64_t t = 0;
    // With engines elsewhere; from begin() on. Null: there are none.
    std::shared_ptr<Synchronisation> synchronisation = nullptr;
  };
  Engine(const float* theta, std::size_t dimension, const Parts& parts);
  ~Engine() override;

  std::size_t dimension() const override { return dimension_; }
  std::size_t workers() const { return workers_; }
  std::size_t states() const;
  const Layout& layout() const { return layout_; }

  // Where it is synchronised, before it is used: takes over what the others have, and keeps theta
  // in step with theirs until the end. Asks now and then whether to go on.
  void begin(const std::function<bool()>& go_on);
  // Whether a push may wait for others.
  bool synchronised() const { return begun_; }
  // Of the pushes since then: those published, the sum of their τ, those dropped because of a
  // synchronisation alone. Relaxed counters: for whoever looks on.
  struct Counters {
    std::atomic<std::uint64_t> published{0}, staleness{0}, lost{0};
  };
  const Counters& counters() const { return counters_; }

  // The latest theta; what the calling thread pushes next counts as computed on it.
  std::unique_ptr<Held> hold() override;
  // Whether the calling thread is one of the workers. It becomes one by its first push, which may
  // wait for the place of a thread that is about to end.
  bool joined() { return members_.mine().pushes; }
  // The gradient counts as computed on version t_read, or else on the thread's last read. Throws
  // Error, and changes nothing, where it is not finite and this is checked.
  Publication push(Gradient gradient, const std::uint64_t* t_read = nullptr);
  Publication push_sparse(const SparseGradient& gradient, const std::uint64_t* t_read = nullptr);

  // The next batch of `leases`, as Leases::take has it. While a thread that pushes waits for one,
  // the others' rounds go on without its iterations.
  Leases::Claim take(Leases& leases, double seconds, std::uint64_t& j, std::uint64_t& k);

  // Updates applied so far, and all of the buffer.
  std::uint64_t t();
  bool counts_alone() const;
  void with_state(const std::function<void(const float* buffer, std::uint64_t t)>& f);
  // Where the parameters lie for good, else null.
  float* memory();
  std::size_t live_vectors() const;

  // Nothing can be read or pushed any more; views that are held stay. Ends the synchronisation, and
  // throws what it has failed with, where nobody has got that yet. Not from within it.
  void close();

 private:
  std::uint64_t t_of(Members::Mine& mine, const std::uint64_t* t_read);
  void check_open() {
    if (closed_.load(std::memory_order_relaxed)) refuse();
  }
  [[noreturn]] void refuse();
  void fail(std::exception_ptr error);
  void throw_failure();
  // What f throws is what the synchronisation has failed with.
  template <class F>
  void synchronising(const F& f);
  void stepped(const Members::Mine& mine, const Publication& publication);
  void end();

  const std::size_t dimension_, workers_;
  const bool check_finite_;
  const std::unique_ptr<Rule> rule_;
  const std::unique_ptr<const StalenessPolicy> staleness_;
  const Layout layout_;
  Permits readers_;
  Members members_;
  const std::unique_ptr<Discipline> discipline_;
  Open& open_;                       // the discipline's
  std::mutex monitor_mutex_;         // one caller of with_state and updates at a time
  std::atomic<bool> closed_{false};  // or failed; relaxed: it hands nothing over
  const std::shared_ptr<Synchronisation> synchronisation_;
  bool begun_ = false;  // written before the engine is used
  Counters counters_;
  std::atomic<bool> stopped_{false};  // it has failed; relaxed: nobody is to wait for anybody
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // under the lock: not thrown yet
  bool failed_ = false;         // likewise
  std::mutex end_mutex_;
  bool ended_ = false;  // under that
};

}  // namespace leashed
