"""Native gradients: Numba, Cython, capsules and C functions, called without the GIL."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_rules import RULES

import leashed as lsh
from leashed import gradients, staleness

D = 5
N = 200

# ½ (x·w − y)², with its mean loss and gradient; y is a label or a target.
SOURCE = """
#include <stddef.h>
#include "leashed.h"
#define DEFINE(name, label)                                                                      \\
  float name(const float* theta, const float* x, const int64_t* rows, const label* y,            \\
             int64_t batch, float* gradient, void* workspace, void* user_data) {                 \\
    float loss = 0, scale = user_data ? *(const float*)user_data : 1;                            \\
    if (workspace) ((int64_t*)workspace)[0] += 1;                                                \\
    if (gradient) for (int j = 0; j < 5; ++j) gradient[j] = 0;                                   \\
    for (int64_t i = 0; i < batch; ++i) {                                                        \\
      const float* row = x + rows[i] * 5;                                                        \\
      float error = -(float)y[i];                                                                \\
      for (int j = 0; j < 5; ++j) error += row[j] * theta[j];                                    \\
      loss += error * error / 2 / (float)batch;                                                  \\
      if (gradient) for (int j = 0; j < 5; ++j) gradient[j] += scale * error * row[j] / (float)batch; \\
    }                                                                                            \\
    return loss;                                                                                 \\
  }
DEFINE(labels, int32_t)
DEFINE(targets, float)
const leashed_gradient check_labels = labels;
const leashed_gradient_f check_targets = targets;
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("native")
    (folder / "model.c").write_text(SOURCE)
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{lsh.get_include()}", "model.c", "-o", "model.so"],
        cwd=folder,
        check=True,
    )
    return ctypes.CDLL(str(folder / "model.so"))


def problem(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, D)).astype(np.float32)
    return x, x @ np.arange(1, D + 1).astype(np.float32)


def function(library: ctypes.CDLL, y: str = "float32") -> Any:
    return ctypes.cast(library.targets if y == "float32" else library.labels, gradients.c_type(y))


def model(library: ctypes.CDLL, **arguments: Any) -> lsh.models.External:
    return lsh.models.external(
        **{
            "gradient": function(library),
            "dimension": D,
            "features": D,
            "y": "float32",
            **arguments,
        }
    )


def test_a_c_function_trains_under_every_discipline(
    library: ctypes.CDLL, discipline: lsh.Discipline
) -> None:
    x, y = problem()
    result = lsh.train(
        model(library),
        (x, y),
        discipline=discipline,
        rule=lsh.SGD(0.1),
        threads=1 if isinstance(discipline, lsh.Sequential) else 3,
        batch_size=20,
        # A thread that is interrupted within Hogwild's write takes the others' updates back, all of a short
        # run's: one that goes on until it is there.
        until=lsh.until(loss_fraction=1e-3, seconds=240),
    )
    assert result.outcome == "converged"
    assert np.isnan(result.accuracy).all()
    # Who was held up since the start takes a tenth of the way back at the end, and two may have been.
    found, sought = result.parameters, np.arange(1, D + 1)
    assert np.linalg.norm(found - sought) < np.linalg.norm(sought) / 3
    # A fast machine is far below the loss asked for by then, where errors are all rounding.
    assert model(library).evaluate(result.parameters, (x, y)) == pytest.approx(
        float(((x @ result.parameters - y) ** 2).mean() / 2), rel=1e-4, abs=1e-8
    )


@pytest.mark.parametrize("name", RULES)
def test_every_rule_takes_it(library: ctypes.CDLL, name: str) -> None:
    rule = RULES[name]()
    result = lsh.train(
        model(library, variables=[2, 3]),
        problem(),
        rule=rule,
        staleness=staleness.stage_aware(staleness.inverse()),
        threads=2,
        batch_size=20,
        until=lsh.until(updates=50),
    )
    assert result.total_updates == 50
    assert (result.loss[-1] > result.loss[0]) == getattr(rule, "maximize", False)


