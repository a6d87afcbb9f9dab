// One step of a network over images, forward and backward: a layer, or several that are fused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leashed {

// A stage works on a block of images at a time, in the layout of kernels/spatial.h. What it knows
// of sizes and places is fixed when the network is planned; what it needs of memory is the
// caller's.
class SpatialStage {
 public:
  SpatialStage(std::size_t in, std::size_t out) : inputs(in), outputs(out) {}
  virtual ~SpatialStage() = default;

  std::size_t inputs, outputs;  // values per image
  bool has_parameters = false;
  // The outputs lie where the inputs did, their gradients likewise. Each keeps its input's sign, by
  // which a ReLU that wrote there tells in backward() what it let through.
  bool in_place = false;
  std::size_t kept = 0;     // bytes per image that forward() leaves for backward()
  std::size_t scratch = 0;  // floats that backward() may write to

  // Whether the stage after this one is from now on part of this one.
  virtual bool absorb(const SpatialStage&) { return false; }

  virtual void forward(const float* theta, const float* in, float* out,
                       std::uint8_t* kept) const = 0;

  struct Backward {
    const float* theta;
    const float* in;  // as in forward(); of a stage in place, its outputs
    const float* out;
    const std::uint8_t* kept;
    float* d_out;     // the gradient with respect to the outputs; may be written to
    float* d_in;      // takes the one with respect to the inputs, all of it; null: nobody needs it
    float* gradient;  // of theta, to which that of the stage's parameters is added
    float* scratch;
  };
  virtual void backward(const Backward&) const = 0;
};

}  // namespace leashed
