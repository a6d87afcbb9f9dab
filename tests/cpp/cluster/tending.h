// Connections between a trainer of a mode and its policy server.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"

namespace leashed {

// Connects whoever has no connection, until it is told to end.
class Tending {
 public:
  Tending(PolicyServer& server, ModeTrainer& trainer)
      : thread_([&](const std::stop_token& ends) {
          while (!ends.stop_requested()) {
            for (std::size_t slot = 0; slot < trainer.slots(); ++slot) {
              if (trainer.missing(slot, 0)) connect(server, trainer, slot);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}

 private:
  static void connect(PolicyServer& server, ModeTrainer& trainer, std::size_t slot) {
    const auto [one, other] = pair_of_sockets();
    server.adopt(one, true);
    trainer.adopt(slot, 0, other, true, Transport::tcp, kLong);
  }

  std::jthread thread_;
};

}  // namespace leashed
