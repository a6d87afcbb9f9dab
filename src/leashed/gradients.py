"""Native functions as gradient sources: the contract of ``leashed.h``, and what is taken for it.

A function of this contract is called by the engine's threads without the GIL. It is given as

- a Numba ``@cfunc`` compiled with ``leashed.gradients.signature()``;
- a Cython function, by ``leashed.gradients.from_cython(module, name)`` (``leashed.pxd``);
- any other C function: a ``scipy.LowLevelCallable``, a PyCapsule whose name is the C signature, or
  a ctypes function of the type ``leashed.gradients.c_type()``.

One of another signature is refused by name; nothing is guessed. Functions that read rows of
embedding tables have a type of their own, for which ``rows=True`` is given.
"""

from __future__ import annotations

import ctypes
import re
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["Native", "c_type", "from_cython", "resolve", "signature"]

# Of each type the arguments by name, and what they are.
_EXAMPLES = {"theta": "floats", "x": "floats", "rows": "int64s", "y": "labels", "batch": "int64"}
_END = {"workspace": "void", "user_data": "void"}
_DENSE = {**_EXAMPLES, "gradient": "floats", **_END}
_ROWS = {
    **_EXAMPLES,
    "offsets": "int64s",
    "places": "int64s",
    "weights": "floats",
    "counts": "int64s",
    "values": "floats",
    "gradient": "floats",
    "row_gradients": "floats",
    "logits": "floats",
    **_END,
}
_LABELS = ("int32", "float32")
_FUNCTION: Any = ctypes.CFUNCTYPE(None).__base__  # of every ctypes function
_PYTHON = {  # what a Python callable is to be, by its argument's name and whether it reads rows
    ("gradient", False): "theta, x, y, out) -> loss",
    ("gradient", True): "theta, x, y, rows, out) -> loss",
    ("loss", False): "theta, x, y) -> loss",
    ("loss", True): "theta, x, y, rows) -> loss",
    ("logits", True): "theta, x, rows) -> logits",
}
_SAME = {"int64_t": "long", "longint": "long", "longlong": "long", "int32_t": "int"}


class Native(NamedTuple):
    """A native function: where it is, and its user_data (0: none)."""

    address: int
    user_data: int


def _labels(y: str) -> str:
    if y not in _LABELS:
        raise ValueError(f"y must be one of {', '.join(_LABELS)}, got {y!r}")
    return y


def _contract(y: str, rows: bool) -> dict[str, str]:
    if rows and _labels(y) != "int32":
        raise ValueError(f'y must be "int32" with rows, which come with labels, got {y!r}')
    return _ROWS if rows else _DENSE


def signature(y: str = "int32", *, rows: bool = False) -> Any:
    """Numba's type of the contract, for ``@numba.cfunc(leashed.gradients.signature())``.

    The function's arguments are (theta, x, rows, y, batch, gradient, workspace, user_data):
    pointers, which ``numba.carray(theta, d)`` makes arrays of. Example i of the batch is
    ``carray(x, (n, features))[rows[i]]`` (any n beyond the rows will do), its label ``y[i]``. It
    returns the mean loss and overwrites ``gradient``.

    With rows of tables they are (theta, x, rows, y, batch, offsets, places, weights, counts, values,
    gradient, row_gradients, logits, workspace, user_data), as ``leashed.h`` tells: the row of entry
    e is ``values[places[e] : places[e] + dim]``, and its gradient is added to ``row_gradients`` at
    the same place.

    Args:
        y: ``"int32"`` for labels, ``"float32"`` for real targets.
        rows: whether the function reads rows of tables.

    Raises:
        ImportError: Numba is not installed.
        ValueError: ``y`` is neither, or not ``"int32"`` with rows.
    """
    import numba  # noqa: PLC0415  an optional dependency

    types: Any = numba.types
    kinds = {
        "floats": types.CPointer(types.float32),
        "int64s": types.CPointer(types.int64),
        "int64": types.int64,
        "labels": types.CPointer(getattr(types, _labels(y))),
        "void": types.voidptr,
    }
    return types.float32(*(kinds[kind] for kind in _contract(y, rows).values()))


def c_type(y: str = "int32", *, rows: bool = False) -> Any:
    """The contract as a ctypes function type, for ``ctypes.cast(f, leashed.gradients.c_type())``.

    Args:
        y, rows: as for ``signature``.
    """
    floats = ctypes.POINTER(ctypes.c_float)
    kinds: dict[str, Any] = {
        "floats": floats,
        "int64s": ctypes.POINTER(ctypes.c_int64),
        "int64": ctypes.c_int64,
        "labels": ctypes.POINTER(ctypes.c_int32) if _labels(y) == "int32" else floats,
        "void": ctypes.c_void_p,
    }
    return ctypes.CFUNCTYPE(ctypes.c_float, *(kinds[kind] for kind in _contract(y, rows).values()))


