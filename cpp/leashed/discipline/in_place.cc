#include "leashed/discipline/in_place.h"

#include "leashed/update/kernels.h"

namespace leashed {

void InPlace::look(float* copy, const std::function<void(const float*)>& f) {
  update_kernels().copy_racy(copy, theta(), dimension_);
  f(copy);
}

void InPlace::transform_parts(std::size_t begin, std::size_t end, const Transform& f) {
  constexpr std::size_t kPart = 1024;  // while a part is worked on, what is read of it grows old
  const UpdateKernels& kernels = update_kernels();
  alignas(kCacheLine) float before[kPart], after[kPart];
  for (; begin < end; begin += std::min(kPart, end - begin)) {
    const std::size_t n = std::min(kPart, end - begin);
    kernels.copy_racy(before, theta() + begin, n);
    std::copy_n(before, n, after);
    f(after, begin, begin + n);
    kernels.replace_racy(buffer_.data() + begin, before, after, n);
  }
}

}  // namespace leashed
