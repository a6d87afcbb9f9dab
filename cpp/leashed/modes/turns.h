// Whose turn it is to compute, where a trainer has more workers than are to compute at once: who
// looks ahead has its next batch granted and sent while another of the same trainer computes
// (modes/mode_server.h). Nobody has a turn while it waits for somebody else.
//
// Who asks first is first, and a turn goes from who gives it back to who has waited longest: no
// lease is kept waiting by later ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "leashed/engine/stop.h"

namespace leashed {

class Turns {
 public:
  struct Back {
    void operator()(Turns* turns) const { turns->back(); }
  };
  using Turn = std::unique_ptr<Turns, Back>;  // goes back with it

  // So many at once, while nobody has stopped the run.
  Turns(std::size_t at_once, const StopFlag& stop) : stop_(stop), free_(at_once) {}

  // Waits for one; null: the run has been stopped.
  Turn take();
  // The run has been stopped: nobody waits any more. From any thread.
  void stop();

 private:
  struct Waiter {
    std::condition_variable woken;
    bool has = false;  // under the lock
  };

  void back();

  const StopFlag& stop_;
  std::mutex mutex_;
  // Under the lock. While somebody waits none is free.
  std::size_t free_;
  std::list<Waiter*> waiting_;
};

}  // namespace leashed