def _c_signature(y: str, rows: bool = False) -> str:
    kinds = {
        "floats": "const float *",
        "int64s": "const int64_t *",
        "int64": "int64_t",
        "labels": "const int32_t *" if y == "int32" else "const float *",
        "void": "void *",
    }
    written = dict.fromkeys(("gradient", "row_gradients", "logits"), "float *")
    arguments = (written.get(name, kinds[kind]) for name, kind in _contract(y, rows).items())
    return f"float ({', '.join(arguments)})"


def _spelled(y: str, rows: bool) -> str:
    """The arguments of ``signature`` and ``c_type``."""
    return "rows=True" if rows else repr(y)


def from_cython(module: ModuleType, name: str) -> Any:
    """The capsule of a Cython function that is declared ``cdef api`` or in a ``.pxd``.

    Raises:
        AttributeError: ``module`` exports no such function.
    """
    functions = getattr(module, "__pyx_capi__", {})
    if name not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise AttributeError(
            f"{module.__name__} exports no C function {name!r} (it exports {known}); declare it "
            "`cdef api`, or in the module's .pxd"
        )
    return functions[name]


def resolve(name: str, function: Any, y: str = "int32", *, rows: bool = False) -> Native | None:
    """Where the native function ``function`` is; None where it is a plain Python callable.

    Raises:
        TypeError: it is neither, or has another signature; the message names both.
    """
    _contract(_labels(y), rows)
    if hasattr(function, "address") and hasattr(function, "_sig"):
        return _numba(name, function, y, rows)
    if isinstance(function, tuple) and type(function).__name__ == "LowLevelCallable":
        function = tuple.__getitem__(function, 0)  # its own is closed
    if type(function).__name__ == "PyCapsule":
        return _capsule(name, function, y, rows)
    if isinstance(function, _FUNCTION):
        return _ctypes(name, function, y, rows)
    if callable(function):
        return None
    plain = _PYTHON.get((name, rows), _PYTHON["gradient", rows])
    raise TypeError(
        f"{name} must be a function f({plain}, a Numba cfunc, a "
        f"LowLevelCallable, a PyCapsule or a ctypes function, got {function!r}"
    )


def _numba(name: str, function: Any, y: str, rows: bool) -> Native:
    expected, got = signature(y, rows=rows), function._sig
    if got.args != expected.args or got.return_type != expected.return_type:
        raise TypeError(
            f"{name} is a cfunc of the signature {got}, but must have {expected}: compile it with "
            f"@numba.cfunc(leashed.gradients.signature({_spelled(y, rows)}))"
        )
    return Native(int(function.address), 0)


def _normal(signature: str) -> str:
    """A C signature without what may be written one way or another."""
    plain = re.sub(r"\bconst\b|\bstruct\b|\s+", "", signature)
    return re.sub(r"\w+", lambda word: _SAME.get(word[0], word[0]), plain)


def _capsule(name: str, capsule: Any, y: str, rows: bool) -> Native:
    get_name = _python_api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
    raw = get_name(capsule)
    got = "" if raw is None else raw.decode("utf-8", "replace")
    expected = _c_signature(y, rows)
    if _normal(got) != _normal(expected):
        raise TypeError(
            f"{name} is a capsule of the signature {got!r}, but must have {expected!r} (leashed.h)"
        )
    pointer = _python_api(
        "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
    )
    context = _python_api("PyCapsule_GetContext", ctypes.c_void_p, ctypes.py_object)
    return Native(int(pointer(capsule, raw) or 0), int(context(capsule) or 0))


def _python_api(name: str, result: Any, *arguments: Any) -> Any:
    """A function of CPython's own, with a prototype that no one else changes."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def _is_pointer_to(kind: Any, expected: Any) -> bool:
    return kind is ctypes.c_void_p or kind is expected


def _ctypes(name: str, function: Any, y: str, rows: bool) -> Native:
    names, expected = _contract(y, rows), c_type(y, rows=rows)
    result = getattr(function, "restype", None)
    arguments = getattr(function, "argtypes", None)
    if result is not expected._restype_ or not arguments or len(arguments) != len(names):
        raise TypeError(
            f"{name} is a ctypes function whose restype and argtypes are not those of "
            f"{_c_signature(y, rows)}; cast it: "
            f"ctypes.cast(f, leashed.gradients.c_type({_spelled(y, rows)}))"
        )
    for argument, got, want in zip(names, arguments, expected._argtypes_, strict=True):
        if not (got is want or (argument != "batch" and _is_pointer_to(got, want))):
            raise TypeError(
                f"{name} is a ctypes function whose argument {argument} is {got.__name__}, but "
                f"must be {want.__name__}; see leashed.gradients.c_type({_spelled(y, rows)})"
            )
    address = ctypes.cast(function, ctypes.c_void_p).value
    if not address:
        raise ValueError(f"{name} is a null function pointer")
    return Native(address, 0)


def check_y(name: str, y: str) -> str:
    """ValueError, naming the argument, where ``y`` is no dtype of labels or targets."""
    if not isinstance(y, str):
        raise TypeError(f"{name} must be a str, got {y!r}")
    if y not in _LABELS:
        raise ValueError(f"{name} must be one of {', '.join(_LABELS)}, got {y!r}")
    return y
