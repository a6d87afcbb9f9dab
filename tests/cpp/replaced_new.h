// operator new and delete by malloc, for tests that count what is allocated or let memory be
// missing. Of one file in an executable, which defines allocating().
#ifndef LEASHED_TESTS_REPLACED_NEW_H_
#define LEASHED_TESTS_REPLACED_NEW_H_

#include <cstdlib>
#include <new>

namespace {

// Before each allocation; std::bad_alloc where there is to be no memory.
void allocating();

}  // namespace

// Not inlined, or GCC sees malloc meet delete. Also the forms that do not throw, which
// std::stable_sort takes: else a sanitizer's own would meet the delete below.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocating();
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

#endif  // LEASHED_TESTS_REPLACED_NEW_H_
