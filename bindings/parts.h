// The parts of the extension module, one source file each.
#pragma once

#include <pybind11/pybind11.h>

namespace leashed {

void bind_batches(pybind11::module_& m);
void bind_clicks(pybind11::module_& m);
void bind_cluster(pybind11::module_& m);
void bind_remote_rows(pybind11::module_& m);
void bind_row_calls(pybind11::module_& m);
void bind_row_server(pybind11::module_& m);
void bind_engine(pybind11::module_& m);
void bind_external(pybind11::module_& m);
void bind_graph(pybind11::module_& m);
void bind_mode_servers(pybind11::module_& m);
void bind_modes(pybind11::module_& m);
void bind_network(pybind11::module_& m);
void bind_part_servers(pybind11::module_& m);
void bind_parameter_vector(pybind11::module_& m);
void bind_read(pybind11::module_& m);
void bind_replay(pybind11::module_& m);
void bind_rules(pybind11::module_& m);
void bind_shared_vector(pybind11::module_& m);
void bind_simulation(pybind11::module_& m);
void bind_sparse(pybind11::module_& m);
void bind_stream(pybind11::module_& m);
void bind_table(pybind11::module_& m);
void bind_tracked(pybind11::module_& m);
void bind_train(pybind11::module_& m);
void bind_training(pybind11::module_& m);
void bind_train_mode(pybind11::module_& m);

}  // namespace leashed
