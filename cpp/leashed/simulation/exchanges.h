// Synchronisation with sync servers in virtual time: a shadow thread of each trainer exchanges all
// the while, or each worker after so many of its iterations. A fragment queues for its server's
// link, is interpolated when it is there, and its answer queues for the way back.
#pragma once

#include "leashed/base/aligned.h"
#include "leashed/cluster/fragments.h"
#include "leashed/simulation/link.h"
#include "leashed/simulation/paced.h"
#include "leashed/simulation/trainers.h"

namespace leashed {

class Exchanges final : public PlayedSync {
 public:
  // As make_played_sync; `workers` of each trainer.
  Exchanges(const TrainersPlan& plan, const float* initial, std::size_t dimension,
            std::size_t workers, SyncStage& stage, TrainerCounts& counts);

  void begin() override;
  bool stepped(std::uint32_t worker) override;
  void left(std::uint32_t worker) override;
  // What is numbered: of each exchange its fragments, and after them its end.
  void play(std::uint32_t what) override;

 private:
  struct Server {
    Link in, out;
  };
  // Of a shadow thread or a worker, one at a time.
  struct Exchange {
    explicit Exchange(const Synchroniser& given) : machine(given) {}

    Synchroniser machine;
    Action asked{};
    AlignedArray<float> values;  // what is sent, and then what has come
    Covered covered;
    std::uint64_t turn = 0;
    std::size_t outstanding = 0;  // fragments
    std::int64_t begun = 0, over = 0;
    // With a codec, as cluster/messages.h says: of each fragment, whether both sides know values;
    // what the server knows of theta, and the trainer of the server's.
    std::vector<bool> kept;
    std::vector<float> told, heard;
  };

  std::size_t trainer_of(std::size_t exchange) const {
    return paced_.background() ? exchange : exchange / workers_;
  }
  Server& server_of(std::size_t fragment) { return servers_[fragment % servers_.size()]; }
  // Of a fragment's values on their way.
  std::size_t bytes(const Exchange& own, std::size_t fragment) const;
  void start(std::uint32_t exchange);
  void serve(std::uint32_t exchange, std::size_t fragment);
  void end(std::uint32_t exchange);
  void mix(std::size_t trainer, const Exchange& own, float alpha);

  const TrainersPlan& plan_;
  const std::size_t dimension_, workers_, fragments_, parts_;
  SyncStage& stage_;
  TrainerCounts& counts_;
  Paced paced_;
  AlignedArray<float> held_;  // by the servers
  std::vector<Server> servers_;
  std::vector<Exchange> exchanges_;
  std::vector<std::size_t> training_;  // workers of each trainer
  std::vector<std::byte> encoded_;
  Out out_;
};

}  // namespace leashed
