#include "leashed/graph/graph_planner.h"

#include <algorithm>
#include <cmath>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"

namespace leashed {
namespace {

constexpr double kLargestSize = 2147483647;

}  // namespace

void GraphPlanner::fail(const std::string& why) const {
  throw Error("node " + std::to_string(index_) + " (" + node().kind.name + "): " + why);
}

void GraphPlanner::takes(std::size_t least, std::size_t most) const {
  if (inputs() >= least && inputs() <= most) return;
  const std::string wanted =
      least == most ? std::to_string(least) : "at least " + std::to_string(least);
  fail("it takes " + wanted + (wanted == "1" ? " input" : " inputs") + ", got " +
       std::to_string(inputs()));
}

std::size_t GraphPlanner::common_width() const {
  for (std::size_t i = 1; i < inputs(); ++i) {
    if (width(i) == width(0)) continue;
    fail("its inputs must have one width, but node " + std::to_string(node().inputs[0]) + " has " +
         std::to_string(width(0)) + " and node " + std::to_string(node().inputs[i]) + " has " +
         std::to_string(width(i)));
  }
  return width(0);
}

const Sequence& GraphPlanner::sequence(std::size_t input) const {
  const auto& found = value(input).sequence;
  if (!found) {
    fail("its input " + std::to_string(input) +
         " must be a sequence: an embedding whose pooling is \"sequence\", or made of one");
  }
  return *found;
}

std::size_t GraphPlanner::size(const char* name, std::size_t least) const {
  return whole(name, node().kind[name], least);
}

std::size_t GraphPlanner::whole(const char* name, double number, std::size_t least) const {
  if (!(number >= static_cast<double>(least) && number <= kLargestSize) ||
      number != std::floor(number)) {
    fail(std::string(name) + " must be a whole number from " + std::to_string(least) +
         " to 2147483647");
  }
  return static_cast<std::size_t>(number);
}

std::size_t GraphPlanner::values(std::size_t n) const {
  if (n > kMostValues) fail("it is too large for any memory; make it smaller");
  return n;
}

void GraphPlanner::count(double multiply_adds, int times_back) {
  plan_.flops += 2 * multiply_adds * (1 + times_back);
}

std::size_t GraphPlanner::parameter(const char* name, std::vector<std::size_t> shape,
                                    std::size_t fan_in, std::size_t fan_out) {
  const std::size_t offset = plan_.dimension;
  std::size_t size = 1;
  for (const std::size_t n : shape) size = values(extent({size, n}));
  plan_.dimension = values(plan_.dimension + size);
  plan_.parameters.push_back(
      {std::to_string(index_) + "." + name, offset, std::move(shape), fan_in, fan_out});
  return offset;
}

std::size_t GraphPlanner::statistic(const char* name, std::size_t size, float least) {
  const std::size_t offset =
      plan_.statistics.empty() ? 0 : plan_.statistics.back().offset + plan_.statistics.back().size;
  plan_.statistics.push_back({std::to_string(index_) + "." + name, offset, size, least});
  return offset;
}

void GraphPlanner::becomes(std::unique_ptr<BlockPlan> block, std::size_t width, bool learns) {
  plan_.blocks.push_back({std::move(block), node().inputs, index_});
  write(width, learns);
}

void GraphPlanner::extends(std::size_t width) {
  const auto extended = std::find_if(plan_.blocks.begin(), plan_.blocks.end(),
                                     [&](const auto& b) { return b.output == node().inputs[0]; });
  extended->output = index_;
  write(width, true);
}

void GraphPlanner::write(std::size_t width, bool learns) {
  GraphPlan::Value& own = plan_.values[index_];
  own.width = width;
  own.needs_gradient = learns;
  for (std::size_t i = 0; i < inputs(); ++i) own.needs_gradient |= needs(i);
}

GraphPlan::GraphPlan(const std::vector<Node>& nodes, std::vector<TableShape> shapes)
    : values(nodes.size()), tables(std::move(shapes)) {
  if (nodes.empty()) throw Error("a graph needs at least one node");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::size_t input : nodes[i].inputs) {
      if (input >= i) {
        throw Error("node " + std::to_string(i) + " (" + nodes[i].kind.name + "): it reads node " +
                    std::to_string(input) + ", which does not come before it");
      }
      ++values[input].readers;
    }
  }
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    if (values[i].readers == 0) {
      throw Error("node " + std::to_string(i) + " (" + nodes[i].kind.name +
                  "): nothing reads it; leave it out");
    }
  }
  GraphPlanner planner(*this, nodes);
  for (std::size_t i = 0; i < nodes.size(); ++i) planner.add(i);
  if (dimension == 0 && features_of_tables.empty()) {
    throw Error("a graph needs at least one node with parameters (dense, cross, embedding)");
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (std::find(features_of_tables.begin(), features_of_tables.end(), t) ==
        features_of_tables.end()) {
      throw Error("table " + tables[t].name + " is read by no embedding; leave it out");
    }
  }
  outputs = values.back().width;
}

}  // namespace leashed