def test_batches_are_those_of_the_sampler_and_labels_are_whole(library: ctypes.CDLL) -> None:
    """One step from 0 with SGD tells the batch's gradient."""
    x, y = problem()
    labels = np.round(y)
    result = lsh.train(
        model(library, gradient=function(library, "int32"), y="int32"),
        (x.astype(np.float64), labels),
        rule=lsh.SGD(1.0),
        threads=1,
        batch_size=16,
        seed=3,
        until=lsh.until(updates=1),
    )
    rows = lsh._core.batch_rows(3, N, 16, 0)
    np.testing.assert_allclose(result.parameters, (labels[rows, None] * x[rows]).mean(0), rtol=1e-5)


def test_workspace_and_user_data_reach_the_function(library: ctypes.CDLL) -> None:
    scipy = pytest.importorskip("scipy", reason="SciPy is optional")
    x, y = problem()
    scale = ctypes.c_float(0.0)
    capsule = new_capsule(library.targets, gradients._c_signature("float32"), scale)
    result = lsh.train(
        model(library, gradient=capsule, workspace_bytes=8),
        (x, y),
        threads=1,
        batch_size=16,
        until=lsh.until(updates=5),
    )
    assert not result.parameters.any()  # the gradient was scaled by 0
    low_level = scipy.LowLevelCallable(capsule)
    assert gradients.resolve("gradient", low_level, "float32") == gradients.resolve(
        "gradient", capsule, "float32"
    )


def new_capsule(function: Any, name: str, context: ctypes.c_float | None = None) -> Any:
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    kept = name.encode()
    NAMES.append(kept)
    capsule = new(ctypes.cast(function, ctypes.c_void_p).value, kept, None)
    if context is not None:
        set_context = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
            ("PyCapsule_SetContext", ctypes.pythonapi)
        )
        set_context(capsule, ctypes.addressof(context))
    return capsule


NAMES: list[bytes] = []


def test_a_loss_of_its_own_is_asked_for_evaluation(library: ctypes.CDLL) -> None:
    x, y = problem()
    loss = gradients.c_type("float32")(lambda *arguments: 7.0 if not arguments[5] else 1.0)
    assert model(library, loss=loss).evaluate(np.zeros(D), (x, y)) == 7.0


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_nan_stops_the_run(library: ctypes.CDLL) -> None:
    bad = gradients.c_type("float32")(lambda *_: float("nan"))
    result = lsh.train(model(library, gradient=bad), problem(), until=lsh.until(updates=5))
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


def logistic(signature: Any, d: int) -> Any:
    numba = pytest.importorskip("numba", reason="Numba is optional")

    def gradient(theta, x, rows, y, batch, out, workspace, user_data):
        w = numba.carray(theta, d)
        examples = numba.carray(x, (1 << 40, d))
        index = numba.carray(rows, batch)
        label = numba.carray(y, batch)
        g = numba.carray(out, d)
        g[:] = 0
        loss = 0.0
        for i in range(batch):
            row = examples[index[i]]
            sign = 2.0 * label[i] - 1.0
            margin = 0.0
            for j in range(d):
                margin += row[j] * w[j]
            margin *= sign
            loss += np.log1p(np.exp(-margin))
            slope = -sign / (1.0 + np.exp(margin)) / batch
            for j in range(d):
                g[j] += slope * row[j]
        return loss / batch

    return numba.cfunc(signature)(gradient)


def test_a_numba_cfunc_trains() -> None:
    pytest.importorskip("numba", reason="Numba is optional")
    x, y = problem()
    labels = (y > 0).astype(np.int64)
    result = lsh.train(
        lsh.models.external(logistic(gradients.signature(), D), dimension=D, features=D),
        (x, labels),
        rule=lsh.SGD(1.0),
        threads=2,
        batch_size=20,
        until=lsh.until(loss_fraction=0.2, seconds=240),
    )
    assert result.outcome == "converged"
    assert (((x @ result.parameters) > 0) == labels).mean() > 0.95


