#include "leashed/cluster/part_server.h"

#include <span>

namespace leashed {

void PartServer::adopt(int socket, bool checked, Transport wish) {
  serving_.adopt([&] { return connected(socket, kModeLimits, checked, wish, Role::accepts); });
}

void PartServer::follow(int socket, bool checked, Transport wish) {
  ToldHello said{};
  quiet([&](PartService& service) { said = service.follow(); });
  try {
    serving_.adopt([&] {
      auto made = connected(socket, kModeLimits, checked, wish, Role::offers);
      const auto hello = std::as_bytes(std::span(&said, 1));
      made->begin({.kind = kToldHello, .correlation = number_}, {&hello, 1});
      made->keep();  // the loop sends it
      return made;
    });
  } catch (...) {
    quiet([](PartService& service) { service.follows_none(); });
    throw;
  }
}

void PartServer::quiet(const std::function<void(PartService&)>& f) {
  serving_.quiet([&] { f(service_); });
}

}  // namespace leashed
