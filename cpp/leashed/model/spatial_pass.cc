#include "leashed/model/spatial_pass.h"

#include <algorithm>
#include <utility>

namespace leashed {

SpatialPass::SpatialPass(const Plan& plan, Isa isa, std::size_t max_rows)
    : plan_(plan),
      spatial_(spatial_kernels(isa)),
      dense_(dense_kernels(isa)),
      activation_(activation_kernels(isa)) {
  const std::size_t padded = (max_rows + lanes() - 1) / lanes() * lanes();
  values_.emplace_back(plan.features * padded);
  std::size_t widest = plan.flat, scratch = 0;
  for (const SpatialStage& stage : plan.spatial) {
    const bool pools = stage.kind == Kind::pool || stage.kind == Kind::conv_relu_pool;
    values_.emplace_back(stage.kind == Kind::relu ? 0 : stage.outputs * padded);
    positions_.emplace_back(pools ? stage.outputs * padded : 0);
    widest = std::max({widest, stage.inputs, stage.outputs});
    if (stage.kind == Kind::conv_relu_pool) {
      scratch = std::max(scratch, spatial_.conv_relu_pool_scratch(stage.conv, stage.pool));
    } else if (stage.has_parameters()) {
      scratch = std::max(scratch, spatial_.conv_scratch(stage.conv));
    }
  }
  d_out_ = AlignedArray<float>(widest * lanes());
  d_in_ = AlignedArray<float>(widest * lanes());
  scratch_ = AlignedArray<float>(scratch);
}

float* SpatialPass::input(std::size_t i, std::size_t block) {
  while (i > 0 && plan_.spatial[i - 1].kind == Kind::relu) --i;
  const std::size_t values = i == 0 ? plan_.features : plan_.spatial[i - 1].outputs;
  return values_[i].data() + block * values * lanes();
}

std::uint8_t* SpatialPass::position(std::size_t i, std::size_t block) {
  return positions_[i].data() + block * plan_.spatial[i].outputs * lanes();
}

void SpatialPass::forward(const float* theta, const float* const* images, std::size_t count,
                          float* out, std::size_t stride) {
  for (std::size_t first = 0; first < count; first += lanes()) {
    const std::size_t block = first / lanes();
    const std::size_t images_here = std::min(lanes(), count - first);
    spatial_.gather(images + first, images_here, plan_.features, input(0, block));
    for (std::size_t i = 0; i < plan_.spatial.size(); ++i) {
      const SpatialStage& stage = plan_.spatial[i];
      const float* weight = theta + stage.weight;
      const float* bias = theta + stage.bias;
      float* from = input(i, block);
      float* to = input(i + 1, block);
      switch (stage.kind) {
        case Kind::conv:
        case Kind::conv_relu:
          spatial_.conv_forward(stage.conv, weight, bias, from, to, stage.kind == Kind::conv_relu);
          break;
        case Kind::conv_relu_pool:
          spatial_.conv_relu_pool_forward(stage.conv, stage.pool, weight, bias, from, to,
                                          position(i, block));
          break;
        case Kind::pool:
          spatial_.pool_forward(stage.pool, from, to, position(i, block));
          break;
        case Kind::relu:
          activation_.relu(from, stage.inputs * lanes());
          break;
      }
    }
    dense_.transpose(input(plan_.spatial.size(), block), plan_.flat, images_here, lanes(),
                     out + first * stride, stride);
  }
}

void SpatialPass::backward(const float* theta, const float* d_out, std::size_t stride,
                           std::size_t count, float* gradient) {
  for (std::size_t first = 0; first < count; first += lanes()) {
    const std::size_t block = first / lanes();
    const std::size_t images_here = std::min(lanes(), count - first);
    if (images_here < lanes()) std::fill_n(d_out_.data(), plan_.flat * lanes(), 0.0f);
    dense_.transpose(d_out + first * stride, images_here, plan_.flat, stride, d_out_.data(),
                     lanes());
    for (std::size_t i = plan_.spatial.size(); i-- > plan_.first_conv;) {
      const SpatialStage& stage = plan_.spatial[i];
      const float* weight = theta + stage.weight;
      float* d_weight = gradient + stage.weight;
      float* d_bias = gradient + stage.bias;
      const bool needs_input = i > plan_.first_conv;
      const std::size_t outputs = stage.outputs * lanes();
      switch (stage.kind) {
        case Kind::conv_relu:
          activation_.relu_backward(input(i + 1, block), d_out_.data(), outputs);
          [[fallthrough]];
        case Kind::conv:
          spatial_.conv_backward_parameters(stage.conv, input(i, block), d_out_.data(), d_weight,
                                            d_bias, scratch_.data());
          if (needs_input) {
            spatial_.conv_backward_input(stage.conv, weight, d_out_.data(), d_in_.data());
          }
          break;
        case Kind::conv_relu_pool:
          spatial_.conv_relu_pool_backward_parameters(stage.conv, stage.pool, input(i, block),
                                                      d_out_.data(), position(i, block), d_weight,
                                                      d_bias, scratch_.data());
          if (needs_input) {
            spatial_.conv_relu_pool_backward_input(stage.conv, stage.pool, weight, d_out_.data(),
                                                   position(i, block), d_in_.data(),
                                                   scratch_.data());
          }
          break;
        case Kind::pool:
          spatial_.pool_backward(stage.pool, d_out_.data(), position(i, block), d_in_.data());
          break;
        case Kind::relu:
          activation_.relu_backward(input(i + 1, block), d_out_.data(), outputs);
          continue;  // in place
      }
      std::swap(d_out_, d_in_);
    }
  }
}

}  // namespace leashed
