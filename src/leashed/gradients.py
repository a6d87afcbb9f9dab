"""Native functions as gradient sources: the contract of ``leashed.h``, and what is taken for it.

A function of this contract is called by the engine's threads without the GIL. It is given as

- a Numba ``@cfunc`` compiled with ``leashed.gradients.signature()``;
- a Cython function, by ``leashed.gradients.from_cython(module, name)`` (``leashed.pxd``);
- any other C function: a ``scipy.LowLevelCallable``, a PyCapsule whose name is the C signature, or
  a ctypes function of the type ``leashed.gradients.c_type()``.

One of another signature is refused by name; nothing is guessed.
"""

from __future__ import annotations

import ctypes
import re
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["Native", "c_type", "from_cython", "resolve", "signature"]

_ARGUMENTS = ("theta", "x", "rows", "y", "batch", "gradient", "workspace", "user_data")
_LABELS = ("int32", "float32")
_FUNCTION: Any = ctypes.CFUNCTYPE(None).__base__  # of every ctypes function
_SAME = {"int64_t": "long", "longint": "long", "longlong": "long", "int32_t": "int"}


class Native(NamedTuple):
    """A native function: where it is, and its user_data (0: none)."""

    address: int
    user_data: int


def _labels(y: str) -> str:
    if y not in _LABELS:
        raise ValueError(f"y must be one of {', '.join(_LABELS)}, got {y!r}")
    return y


def signature(y: str = "int32") -> Any:
    """Numba's type of the contract, for ``@numba.cfunc(leashed.gradients.signature())``.

    The function's arguments are (theta, x, rows, y, batch, gradient, workspace, user_data):
    pointers, which ``numba.carray(theta, d)`` makes arrays of. Example i of the batch is
    ``carray(x, (n, features))[rows[i]]`` (any n beyond the rows will do), its label ``y[i]``. It
    returns the mean loss and overwrites ``gradient``.

    Args:
        y: ``"int32"`` for labels, ``"float32"`` for real targets.

    Raises:
        ImportError: Numba is not installed.
        ValueError: ``y`` is neither.
    """
    import numba  # noqa: PLC0415  an optional dependency

    types: Any = numba.types
    floats, whole = types.CPointer(types.float32), types.CPointer(types.int64)
    labels = types.CPointer(getattr(types, _labels(y)))
    return types.float32(
        floats, floats, whole, labels, types.int64, floats, types.voidptr, types.voidptr
    )


def c_type(y: str = "int32") -> Any:
    """The contract as a ctypes function type, for ``ctypes.cast(f, leashed.gradients.c_type())``.

    Args:
        y: as for ``signature``.
    """
    floats, whole = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64)
    labels = ctypes.POINTER(ctypes.c_int32) if _labels(y) == "int32" else floats
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(
        ctypes.c_float, floats, floats, whole, labels, ctypes.c_int64, floats, pointer, pointer
    )


def _c_signature(y: str) -> str:
    label = "int32_t" if y == "int32" else "float"
    return (
        f"float (const float *, const float *, const int64_t *, const {label} *, int64_t, float *, "
        "void *, void *)"
    )


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


def resolve(name: str, function: Any, y: str = "int32") -> Native | None:
    """Where the native function ``function`` is; None where it is a plain Python callable.

    Raises:
        TypeError: it is neither, or has another signature; the message names both.
    """
    _labels(y)
    if hasattr(function, "address") and hasattr(function, "_sig"):
        return _numba(name, function, y)
    if isinstance(function, tuple) and type(function).__name__ == "LowLevelCallable":
        function = tuple.__getitem__(function, 0)  # its own is closed
    if type(function).__name__ == "PyCapsule":
        return _capsule(name, function, y)
    if isinstance(function, _FUNCTION):
        return _ctypes(name, function, y)
    if callable(function):
        return None
    raise TypeError(
        f"{name} must be a function f(theta, x, y, out) -> loss, a Numba cfunc, a "
        f"LowLevelCallable, a PyCapsule or a ctypes function, got {function!r}"
    )


def _numba(name: str, function: Any, y: str) -> Native:
    expected, got = signature(y), function._sig
    if got.args != expected.args or got.return_type != expected.return_type:
        raise TypeError(
            f"{name} is a cfunc of the signature {got}, but must have {expected}: compile it with "
            f"@numba.cfunc(leashed.gradients.signature({y!r}))"
        )
    return Native(int(function.address), 0)


def _normal(signature: str) -> str:
    """A C signature without what may be written one way or another."""
    plain = re.sub(r"\bconst\b|\bstruct\b|\s+", "", signature)
    return re.sub(r"\w+", lambda word: _SAME.get(word[0], word[0]), plain)


def _capsule(name: str, capsule: Any, y: str) -> Native:
    get_name = _python_api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
    raw = get_name(capsule)
    got = "" if raw is None else raw.decode("utf-8", "replace")
    if _normal(got) != _normal(_c_signature(y)):
        raise TypeError(
            f"{name} is a capsule of the signature {got!r}, but must have {_c_signature(y)!r} "
            "(leashed.h)"
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


def _ctypes(name: str, function: Any, y: str) -> Native:
    expected = c_type(y)
    result = getattr(function, "restype", None)
    arguments = getattr(function, "argtypes", None)
    if result is not expected._restype_ or not arguments or len(arguments) != len(_ARGUMENTS):
        raise TypeError(
            f"{name} is a ctypes function whose restype and argtypes are not those of "
            f"{_c_signature(y)}; cast it: ctypes.cast(f, leashed.gradients.c_type({y!r}))"
        )
    for argument, got, want in zip(_ARGUMENTS, arguments, expected._argtypes_, strict=True):
        if not (got is want or (argument != "batch" and _is_pointer_to(got, want))):
            raise TypeError(
                f"{name} is a ctypes function whose argument {argument} is {got.__name__}, but "
                f"must be {want.__name__}; see leashed.gradients.c_type({y!r})"
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
