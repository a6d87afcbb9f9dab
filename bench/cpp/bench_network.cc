// Whole gradients of the MLP and the CNN by one thread, for every instruction-set level, against
// the multiply-add rate of its core.
//
//   bench_network <seconds per figure>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "ceiling.h"
#include "json_line.h"
#include "networks.h"

using namespace leashed;

namespace {

void run(Isa isa, const char* name, std::size_t batch_size, double seconds) {
  const Network network = bench::make_network(name, isa);
  const auto theta = bench::random_values(network.dimension(), 0.05f);
  AlignedArray<float> gradient(network.dimension());
  const auto workspace = network.make_workspace();
  const std::atomic<bool> cancel{false};
  bench::RandomBatches batches(batch_size);
  const auto work = [&] {
    network.gradient(theta.data(), batches.next(), gradient.data(), *workspace, cancel);
  };
  const double flops = network.flops_per_example() * static_cast<double>(batch_size);
  const bench::Rate rate = bench::measure(isa, work, flops, seconds);
  bench::JsonLine("gradient")
      .add("isa", isa_name(isa))
      .add("network", name)
      .add("batch_size", batch_size)
      .add("flops_per_example", network.flops_per_example())
      .add("gflops", rate.gflops)
      .add("ceiling", rate.ceiling)
      .add("ratio", rate.ratio)
      .add("cpu_share", rate.cpu_share);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: bench_network <seconds>\n", stderr), 2;
  for (Isa isa : available_isas()) {
    for (const char* network : {"MLP", "CNN"}) {
      for (std::size_t batch : {16, 64, 512}) run(isa, network, batch, std::atof(argv[1]));
    }
  }
}
