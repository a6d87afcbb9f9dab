// An embedding server (cluster/row_service.h) with its connections, which one thread serves.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "leashed/cluster/row_messages.h"
#include "leashed/cluster/row_service.h"
#include "leashed/net/serving_loop.h"

namespace leashed {

class RowServer {
 public:
  using Applied = RowService::Applied;
  // As of RowService.
  RowServer(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
            RowPlacement placement, std::size_t mine, std::uint64_t boot)
      : service_(std::move(tables), std::move(numbers), std::move(placement), mine, boot) {}

  // Takes a trainer's connection over, from any thread; where that throws, it stays the caller's.
  // Not over the socket alone: waits some seconds for the other side to agree.
  void adopt(int socket, bool checked, Transport wish = Transport::tcp) {
    loop_.adopt([&] { return connected(socket, kRowLimits, checked, wish, Role::accepts); });
  }

  struct Counters : ServingLoop::Counters, RowService::Counters {};
  Counters counters() const { return {loop_.counters(), service_.counters()}; }

  // Calls f while nobody is served: rows, and what is applied, are of one moment.
  void quiet(const std::function<void()>& f) { loop_.quiet(f); }
  std::vector<Applied> applied() {
    std::vector<Applied> found;
    quiet([&] { found = service_.applied(); });
    return found;
  }
  // As of RowService.
  void expire() {
    quiet([this] { service_.expire(); });
  }
  // As of RowService.
  void restore(std::span<const Applied> applied, std::uint64_t pushes) {
    quiet([&] { service_.restore(applied, pushes); });
  }

 private:
  RowService service_;
  ServingLoop loop_{service_};
};

}  // namespace leashed
