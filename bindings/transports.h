// Connections that Python has made and proven, for those who take them over.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "leashed/net/share.h"
#include "leashed/net/wire_count.h"

namespace leashed {

// f(socket), which takes it over unless it throws. Whether that succeeds or not, Python has it no
// more.
template <class F>
auto taking(int socket, const F& f) {
  try {
    return f(socket);
  } catch (...) {
    close(socket);
    throw;
  }
}

inline Transport to_transport(const std::string& name) {
  if (name == "tcp") return Transport::tcp;
  return name == "shm" ? Transport::shm : Transport::any;
}

// Of what connects threads, its slots, with servers.
template <class Connected>
void bind_connections(py::class_<Connected, std::shared_ptr<Connected>>& to) {
  to.def_property_readonly("slots", &Connected::slots,
                           "Threads that need a connection with each server.")
      .def(
          "missing",
          [](const Connected& of, std::size_t servers) {
            std::vector<std::pair<std::size_t, std::size_t>> all;
            for (std::size_t slot = 0; slot < of.slots(); ++slot) {
              for (std::size_t server = 0; server < servers; ++server) {
                if (of.missing(slot, server)) all.emplace_back(slot, server);
              }
            }
            return all;
          },
          py::arg("servers"), "(slot, server) of the connections to be made.")
      .def(
          "adopt",
          [](Connected& of, std::size_t slot, std::size_t server, int socket, bool checked,
             const std::string& transport, double patience) {
            const py::gil_scoped_release release;
            return taking(socket, [&](int s) {
              return of.adopt(slot, server, s, checked, to_transport(transport), patience);
            });
          },
          py::arg("slot"), py::arg("server"), py::arg("socket"), py::arg("checked"),
          py::arg("transport") = "tcp", py::arg("patience") = 0.0,
          "With patience, in seconds: False where the server does not answer within it.");
}

inline py::dict kernel_counts(const std::optional<Traffic>& kernel) {
  using namespace pybind11::literals;
  if (!kernel) return {};
  return py::dict("kernel_out"_a = kernel->out, "kernel_in"_a = kernel->in);
}

}  // namespace leashed
