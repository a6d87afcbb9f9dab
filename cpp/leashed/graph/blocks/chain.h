// Dense layers one after another as a block of a graph.
#pragma once

#include <memory>
#include <vector>

#include "leashed/graph/block.h"
#include "leashed/model/dense_chain.h"

namespace leashed {

class ChainPlan final : public BlockPlan {
 public:
  std::unique_ptr<Block> make(const Ports&) const override;

  std::vector<DenseStage> stages;
};

}  // namespace leashed
