#include "leashed/cluster/row_server.h"

#include <algorithm>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"

namespace leashed {

struct RowServer::Loop {
  Loop(RowServer& server, std::vector<std::shared_ptr<Table>> tables,
       std::vector<std::size_t> numbers, RowPlacement placement, std::size_t mine,
       std::uint64_t boot, RowService::Loop which)
      : service(std::move(tables), std::move(numbers), std::move(placement), mine, boot,
                std::move(which)),
        serving(service,
                [&server](std::size_t n) -> ServingLoop& { return server.loops_[n]->serving; }) {}

  RowService service;
  ServingLoop serving;
};

RowServer::RowServer(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
                     RowPlacement placement, std::size_t mine, std::uint64_t boot,
                     std::size_t loops) {
  if (loops == 0) throw Error("a server needs a loop at least");
  RowService::Loop which{.count = loops};
  for (; which.number < loops; ++which.number) {
    loops_.push_back(std::make_unique<Loop>(*this, tables, numbers, placement, mine, boot, which));
  }
}

RowServer::~RowServer() {
  for (const auto& loop : loops_) loop->serving.end();
}

void RowServer::adopt(int socket, bool checked, Transport wish) {
  ServingLoop& to = loops_[adopted_.fetch_add(1, kRelaxed) % loops_.size()]->serving;
  to.adopt([&] { return connected(socket, kRowLimits, checked, wish, Role::accepts); });
}

RowServer::Counters RowServer::counters() const {
  Counters all;
  all.kernel.emplace();
  for (const auto& loop : loops_) {
    all.RowService::Counters::add(loop->service.counters());
    const ServingLoop::Counters served = loop->serving.counters();
    all.traffic.in += served.traffic.in;
    all.traffic.out += served.traffic.out;
    all.seconds += served.seconds;
    all.connections += served.connections;
    all.refused += served.refused;
    if (!served.kernel) all.kernel.reset();
    if (!all.kernel) continue;
    all.kernel->in += served.kernel->in;
    all.kernel->out += served.kernel->out;
  }
  return all;
}

void RowServer::quiet(std::size_t first, const std::function<void()>& f) {
  if (first == loops_.size()) return f();
  loops_[first]->serving.quiet([&] { quiet(first + 1, f); });
}

std::vector<RowServer::Applied> RowServer::applied() {
  std::vector<Applied> found;
  quiet([&] {
    for (const auto& loop : loops_) {
      const std::vector<Applied> some = loop->service.applied();
      found.insert(found.end(), some.begin(), some.end());
    }
  });
  std::ranges::sort(found, {}, &Applied::client);
  return found;
}

void RowServer::expire() {
  quiet([this] {
    for (const auto& loop : loops_) loop->service.expire();
  });
}

void RowServer::restore(std::span<const Applied> applied, std::uint64_t pushes) {
  quiet([&] {
    for (std::size_t n = 0; n < loops_.size(); ++n) {
      std::vector<Applied> own;
      std::ranges::copy_if(applied, std::back_inserter(own), [&](const Applied& one) {
        return RowService::loop_of(one.client, loops_.size()) == n;
      });
      loops_[n]->service.restore(own, n == 0 ? pushes : 0);
    }
  });
}

}  // namespace leashed
