// Whether this process is the child of a fork. A child has its parent's memory as it was at one
// moment, and of its threads only the one that forked: what another one was in the midst of is
// never ended. (Of each other thread the memory has what it wrote up to some instruction, and
// nothing that it wrote after it: the kernel takes the right to write from the parent's pages, and
// lets nobody have one again before all are the child's.)
#pragma once

#include <cstdint>

namespace leashed {

// How often this process, and those that it was forked from, have been forked, counted in the
// child. Whoever keeps it can tell whether he was made here. exec begins anew; a raw clone() is not
// seen.
std::uint64_t forks();
// The thread's number, from 1: of no other one that there is or was, here or in a process that this
// one was forked from. (Handles are used again.) Who forks keeps his.
std::uint64_t thread_number();
// The number of who forked this process, the one thread that went on here; 0: nobody did.
std::uint64_t forking_thread();

}  // namespace leashed
