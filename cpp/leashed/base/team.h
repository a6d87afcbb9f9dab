// Threads that help one caller with work that comes in parts. Between two pieces of work they
// sleep; they never spin, since the processor may be wanted by whoever trains meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace leashed {

// How many processors this process may run on.
std::size_t processors();

// A std::jthread; throws std::system_error where the system starts no more.
std::jthread start_thread(std::function<void()> f);

// One caller at a time. No thread starts before it is wanted, and none outlives the team.
class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  ~Team();

  // Has up to `helpers` threads call f, which must not throw: fewer where the system starts no
  // more, and none of those that have not begun by finish(). So f takes parts of the work until
  // none is left, and its caller takes part. What f refers to must stay until finish().
  void begin(std::size_t helpers, std::function<void()> f);
  // Waits, at most so long, for those that have begun; true when none is at work.
  bool wait(double seconds);
  void finish();

  // f here and on the helpers.
  void run(std::size_t helpers, const std::function<void()>& f);

 private:
  void help();

  std::mutex mutex_;
  std::condition_variable wanted_, ended_;
  // Under the lock.
  std::function<void()> f_;
  std::size_t open_ = 0;     // calls of f that nobody has begun
  std::size_t at_work_ = 0;  // that somebody has
  bool closed_ = false;

  std::vector<std::jthread> threads_;
};

}  // namespace leashed
