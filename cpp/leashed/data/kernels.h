// What looks at many bytes of text at once, compiled for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct ScanKernels {
  // Writes the places of the bytes that are `separator` or a newline, in order, and returns how
  // many they are. 64 bytes behind the text may be read; `places` has room for `size` and 64 more.
  std::size_t (*separators)(const char* text, std::size_t size, char separator,
                            std::uint32_t* places);
};
const ScanKernels& scan_kernels(Isa isa);

}  // namespace leashed
