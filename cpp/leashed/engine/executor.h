// Executor: OS threads, one a worker.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "leashed/engine/worker.h"

namespace leashed {

class ThreadExecutor {
 public:
  // Starts the workers, none of which begins before all have been started: in lockstep they wait
  // for each other. Where a thread cannot be started, throws Error, and no worker has begun.
  ThreadExecutor(Training& training, std::vector<Worker>& workers);
  // Stops the run where it has not ended, and joins.
  ~ThreadExecutor();

  // Waits for all workers to end, at most so long; true where they have.
  bool wait(double seconds);

 private:
  enum class Gate { closed, open, given_up };
  void work(Worker& worker);
  void set(Gate gate);

  Training& training_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  // Under the lock.
  Gate gate_ = Gate::closed;
  std::size_t running_;
  std::vector<std::jthread> threads_;
};

}  // namespace leashed
