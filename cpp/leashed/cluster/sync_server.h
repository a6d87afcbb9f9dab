// A sync server (cluster/sync_service.h) with its connections, which one thread serves.
#pragma once

#include <vector>

#include "leashed/cluster/messages.h"
#include "leashed/cluster/sync_service.h"
#include "leashed/net/serving_loop.h"

namespace leashed {

class SyncServer {
 public:
  using Holding = SyncService::Holding;
  using Snapshot = SyncService::Snapshot;
  explicit SyncServer(const std::vector<Holding>& holdings) : service_(holdings) {}

  // Takes a trainer's connection over, from any thread; where that throws, it stays the caller's.
  // Not over the socket alone: waits some seconds for the other side to agree.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp) {
    loop_.adopt([&] { return connected(socket, kServerLimits, checked, wish, Role::accepts); });
  }

  struct Counters : ServingLoop::Counters, SyncService::Counters {};
  Counters counters() const { return {loop_.counters(), service_.counters()}; }
  Snapshot snapshot() const { return service_.snapshot(); }
  // Before any connection.
  void restore(const Snapshot& snapshot) { service_.restore(snapshot); }

 private:
  SyncService service_;
  ServingLoop loop_{service_};
};

}  // namespace leashed
