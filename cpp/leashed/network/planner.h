// What a layer sees of the network that it becomes part of.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "leashed/network/plan.h"

namespace leashed {

// Adds one layer after another to a plan, keeping the shape that has been reached.
class Planner {
 public:
  Planner(Plan& plan, Shape input, Isa isa) : plan_(plan), shape_(input), isa_(isa) {}

  void add(const Layer& layer);

  // What follows is for layers.
  Isa isa() const { return isa_; }
  Shape shape() const { return shape_; }
  // The same for the layer of that name, which takes images, so that it cannot follow Dense.
  Shape images(const std::string& name) const;
  // The last stage, if it is dense; else null.
  DenseStage* dense() { return plan_.dense.empty() ? nullptr : &plan_.dense.back(); }

  // Throws Error, naming the layer by its index.
  [[noreturn]] void fail(const std::string& why) const;
  // One of the layer's sizes, from 0 to 2^31 − 1.
  std::size_t size(const Layer& layer, const char* name) const;
  // The product of sizes; fails where no memory could hold so many values.
  std::size_t values(std::initializer_list<std::size_t> sizes) const;

  // Multiply-adds of the layer's forward pass, to be told before its parameters; its backward pass
  // does the same once for the parameters, and once for the input unless nothing before it has any.
  void count(double multiply_adds);
  // The offset in theta of a parameter of that name and shape.
  std::size_t parameter(const char* name, std::vector<std::size_t> shape, std::size_t fan_in,
                        std::size_t fan_out);
  void add(const DenseStage& stage);
  void add(std::unique_ptr<SpatialStage> stage, Shape out);

 private:
  Plan& plan_;
  Shape shape_;
  const Isa isa_;
  std::size_t index_ = 0;
};

// "3 x 4", as errors say it.
std::string by(std::size_t height, std::size_t width);

}  // namespace leashed
