// One pass over memory per update. The racy kernels are the only places where threads read and
// write the same floats without synchronisation (Hogwild): their loads and stores are opaque to the
// compiler, each 4-byte lane is atomic on the hardware, and ThreadSanitizer is told to look away.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct UpdateKernels {
  // next = current − step · gradient; next may be current.
  void (*sgd)(float* next, const float* current, const float* gradient, float step, std::size_t n);
  // The same past the caches, for vectors larger than they are; next is on a cache line's start.
  void (*sgd_stream)(float* next, const float* current, const float* gradient, float step,
                     std::size_t n);
  void (*sgd_racy)(float* theta, const float* gradient, float step, std::size_t n);
  void (*copy_racy)(float* to, const float* from, std::size_t n);
  // out = the mean of `count` vectors, each read from `offset` on; out may be one of them.
  void (*mean)(float* out, const float* const* vectors, std::size_t count, std::size_t offset,
               std::size_t n);
};

const UpdateKernels& update_kernels(Isa isa = default_isa());

}  // namespace leashed
