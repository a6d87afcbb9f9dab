// Who runs the workers: an OS thread each, or the thread that asked for the run.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "leashed/engine/worker.h"

namespace leashed {

class Executor {
 public:
  virtual ~Executor() = default;

  // Waits for all workers to end, about so long at most, or until all wait in a pause; true where
  // they have ended.
  virtual bool wait(double seconds) = 0;
};

class ThreadExecutor final : public Executor {
 public:
  // Starts as many threads as the run has workers, which call work(worker), none before all have
  // been started: workers wait for each other. Where a thread cannot be started, throws Error, and
  // no worker has begun. `work` throws nothing.
  ThreadExecutor(Run& run, std::function<void(std::size_t worker)> work);
  // Stops the run where it has not ended, and joins.
  ~ThreadExecutor() override;

  bool wait(double seconds) override;

 private:
  enum class Gate { closed, open, given_up };
  void begin(std::size_t worker);
  void set(Gate gate);
  void wake();

  Run& run_;
  const std::function<void(std::size_t worker)> work_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  // Under the lock.
  Gate gate_ = Gate::closed;
  std::size_t running_;
  bool woken_ = false;  // from waiting, once
  std::vector<std::jthread> threads_;
};

// One worker, which gets on while the caller waits for it: no thread is started and waited for,
// which takes as long as hundreds of small updates. For steps that are short, and callers that have
// nothing to do meanwhile.
class CallerExecutor final : public Executor {
 public:
  CallerExecutor(Training& training, Worker& worker) : training_(training), worker_(worker) {}
  // Stops the run where it has not ended.
  ~CallerExecutor() override;

  bool wait(double seconds) override;

 private:
  Training& training_;
  Worker& worker_;
  bool ended_ = false;
};

}  // namespace leashed
