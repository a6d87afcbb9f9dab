#include "leashed/cluster/policy_server.h"

#include <utility>

namespace leashed {

PolicyServer::PolicyServer(const modes::ServerPolicy& machine, const DisciplineContext& context,
                           PolicyService::Run run, PolicyService::Heard heard,
                           PolicyService::Noted noted, const PolicyService::Begun* begun,
                           RowHolder* rows)
    : service_(machine, context, run, std::move(heard), std::move(noted), begun, rows),
      serving_(service_) {}

void PolicyServer::adopt(int socket, bool checked, Transport wish) {
  serving_.adopt([&] { return connected(socket, kModeLimits, checked, wish, Role::accepts); });
}

PolicyServer::Counters PolicyServer::counters() const {
  return {serving_.counters(), service_.counters()};
}

void PolicyServer::quiet(const std::function<void(PolicyService&)>& f) {
  serving_.quiet([&] { f(service_); });
}

}  // namespace leashed
