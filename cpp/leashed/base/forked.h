// Whether this process is the child of a fork. A child has its parent's memory as it was at one
// moment, and of its threads only the one that forked: what another one was in the midst of is
// never ended. (Of each other thread the memory has what it wrote up to some instruction, and
// nothing that it wrote after it: the kernel takes the right to write from the parent's pages, and
// lets nobody have one again before all are the child's. But pages that are pinned, for a device,
// by io_uring, O_DIRECT or RDMA, are copied at once, while other threads of the parent go on
// writing: of such pages the child may have some that are newer than others.)
#pragma once

#include <atomic>
#include <cstdint>

#include "leashed/base/aligned.h"

namespace leashed {

// Relaxed: written by the one thread of a child that has just been forked, before it begins others.
// On a line of its own, which all who use tables read.
struct alignas(kCacheLine) Forks {
  std::atomic<std::uint64_t> count{0};
};
extern constinit Forks forks_so_far;

// How often this process, and those that it was forked from, have been forked, counted in the
// child. Whoever keeps it can tell whether he was made here. exec begins anew; _Fork() and a raw
// clone(), which call no handlers, are not seen.
inline std::uint64_t forks() { return forks_so_far.count.load(std::memory_order_relaxed); }
// The thread's number, from 1: of no other one that there is or was, here or in a process that this
// one was forked from. (Handles are used again.) Who forks keeps his.
std::uint64_t thread_number();
// The number of who forked this process, the one thread that went on here; 0: nobody did.
std::uint64_t forking_thread();

}  // namespace leashed
