// Tables of rows for Python, whose threads share them: no call keeps the GIL.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "choice.h"
#include "leashed/table/saving.h"
#include "parts.h"
#include "rows.h"
#include "signals.h"

namespace leashed {
namespace {

using RowIdArray = py::array_t<std::int64_t, py::array::c_style>;
using VersionArray = py::array_t<std::uint32_t, py::array::c_style>;

// (A negative id is its bit pattern.)
const std::uint64_t* ids_of(const RowIdArray& ids) {
  return reinterpret_cast<const std::uint64_t*>(ids.data());
}

RowPlacement::Shards to_shards(const std::optional<std::vector<bool>>& given) {
  RowPlacement::Shards shards;
  if (!given) return shards.set();
  if (given->size() != shards.size()) {
    throw Error("shards must be " + std::to_string(shards.size()) + ", got " +
                std::to_string(given->size()));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i] = (*given)[i];
  return shards;
}

std::shared_ptr<SavedTable> make_table(const std::string& name, std::size_t dim, std::size_t rows,
                                       std::size_t max_bytes, const PyChoice& initial,
                                       const PyChoice& rule, const PyChoice& staleness,
                                       std::uint32_t admit_after, const std::string& evict,
                                       std::uint64_t seed, std::uint32_t number, bool versions,
                                       const std::optional<std::vector<bool>>& shards) {
  const TableSettings settings{name,
                               dim,
                               rows,
                               max_bytes,
                               to_choice(initial),
                               to_choice(rule),
                               to_choice(staleness),
                               admit_after,
                               evict,
                               seed,
                               number,
                               versions,
                               to_shards(shards)};
  const py::gil_scoped_release release;
  return std::make_shared<SavedTable>(settings, SignalWatch());
}

// (values [n, dim], versions [n])
py::tuple lookup(Table& table, const RowIdArray& ids) {
  const auto n = static_cast<std::size_t>(ids.size());
  py::array_t<float> values({n, table.dim()});
  VersionArray versions(static_cast<py::ssize_t>(n));
  float* const to = values.mutable_data();
  std::uint32_t* const told = versions.mutable_data();
  {
    const py::gil_scoped_release release;
    table.lookup(ids_of(ids), n, to, told, SignalWatch());
  }
  return py::make_tuple(values, versions);
}

py::array_t<std::int64_t> ids_in(Table& table) {
  const std::vector<std::uint64_t> found = [&] {
    const py::gil_scoped_release release;
    return table.ids(SignalWatch());
  }();
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(found.size()),
                                   reinterpret_cast<const std::int64_t*>(found.data()));
}

py::dict update_rows(Table& table, const RowIdArray& ids, const FloatArray& gradients,
                     const std::optional<VersionArray>& versions) {
  const auto n = static_cast<std::size_t>(ids.size());
  require_length(gradients, n * table.dim(), "gradients");
  if (versions) require_length(*versions, n, "versions");
  const RowPublication result = [&] {
    const py::gil_scoped_release release;
    return table.update(ids_of(ids), n, gradients.data(), versions ? versions->data() : nullptr,
                        SignalWatch());
  }();
  return to_dict(result);
}

// [rows, dim], the memory itself.
py::array_t<float> in_place(const std::shared_ptr<SavedTable>& table) {
  const auto [first, stride] = table->in_place();
  table->shown();
  const std::vector<std::size_t> strides{stride * sizeof(float), sizeof(float)};
  return {std::vector<std::size_t>{table->settings().rows, table->dim()}, strides, first,
          py::cast(table)};
}

py::dict statistics(Table& table) {
  using namespace pybind11::literals;
  const TableStatistics s = [&] {
    const py::gil_scoped_release release;
    return table.growth().statistics(SignalWatch());
  }();
  py::dict told("rows"_a = s.rows, "capacity"_a = s.capacity, "bytes"_a = s.bytes,
                "most_bytes"_a = s.most_bytes, "scratch"_a = s.scratch,
                "bytes_per_row"_a = s.bytes_per_row, "steps"_a = table.steps(), "asked"_a = s.asked,
                "found"_a = s.found, "admitted"_a = s.admitted, "evicted"_a = s.evicted,
                "rebuilt"_a = s.rebuilt);
  told.attr("update")(to_dict(s.updates));
  return told;
}

std::pair<std::uint64_t, std::uint64_t> refusals(const Table& table) {
  const Growth::Refusals found = table.growth().refusals();
  return {found.asked, found.refused};
}

std::size_t bytes_of_row(std::size_t dim, const PyChoice& rule, const PyChoice& staleness,
                         bool versions) {
  return bytes_per_row(dim, to_choice(rule), to_choice(staleness), versions);
}

template <auto Method>
void in_file(SavedTable& table, const std::string& path, const std::string& description) {
  TableFiles& files = table;
  (files.*Method)(path, description, SignalWatch());
}

template <auto Method>
std::uint64_t changes_in_file(SavedTable& table, const std::string& path,
                              const std::string& description, bool quiet, bool flush) {
  TableFiles& files = table;
  return (files.*Method)(path, description, quiet, SignalWatch(), flush);
}

using PartArgument = std::tuple<std::vector<std::string>, std::string,
                                std::optional<std::vector<bool>>, std::size_t>;

void load(SavedTable& table, const std::vector<PartArgument>& given,
          const std::optional<std::vector<bool>>& shards,
          std::optional<std::pair<std::uint64_t, std::uint32_t>> begins) {
  std::vector<TableFiles::Part> parts;
  for (const auto& [paths, description, of, capacity] : given) {
    parts.push_back({paths, description, to_shards(of), capacity});
  }
  std::optional<TableFiles::Begins> with;
  if (begins) with = {begins->first, begins->second};
  table.load(parts, to_shards(shards), SignalWatch(), with);
}

}  // namespace

