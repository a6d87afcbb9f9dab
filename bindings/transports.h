// Connections that Python has made and proven, for those who take them over.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

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

inline py::dict kernel_counts(const std::optional<Traffic>& kernel) {
  using namespace pybind11::literals;
  if (!kernel) return {};
  return py::dict("kernel_out"_a = kernel->out, "kernel_in"_a = kernel->in);
}

}  // namespace leashed
