// A network's loss in double precision by plain loops, written from the definitions of its layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "leashed/model/layer.h"

namespace reference {

using leashed::Shape;
using Values = std::vector<double>;

struct Dense {
  std::size_t outputs;
  leashed::Layer layer() const { return {"dense", {{"outputs", static_cast<double>(outputs)}}}; }
};
struct Conv2d {
  std::size_t filters, kernel_h, kernel_w, stride = 1, padding = 0;
  leashed::Layer layer() const {
    return {"conv2d",
            {{"filters", static_cast<double>(filters)},
             {"kernel_h", static_cast<double>(kernel_h)},
             {"kernel_w", static_cast<double>(kernel_w)},
             {"stride", static_cast<double>(stride)},
             {"padding", static_cast<double>(padding)}}};
  }
};
struct MaxPool {
  std::size_t size, stride;
  leashed::Layer layer() const {
    return {"max_pool",
            {{"size", static_cast<double>(size)}, {"stride", static_cast<double>(stride)}}};
  }
};
struct Relu {
  leashed::Layer layer() const { return {"relu"}; }
};
struct Tanh {
  leashed::Layer layer() const { return {"tanh"}; }
};
struct Sigmoid {
  leashed::Layer layer() const { return {"sigmoid"}; }
};
using Layer = std::variant<Dense, Conv2d, MaxPool, Relu, Tanh, Sigmoid>;

// As a network is told of them.
inline std::vector<leashed::Layer> chosen(const std::vector<Layer>& layers) {
  std::vector<leashed::Layer> result;
  for (const Layer& layer : layers) {
    result.push_back(std::visit([](const auto& l) { return l.layer(); }, layer));
  }
  return result;
}

// Values of one example after a layer; `theta` moves past the layer's parameters.
struct Example {
  Shape shape;
  Values values;

  double at(std::size_t c, long y, long x) const {  // 0 outside
    if (y < 0 || x < 0 || y >= static_cast<long>(shape.height) ||
        x >= static_cast<long>(shape.width)) {
      return 0;
    }
    return values[(c * shape.height + static_cast<std::size_t>(y)) * shape.width +
                  static_cast<std::size_t>(x)];
  }
};

inline Example apply(const Dense& l, const Example& in, const double*& theta) {
  const std::size_t inputs = in.values.size();
  Example out{{l.outputs, 1, 1}, Values(l.outputs)};
  for (std::size_t j = 0; j < l.outputs; ++j) {
    out.values[j] = theta[inputs * l.outputs + j];
    for (std::size_t i = 0; i < inputs; ++i)
      out.values[j] += in.values[i] * theta[i * l.outputs + j];
  }
  theta += (inputs + 1) * l.outputs;
  return out;
}

inline Example apply(const Conv2d& l, const Example& in, const double*& theta) {
  const auto extent = [&](std::size_t n, std::size_t kernel) {
    return (n + 2 * l.padding - kernel) / l.stride + 1;
  };
  const Shape shape = {l.filters, extent(in.shape.height, l.kernel_h),
                       extent(in.shape.width, l.kernel_w)};
  Example out{shape, Values(shape.size())};
  const double* bias = theta + l.filters * in.shape.channels * l.kernel_h * l.kernel_w;
  std::size_t at = 0;
  for (std::size_t f = 0; f < l.filters; ++f) {
    for (std::size_t y = 0; y < shape.height; ++y) {
      for (std::size_t x = 0; x < shape.width; ++x) {
        double sum = bias[f];
        for (std::size_t c = 0; c < in.shape.channels; ++c) {
          for (std::size_t i = 0; i < l.kernel_h; ++i) {
            for (std::size_t j = 0; j < l.kernel_w; ++j) {
              const double w =
                  theta[((f * in.shape.channels + c) * l.kernel_h + i) * l.kernel_w + j];
              sum +=
                  w * in.at(c, static_cast<long>(y * l.stride + i) - static_cast<long>(l.padding),
                            static_cast<long>(x * l.stride + j) - static_cast<long>(l.padding));
            }
          }
        }
        out.values[at++] = sum;
      }
    }
  }
  theta = bias + l.filters;
  return out;
}

inline Example apply(const MaxPool& l, const Example& in, const double*&) {
  const Shape shape = {in.shape.channels, (in.shape.height - l.size) / l.stride + 1,
                       (in.shape.width - l.size) / l.stride + 1};
  Example out{shape, {}};
  for (std::size_t c = 0; c < shape.channels; ++c) {
    for (std::size_t y = 0; y < shape.height; ++y) {
      for (std::size_t x = 0; x < shape.width; ++x) {
        double high = -INFINITY;
        for (std::size_t i = 0; i < l.size; ++i) {
          for (std::size_t j = 0; j < l.size; ++j) {
            high = std::max(high, in.at(c, static_cast<long>(y * l.stride + i),
                                        static_cast<long>(x * l.stride + j)));
          }
        }
        out.values.push_back(high);
      }
    }
  }
  return out;
}

inline Example apply(const Relu&, const Example& in, const double*&) {
  Example out = in;
  for (double& v : out.values) v = std::max(0.0, v);
  return out;
}

inline Example apply(const Tanh&, const Example& in, const double*&) {
  Example out = in;
  for (double& v : out.values) v = std::tanh(v);
  return out;
}

inline Example apply(const Sigmoid&, const Example& in, const double*&) {
  Example out = in;
  for (double& v : out.values) v = 1 / (1 + std::exp(-v));
  return out;
}

// Class probabilities of one row.
inline Values probabilities(Shape input, const std::vector<Layer>& layers, const double* theta,
                            const float* row) {
  Example example{input, Values(row, row + input.size())};
  for (const Layer& layer : layers) {
    example = std::visit([&](const auto& l) { return apply(l, example, theta); }, layer);
  }
  Values& p = example.values;
  const double high = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& v : p) sum += v = std::exp(v - high);
  for (double& v : p) v /= sum;
  return p;
}

// Mean over the rows of -log p[label].
inline double loss(Shape input, const std::vector<Layer>& layers, const Values& theta,
                   const std::vector<const float*>& rows, const std::vector<std::int32_t>& labels) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Values p = probabilities(input, layers, theta.data(), rows[i]);
    sum -= std::log(p[static_cast<std::size_t>(labels[i])]);
  }
  return sum / static_cast<double>(rows.size());
}

}  // namespace reference
