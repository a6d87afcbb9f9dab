// Connections between a trainer of a mode and its policy server.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <random>
#include <thread>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"

namespace leashed {

// Connects whoever has no connection, until it is told to end; and cuts some at any moment, until
// so many have been made.
class Tending {
 public:
  Tending(PolicyServer& server, ModeTrainer& trainer, std::size_t cut = 0, std::uint32_t seed = 5)
      : thread_([&server, &trainer, cut,
                 random = std::mt19937(seed)](const std::stop_token& ends) mutable {
          std::vector<int> cables;  // copies of the sockets, to cut them by
          while (!ends.stop_requested()) {
            for (std::size_t slot = 0; slot < trainer.slots(); ++slot) {
              if (!trainer.missing(slot, 0)) continue;
              connect(server, trainer, slot, cut > 0 ? &cables : nullptr);
            }
            if (!cables.empty() && cables.size() < cut) {
              shutdown(cables[random() % cables.size()], SHUT_RDWR);
            }
            std::this_thread::sleep_for(
                std::chrono::microseconds(cut > 0 ? random() % 2000 : 1000));
          }
          for (const int cable : cables) close(cable);
        }) {}

 private:
  static void connect(PolicyServer& server, ModeTrainer& trainer, std::size_t slot,
                      std::vector<int>* cables) {
    const auto [one, other] = pair_of_sockets();
    if (cables) cables->push_back(dup(one));
    server.adopt(one, true);
    trainer.adopt(slot, 0, other, true, Transport::tcp, kLong);
  }

  std::jthread thread_;
};

}  // namespace leashed
