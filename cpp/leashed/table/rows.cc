#include "leashed/table/rows.h"

#include <sys/mman.h>

#include <string>

#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr std::size_t kGrain = 16;  // bytes, of which a row has a multiple

std::size_t reserved(std::size_t count, std::size_t stride) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, stride, &bytes) ||
      __builtin_add_overflow(bytes, kHugePage, &bytes)) {
    throw Error("a table of " + std::to_string(count) + " rows of " + std::to_string(stride) +
                " bytes is larger than memory can be");
  }
  return bytes;
}

}  // namespace

std::size_t Rows::bytes_of_row(std::size_t floats) {
  const std::size_t bytes = sizeof(RowHead) + floats * sizeof(float);
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

Rows::Rows(std::size_t count, std::size_t floats)
    : count_(count),
      floats_(floats),
      stride_(bytes_of_row(floats)),
      bytes_(reserved(count, stride_)) {
  // Pages come when a row is first written, zero.
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("no memory for a table of " + std::to_string(count) + " rows of " +
                std::to_string(stride_) + " bytes");
  }
  memory_ = static_cast<std::byte*>(memory);
  if (count * stride_ >= 2 * kHugePage) madvise(memory, bytes_, MADV_HUGEPAGE);  // a wish
}

Rows::~Rows() { munmap(memory_, bytes_); }

}  // namespace leashed
