#include "leashed/base/team.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "leashed/base/fault.h"

namespace leashed {

std::size_t processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return static_cast<std::size_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());  // more than the set has room for
}

std::jthread start_thread(std::function<void()> f) {
  fault_point("start a thread");
  return std::jthread(std::move(f));
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wanted_.notify_all();
}

void Team::begin(std::size_t helpers, std::function<void()> f) {
  threads_.reserve(helpers);  // a thread that found no room here would be waited for
  try {
    while (threads_.size() < helpers) threads_.push_back(start_thread([this] { help(); }));
  } catch (const std::system_error&) {
    // Those that there are do it all.
  }
  {
    const std::lock_guard lock(mutex_);
    f_ = std::move(f);
    open_ = std::min(helpers, threads_.size());
  }
  wanted_.notify_all();
}

bool Team::wait(double seconds) {
  std::unique_lock lock(mutex_);
  open_ = 0;
  return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return at_work_ == 0; });
}

void Team::finish() {
  std::unique_lock lock(mutex_);
  open_ = 0;
  ended_.wait(lock, [this] { return at_work_ == 0; });
}

void Team::run(std::size_t helpers, const std::function<void()>& f) {
  if (helpers > 0) begin(helpers, f);
  f();
  if (helpers > 0) finish();
}

void Team::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return closed_ || open_ > 0; });
    if (closed_) return;
    --open_;
    ++at_work_;
    lock.unlock();
    f_();  // changes only while nobody is at work
    lock.lock();
    if (--at_work_ == 0) ended_.notify_all();
  }
}

}  // namespace leashed