void bind_table(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> without_gil;
  py::class_<Table, std::shared_ptr<Table>>(m, "ServedTable", "Rows that threads read and update.")
      .def("lookup", &lookup, py::arg("ids").noconvert(), "(values [n, dim], versions [n])")
      .def("ids", &ids_in, "Of a table that grows: those that have a row, in no order.")
      .def("update", &update_rows, py::arg("ids").noconvert(), py::arg("gradients").noconvert(),
           py::arg("versions").noconvert() = py::none(), "What became of each distinct id.")
      .def("statistics", &statistics)
      .def("reach_steps", &Table::reach_steps, py::arg("steps"), "At least so many are made.")
      .def("refusals", &refusals, "(asked, refused)")
      .def_static("bytes_per_row", &bytes_of_row, py::kw_only(), py::arg("dim"), py::arg("rule"),
                  py::arg("staleness"), py::arg("versions"), "Of a table that would be made so.");
  py::class_<SavedTable, Table, std::shared_ptr<SavedTable>>(m, "Table", "And files of them.")
      .def(py::init(&make_table), py::kw_only(), py::arg("name"), py::arg("dim"), py::arg("rows"),
           py::arg("max_bytes"), py::arg("initial"), py::arg("rule"), py::arg("staleness"),
           py::arg("admit_after"), py::arg("evict"), py::arg("seed"), py::arg("number"),
           py::arg("versions"), py::arg("shards") = py::none())
      .def("in_place", &in_place, "Of a fixed table: its rows [rows, dim], where they lie.")
      .def("save", in_file<&TableFiles::save>, without_gil, py::arg("path"), py::arg("description"))
      .def("save_tracked", changes_in_file<&TableFiles::save_tracked>, without_gil, py::arg("path"),
           py::arg("description"), py::arg("quiet"), py::arg("flush") = true)
      .def("save_touched", changes_in_file<&TableFiles::save_touched>, without_gil, py::arg("path"),
           py::arg("description"), py::arg("quiet"), py::arg("flush") = true)
      .def("save_changes", changes_in_file<&TableFiles::save_changes>, without_gil, py::arg("path"),
           py::arg("description"), py::arg("quiet"), py::arg("flush") = true)
      .def(
          "track", [](SavedTable& table) { return table.track(SignalWatch()); }, without_gil)
      .def(
          "tracks", [](SavedTable& table) { return table.tracks(SignalWatch()); }, without_gil)
      .def("load", &load, without_gil, py::arg("parts"), py::arg("shards") = py::none(),
           py::arg("begins") = py::none(),
           "parts: each (paths, description, shards, capacity), None: all; 0: as here. "
           "begins: (seed, number) of the files, where others'.")
      .def(
          "begins",
          [](const SavedTable& table) {
            const TableFiles::Begins now = table.begins();
            return std::pair(now.seed, now.number);
          },
          "(seed, number) of what rows begin with now.")
      .def_static(
          "description_of",
          [](const std::string& path) { return SavedReader(path).header().description; },
          without_gil, py::arg("path"), "What a file was saved with.");
}

}  // namespace leashed
