// Whole gradients of DLRM by one thread, for every instruction-set level, against the multiply-add
// rate of its core: 13 dense features, 26 tables of 100,000 rows of 16 floats, ids by Zipf's law
// with exponent 1.2, bottom 13-64-16, top 367-64-32-1. The rows of a batch have been combined and
// copied, as training has it; they are not updated.
//
//   bench_graph <seconds per figure> [<instruction-set level>]
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <unordered_map>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/graph/graph.h"
#include "networks.h"

using namespace leashed;

namespace {

constexpr std::size_t kDense = 13, kTables = 26, kRows = 100000, kDim = 16;

Graph make_dlrm(Isa isa) {
  std::vector<Node> nodes;
  const auto add = [&](Choice kind, std::vector<std::size_t> inputs) {
    nodes.push_back({std::move(kind), std::move(inputs)});
    return nodes.size() - 1;
  };
  const auto dense = [&](std::size_t from, std::size_t outputs) {
    return add({"dense", {{"outputs", static_cast<double>(outputs)}}}, {from});
  };
  const auto relu = [&](std::size_t from) { return add({"relu"}, {from}); };
  const std::size_t x = add({"input", {{"features", kDense}}}, {});
  const std::size_t z = relu(dense(relu(dense(x, 64)), kDim));
  std::vector<std::size_t> vectors = {z};
  std::vector<TableShape> tables;
  for (std::size_t t = 0; t < kTables; ++t) {
    Choice embedding{"embedding", {{"table", static_cast<double>(t)}}};
    embedding.parts.emplace("pooling", Choice{"sum"});
    vectors.push_back(add(std::move(embedding), {}));
    tables.push_back({std::to_string(t), kDim});
  }
  const std::size_t interaction = add({"dot"}, vectors);
  const std::size_t joined = add({"concat"}, {z, interaction});
  dense(relu(dense(relu(dense(joined, 64)), 32)), 1);
  return {nodes, tables, isa};
}

std::uint64_t draw_id(std::mt19937& random) {
  static const std::vector<double> sums = [] {
    std::vector<double> all(kRows);
    double sum = 0;
    for (std::size_t i = 0; i < kRows; ++i) {
      all[i] = sum += std::pow(static_cast<double>(i + 1), -1.2);
    }
    return all;
  }();
  const double at = std::uniform_real_distribution<double>(0, sums.back())(random);
  const auto rank = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
  return static_cast<std::uint64_t>(rank) * 7919 % kRows;  // frequent ones lie apart
}

struct DlrmBatch {
  DlrmBatch(std::size_t size, const float* copies, float* gradients, std::mt19937& random)
      : x(bench::random_values(size * kDense, 1)),
        labels(size),
        places(kTables, std::vector<std::uint32_t>(size)),
        values(kTables),
        columns(kTables) {
    for (std::size_t i = 0; i < size; ++i) {
      rows.push_back(x.data() + i * kDense);
      labels[i] = static_cast<std::int32_t>(random() % 2);
    }
    for (std::size_t t = 0; t < kTables; ++t) {
      std::unordered_map<std::uint64_t, std::uint32_t> place_of;
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t id = draw_id(random);
        const auto next = static_cast<std::uint32_t>(values[t].size());
        const auto [found, is_new] = place_of.try_emplace(id, next);
        if (is_new) values[t].push_back(copies + (t * size + next) * kDim);
        places[t][i] = found->second;
      }
      float* const gradient = gradients + t * size * kDim;
      tables.push_back({values[t].size(), kDim, kDim, values[t].data(), gradient});
      pointers.push_back(places[t].data());
    }
    view = {rows.data(), labels.data(), size};
    view.columns = columns;
    view.tables = tables;
    view.places = pointers.data();
  }

  // What finding the rows does: leaves their places in the cache.
  void fetch() const {
    for (const auto& feature : places) {
      for (std::size_t i = 0; i < feature.size(); i += 16) __builtin_prefetch(&feature[i], 0, 2);
    }
    asm volatile("" ::: "memory");  // else a function that only fetches is left out
  }

  AlignedArray<float> x;
  std::vector<const float*> rows;
  std::vector<std::int32_t> labels;
  std::vector<std::vector<std::uint32_t>> places;
  std::vector<std::vector<const float*>> values;
  std::vector<IdColumn> columns;
  std::vector<TableRows> tables;
  std::vector<const std::uint32_t*> pointers;
  BatchView view{nullptr, Targets(), 0};
};

void run(Isa isa, std::size_t size, double seconds) {
  const Graph graph = make_dlrm(isa);
  const auto theta = bench::random_values(graph.dimension(), 0.05f);
  AlignedArray<float> gradient(graph.dimension());
  const auto workspace = graph.make_workspace();
  const std::atomic<bool> cancel{false};
  std::mt19937 random(4);
  const auto copies = bench::random_values(kTables * size * kDim, 0.1f);  // a worker has two
  auto gradients = bench::random_values(kTables * size * kDim, 0);
  std::vector<DlrmBatch> batches;
  for (std::size_t i = 0; i < 65536 / size; ++i) {
    batches.emplace_back(size, copies.data(), gradients.data(), random);
  }
  for (DlrmBatch& batch : batches) {
    batch.view.columns = batch.columns;
    batch.view.tables = batch.tables;
  }
  std::size_t k = 0;
  const auto work = [&] {
    batches[(k + 1) % batches.size()].fetch();
    graph.gradient(theta.data(), batches[k % batches.size()].view, gradient.data(), *workspace,
                   cancel);
    ++k;
  };
  const double flops = graph.flops_per_example() * static_cast<double>(size);
  const bench::Rate rate = bench::measure(isa, work, flops, seconds);
  bench::JsonLine("dlrm_gradient")
      .add("isa", isa_name(isa))
      .add("batch_size", size)
      .add("flops_per_example", graph.flops_per_example())
      .add("examples_per_second", rate.gflops * 1e9 / graph.flops_per_example())
      .add("gflops", rate.gflops)
      .add("ceiling", rate.ceiling)
      .add("ratio", rate.ratio)
      .add("cpu_share", rate.cpu_share);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: bench_graph <seconds> [<level>]\n", stderr), 2;
  for (Isa isa : available_isas()) {
    if (argc > 2 && isa_name(isa) != argv[2]) continue;
    for (std::size_t size : {128, 512, 2048}) run(isa, size, std::atof(argv[1]));
  }
}
