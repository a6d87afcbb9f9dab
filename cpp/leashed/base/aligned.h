// Memory for vectors that kernels read and write: 64-byte aligned, never shared with a neighbour's
// line, in huge pages where it is large and the system gives them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace leashed {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// n elements, uninitialised, on cache lines of their own.
template <class T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(std::size_t n) : size_(n), data_(n ? allocate(n) : nullptr) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  static std::size_t rounded(std::size_t bytes, std::size_t line) {
    return (bytes + line - 1) / line * line;
  }
  // Whether huge pages hardly need more memory.
  static bool huge(std::size_t bytes) {
    return bytes >= 2 * kHugePage || rounded(bytes, kHugePage) <= bytes + bytes / 8;
  }
  static T* allocate(std::size_t n) {
    const std::size_t wanted = n * sizeof(T);
    const std::size_t line = huge(wanted) ? kHugePage : kCacheLine;
    const std::size_t bytes = rounded(wanted, line);
    void* memory = std::aligned_alloc(line, bytes);
    if (!memory) throw std::bad_alloc();
    if (line == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; refusal is harmless
    return static_cast<T*>(memory);
  }
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::size_t size_ = 0;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace leashed
