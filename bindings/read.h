// Views of the parameters for Python: arrays without a copy, which keep what they show for as long
// as anyone refers to them.
#pragma once

#include <memory>

#include "arrays.h"
#include "leashed/backend/readable.h"

namespace leashed {

// Vectors from so many floats on are copied or updated without the GIL; for shorter ones giving it
// up and waiting for it again costs more than the work.
inline constexpr std::size_t kReleaseGil = 8192;

struct ViewOptions {
  bool writable = false;     // for PyTorch, which knows no read-only memory
  bool without_gil = false;  // also where the vector is short: holding it and letting go may wait
};

struct Viewed {
  FloatArray array;
  std::uint64_t t;
};
// The latest parameters. Source and what is held go with the array's last reference.
Viewed view_of(const std::shared_ptr<Readable>& source, const ViewOptions& options);

bool is_read(PyObject* object);
class ReadObject : public py::object {
 public:
  PYBIND11_OBJECT_DEFAULT(ReadObject, py::object, is_read)
};
// What Python calls a read: a context manager that holds a view while it is entered, and has its
// version in `t`.
ReadObject new_read(std::shared_ptr<Readable> source, const ViewOptions& options = {});

// leashed.Update(published, staleness, tries).
py::object to_update(const Publication& publication);

}  // namespace leashed

template <>
struct pybind11::detail::handle_type_name<leashed::ReadObject> {
  static constexpr auto name = const_name("leashed._core.Read");
};
