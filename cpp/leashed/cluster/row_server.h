// An embedding server (cluster/row_service.h) with its connections, which one thread serves, or
// several, each those of some of its clients.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "leashed/cluster/row_messages.h"
#include "leashed/cluster/row_service.h"
#include "leashed/net/serving_loop.h"

namespace leashed {

class RowServer {
 public:
  using Applied = RowService::Applied;
  // As of RowService. loops: threads that serve, 1 at least.
  RowServer(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
            RowPlacement placement, std::size_t mine, std::uint64_t boot, std::size_t loops = 1);
  ~RowServer();

  // Takes a trainer's connection over, from any thread; where that throws, it stays the caller's.
  // Not over the socket alone: waits some seconds for the other side to agree.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp);

  struct Counters : ServingLoop::Counters, RowService::Counters {};
  // Of all loops.
  Counters counters() const;

  // Calls f while nobody is served: rows, and what is applied, are of one moment.
  void quiet(const std::function<void()>& f) { quiet(0, f); }
  std::vector<Applied> applied();
  // As of RowService.
  void expire();
  // As of RowService.
  void restore(std::span<const Applied> applied, std::uint64_t pushes);

 private:
  // Those from that one on; always in this order, so that nobody waits for who waits for him.
  void quiet(std::size_t first, const std::function<void()>& f);

  struct Loop;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::atomic<std::size_t> adopted_{0};  // relaxed: whose turn it is to take one over
};

}  // namespace leashed
