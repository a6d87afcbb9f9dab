"""Bad input is a Python exception that names the argument, before any thread starts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import _core

MODEL = lsh.models.mlp(6, [4], 3)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(20, 6)).astype(np.float32)
Y = (np.arange(20) % 3).astype(np.int32)
DATA = lsh.Dataset.from_arrays(X, Y)
D = MODEL.dimension
UNTIL = lsh.until(updates=3)


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.astype(np.result_type(array, np.float32))
    changed.flat[changed.size // 2] = value
    return changed


@pytest.fixture(autouse=True)
def no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object) -> None:
        pytest.fail("the native training loop was started")

    monkeypatch.setattr(_core, "train", train)


@dataclass(frozen=True)
class Case:
    """A call of train with one argument replaced, and what must come of it."""

    argument: str
    value: Any
    error: type[Exception]
    message: str

    def __str__(self) -> str:
        shown = re.sub(r" at 0x\w+", "", repr(self.value))  # the same in every process
        return f"{self.argument}={shown}"[:60]


def case(argument: str, value: Any, error: type[Exception], message: str) -> Any:
    made = Case(argument, value, error, message)
    return pytest.param(made, id=str(made).replace("\n", " "))


class Unprintable:
    def __repr__(self) -> str:
        return "Unprintable()"


WHOLE = r"must be a whole number"
FINITE = r"must be finite"

TRAIN = [
    case("model", None, TypeError, "model must come from leashed.models, got NoneType"),
    case("model", "mlp", TypeError, "model must come from leashed.models"),
    case("model", MODEL.native, TypeError, "model must come from leashed.models"),
    # Data.
    case(
        "data",
        None,
        TypeError,
        "data must be a Dataset, a SparseDataset, a Split or a pair of arrays",
    ),
    case("data", X, TypeError, "data must be"),
    case("data", [X, Y], TypeError, "data must be .* got list"),
    case("data", (X, Y, Y), TypeError, "data must be"),
    case("data", (X[:, :5], Y), ValueError, "data has 5 features, but the model takes 6"),
    case(
        "data",
        (X, Y + 1),
        ValueError,
        "data has labels up to 3, first in row 2, but the model knows 3 classes",
    ),
    case("data", (X[0], Y), ValueError, "x must be"),
    case("data", (X, Y[:-1]), ValueError, "x has 20 examples but y has 19 labels"),
    case("data", (X[:0], Y[:0]), ValueError, "x is empty"),
    case("data", (X, Y[:, None]), ValueError, "y must be one label per example"),
    case("data", (X, np.eye(3)[Y]), ValueError, "data has 3 labels a row, .*y.argmax"),
    case("data", (X, Y - 1), ValueError, "y has the label -1"),
    case("data", (X, Y + 0.5), ValueError, "y must hold whole numbers"),
    case("data", (X, with_value(Y, math.nan)), ValueError, "y must hold whole numbers, got nan"),
    case("data", (X, with_value(Y, math.inf)), ValueError, "y must hold whole numbers, got inf"),
    case("data", (X, with_value(Y, 1e30)), ValueError, "y has a label beyond"),
    case("data", (X, [str(y) for y in Y]), TypeError, "y has dtype"),
    case("data", (X.astype(str), Y), TypeError, "x has dtype"),
    case("data", (X.astype(complex), Y), TypeError, "x has dtype complex"),
    case("data", (X.astype(object), Y), TypeError, "x has dtype object"),
    case("data", ([[1.0], [1.0, 2.0]], [0, 1]), TypeError, "x cannot be read"),
    case("data", (with_value(X, math.nan), Y), ValueError, "x is NaN, infinite"),
    case("data", (with_value(X, math.inf), Y), ValueError, "x is NaN, infinite"),
    case("data", (with_value(X, -math.inf), Y), ValueError, "x is NaN, infinite"),
    case("data", (X.astype(np.float64) * 1e39, Y), ValueError, "x is .*beyond float32"),
    # Validation.
    case("validation", (X, Y, Y), TypeError, "validation must be a Dataset, .* got tuple"),
    case("validation", X, TypeError, "validation must be a Dataset"),
    case(
        "validation",
        lsh.Dataset.from_arrays(X[:, :4], Y),
        ValueError,
        "validation has 4 features, but the model takes 6",
    ),
    case(
        "validation",
        lsh.Dataset.from_arrays(X, Y + 5),
        ValueError,
        "validation has labels up to 7, first in row 0, but the model knows 3 classes",
    ),
    # Threads.
    case("threads", 0, ValueError, "threads must be at least 1, got 0"),
    case("threads", -4, ValueError, "threads must be at least 1"),
    case("threads", 1.5, TypeError, f"threads {WHOLE}, got 1.5"),
    case("threads", 2.0, TypeError, f"threads {WHOLE}"),
    case("threads", math.nan, TypeError, f"threads {WHOLE}"),
    case("threads", True, TypeError, f"threads {WHOLE}"),
    case("threads", "2", TypeError, 'threads must be a whole number or "auto"'),
    case("threads", [2], TypeError, f"threads {WHOLE}"),
    case("threads", 1025, ValueError, "threads must be at most 1024"),
    case("threads", 10**30, ValueError, "threads must be at most 1024"),
    # Batch, seed.
    case("batch_size", 0, ValueError, "batch_size must be at least 1"),
    case("batch_size", -1, ValueError, "batch_size must be at least 1"),
    case("batch_size", 2.5, TypeError, f"batch_size {WHOLE}"),
    case("batch_size", False, TypeError, f"batch_size {WHOLE}"),
    case("batch_size", "4", TypeError, f"batch_size {WHOLE}"),
    case("seed", -1, ValueError, "seed must be at least 0"),
    case("seed", 0.5, TypeError, f"seed {WHOLE}"),
    case("seed", "x", TypeError, f"seed {WHOLE}"),
    case("seed", None, TypeError, f"seed {WHOLE}"),
    case("seed", 2**63, ValueError, "seed must be at most"),
    # Choices.
    case("discipline", "leash", ValueError, "discipline 'leash' is unknown; choose one of seq"),
    case("discipline", lsh.Leashed, TypeError, "discipline must be"),
    case("discipline", 3, TypeError, "discipline must be"),
    case("rule", "sdg", ValueError, "rule 'sdg' is unknown; choose one of sgd"),
    case("rule", 0.1, TypeError, "rule must be SGD"),
    case("rule", lsh.SGD, TypeError, "rule must be SGD"),
    case("until", None, TypeError, "until must be leashed.until"),
    case("until", 10, TypeError, "until must be"),
    case("until", {"epochs": 3}, TypeError, "until must be"),
    # Initial parameters.
    case("init", "xavier", ValueError, "init must be one of normal, he, glorot, got 'xavier'"),
    case("init", "", ValueError, "init must be one of"),
    case("init", np.zeros(D - 1), ValueError, f"init must have length {D}, got {D - 1}"),
    case("init", [], ValueError, f"init must have length {D}"),
    case("init", np.zeros((1, D)), ValueError, "init must be one-dimensional"),
    case("init", with_value(np.zeros(D), math.nan), ValueError, r"init\[\d+\] is nan"),
    case("init", with_value(np.zeros(D), -math.inf), ValueError, r"init\[\d+\] is -inf"),
    case("init", np.full(D, 1e300), ValueError, r"init\[0\] is inf"),
    case("init", np.zeros(D, complex), TypeError, "init must hold real numbers"),
    case("init", Unprintable(), TypeError, "init must hold real numbers"),
    case("init", [[1.0], [1.0, 2.0]], TypeError, "init cannot be read as an array"),
    # Monitor.
    case("observe", True, TypeError, r"observe must be leashed.Observe\(...\) or a function"),
    case("observe", "bar", TypeError, "observe must be"),
]


@pytest.mark.parametrize("bad", TRAIN)
def test_train_names_a_wrong_argument(bad: Case) -> None:
    arguments: dict[str, Any] = {
        "model": MODEL, "data": DATA, "until": UNTIL, "threads": 2, "batch_size": 4,
    }  # fmt: skip
    arguments[bad.argument] = bad.value
    with pytest.raises(bad.error, match=bad.message) as raised:
        lsh.train(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert type(raised.value) is bad.error


def test_sequential_has_one_thread() -> None:
    with pytest.raises(ValueError, match="threads must be 1 with Sequential, got 2"):
        lsh.train(MODEL, DATA, until=UNTIL, batch_size=4, discipline=lsh.Sequential(), threads=2)


def test_a_model_without_parameters_is_told() -> None:
    a, b = (lsh.models.Embedding(lsh.models.TableSpec(name, 4, 10)) for name in "ab")
    data = lsh.ClickDataset.from_arrays(x=None, ids=np.zeros((20, 2), int), y=Y % 2)
    model = lsh.models.Graph(lsh.models.FM(a, b))
    with pytest.raises(ValueError, match=r"no parameters but its tables' rows; give it a layer"):
        lsh.train(model, data, until=UNTIL, batch_size=8)


def test_a_stop_rule_is_required() -> None:
    with pytest.raises(ValueError, match="until needs at least one stop rule: loss_fraction, loss"):
        lsh.until()
    with pytest.raises(TypeError, match="until"):
        lsh.train(MODEL, DATA)  # type: ignore[call-arg]


def numbers(name: str) -> list[tuple[Any, type[Exception], str]]:
    """What no real-valued choice takes."""
    return [
        (math.nan, ValueError, f"{name} {FINITE}"),
        (math.inf, ValueError, f"{name} {FINITE}"),
        (-math.inf, ValueError, f"{name} {FINITE}"),
        ("0.1", TypeError, f"{name} must be a number"),
        (True, TypeError, f"{name} must be a number"),
        (1j, TypeError, f"{name} must be a number"),
        ([0.1], TypeError, f"{name} must be a number"),
        (10**400, ValueError, f"{name} {FINITE}"),
    ]


def choices() -> list[Any]:
    table: list[tuple[str, Callable[[Any], object], Any, type[Exception], str]] = []

    def add(
        name: str, make: Callable[[Any], object], *bad: tuple[Any, type[Exception], str]
    ) -> None:
        table.extend((name, make, *one) for one in bad)

    positive = "must be greater than 0"
    add("lr", lsh.SGD, *numbers("lr"))
    add("lr", lsh.SGD, (-0.1, ValueError, "lr must be at least 0"))
    add("lr", lsh.SGD, (None, TypeError, "lr must be a number"))
    add("lr", lsh.SGD, (1e39, ValueError, "lr .*float32"))
    add("lr", lsh.schedules.constant, (-0.1, ValueError, "lr must be at least 0"))
    add("lr", lsh.schedules.constant, *numbers("lr"))
    add("maximize", lambda v: lsh.SGD(0.1, maximize=v), (1, TypeError, "maximize must be True or"))
    add("amsgrad", lambda v: lsh.AdamW(0.1, amsgrad=v), ("yes", TypeError, "amsgrad must be True"))
    add("centered", lambda v: lsh.RMSprop(0.1, centered=v), (0, TypeError, "centered must be True"))
    add("dampening", lambda v: lsh.Momentum(0.1, dampening=v), *numbers("dampening"))
    add("dampening", lambda v: lsh.Momentum(0.1, dampening=v), (1, ValueError, "dampening must be"))
    add("dampening", lambda v: lsh.Nesterov(0.1, dampening=v), (0.1, ValueError, "must be 0 with"))
    for name in ("loss_fraction", "loss", "epochs", "seconds", "divergence"):
        wrong = [w for w in numbers(name) if name != "loss_fraction" or w[0] != [0.1]]
        add(name, lambda v, name=name: lsh.until(**{name: v}), *wrong)
    for name in ("loss_fraction", "epochs", "seconds"):
        for value in (0, -1.0):
            add(
                name,
                lambda v, name=name: lsh.until(**{name: v}),
                (value, ValueError, f"{name} {positive}"),
            )
    add(
        "loss_fraction",
        lambda v: lsh.until(loss_fraction=v),
        (1.0, ValueError, "loss_fraction must be less than 1"),
        (50, ValueError, "loss_fraction must be less than 1"),
        ((0.5, 1.5), ValueError, "loss_fraction must be less than 1"),
        ((), ValueError, "loss_fraction must hold at least one"),
        ([0.5, "half"], TypeError, "loss_fraction"),
    )
    add(
        "divergence",
        lambda v: lsh.until(divergence=v),
        (1, ValueError, "divergence must be greater than 1"),
        (0.5, ValueError, "divergence must be greater than 1"),
    )
    add(
        "updates",
        lambda v: lsh.until(updates=v),
        (0, ValueError, "updates must be at least 1"),
        (-5, ValueError, "updates must be at least 1"),
        (1.5, TypeError, f"updates {WHOLE}"),
        (True, TypeError, f"updates {WHOLE}"),
        (2**60, ValueError, "updates must be at most"),
    )
    add(
        "persistence",
        lsh.Leashed,
        (-1, ValueError, "persistence must be at least 0"),
        (-1.0, ValueError, "persistence must be at least 0"),
        (-math.inf, ValueError, f"persistence {FINITE}"),
        (math.nan, ValueError, f"persistence {FINITE}"),
        (0.5, TypeError, f"persistence {WHOLE}"),
        (True, TypeError, f"persistence {WHOLE}"),
        (None, TypeError, f"persistence {WHOLE}"),
        ("inf", TypeError, f"persistence {WHOLE}"),
        (10**30, ValueError, "persistence must be at most"),
    )
    add(
        "copy",
        lambda v: lsh.Hogwild(copy=v),
        (1, TypeError, "copy must be True or False"),
        (None, TypeError, "copy must be True or False"),
        ("no", TypeError, "copy must be True or False"),
    )
    add(
        "seed",
        lambda v: MODEL.init(seed=v),
        (-1, ValueError, "seed must be at least 0"),
        (0.5, TypeError, f"seed {WHOLE}"),
    )
    add(
        "scheme",
        lambda v: MODEL.init(scheme=v),
        ("He", ValueError, "init must be one of"),
        (None, ValueError, "init must be one of"),
    )
    return [
        pytest.param(make, value, error, message, id=f"{name}={value!r}"[:40])
        for name, make, value, error, message in table
    ]


@pytest.mark.parametrize(("make", "value", "error", "message"), choices())
def test_choices_name_a_wrong_value(
    make: Callable[[Any], object], value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(value)


@pytest.mark.parametrize("base", [lsh.Discipline, lsh.Rule])
def test_bases_are_no_choices(base: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        base()


@pytest.mark.parametrize("name", ["momentum", "lr"])
def test_unknown_keywords_are_refused(name: str) -> None:
    for call in (
        lambda: lsh.train(MODEL, DATA, until=UNTIL, **{name: 1}),
        lambda: lsh.until(**{name: 1}),
        lambda: lsh.Leashed(**{name: 1}),
    ):
        with pytest.raises(TypeError, match=name):
            call()


PREDICT = [
    (X[:, :5], ValueError, "x must have 6 values per row, got 5"),
    (X[0, :3], ValueError, "x must have 6 values per row, got 3"),
    (X.reshape(20, 2, 3, 1)[:, :, :2], ValueError, "x must have 6 values per row, got 4"),
    (with_value(X, math.nan), ValueError, "x is NaN, infinite"),
    (with_value(X, math.inf), ValueError, "x is NaN, infinite"),
    (X.astype(np.float64) * 1e39, ValueError, "x is .*beyond float32"),
    (X.astype(complex), TypeError, "x must hold real numbers, got dtype complex"),
    (X.astype(str), TypeError, "x must hold real numbers"),
    (None, TypeError, "x must hold real numbers"),
    (1.0, ValueError, "x must be"),
    (np.float32(1), ValueError, "x must be"),
    (np.zeros((0, 5)), ValueError, "x must have 6 values per row, got 5"),
    ([[1.0], [1.0, 2.0]], TypeError, "x cannot be read as an array"),
]


@pytest.mark.parametrize(("x", "error", "message"), PREDICT)
def test_predict_names_wrong_examples(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MODEL.predict(MODEL.init(), x)


PARAMETERS = [
    (np.zeros(D + 1), ValueError, f"parameters must have length {D}, got {D + 1}"),
    (np.zeros((D, 1)), ValueError, "parameters must be one-dimensional"),
    (np.full(D, math.nan), ValueError, r"parameters\[0\] is nan"),
    (np.zeros(D, complex), TypeError, "parameters must hold real numbers"),
    (None, TypeError, "parameters must hold real numbers"),
]


@pytest.mark.parametrize(("parameters", "error", "message"), PARAMETERS)
def test_wrong_parameters_are_named(
    parameters: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    for call in (
        lambda: MODEL.predict(parameters, X),
        lambda: MODEL.evaluate(parameters, DATA),
        lambda: lsh.save(tmp_path / "model", MODEL, parameters),
    ):
        with pytest.raises(error, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_evaluate_names_wrong_data() -> None:
    with pytest.raises(ValueError, match="data has 5 features"):
        MODEL.evaluate(MODEL.init(), lsh.Dataset.from_arrays(X[:, :5], Y))
    with pytest.raises(TypeError, match="data must be a Dataset, got tuple"):
        MODEL.evaluate(MODEL.init(), (X, Y))  # type: ignore[arg-type]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lsh.datasets.mnist(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lsh.load(tmp_path / "nowhere" / "model")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lsh.save(tmp_path / "nowhere" / "model", MODEL, MODEL.init())
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        lsh.datasets.mnist(tmp_path / "empty")


def test_whole_numbers_of_numpy_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(_core, "Training", lambda **given: calls.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lsh.train(
            MODEL,
            DATA,
            until=lsh.until(updates=np.int64(3), seconds=np.float32(0.5)),
            rule=lsh.SGD(np.float32(0.1)),
            threads=np.int32(2),
            batch_size=np.uint8(4),
            seed=np.uint64(1),
        )
    numbers = [calls[0][name] for name in ("workers", "batch_size", "seed")]
    assert [type(value) for value in numbers] == [int, int, int]
