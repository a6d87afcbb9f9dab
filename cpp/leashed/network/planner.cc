#include "leashed/network/planner.h"

#include <cmath>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"

namespace leashed {
namespace {

constexpr double kLargestSize = 2147483647;

}  // namespace

Shape Planner::images(const std::string& name) const {
  if (!plan_.dense.empty()) fail(name + " cannot follow Dense; put it before the first Dense");
  return shape_;
}

void Planner::fail(const std::string& why) const {
  throw Error("layer " + std::to_string(index_) + ": " + why);
}

std::size_t Planner::size(const Layer& layer, const char* name) const {
  const double value = layer[name];
  if (!(value >= 0 && value <= kLargestSize) || value != std::floor(value)) {
    fail(layer.name + "'s " + name + " must be a whole number from 0 to 2147483647");
  }
  return static_cast<std::size_t>(value);
}

std::size_t Planner::values(std::initializer_list<std::size_t> sizes) const {
  const std::size_t n = extent(sizes);
  if (n > kMostValues) fail("it is too large for any memory; make it smaller");
  return n;
}

void Planner::count(double multiply_adds) {
  plan_.flops += 2 * multiply_adds * (plan_.parameters.empty() ? 2 : 3);
}

std::size_t Planner::parameter(const char* name, std::vector<std::size_t> shape, std::size_t fan_in,
                               std::size_t fan_out) {
  const std::size_t offset = plan_.dimension;
  std::size_t size = 1;
  for (const std::size_t n : shape) size = values({size, n});
  plan_.dimension += size;
  values({plan_.dimension});
  plan_.parameters.push_back(
      {std::to_string(index_) + "." + name, offset, std::move(shape), fan_in, fan_out});
  return offset;
}

void Planner::add(const DenseStage& stage) {
  plan_.dense.push_back(stage);
  shape_ = {stage.outputs, 1, 1};
}

void Planner::add(std::unique_ptr<SpatialStage> stage, Shape out) {
  shape_ = out;
  if (!plan_.spatial.empty() && plan_.spatial.back()->absorb(*stage)) return;
  plan_.spatial.push_back(std::move(stage));
}

std::string by(std::size_t height, std::size_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

}  // namespace leashed
