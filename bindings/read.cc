// Types of Python's own kind, not pybind11's: entering and leaving a read is all that many loops do
// with an engine, and pybind11's calls and objects took most of its time.
#include "read.h"

#include <pybind11/gil_safe_call_once.h>

#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "parts.h"

namespace leashed {
namespace {

PyTypeObject* base_type = nullptr;  // made with the module, and there for good
PyTypeObject* read_type = nullptr;

// An object of the type, which a freed one's deallocation gives back.
template <class T>
T* allocate(PyTypeObject* type) {
  T* made = PyObject_New(T, type);
  if (!made) throw py::error_already_set();
  return made;
}
void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

// What an array of a view has for its base.
struct Base {
  PyObject_HEAD std::shared_ptr<Readable> source;
  std::unique_ptr<Held> held;  // goes first
  bool without_gil;

  static void dealloc(PyObject* object) {
    Base* self = reinterpret_cast<Base*>(object);
    if (self->without_gil) {
      const py::gil_scoped_release release;
      self->let_go();
    } else {
      self->let_go();
    }
    deallocate(object);
  }
  void let_go() {
    held.~unique_ptr();
    source.~shared_ptr();
  }
};

struct Read {
  PyObject_HEAD std::shared_ptr<Readable> source;
  ViewOptions options;
  // Several threads may enter at once, on free-threaded Python or while one of them does without
  // the GIL. None may wait for another, which may wait for the GIL.
  std::atomic<bool> entered;
  std::atomic<PyObject*> array;  // null: not entered, or not yet
  std::atomic<std::uint64_t> t;

  static Read* of(PyObject* object) { return reinterpret_cast<Read*>(object); }

  static void dealloc(PyObject* object) {
    Read* self = of(object);
    Py_XDECREF(self->array.load(std::memory_order_relaxed));  // nobody else refers to it
    self->source.~shared_ptr();
    deallocate(object);
  }
  static PyObject* enter(PyObject* object, PyObject*) {
    Read* self = of(object);
    // Acquire: pairs with the release in exit, or below.
    if (self->entered.exchange(true, std::memory_order_acquire)) {
      PyErr_SetString(PyExc_RuntimeError, "this read is already entered; call read() again");
      return nullptr;
    }
    try {
      Viewed viewed = view_of(self->source, self->options);
      self->t.store(viewed.t, std::memory_order_relaxed);
      // Release: pairs with the acquire in exit.
      self->array.store(viewed.array.inc_ref().ptr(), std::memory_order_release);
      return viewed.array.release().ptr();
    } catch (py::error_already_set& error) {
      error.restore();
    } catch (...) {
      py::detail::try_translate_exceptions();
    }
    self->entered.store(false, std::memory_order_release);
    return nullptr;
  }
  static PyObject* exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    Read* self = of(object);
    // Acquire: pairs with the release in enter.
    if (PyObject* array = self->array.exchange(nullptr, std::memory_order_acquire)) {
      self->entered.store(false, std::memory_order_release);  // pairs with the exchange in enter
      Py_DECREF(array);
    }
    Py_RETURN_NONE;
  }
};

PyMethodDef read_methods[] = {
    {"__enter__", &Read::enter, METH_NOARGS,
     "__enter__(self) -> numpy.typing.NDArray[numpy.float32]\n\n"
     "The latest parameters, float32 [d]."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Read::exit)),
     METH_FASTCALL, "__exit__(self, kind: object, error: object, traceback: object) -> None"},
    {nullptr, nullptr, 0, nullptr}};
PyTypeObject* make_type(const char* name, std::size_t size, std::vector<PyType_Slot> slots) {
  slots.push_back({0, nullptr});
  PyType_Spec spec{name, static_cast<int>(size), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw py::error_already_set();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

bool is_read(PyObject* object) { return Py_TYPE(object) == read_type; }

Viewed view_of(const std::shared_ptr<Readable>& source, const ViewOptions& options) {
  std::unique_ptr<Held> held;
  const std::size_t dimension = source->dimension();
  if (dimension < kReleaseGil && !options.without_gil) {
    held = source->hold();
  } else {
    const py::gil_scoped_release release;
    held = source->hold();
  }
  const View view = held->view;
  Base* base = allocate<Base>(base_type);
  new (&base->source) std::shared_ptr<Readable>(source);
  new (&base->held) std::unique_ptr<Held>(std::move(held));
  base->without_gil = options.without_gil;
  const auto owner = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(base));
  const auto& numpy = py::detail::npy_api::get();
  const auto length = static_cast<Py_intptr_t>(dimension);
  auto array = py::reinterpret_steal<FloatArray>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, py::dtype::of<float>().release().ptr(), 1, &length, nullptr,
      const_cast<float*>(view.theta),
      options.writable ? py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : 0, nullptr));
  if (!array || numpy.PyArray_SetBaseObject_(array.ptr(), owner.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return {std::move(array), view.t};
}

ReadObject new_read(std::shared_ptr<Readable> source, const ViewOptions& options) {
  Read* read = allocate<Read>(read_type);
  new (&read->source) std::shared_ptr<Readable>(std::move(source));
  read->options = options;
  new (&read->entered) std::atomic<bool>(false);
  new (&read->array) std::atomic<PyObject*>(nullptr);
  new (&read->t) std::atomic<std::uint64_t>(0);
  return py::reinterpret_steal<ReadObject>(reinterpret_cast<PyObject*>(read));
}

// Made as namedtuple's own __new__ makes it, which is Python code: a tuple of another type.
py::object to_update(const Publication& publication) {
  static py::gil_safe_call_once_and_store<py::object> storage;
  const py::object& stored =
      storage
          .call_once_and_store_result([] {
            return py::object(py::module_::import("leashed.engine.vector").attr("Update"));
          })
          .get_stored();
  auto* type = reinterpret_cast<PyTypeObject*>(stored.ptr());
  py::object made = py::reinterpret_steal<py::object>(type->tp_alloc(type, 3));
  if (!made) throw py::error_already_set();
  const std::uint64_t tau = publication.staleness_compute + publication.staleness_schedule;
  PyTuple_SET_ITEM(made.ptr(), 0, py::bool_(publication.published).release().ptr());
  PyTuple_SET_ITEM(made.ptr(), 1, py::int_(tau).release().ptr());
  PyTuple_SET_ITEM(made.ptr(), 2, py::int_(publication.tries).release().ptr());
  return made;
}

void bind_read(py::module_& m) {
  base_type = make_type("leashed._core.Viewed", sizeof(Base),
                        {{Py_tp_dealloc, reinterpret_cast<void*>(&Base::dealloc)}});
  read_type = make_type(
      "leashed._core.Read", sizeof(Read),
      {{Py_tp_dealloc, reinterpret_cast<void*>(&Read::dealloc)}, {Py_tp_methods, read_methods}});
  const py::handle read(reinterpret_cast<PyObject*>(read_type));
  const py::cpp_function t(
      [](const ReadObject& object) {
        return Read::of(object.ptr())->t.load(std::memory_order_relaxed);
      },
      "Version of the vector entered last.");
  read.attr("t") = py::module_::import("builtins").attr("property")(t);
  m.add_object("Read", read);
}

}  // namespace leashed
