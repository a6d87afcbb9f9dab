#include "leashed/engine/executor.h"

#include <chrono>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/team.h"

namespace leashed {

ThreadExecutor::ThreadExecutor(Run& run, std::function<void(std::size_t worker)> work)
    : run_(run), work_(std::move(work)), running_(run.workers) {
  if (run.pause) run.pause->on_complete([this] { wake(); });
  threads_.reserve(run.workers);
  try {
    for (std::size_t worker = 0; worker < run.workers; ++worker) {
      threads_.push_back(start_thread([this, worker] { begin(worker); }));
    }
  } catch (const std::system_error& error) {
    set(Gate::given_up);
    throw Error("threads is " + std::to_string(run.workers) +
                ", more than the system lets start (" + error.what() + "); ask for fewer");
  } catch (...) {
    set(Gate::given_up);
    throw;
  }
  set(Gate::open);
}

ThreadExecutor::~ThreadExecutor() {
  if (!wait(0)) run_.stop.stop(StopReason::error);
}

bool ThreadExecutor::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] {
    return running_ == 0 || std::exchange(woken_, false);
  }) && running_ == 0;
}

void ThreadExecutor::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  ended_.notify_all();
}

void ThreadExecutor::begin(std::size_t worker) {
  {
    std::unique_lock lock(mutex_);
    begun_.wait(lock, [this] { return gate_ != Gate::closed; });
    if (gate_ == Gate::given_up) return;
  }
  work_(worker);
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) ended_.notify_all();
}

void ThreadExecutor::set(Gate gate) {
  {
    const std::lock_guard lock(mutex_);
    gate_ = gate;
  }
  begun_.notify_all();
}

CallerExecutor::~CallerExecutor() {
  if (ended_) return;
  training_.stop.stop(StopReason::error);
  wait(std::numeric_limits<double>::infinity());
}

bool CallerExecutor::wait(double seconds) {
  if (!ended_) ended_ = !worker_.train(now() + seconds);
  return ended_;
}

}  // namespace leashed
