// Speed of the convolution kernels against the FMA rate of one core, measured in turns: for each
// instruction-set level and each convolution of the paper's CNN (Table III) and of LeNet, GFLOP/s
// and their ratio to the ceiling. FLOPs are those of the dense convolution (2 per multiply-add over
// every output), whatever a kernel leaves out, so a kernel that skips what pooling drops may exceed
// the ceiling.
//
//   bench_spatial [milliseconds per kernel, default 100]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ceiling.h"
#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/model/kernels/spatial.h"

using namespace leashed;

namespace {

struct Named {
  const char* name;
  ConvShape conv;
  PoolShape pool;
  bool first;  // the first layer needs no gradient of its input
};

Named make(const char* name, std::size_t channels, std::size_t height, std::size_t width,
           std::size_t filters, std::size_t kernel, std::size_t padding, bool first) {
  const std::size_t oh = height + 2 * padding - kernel + 1, ow = width + 2 * padding - kernel + 1;
  return {name,
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
  const double seconds = (argc > 1 ? std::atof(argv[1]) : 100) * 1e-3;
  const std::vector<std::vector<Named>> networks = {
      {make("cnn conv1", 1, 28, 28, 4, 3, 0, true), make("cnn conv2", 4, 13, 13, 8, 3, 0, false)},
      {make("lenet conv1", 1, 28, 28, 6, 5, 2, true),
       make("lenet conv2", 6, 14, 14, 16, 5, 0, false)}};
  for (Isa isa : available_isas()) {
    const SpatialKernels& k = spatial_kernels(isa);
    const auto multiply_adds = [isa] { bench::multiply_adds(isa, 20000); };
    std::printf("%-12s %zu images per block, float32 FMA %.1f GFLOP/s\n",
                std::string(isa_name(isa)).c_str(), k.lanes,
                bench::measure(isa, multiply_adds, 0, seconds).ceiling);
    for (const auto& network : networks) {
      double total_flops = 0, total_ideal = 0, total_time = 0;
      for (const Named& n : network) {
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
        AlignedArray<float> scratch(
            std::max(k.conv_scratch(c), k.conv_relu_pool_scratch(c, n.pool)));
        std::vector<std::uint8_t> position(pooled * k.lanes);
        const AlignedArray<float> rows = normal(inputs * k.lanes);
        std::vector<const float*> row_pointers;
        for (std::size_t i = 0; i < k.lanes; ++i) row_pointers.push_back(rows.data() + i * inputs);

        const auto report = [&](const char* what, double count, bool in_total,
                                const std::function<void()>& work) {
          const bench::Rate rate = bench::measure(isa, work, count, seconds);
          std::printf("  %-12s %-34s %8.1f GFLOP/s %6.2f of the ceiling %8.2f us/block\n", n.name,
                      what, rate.gflops, rate.ratio, count / rate.gflops * 1e-3);
          if (in_total) {
            total_flops += count;
            total_ideal += count / rate.ratio;
            total_time += count / rate.gflops * 1e-9;
          }
        };
        report("convolution + ReLU + pooling", flops, true, [&] {
          k.conv_relu_pool_forward(c, n.pool, w.data(), b.data(), in.data(), small.data(),
                                   position.data());
        });
        report("its gradient, parameters", flops, true, [&] {
          k.conv_relu_pool_backward_parameters(c, n.pool, in.data(), d_small.data(),
                                               position.data(), dw.data(), db.data(),
                                               scratch.data());
        });
        if (!n.first)
          report("its gradient, input", flops, true, [&] {
            k.conv_relu_pool_backward_input(c, n.pool, w.data(), d_small.data(), position.data(),
                                            d_in.data(), scratch.data());
          });
        report("convolution alone", flops, false,
               [&] { k.conv_forward(c, w.data(), b.data(), in.data(), out.data(), true); });
        report("its gradient, parameters", flops, false, [&] {
          k.conv_backward_parameters(c, in.data(), out.data(), dw.data(), db.data(),
                                     scratch.data());
        });
        report("its gradient, input", flops, false,
               [&] { k.conv_backward_input(c, w.data(), out.data(), d_in.data()); });
        if (n.first) {
          // One operation per element moved: GB/s are 8 times this.
          report("gather (1 per element)", static_cast<double>(inputs * k.lanes), false,
                 [&] { k.gather(row_pointers.data(), k.lanes, inputs, d_in.data()); });
        }
      }
      std::printf("  %-12s %-34s %8.1f GFLOP/s %6.2f of the ceiling %8.2f us/example\n", "",
                  "all its convolutions, fused", total_flops / total_time * 1e-9,
                  total_flops / total_ideal, total_time / static_cast<double>(k.lanes) * 1e6);
    }
  }
}
