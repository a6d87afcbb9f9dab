// A policy server behind the first of several (cluster/part_service.h) with its connections, which
// one thread serves.
#pragma once

#include <functional>

#include "leashed/cluster/part_service.h"
#include "leashed/net/serving_loop.h"

namespace leashed {

class PartServer {
 public:
  // As of PartService.
  PartServer(const Choice& mode, const DisciplineContext& context, PartService::Run run,
             RowHolder* rows = nullptr, const BegunMode* begun = nullptr)
      : service_(mode, context, run, rows, begun), number_(run.server), serving_(service_) {}

  // Takes the connection of a worker's lane over, as of PolicyServer.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp);
  // Takes a connection to the first server over, and says there who this one is, from any thread;
  // where that throws, it stays the caller's. Waits some seconds for the other side.
  void follow(int socket, bool checked, Transport wish = Transport::tcp);
  // From any thread: whether it has one.
  bool follows() const { return service_.follows(); }
  // Likewise: as of PartService.
  bool asks() const { return service_.asks(); }
  bool end_known() const { return service_.end_known(); }

  struct Counters : ServingLoop::Counters, PartService::Counters {};
  Counters counters() const { return {serving_.counters(), service_.counters()}; }

  // Calls f while nobody is served, from any thread.
  void quiet(const std::function<void(PartService&)>& f);

 private:
  PartService service_;
  const std::uint64_t number_;
  ServingLoop serving_;
};

}  // namespace leashed
