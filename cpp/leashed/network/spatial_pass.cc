#include "leashed/network/spatial_pass.h"

#include <algorithm>
#include <utility>

namespace leashed {

SpatialPass::SpatialPass(const Plan& plan, Isa isa, std::size_t max_rows)
    : plan_(plan), spatial_(spatial_kernels(isa)), dense_(dense_kernels(isa)) {
  const std::size_t padded = (max_rows + lanes() - 1) / lanes() * lanes();
  values_.emplace_back(plan.features * padded);
  std::size_t widest = plan.flat, scratch = 0;
  for (const auto& stage : plan.spatial) {
    values_.emplace_back(stage->in_place ? 0 : stage->outputs * padded);
    kept_.emplace_back(stage->kept * padded);
    widest = std::max({widest, stage->inputs, stage->outputs});
    scratch = std::max(scratch, stage->scratch);
  }
  d_out_ = AlignedArray<float>(widest * lanes());
  d_in_ = AlignedArray<float>(widest * lanes());
  scratch_ = AlignedArray<float>(scratch);
}

float* SpatialPass::input(std::size_t i, std::size_t block) {
  while (i > 0 && plan_.spatial[i - 1]->in_place) --i;
  const std::size_t values = i == 0 ? plan_.features : plan_.spatial[i - 1]->outputs;
  return values_[i].data() + block * values * lanes();
}

std::uint8_t* SpatialPass::kept(std::size_t i, std::size_t block) {
  return kept_[i].data() + block * plan_.spatial[i]->kept * lanes();
}

void SpatialPass::forward(const float* theta, const float* const* images, std::size_t count,
                          float* out, std::size_t stride) {
  for (std::size_t first = 0; first < count; first += lanes()) {
    const std::size_t block = first / lanes();
    const std::size_t images_here = std::min(lanes(), count - first);
    spatial_.gather(images + first, images_here, plan_.features, input(0, block));
    for (std::size_t i = 0; i < plan_.spatial.size(); ++i) {
      plan_.spatial[i]->forward(theta, input(i, block), input(i + 1, block), kept(i, block));
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
    for (std::size_t i = plan_.spatial.size(); i-- > plan_.first_trained;) {
      const SpatialStage& stage = *plan_.spatial[i];
      stage.backward({.theta = theta,
                      .in = input(i, block),
                      .out = input(i + 1, block),
                      .kept = kept(i, block),
                      .d_out = d_out_.data(),
                      .d_in = i > plan_.first_trained ? d_in_.data() : nullptr,
                      .gradient = gradient,
                      .scratch = scratch_.data()});
      if (!stage.in_place) std::swap(d_out_, d_in_);
    }
  }
}

}  // namespace leashed
