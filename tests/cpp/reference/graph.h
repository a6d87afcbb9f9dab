// A graph's loss in double precision by plain loops, written from the definitions of its nodes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leashed/graph/graph.h"

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

// A sequence: as many steps as ids of a feature, at most `length`.
struct Sequence {
  std::size_t feature = 0, length = 0, dim = 0;

  std::size_t steps(const GraphExample& e) const {
    const auto& offsets = e.columns[feature].offsets;
    return offsets.empty() ? std::min<std::size_t>(1, length)
                           : std::min<std::size_t>(offsets[e.row + 1] - offsets[e.row], length);
  }
};

inline double dot(const Doubles& v, const Doubles& keys, std::size_t step) {
  double sum = 0;
  for (std::size_t k = 0; k < v.size(); ++k) sum += v[k] * keys[step * v.size() + k];
  return sum;
}

inline void softmax(Doubles& scores, std::size_t steps) {
  double largest = -HUGE_VAL, sum = 0;
  for (std::size_t t = 0; t < steps; ++t) largest = std::max(largest, scores[t]);
  for (std::size_t t = 0; t < steps; ++t) sum += std::exp(scores[t] - largest);
  for (std::size_t t = 0; t < steps; ++t) scores[t] = std::exp(scores[t] - largest) / sum;
}

// x W + b, where `next` points to them, and behind them afterwards.
inline Doubles affine(const Doubles& x, std::size_t outputs, const double*& next) {
  Doubles out;
  for (std::size_t j = 0; j < outputs; ++j) {
    double sum = next[x.size() * outputs + j];
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * next[i * outputs + j];
    out.push_back(sum);
  }
  next += (x.size() + 1) * outputs;
  return out;
}

// DIN's unit: an MLP of [q, k, q − k, q∘k] for each step k.
inline Doubles unit(const Doubles& q, const Doubles& keys, std::size_t length, std::size_t steps,
                    Doubles widths, bool normalised, const double*& next) {
  widths.push_back(1);
  const double* const first = next;
  Doubles out(length);
  // (Once where there is no step, for what it skips of the parameters.)
  for (std::size_t t = 0; t < std::max<std::size_t>(steps, 1); ++t) {
    Doubles x = q;
    for (std::size_t k = 0; k < q.size(); ++k) x.push_back(keys[t * q.size() + k]);
    for (std::size_t k = 0; k < q.size(); ++k) x.push_back(q[k] - keys[t * q.size() + k]);
    for (std::size_t k = 0; k < q.size(); ++k) x.push_back(q[k] * keys[t * q.size() + k]);
    next = first;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      x = affine(x, static_cast<std::size_t>(widths[i]), next);
      if (i + 1 == widths.size()) break;
      for (double& v : x) v = std::max(0.0, v);
    }
    if (t < steps) out[t] = x[0];
  }
  if (normalised) softmax(out, steps);
  return out;
}

// DIEN's gated units: all states, or by `attention` the last one.
inline Doubles recurrent(const Doubles& in, const Sequence& of, std::size_t steps,
                         std::size_t units, const Doubles* attention, const double*& next) {
  const double *w = next, *u = w + of.dim * 3 * units, *b = u + units * 3 * units;
  next = b + 3 * units;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  Doubles h(units), states(of.length * units);
  for (std::size_t t = 0; t < steps; ++t) {
    Doubles gates(b, b + 3 * units), hidden(3 * units);
    for (std::size_t j = 0; j < 3 * units; ++j) {
      for (std::size_t i = 0; i < of.dim; ++i)
        gates[j] += in[t * of.dim + i] * w[i * 3 * units + j];
      for (std::size_t i = 0; i < units; ++i) hidden[j] += h[i] * u[i * 3 * units + j];
    }
    for (std::size_t k = 0; k < units; ++k) {
      const double update = sigmoid(gates[k] + hidden[k]) * (attention ? (*attention)[t] : 1);
      const double reset = sigmoid(gates[units + k] + hidden[units + k]);
      const double candidate = std::tanh(gates[2 * units + k] + reset * hidden[2 * units + k]);
      h[k] = (1 - update) * h[k] + update * candidate;
      states[t * units + k] = h[k];
    }
  }
  return attention ? h : states;
}

// The last node's values of one example.
inline Doubles outputs(const GraphExample& e, const Doubles& theta,
                       const std::vector<Doubles>& tables) {
  std::vector<Doubles> values;
  std::vector<Sequence> sequences;    // of each value; of no length: it is none
  const double* next = theta.data();  // parameters come in the order of nodes
  std::size_t feature = 0;
  for (const leashed::Node& node : e.nodes) {
    const std::string& name = node.kind.name;
    const auto in = [&](std::size_t i) -> const Doubles& { return values[node.inputs[i]]; };
    const auto of = [&](std::size_t i) -> const Sequence& { return sequences[node.inputs[i]]; };
    Doubles out;
    Sequence sequence;
    if (name == "input") {
      out.assign(e.dense, e.dense + static_cast<std::size_t>(node.kind["features"]));
    } else if (name == "embedding") {
      if (node.kind.part("pooling").name == "sequence") {
        sequence = {feature, static_cast<std::size_t>(node.kind["length"]),
                    e.dims[static_cast<std::size_t>(node.kind["table"])]};
      }
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
      out = affine(in(0), static_cast<std::size_t>(node.kind["outputs"]), next);
    } else if (name == "relu") {
      out = in(0);
      for (double& v : out) v = std::max(0.0, v);
    } else if (name == "tanh") {
      out = in(0);
      for (double& v : out) v = std::tanh(v);
    } else if (name == "sigmoid") {
      out = in(0);
      for (double& v : out) v = 1 / (1 + std::exp(-v));
    } else if (name == "zip") {
      sequence = {of(0).feature, of(0).length, 0};
      for (std::size_t v : node.inputs) sequence.dim += sequences[v].dim;
      for (std::size_t t = 0; t < sequence.length; ++t) {
        for (std::size_t v : node.inputs) {
          const auto begin = values[v].begin() + static_cast<std::ptrdiff_t>(t * sequences[v].dim);
          out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(sequences[v].dim));
        }
      }
    } else if (name == "attention_unit") {
      sequence = {of(1).feature, of(1).length, 1};
      out = unit(in(0), in(1), sequence.length, of(1).steps(e), node.kind.table("hidden"),
                 node.kind.value("softmax", 0) != 0, next);
    } else if (name == "attention_scores") {
      sequence = {of(1).feature, of(1).length, 1};
      out.resize(sequence.length);
      for (std::size_t t = 0; t < of(1).steps(e); ++t) out[t] = dot(in(0), in(1), t);
      softmax(out, of(1).steps(e));
    } else if (name == "attention_pool") {
      out.resize(of(1).dim);
      for (std::size_t t = 0; t < of(1).steps(e); ++t) {
        for (std::size_t k = 0; k < out.size(); ++k) out[k] += in(0)[t] * in(1)[t * out.size() + k];
      }
    } else if (name == "gru" || name == "augru") {
      const auto units = static_cast<std::size_t>(node.kind["units"]);
      const bool attends = name == "augru";
      out = recurrent(in(0), of(0), of(0).steps(e), units, attends ? &in(1) : nullptr, next);
      if (!attends) sequence = {of(0).feature, of(0).length, units};
    }
    values.push_back(out);
    sequences.push_back(sequence);
  }
  return values.back();
}

}  // namespace reference
