// Memory for vectors that kernels read and write: 64-byte aligned, never shared with a neighbour's line.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace leashed {

inline constexpr std::size_t kCacheLine = 64;

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
  static T* allocate(std::size_t n) {
    const std::size_t bytes = (n * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    void* memory = std::aligned_alloc(kCacheLine, bytes);
    if (!memory) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::size_t size_ = 0;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace leashed
