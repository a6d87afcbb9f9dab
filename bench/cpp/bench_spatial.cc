// Speed of the convolution kernels against the multiply-add rate of one core, in turns: for each
// instruction-set level and each convolution of the paper's CNN (Table III) and of LeNet. FLOPs are
// those of the dense convolution (2 per multiply-add over every output), whatever a kernel leaves
// out, so a kernel that skips what pooling drops may exceed the ceiling. Bytes are those that a
// block must read and write at least.
//
//   bench_spatial <seconds per kernel>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/kernels/spatial.h"

using namespace leashed;

namespace {

struct Named {
  const char* network;
  const char* name;
  ConvShape conv;
  PoolShape pool;
  bool first;  // the first layer needs no gradient of its input
};

Named make(const char* network, const char* name, std::size_t channels, std::size_t height,
           std::size_t width, std::size_t filters, std::size_t kernel, std::size_t padding,
           bool first) {
  const std::size_t oh = height + 2 * padding - kernel + 1, ow = width + 2 * padding - kernel + 1;
  return {network,
          name,
          {channels, height, width, filters, kernel, kernel, 1, padding, oh, ow},
          {filters, oh, ow, 2, 2, oh / 2, ow / 2},
          first};
}

AlignedArray<float> normal(std::size_t n, float mean = 0) {
  static std::mt19937 random(7);
  AlignedArray<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = std::normal_distribution<float>(mean)(random);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: bench_spatial <seconds>\n", stderr), 2;
  const double seconds = std::atof(argv[1]);
  const std::vector<Named> convolutions = {make("CNN", "conv1", 1, 28, 28, 4, 3, 0, true),
                                           make("CNN", "conv2", 4, 13, 13, 8, 3, 0, false),
                                           make("LeNet", "conv1", 1, 28, 28, 6, 5, 2, true),
                                           make("LeNet", "conv2", 6, 14, 14, 16, 5, 0, false)};
  for (Isa isa : available_isas()) {
    const SpatialKernels& k = spatial_kernels(isa);
    for (const Named& n : convolutions) {
      const ConvShape& c = n.conv;
      const std::size_t inputs = c.channels * c.height * c.width;
      const std::size_t outputs = c.filters * c.out_height * c.out_width;
      const std::size_t pooled = n.pool.channels * n.pool.out_height * n.pool.out_width;
      const std::size_t weights = c.filters * c.channels * c.kernel_h * c.kernel_w;
      const double flops = 2.0 * static_cast<double>(outputs * weights / c.filters * k.lanes);
      AlignedArray<float> w = normal(weights), b = normal(c.filters), dw = normal(weights),
                          db = normal(c.filters), in = normal(inputs * k.lanes),
                          out = normal(outputs * k.lanes), d_in = normal(inputs * k.lanes),
                          small = normal(pooled * k.lanes), d_small = normal(pooled * k.lanes);
      AlignedArray<float> scratch(std::max(k.conv_scratch(c), k.conv_relu_pool_scratch(c, n.pool)));
      std::vector<std::uint8_t> position(pooled * k.lanes);
      const AlignedArray<float> rows = normal(inputs * k.lanes);
      std::vector<const float*> row_pointers;
      for (std::size_t i = 0; i < k.lanes; ++i) row_pointers.push_back(rows.data() + i * inputs);

      const auto report = [&](const char* what, bool in_network, double count, std::size_t floats,
                              const bench::Work& work) {
        const bench::Rate rate = bench::measure(isa, work, std::max(count, 1.0), seconds);
        bench::JsonLine("spatial")
            .add("isa", isa_name(isa))
            .add("network", n.network)
            .add("layer", n.name)
            .add("kernel", what)
            .add("in_network", in_network)
            .add("images", k.lanes)
            .add("seconds", std::max(count, 1.0) / rate.gflops * 1e-9)
            .add("flops", count)
            .add("bytes", 4 * floats * k.lanes)
            .add("ceiling", rate.ceiling)
            .add("cpu_share", rate.cpu_share);
      };
      if (n.first) {
        report("gather", true, 0, 2 * inputs,
               [&] { k.gather(row_pointers.data(), k.lanes, inputs, d_in.data()); });
      }
      report("convolution, ReLU, pooling", true, flops, inputs + 5 * pooled / 4, [&] {
        k.conv_relu_pool_forward(c, n.pool, w.data(), b.data(), in.data(), small.data(),
                                 position.data());
      });
      report("its gradient, parameters", true, flops, inputs + 5 * pooled / 4, [&] {
        k.conv_relu_pool_backward_parameters(c, n.pool, in.data(), d_small.data(), position.data(),
                                             dw.data(), db.data(), scratch.data());
      });
      if (!n.first) {
        report("its gradient, input", true, flops, inputs + 5 * pooled / 4, [&] {
          k.conv_relu_pool_backward_input(c, n.pool, w.data(), d_small.data(), position.data(),
                                          d_in.data(), scratch.data());
        });
      }
      report("convolution alone", false, flops, inputs + outputs,
             [&] { k.conv_forward(c, w.data(), b.data(), in.data(), out.data(), true); });
      report("convolution alone, gradient, parameters", false, flops, inputs + outputs, [&] {
        k.conv_backward_parameters(c, in.data(), out.data(), dw.data(), db.data(), scratch.data());
      });
      report("convolution alone, gradient, input", false, flops, inputs + outputs,
             [&] { k.conv_backward_input(c, w.data(), out.data(), d_in.data()); });
    }
  }
}
