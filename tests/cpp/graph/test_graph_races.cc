// Kernels that read rows of tables which others write meanwhile: what ThreadSanitizer is told to
// look away from is the kernels alone.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "leashed/graph/graph.h"
#include "leashed/row_store/local_rows.h"

using namespace leashed;

TEST_CASE("rows are read while others write them") {
  constexpr std::size_t kThreads = 3, kBatch = 16, kSteps = 30, kIds = 20;
  for (const std::size_t dim : {std::size_t{3}, std::size_t{16}}) {
    std::vector<Node> nodes;
    std::vector<TableShape> shapes;
    std::vector<std::shared_ptr<Table>> tables;
    const auto add = [&](Choice kind, std::vector<std::size_t> inputs) {
      nodes.push_back({std::move(kind), std::move(inputs)});
      return nodes.size() - 1;
    };
    std::vector<std::size_t> vectors, sequences;
    for (const char* pooling : {"sum", "sum", "mean", "max", "sequence"}) {
      const auto table = static_cast<double>(tables.size());
      Choice kind{"embedding", {{"table", table}, {"length", 3}}};
      kind.parts.emplace("pooling", Choice{pooling});
      (std::string(pooling) == "sequence" ? sequences : vectors).push_back(add(kind, {}));
      shapes.push_back({std::to_string(tables.size()), dim});
      tables.push_back(std::make_shared<Table>(
          Table::Settings{.name = "t",
                          .dim = dim,
                          .max_bytes = 200'000,
                          .initial = {"normal", {{"sigma", 0.1}}},
                          .rule = {"sgd", {{"lr", 0.01}}},
                          .staleness = {"none"},
                          .number = static_cast<std::uint32_t>(tables.size())}));
    }
    const std::size_t dot = add({"dot"}, vectors), fm = add({"fm"}, vectors);
    const std::size_t all = add({"concat"}, {dot, fm, sequences[0]});
    add({"dense", {{"outputs", 1}}}, {all});
    const Graph graph(nodes, shapes);
    LocalRows store(tables, graph.features_of_tables(), kThreads, 1, false);
    std::vector<float> theta(graph.dimension(), 0.1f);
    std::atomic<std::uint64_t> applied{0};
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < kThreads; ++w) {
      threads.emplace_back([&, w] {
        std::mt19937_64 random(w);
        const auto workspace = graph.make_workspace();
        const auto rows = store.make_batch();
        std::vector<float> gradient(graph.dimension());
        const std::vector<const float*> x(kBatch);
        std::vector<std::int32_t> labels(kBatch);
        const std::atomic<bool> go_on{false};
        for (std::size_t k = 0; k < kSteps; ++k) {
          std::vector<std::vector<std::uint64_t>> ids(tables.size());
          std::vector<std::uint32_t> offsets(kBatch + 1);
          for (std::size_t i = 0; i < kBatch; ++i) {
            labels[i] = static_cast<std::int32_t>(random() % 2);
            offsets[i + 1] = static_cast<std::uint32_t>(2 * (i + 1));
          }
          std::vector<IdColumn> columns;
          for (std::size_t f = 0; f < ids.size(); ++f) {
            const bool one = f == 0;  // which the dot interaction may read where it lies
            ids[f].resize(one ? kBatch : 2 * kBatch);
            for (std::uint64_t& id : ids[f]) id = random() % kIds;
            columns.push_back({ids[f].data(), one ? nullptr : offsets.data(), nullptr});
          }
          BatchView batch{x.data(), labels.data(), kBatch};
          batch.columns = columns;
          store.prefetch(w, batch, *rows);
          store.pull(w, batch, *rows);
          const float loss =
              graph.gradient(theta.data(), batch, gradient.data(), *workspace, go_on);
          CHECK(std::isfinite(loss));
          applied += store.push(w, *rows, {k}).applied;
        }
        store.leave(w);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(applied > kThreads * kSteps * tables.size());
  }
}