def test_a_cfunc_of_another_signature_is_refused_by_name() -> None:
    numba = pytest.importorskip("numba", reason="Numba is optional")
    wrong = numba.cfunc("float64(float64, float64)")(lambda a, b: a + b)
    with pytest.raises(
        TypeError, match=r"gradient is a cfunc of the signature \(float64, float64\)"
    ):
        lsh.models.external(wrong, dimension=D, features=D)
    labels = logistic(gradients.signature(), D)
    with pytest.raises(TypeError, match=r"leashed\.gradients\.signature\('float32'\)"):
        lsh.models.external(labels, dimension=D, features=D, y="float32")


PYX = """
from leashed cimport leashed_gradient, leashed_gradient_rows
from libc.stdint cimport int32_t, int64_t

cdef api float half(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
                    int64_t batch, float* gradient, void* workspace,
                    void* user_data) noexcept nogil:
    cdef float loss = 0
    for j in range(5):
        gradient[j] = theta[j] - 0.5
        loss += gradient[j] * gradient[j] / 2
    return loss

cdef api int other(int a) noexcept nogil:
    return a

# Of one feature: the sum of its entries' values is to be theta[0].
cdef api float half_rows(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
                         int64_t batch, const int64_t* offsets, const int64_t* places,
                         const float* weights, const int64_t* counts, const float* values,
                         float* gradient, float* row_gradients, float* logits, void* workspace,
                         void* user_data) noexcept nogil:
    cdef float loss = 0, error
    cdef int64_t i, e
    gradient[0] = theta[0] - 0.5
    for i in range(batch):
        for e in range(offsets[i], offsets[i + 1]):
            error = values[places[e]] - theta[0]
            row_gradients[places[e]] += error / batch
            loss += error * error / 2 / batch
    return loss

cdef leashed_gradient check = half
cdef leashed_gradient_rows check_rows = half_rows
"""


@pytest.fixture(scope="module")
def cython_module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    pytest.importorskip("Cython", reason="Cython is optional")
    return build_cython(tmp_path_factory.mktemp("cython"), "half", PYX)


def build_cython(folder: Path, name: str, source: str) -> ModuleType:
    (folder / f"{name}.pyx").write_text(source)
    include = lsh.get_include()
    command = [sys.executable, "-m", "cython", "-3", f"-I{include}", f"{name}.pyx"]
    subprocess.run(command, cwd=folder, check=True)
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            f"-I{sysconfig.get_path('include')}",
            f"-I{include}",
            f"{name}.c",
            "-o",
            str(target),
        ],
        cwd=folder,
        check=True,
    )
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cython_function_trains(cython_module: ModuleType) -> None:
    x, y = problem()
    capsule = gradients.from_cython(cython_module, "half")
    result = lsh.train(
        lsh.models.external(capsule, dimension=D, features=D),
        (x, np.round(y)),
        rule=lsh.SGD(0.1),
        threads=2,
        until=lsh.until(updates=100),
    )
    np.testing.assert_allclose(result.parameters, 0.5, atol=1e-3)
    with pytest.raises(
        AttributeError, match=r"exports no C function 'no' \(it exports half, half_rows, other"
    ):
        gradients.from_cython(cython_module, "no")
    with pytest.raises(TypeError, match=r"gradient is a capsule of the signature 'int \(int\)'"):
        lsh.models.external(gradients.from_cython(cython_module, "other"), dimension=D, features=D)


