// Forward and backward through a plan's spatial stages, for up to `max_rows` images at a time, with
// the memory it takes. Images are worked on in blocks of lanes() (kernels/spatial.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/kernels/dense.h"
#include "leashed/kernels/spatial.h"
#include "leashed/network/plan.h"

namespace leashed {

class SpatialPass {
 public:
  SpatialPass(const Plan& plan, Isa isa, std::size_t max_rows);

  std::size_t lanes() const { return spatial_.lanes; }

  // Images → out [count][plan.flat], row stride `stride`.
  void forward(const float* theta, const float* const* images, std::size_t count, float* out,
               std::size_t stride);
  // After forward() of the same images: adds the gradient with respect to the stages' parameters to
  // `gradient`, given the one with respect to forward's out.
  void backward(const float* theta, const float* d_out, std::size_t stride, std::size_t count,
                float* gradient);

 private:
  // What stage i reads, and what it keeps for the way back, of a block.
  float* input(std::size_t i, std::size_t block);
  std::uint8_t* kept(std::size_t i, std::size_t block);

  const Plan& plan_;
  const SpatialKernels& spatial_;
  const DenseKernels& dense_;
  // values_[0] is the input, values_[i + 1] the output of stage i (none of one that works in
  // place), each [blocks][values per image][lanes]; kept_[i] likewise, of bytes.
  std::vector<AlignedArray<float>> values_;
  std::vector<AlignedArray<std::uint8_t>> kept_;
  AlignedArray<float> d_out_, d_in_, scratch_;
};

}  // namespace leashed
