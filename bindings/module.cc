#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "leashed/base/error.h"
#include "leashed/base/isa.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/data/row_stream.h"
#include "parts.h"

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  namespace py = pybind11;
  using namespace leashed;

  m.doc() = "The native core; the package leashed checks what goes in and explains it.";
  m.attr("__version__") = LEASHED_VERSION;
  const auto error = py::register_exception<Error>(m, "Error", PyExc_ValueError);
  py::register_exception<NoRows>(m, "NoRows", error);
  py::register_exception<RowsAway>(m, "RowsAway", error);

  m.def(
      "available_isas",
      [] {
        std::vector<std::string> names;
        for (const Isa isa : available_isas()) names.emplace_back(isa_name(isa));
        return names;
      },
      "Instruction-set levels of this build that this CPU can run, slowest first.");
  m.def(
      "default_isa", [] { return std::string(isa_name(default_isa())); },
      "The level in use: the last available one, or what the environment variable LEASHED_ISA "
      "names.");
  bind_batches(m);
  bind_modes(m);
  bind_network(m);
  bind_read(m);
  bind_parameter_vector(m);
  bind_clicks(m);
  bind_table(m);
  bind_graph(m);
  bind_tracked(m);
  bind_external(m);
  bind_cluster(m);
  bind_row_server(m);
  bind_remote_rows(m);
  bind_row_calls(m);
  bind_engine(m);
  bind_rules(m);
  bind_shared_vector(m);
  bind_sparse(m);
  bind_stream(m);
  bind_training(m);
  bind_train(m);
  bind_mode_servers(m);
  bind_part_servers(m);
  bind_train_mode(m);
  bind_replay(m);
  bind_simulation(m);
}
