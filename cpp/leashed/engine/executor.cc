#include "leashed/engine/executor.h"

#include <chrono>
#include <latch>
#include <string>
#include <system_error>

#include "leashed/base/error.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

// Throws std::system_error where so many threads cannot run at once. libgomp would end the process.
void probe(std::size_t threads) {
  std::latch all_started(1);
  std::vector<std::jthread> started;
  try {
    while (started.size() < threads) started.emplace_back([&] { all_started.wait(); });
  } catch (...) {
    all_started.count_down();
    throw;
  }
  all_started.count_down();
}

}  // namespace

ThreadExecutor::ThreadExecutor(Run& run, std::vector<Worker>& workers) : run_(run) {
  running_ = run.discipline.lockstep() ? 1 : workers.size();
  threads_.reserve(running_);
  try {
    if (run.discipline.lockstep()) {
      probe(workers.size());
      // One thread becomes rank 0 of an OpenMP team, whose barriers the discipline uses.
      threads_.emplace_back([this, &workers] {
        try {
          run_team(workers.size(), [&workers](std::size_t rank) { workers[rank].train(); });
        } catch (...) {
          run_.fail(std::current_exception());
        }
        done();
      });
    } else {
      for (Worker& worker : workers) {
        threads_.emplace_back([this, &worker] {
          worker.train();
          done();
        });
      }
    }
  } catch (const std::system_error& error) {
    run.stop.stop(StopReason::error);
    threads_.clear();
    throw Error("threads is " + std::to_string(workers.size()) +
                ", more than the system lets start (" + error.what() + "); ask for fewer");
  } catch (...) {
    run.stop.stop(StopReason::error);
    throw;
  }
}

ThreadExecutor::~ThreadExecutor() { run_.stop.stop(StopReason::error); }

bool ThreadExecutor::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return running_ == 0; });
}

void ThreadExecutor::done() {
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) ended_.notify_all();
}

}  // namespace leashed
