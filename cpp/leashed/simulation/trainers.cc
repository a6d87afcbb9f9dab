#include "leashed/simulation/trainers.h"

#include "leashed/discipline/discipline.h"
#include "leashed/simulation/exchanges.h"
#include "leashed/simulation/reductions.h"

namespace leashed {

std::unique_ptr<PlayedSync> make_played_sync(const TrainersPlan& plan, const float* initial,
                                             std::size_t dimension, std::size_t workers,
                                             SyncStage& stage, TrainerCounts& counts) {
  if (!plan.machine) return nullptr;
  if (uses_servers(*plan.machine)) {
    return std::make_unique<Exchanges>(plan, initial, dimension, workers, stage, counts);
  }
  return std::make_unique<Reductions>(plan, initial, dimension, workers, stage, counts);
}

}  // namespace leashed
