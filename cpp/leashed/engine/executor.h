// Executor: OS threads, one a worker.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "leashed/engine/run.h"

namespace leashed {

class ThreadExecutor {
 public:
  // Starts the workers. Where a thread cannot be started, stops those that were and throws Error.
  ThreadExecutor(Run& run, std::vector<Worker>& workers);
  // Stops the run and joins.
  ~ThreadExecutor();

  // Waits for all workers to end, at most so long; true where they have.
  bool wait(double seconds);

 private:
  void done();

  Run& run_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_;  // under the lock
  std::vector<std::jthread> threads_;
};

}  // namespace leashed
