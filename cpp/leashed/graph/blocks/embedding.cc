// The rows of a table that an example's ids of one feature stand for, pooled into one vector or, as
// a sequence, lined up.
#include "leashed/kernels/embedding.h"

#include <map>

#include "leashed/base/extent.h"
#include "leashed/graph/graph_planner.h"

namespace leashed {
namespace {

const std::map<std::string, Pooling> kPoolings = {{"sum", Pooling::sum},
                                                  {"mean", Pooling::mean},
                                                  {"max", Pooling::max},
                                                  {"sequence", Pooling::sequence}};

struct Embedded {
  TableFeature of;
  std::size_t dim, length;
  Pooling pooling;
};

class EmbeddingBlock final : public Block {
 public:
  EmbeddingBlock(const Embedded& what, const Ports& ports)
      : what_(what),
        out_(ports.output),
        is_left_to_reader_(ports.is_left_to_reader),
        kernels_(embedding_kernels(ports.isa)),
        largest_(what.pooling == Pooling::max ? ports.max_rows * what.dim : 0) {}

  void forward(const MicroBatch& step) override {
    if (is_left_to_reader_ && what_.of.is_row(step.batch)) return;
    kernels_.pool_racy(rows(step), step.batch.tables[what_.of.table].values, out_.values,
                       out_.stride);
  }

  void backward(const MicroBatch& step, float*, bool) override {
    const TableRows& table = step.batch.tables[what_.of.table];
    if (!table.gradient || (is_left_to_reader_ && what_.of.is_row(step.batch))) return;
    kernels_.scatter(rows(step), out_.gradient, out_.stride, table.gradient, table.stride);
  }

 private:
  PooledRows rows(const MicroBatch& step) {
    return {what_.pooling,
            what_.dim,
            what_.length,
            step.batch.columns[what_.of.feature],
            step.batch.places[what_.of.feature],
            step.first,
            step.count,
            largest_.data()};
  }

  const Embedded what_;
  const Window out_;
  const bool is_left_to_reader_;
  const EmbeddingKernels& kernels_;
  std::vector<std::uint32_t> largest_;
};

class EmbeddingPlan final : public BlockPlan {
 public:
  explicit EmbeddingPlan(const Embedded& what) : what_(what) {}
  std::unique_ptr<Block> make(const Ports& ports) const override {
    return std::make_unique<EmbeddingBlock>(what_, ports);
  }
  std::optional<TableFeature> rows() const override {
    const bool pools_one = what_.pooling == Pooling::sum || what_.pooling == Pooling::mean;
    return pools_one ? std::optional(what_.of) : std::nullopt;
  }

 private:
  const Embedded what_;
};

}  // namespace

void plan_embedding_node(const Node& node, GraphPlanner& graph) {
  graph.takes(0, 0);
  GraphPlan& plan = graph.plan();
  Embedded what;
  what.of.feature = plan.features_of_tables.size();
  what.of.table = graph.size("table", 0);
  if (what.of.table >= plan.tables.size()) {
    graph.fail("table " + std::to_string(what.of.table) + " is not among the " +
               std::to_string(plan.tables.size()) + " there are");
  }
  what.dim = plan.tables[what.of.table].dim;
  if (what.dim == 0)
    graph.fail("table " + plan.tables[what.of.table].name + " has rows of no floats");
  what.pooling = find_choice(kPoolings, "pooling", node.kind.part("pooling").name);
  what.length = what.pooling == Pooling::sequence ? graph.size("length", 1) : 1;
  plan.features_of_tables.push_back(what.of.table);
  const std::size_t width = graph.values(extent({what.length, what.dim}));
  graph.becomes(std::make_unique<EmbeddingPlan>(what), width, true);
  if (what.pooling == Pooling::sequence) graph.gives({what.of.feature, what.length, what.dim});
}

}  // namespace leashed
