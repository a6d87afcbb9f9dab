// How often a process has been forked, and by which of its threads.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <thread>

#include "leashed/base/forked.h"

using namespace leashed;

namespace {

std::uint64_t number_of_another() {
  std::uint64_t number = 0;
  std::thread([&] { number = thread_number(); }).join();
  return number;
}

// Whether it is so in a child that the calling thread forks.
bool in_child(const std::function<bool()>& is_so) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(is_so() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0;
}

}  // namespace

TEST_CASE("a thread's number is no other one's") {
  const std::uint64_t mine = thread_number();
  std::set<std::uint64_t> numbers{0, mine};
  for (int i = 0; i < 20; ++i) CHECK(numbers.insert(number_of_another()).second);
  CHECK(thread_number() == mine);
}

// ThreadSanitizer does not follow forks, and qemu's user mode ends a child that starts a thread.
#if !defined(__SANITIZE_THREAD__) && !defined(LEASHED_EMULATED)

TEST_CASE("forks are counted in children, which know the thread that forked") {
  const std::uint64_t mine = thread_number(), another = number_of_another(), before = forks();
  CHECK(in_child([&] {
    // The memory of threads that are not there any more is a new one's.
    return forks() == before + 1 && forking_thread() == mine && thread_number() == mine &&
           number_of_another() > another &&
           in_child([&] { return forks() == before + 2 && forking_thread() == mine; });
  }));
  std::thread([&] {
    CHECK(in_child([&] {
      return forks() == before + 1 && forking_thread() == thread_number() &&
             forking_thread() != mine;
    }));
  }).join();
  CHECK(forks() == before);
}

#endif
