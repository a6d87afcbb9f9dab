// A policy server (cluster/policy_service.h) with its connections, which one thread serves: what it
// leads hears one thing after the other.
#pragma once

#include <functional>

#include "leashed/cluster/policy_service.h"
#include "leashed/net/serving_loop.h"

namespace leashed {

class PolicyServer {
 public:
  // As of PolicyService; `heard` and `noted` are called by the thread that serves.
  PolicyServer(const modes::ServerPolicy& machine, const DisciplineContext& context,
               PolicyService::Run run, PolicyService::Heard heard = nullptr,
               PolicyService::Noted noted = nullptr, const PolicyService::Begun* begun = nullptr,
               RowHolder* rows = nullptr);

  // Takes the connection of a worker's lane over, from any thread; where that throws, it stays the
  // caller's. Not over the socket alone: waits some seconds for the other side to agree.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp);

  struct Counters : ServingLoop::Counters, PolicyService::Counters {};
  Counters counters() const;

  // Calls f while nobody is served, from any thread: parameters and counts are of one moment, and
  // the mode may be given a command, or its end.
  void quiet(const std::function<void(PolicyService&)>& f);

 private:
  PolicyService service_;
  ServingLoop serving_;
};

}  // namespace leashed
