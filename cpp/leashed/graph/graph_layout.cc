#include "leashed/graph/graph_layout.h"

#include <optional>

namespace leashed {
namespace {

// A value that lies in another's columns.
struct Inside {
  std::size_t value, column;
};

}  // namespace

GraphLayout::GraphLayout(const GraphPlan& plan) {
  const std::size_t count = plan.values.size();
  std::vector<std::size_t> last_reader(count, 0);
  for (std::size_t b = 0; b < plan.blocks.size(); ++b) {
    for (const std::size_t v : plan.blocks[b].inputs) last_reader[v] = b;
  }

  std::vector<std::optional<Inside>> inside(count);
  // Per block and input: whether it lies within the output.
  std::vector<std::vector<char>> laid(plan.blocks.size());
  for (std::size_t b = 0; b < plan.blocks.size(); ++b) {
    const auto& block = plan.blocks[b];
    laid[b].resize(block.inputs.size());
    if (!block.plan->is_side_by_side()) continue;
    std::size_t column = 0;
    for (std::size_t i = 0; i < block.inputs.size(); ++i) {
      const std::size_t v = block.inputs[i];
      if (!inside[v] && last_reader[v] == b) {
        inside[v] = Inside{block.output, column};
        laid[b][i] = true;
      }
      column += plan.values[v].width;
    }
  }

  constexpr std::size_t kNowhere = ~std::size_t{0};
  places.assign(count, {kNowhere, 0});
  const auto put = [&](std::size_t v, std::size_t buffer, std::size_t column) {
    places[v] = {buffer, column};
  };
  for (const auto& block : plan.blocks) {
    std::size_t width = 0;
    for (const std::size_t v : block.inputs) {
      if (inside[v] || places[v].buffer != kNowhere) continue;
      put(v, widths.size(), width);
      width += plan.values[v].width;
    }
    if (width > 0) widths.push_back(width);
  }
  for (const auto& block : plan.blocks) {
    if (inside[block.output] || places[block.output].buffer != kNowhere) continue;
    put(block.output, widths.size(), 0);
    widths.push_back(plan.values[block.output].width);
  }
  // What lies within another is known once that is: those that read come after those that are read.
  for (std::size_t b = plan.blocks.size(); b-- > 0;) {
    const std::size_t v = plan.blocks[b].output;
    if (!inside[v]) continue;
    const Place& whole = places[inside[v]->value];
    put(v, whole.buffer, whole.column + inside[v]->column);
  }

  std::vector<char> written(count, false);
  adds.resize(plan.blocks.size());
  for (std::size_t b = plan.blocks.size(); b-- > 0;) {
    const auto& block = plan.blocks[b];
    adds[b].resize(block.inputs.size());
    for (std::size_t i = 0; i < block.inputs.size(); ++i) {
      if (laid[b][i]) written[block.inputs[i]] = true;
    }
    for (std::size_t i = 0; i < block.inputs.size(); ++i) {
      if (laid[b][i]) continue;
      adds[b][i] = written[block.inputs[i]];
      written[block.inputs[i]] = true;
    }
  }
}

}  // namespace leashed
