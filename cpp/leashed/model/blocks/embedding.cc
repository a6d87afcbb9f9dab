// The rows of a table that an example's ids of one feature stand for, pooled into one vector or, as
// a sequence, lined up.
#include "leashed/model/kernels/embedding.h"

#include <map>

#include "leashed/base/extent.h"
#include "leashed/model/graph_planner.h"

namespace leashed {
namespace {

const std::map<std::string, Pooling> kPoolings = {{"sum", Pooling::sum},
                                                  {"mean", Pooling::mean},
                                                  {"max", Pooling::max},
                                                  {"sequence", Pooling::sequence}};

struct Embedded {
  std::size_t feature, table, dim, length;
  Pooling pooling;
};

class EmbeddingBlock final : public Block {
 public:
  EmbeddingBlock(const Embedded& what, const Ports& ports)
      : what_(what),
        out_(ports.output),
        kernels_(embedding_kernels(ports.isa)),
        largest_(what.pooling == Pooling::max ? ports.max_rows * what.dim : 0) {}

  void forward(const MicroBatch& step) override {
    kernels_.pool_racy(rows(step), step.batch.tables[what_.table].values, out_.values, out_.stride);
  }

  void backward(const MicroBatch& step, float*, bool) override {
    const TableRows& table = step.batch.tables[what_.table];
    if (!table.gradient) return;
    kernels_.scatter(rows(step), out_.gradient, out_.stride, table.gradient, table.stride);
  }

 private:
  PooledRows rows(const MicroBatch& step) {
    return {what_.pooling,
            what_.dim,
            what_.length,
            step.batch.columns[what_.feature],
            step.batch.places[what_.feature],
            step.first,
            step.count,
            largest_.data()};
  }

  const Embedded what_;
  const Window out_;
  const EmbeddingKernels& kernels_;
  std::vector<std::uint32_t> largest_;
};

class EmbeddingPlan final : public BlockPlan {
 public:
  explicit EmbeddingPlan(const Embedded& what) : what_(what) {}
  std::unique_ptr<Block> make(const Ports& ports) const override {
    return std::make_unique<EmbeddingBlock>(what_, ports);
  }

 private:
  const Embedded what_;
};

}  // namespace

void plan_embedding_node(const Node& node, GraphPlanner& graph) {
  graph.takes(0, 0);
  GraphPlan& plan = graph.plan();
  Embedded what;
  what.feature = plan.features_of_tables.size();
  what.table = graph.size("table", 0);
  if (what.table >= plan.tables.size()) {
    graph.fail("table " + std::to_string(what.table) + " is not among the " +
               std::to_string(plan.tables.size()) + " there are");
  }
  what.dim = plan.tables[what.table].dim;
  if (what.dim == 0) graph.fail("table " + plan.tables[what.table].name + " has rows of no floats");
  what.pooling = find_choice(kPoolings, "pooling", node.kind.part("pooling").name);
  what.length = what.pooling == Pooling::sequence ? graph.size("length", 1) : 1;
  plan.features_of_tables.push_back(what.table);
  const std::size_t width = graph.values(extent({what.length, what.dim}));
  graph.becomes(std::make_unique<EmbeddingPlan>(what), width, true);
}

}  // namespace leashed
