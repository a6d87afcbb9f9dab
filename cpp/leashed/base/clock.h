#pragma once

#include <chrono>
#include <ctime>

namespace leashed {

// Seconds on the monotonic clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds from its start to now, or to where it was stopped; 0 before.
class Stopwatch {
 public:
  void start() {
    start_ = now();
    running_ = true;
  }
  void stop() {
    elapsed_ = seconds();
    running_ = false;
  }
  bool running() const { return running_; }
  double seconds() const { return running_ ? now() - start_ : elapsed_; }

 private:
  double start_ = 0, elapsed_ = 0;
  bool running_ = false;
};

// Seconds of processor time that the calling thread has used.
inline double thread_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace leashed
