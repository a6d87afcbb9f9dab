// Speed of one thread against the multiply-add rate of its core (ceiling.h), for every instruction-
// set level: the matrix products of the networks, and whole gradients of the MLP of Table II and
// the CNN of Table III over random rows of 10,000 images.
//
//   bench_network [milliseconds per figure, default 200]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ceiling.h"
#include "leashed/base/aligned.h"
#include "leashed/model/kernels/dense.h"
#include "leashed/model/network.h"

using namespace leashed;

namespace {

AlignedArray<float> random_values(std::size_t n, float scale) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-scale, scale);
  AlignedArray<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = draw(random);
  return values;
}

void print(Isa isa, const std::string& what, const bench::Rate& rate) {
  std::printf("%-5s%-28s%8.1f GFLOP/s of%8.1f   %.2f", isa_name(isa).data(), what.c_str(),
              rate.gflops, rate.ceiling, rate.ratio);
}

struct Product {
  const char* name;
  std::size_t m, n, k;
  bool columns_of_a;  // A is the transpose of a row-major matrix
};

void bench_product(Isa isa, const Product& p, double seconds) {
  const std::size_t lda = p.columns_of_a ? p.m : p.k;
  const auto a = random_values(p.m * p.k, 1);
  const auto b = random_values(p.k * p.n, 1);
  AlignedArray<float> c(p.m * p.n);
  AlignedArray<float> scratch(dense_kernels(isa).gemm_scratch(std::max(p.m, p.k)));
  const Gemm gemm = {.m = p.m,
                     .n = p.n,
                     .k = p.k,
                     .a = a.data(),
                     .a_row = p.columns_of_a ? 1 : lda,
                     .a_col = p.columns_of_a ? lda : 1,
                     .b = b.data(),
                     .ldb = p.n,
                     .c = c.data(),
                     .ldc = p.n};
  const double flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
  print(isa,
        std::string(p.name) + " " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
            std::to_string(p.k),
        bench::measure(
            isa, [&] { dense_kernels(isa).gemm(gemm, scratch.data()); }, flops, seconds));
  std::printf("\n");
}

void bench_gradient(Isa isa, const char* name, const std::vector<Layer>& layers, std::size_t batch,
                    double seconds) {
  constexpr std::size_t kImages = 10000;
  static const auto images = random_values(kImages * 784, 1);
  const Network network({1, 28, 28}, layers, isa);
  const auto theta = random_values(network.dimension(), 0.05f);
  AlignedArray<float> gradient(network.dimension());
  const auto workspace = network.make_workspace();
  const std::atomic<bool> cancel{false};
  std::mt19937 random(2);
  std::vector<const float*> rows(batch);
  std::vector<std::int32_t> labels(batch);
  const auto work = [&] {
    for (std::size_t i = 0; i < batch; ++i) {
      rows[i] = images.data() + random() % kImages * 784;
      labels[i] = static_cast<std::int32_t>(random() % 10);
    }
    network.gradient(theta.data(), {rows.data(), labels.data(), batch}, gradient.data(), *workspace,
                     cancel);
  };
  const double flops = network.flops_per_example() * static_cast<double>(batch);
  const bench::Rate rate = bench::measure(isa, work, flops, seconds);
  print(isa, std::string(name) + " batch " + std::to_string(batch), rate);
  std::printf("%12.0f examples/s\n", rate.gflops * 1e9 / network.flops_per_example());
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = (argc > 1 ? std::atof(argv[1]) : 200) * 1e-3;
  const std::vector<Product> products = {
      {"forward", 512, 128, 784, false}, {"forward", 64, 128, 784, false},
      {"forward", 16, 128, 784, false},  {"forward", 64, 128, 128, false},
      {"forward", 512, 10, 128, false},  {"forward", 16, 10, 128, false},
      {"dW", 784, 128, 512, true},       {"dW", 784, 128, 64, true},
      {"dW", 784, 128, 16, true},        {"dW", 128, 128, 64, true},
      {"dX", 512, 128, 128, false},      {"dX", 64, 128, 10, false},
      {"DLRM", 128, 64, 13, false},      {"DLRM dX", 512, 64, 32, false},
  };
  const std::vector<Layer> mlp = {Dense{128}, Relu{}, Dense{128}, Relu{},
                                  Dense{128}, Relu{}, Dense{10}};
  const std::vector<Layer> cnn = {Conv2d{4, 3, 3}, Relu{}, MaxPool{2, 2},
                                  Conv2d{8, 3, 3}, Relu{}, MaxPool{2, 2},
                                  Dense{128},      Relu{}, Dense{10}};
  for (Isa isa : available_isas()) {
    for (const Product& product : products) bench_product(isa, product, seconds);
    for (std::size_t batch : {16, 64, 512}) bench_gradient(isa, "MLP", mlp, batch, seconds);
    for (std::size_t batch : {16, 64, 512}) bench_gradient(isa, "CNN", cnn, batch, seconds);
  }
}
