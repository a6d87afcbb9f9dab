// Synchronisation of trainers with each other in virtual time: a round begins when all that still
// train have come to it, and takes what a ring's all-reduce takes, 2 (n − 1) steps of an n-th of
// the bytes each. In the background each trainer's shadow thread comes as soon as it can; in the
// foreground one worker calls for it, and its trainer comes when the others have stopped at their
// next iteration, until the round is over. A trainer alone has no rounds.
#pragma once

#include "leashed/base/aligned.h"
#include "leashed/cluster/fragments.h"
#include "leashed/simulation/paced.h"
#include "leashed/simulation/trainers.h"

namespace leashed {

class Reductions final : public PlayedSync {
 public:
  // As make_played_sync; `workers` of each trainer.
  Reductions(const TrainersPlan& plan, const float* initial, std::size_t dimension,
             std::size_t workers, SyncStage& stage, TrainerCounts& counts);

  void begin() override;
  bool stepped(std::uint32_t worker) override;
  void left(std::uint32_t worker) override;
  // The round under way is over; there is one at a time.
  void play(std::uint32_t what) override;

 private:
  struct Trainer {
    std::size_t training = 0;            // workers
    std::vector<std::uint32_t> stopped;  // of these, for the round that one has called for
    bool called = false;
    bool entered = false;
    std::int64_t begun = 0;
    AlignedArray<float> values;  // theta as it was when it entered
  };

  void enter(std::size_t trainer);
  // If all are there.
  void go();
  void release(Trainer& trainer);
  // The part of the vector whose turn it is.
  Range part() const;

  const TrainersPlan& plan_;
  const std::size_t dimension_, workers_, parts_;
  SyncStage& stage_;
  TrainerCounts& counts_;
  Paced paced_;
  Synchroniser machine_;        // all members' are alike
  AlignedArray<float> states_;  // global and velocity, likewise
  std::vector<Trainer> trainers_;
  std::size_t present_, entered_ = 0;
  bool under_way_ = false;
  std::vector<std::size_t> members_;  // of the round under way
  std::uint64_t round_ = 0;
  std::vector<float> sum_;
  Out out_;
};

}  // namespace leashed
