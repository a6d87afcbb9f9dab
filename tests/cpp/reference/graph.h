// A graph's loss in double precision by plain loops, written from the definitions of its nodes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leashed/model/graph.h"

namespace reference {

using Doubles = std::vector<double>;

// The ids of one feature: example i has those at offsets[i] up to offsets[i + 1], or the one at i.
struct Column {
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> offsets;  // empty: one each
  std::vector<float> weights;          // empty: 1
};

struct GraphExample {
  const std::vector<leashed::Node>& nodes;
  const std::vector<std::size_t>& dims;  // of the tables
  const std::vector<Column>& columns;
  std::size_t row;
  const float* dense;
};

inline Doubles pooled(const GraphExample& e, const leashed::Choice& kind, std::size_t feature,
                      const std::vector<Doubles>& tables) {
  const auto table = static_cast<std::size_t>(kind["table"]);
  const std::size_t dim = e.dims[table];
  const Column& column = e.columns[feature];
  const std::size_t begin = column.offsets.empty() ? e.row : column.offsets[e.row];
  const std::size_t end = column.offsets.empty() ? e.row + 1 : column.offsets[e.row + 1];
  const std::string pooling = kind.part("pooling").name;
  const std::size_t length = pooling == "sequence" ? static_cast<std::size_t>(kind["length"]) : 1;
  Doubles out(length * dim);
  for (std::size_t entry = begin; entry < end; ++entry) {
    const double weight = column.weights.empty() ? 1 : double{column.weights[entry]};
    for (std::size_t k = 0; k < dim; ++k) {
      const double x = weight * tables[table][column.ids[entry] * dim + k];
      if (pooling == "sequence") {
        if (entry - begin < length) out[(entry - begin) * dim + k] = x;
      } else if (pooling == "max") {
        out[k] = entry == begin ? x : std::max(out[k], x);
      } else {
        out[k] += x / (pooling == "mean" ? static_cast<double>(end - begin) : 1);
      }
    }
  }
  return out;
}

// The last node's values of one example.
inline Doubles outputs(const GraphExample& e, const Doubles& theta,
                       const std::vector<Doubles>& tables) {
  std::vector<Doubles> values;
  const double* next = theta.data();  // parameters come in the order of nodes
  std::size_t feature = 0;
  for (const leashed::Node& node : e.nodes) {
    const std::string& name = node.kind.name;
    const auto in = [&](std::size_t i) -> const Doubles& { return values[node.inputs[i]]; };
    Doubles out;
    if (name == "input") {
      out.assign(e.dense, e.dense + static_cast<std::size_t>(node.kind["features"]));
    } else if (name == "embedding") {
      out = pooled(e, node.kind, feature++, tables);
    } else if (name == "concat") {
      for (std::size_t v : node.inputs) {
        out.insert(out.end(), values[v].begin(), values[v].end());
      }
    } else if (name == "dot") {
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          double sum = 0;
          for (std::size_t k = 0; k < in(0).size(); ++k) sum += in(i)[k] * in(j)[k];
          out.push_back(sum);
        }
      }
    } else if (name == "fm") {
      out.push_back(0);
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          for (std::size_t k = 0; k < in(0).size(); ++k) out[0] += in(i)[k] * in(j)[k];
        }
      }
    } else if (name == "sum") {
      out.resize(in(0).size());
      for (std::size_t v : node.inputs) {
        for (std::size_t k = 0; k < out.size(); ++k) out[k] += values[v][k];
      }
    } else if (name == "product") {
      out = in(0);
      for (std::size_t k = 0; k < out.size(); ++k) out[k] *= in(1)[k];
    } else if (name == "cross") {
      const std::size_t n = in(0).size();
      double dot = 0;
      for (std::size_t k = 0; k < n; ++k) dot += in(1)[k] * next[k];
      for (std::size_t k = 0; k < n; ++k) out.push_back(in(0)[k] * dot + next[n + k] + in(1)[k]);
      next += 2 * n;
    } else if (name == "dense") {
      const std::size_t n = in(0).size(), m = static_cast<std::size_t>(node.kind["outputs"]);
      for (std::size_t j = 0; j < m; ++j) {
        double sum = next[n * m + j];
        for (std::size_t i = 0; i < n; ++i) sum += in(0)[i] * next[i * m + j];
        out.push_back(sum);
      }
      next += (n + 1) * m;
    } else if (name == "relu") {
      out = in(0);
      for (double& v : out) v = std::max(0.0, v);
    }
    values.push_back(out);
  }
  return values.back();
}

}  // namespace reference
