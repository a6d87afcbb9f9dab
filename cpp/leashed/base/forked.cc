#include "leashed/base/forked.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "leashed/base/relaxed.h"

namespace leashed {

constinit Forks forks_so_far;

namespace {

// Relaxed: written by the one thread of a child that has just been forked, before it begins others;
// and numbers, of which each is given once.
std::atomic<std::uint64_t> forker{0}, last_number{0};

thread_local std::uint64_t number = 0;

// Nothing is done before a fork, or in the parent: no lock is held while it lasts, and a handler
// that is interrupted, or forks, keeps none.
void in_child() {
  forker.store(thread_number(), kRelaxed);
  forks_so_far.count.store(forks() + 1, kRelaxed);
}

// While the library is loaded; there is memory for the handler.
const bool told = [] {
  if (pthread_atfork(nullptr, nullptr, &in_child) != 0) std::abort();
  return true;
}();

}  // namespace

std::uint64_t thread_number() {
  if (number == 0) number = last_number.fetch_add(1, kRelaxed) + 1;
  return number;
}

std::uint64_t forking_thread() { return forker.load(kRelaxed); }

}  // namespace leashed