def test_a_cython_function_trains_rows(cython_module: ModuleType) -> None:
    capsule = gradients.from_cython(cython_module, "half_rows")
    ids = np.arange(200)[:, None] % 3
    data = lsh.datasets.ClickDataset.from_arrays(None, ids, ids[:, 0] % 2)
    spec = lsh.models.TableSpec("one", 1, 4)
    result = lsh.train(
        lsh.models.external(capsule, dimension=1, features=0, ids=[spec]),
        data,
        rule=lsh.SGD(0.1),
        threads=2,
        batch_size=16,
        until=lsh.until(updates=300),
    )
    np.testing.assert_allclose(result.parameters, 0.5, atol=1e-3)
    rows = result.tables["one"].lookup([0, 1, 2, 3])[:, 0]
    np.testing.assert_allclose(rows[:3], 0.5, atol=0.01)
    assert abs(rows[3]) < 0.1
    with pytest.raises(
        TypeError, match=r"gradient is a capsule .* but must have 'float \(const fl"
    ):
        lsh.models.external(capsule, dimension=1, features=1)


Wrong = Callable[[ctypes.CDLL], Any]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda library: library["targets"], TypeError, "restype and argtypes are not those of"),
        (
            lambda _: ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda a: a),
            TypeError,
            "restype and argtypes are not those of",
        ),
        (
            lambda library: ctypes.cast(library.labels, gradients.c_type("int32")),
            TypeError,
            "argument y is LP_c_int, but must be LP_c_float",
        ),
        (lambda _: gradients.c_type("float32")(), ValueError, "gradient is a null function"),
        (lambda _: 3, TypeError, "gradient must be a function f"),
        (lambda _: None, TypeError, "gradient must be a function f"),
        (
            lambda library: new_capsule(library.targets, "double (double)"),
            TypeError,
            r"gradient is a capsule of the signature 'double \(double\)'",
        ),
    ],
)
def test_a_wrong_function_is_named(
    library: ctypes.CDLL, wrong: Wrong, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model(library, gradient=wrong(library))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dimension": 0}, ValueError, "dimension must be at least 1"),
        ({"dimension": 2.0}, TypeError, "dimension must be a whole number"),
        ({"features": 0}, ValueError, "features must be at least 1"),
        ({"y": "float64"}, ValueError, "y must be one of int32, float32"),
        ({"y": 3}, TypeError, "y must be a str"),
        ({"workspace_bytes": -1}, ValueError, "workspace_bytes must be at least 0"),
        ({"variables": [1]}, ValueError, "variables must add up to the 5 parameters, got 1"),
        ({"name": 3}, TypeError, "name must be a str"),
        ({"loss": len}, TypeError, "loss must be a native function"),
    ],
)
def test_a_wrong_model_is_named(
    library: ctypes.CDLL, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model(library, **arguments)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.ones((3, D)), TypeError, r"data must be a Dataset or a pair of arrays \(x, y\)"),
        ((np.ones((3, D + 1)), np.ones(3)), ValueError, "data has 6 features, but the model"),
        ((np.ones(3), np.ones(3)), ValueError, r"x of data must be \[n, features\]"),
        ((np.ones((3, D)), np.ones(2)), ValueError, r"shape \(3,\), got \(2,\)"),
        ((np.full((3, D), np.nan), np.ones(3)), ValueError, "x of data is NaN"),
        ((np.ones((3, D)), np.full(3, np.inf)), ValueError, "y of data is NaN, infinite"),
        ((np.ones((3, D)), ["a", "b", "c"]), TypeError, r"data\[1\] must hold real numbers"),
    ],
)
def test_wrong_data_is_named(
    library: ctypes.CDLL, data: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lsh.train(model(library), data, until=lsh.until(updates=1))


def test_labels_that_are_not_whole_are_named(library: ctypes.CDLL) -> None:
    labelled = model(library, gradient=function(library, "int32"), y="int32")
    with pytest.raises(ValueError, match=r'whole numbers; for real targets .* y="float32"'):
        lsh.train(labelled, (np.ones((3, D)), [0.5, 1, 2]), until=lsh.until(updates=1))
