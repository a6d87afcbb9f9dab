#include "leashed/table/reserved.h"

#include <sys/mman.h>

#include <cstdint>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"

namespace leashed {

Reserved::Reserved(std::size_t count, std::size_t bytes, const std::string& what) {
  std::size_t wanted = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &wanted) &&
                    !__builtin_add_overflow(wanted, kHugePage, &bytes_);
  mapped_ = fits ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                 : MAP_FAILED;
  if (mapped_ == MAP_FAILED) {
    throw Error("no memory for " + what + ": " + std::to_string(count) + " times " +
                std::to_string(bytes) + " bytes");
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped_);
  const std::uintptr_t page = (begin + kHugePage - 1) / kHugePage * kHugePage;
  data_ = static_cast<std::byte*>(mapped_) + (page - begin);
  if (wanted >= 2 * kHugePage) madvise(data_, wanted, MADV_HUGEPAGE);  // a wish
}

Reserved::~Reserved() { munmap(mapped_, bytes_); }

}  // namespace leashed
