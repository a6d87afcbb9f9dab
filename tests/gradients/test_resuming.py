"""Checkpoints of runs with a gradient from outside: its description stands for it."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import leashed as lsh
from leashed import models, staleness
from leashed.files import checkpoint

D = 5
N = 120
Array = NDArray[np.float32]
WANTED = np.arange(1, D + 1, dtype=np.float32)


def squares(theta: Array, x: Array, y: Array, out: Array) -> float:
    """½ mean (x·θ − y)² and its gradient."""
    error = x @ theta - y
    out[:] = error @ x / len(x)
    return float((error**2).mean() / 2)


@lsh.gradients.c_type("float32")
def native_squares(
    theta: Any, x: Any, rows: Any, y: Any, batch: int, gradient: Any, _workspace: Any, _data: Any
) -> float:
    """The same by the native contract."""
    where = np.ctypeslib.as_array(rows, (batch,))
    out = np.empty(D, np.float32)
    loss = squares(
        np.ctypeslib.as_array(theta, (D,)),
        np.ctypeslib.as_array(x, (N, D))[where],
        np.ctypeslib.as_array(y, (batch,)),
        out,
    )
    ctypes.memmove(gradient, out.ctypes.data, out.nbytes)
    return loss


def model(gradient: Any = squares, **changed: Any) -> models.External:
    arguments = {
        "dimension": D,
        "features": D,
        "y": "float32",
        "variables": (2, 3),
        "name": "ridge",
    }
    return models.external(gradient, **{**arguments, **changed})


def run(updates: int, **arguments: Any) -> lsh.TrainResult:
    x = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    arguments = {
        "rule": lsh.Adam(0.05),
        "until": lsh.until(updates=updates),
        "batch_size": 16,
        "threads": 1,
        "seed": 3,
        **arguments,
    }
    return lsh.train(arguments.pop("model", None) or model(), (x, x @ WANTED), **arguments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


@pytest.mark.parametrize("gradient", [squares, native_squares], ids=["python", "native"])
def test_a_resumed_run_is_the_uninterrupted_one(
    gradient: Any, discipline: lsh.Discipline, path: Path
) -> None:
    arguments: dict[str, Any] = {"model": model(gradient), "discipline": discipline}
    whole = run(40, **arguments)
    half = run(20, **arguments, checkpoint=path)
    arguments["model"] = model(gradient)  # as in another process
    resumed = run(40, **arguments, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert (resumed.total_updates, resumed.gradients) == (40, 20)
    assert resumed.loss[0] == half.final_loss


@pytest.mark.parametrize(
    "policy", [staleness.stage_aware(staleness.inverse()), staleness.tail_tau(warmup=25)]
)
def test_the_staleness_policy_goes_on_too(policy: staleness.Policy, path: Path) -> None:
    whole = run(40, staleness=policy)
    run(20, staleness=policy, checkpoint=path)
    resumed = run(40, staleness=policy, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_several_threads_resume(concurrent: lsh.Discipline, path: Path) -> None:
    run(20, discipline=concurrent, threads=3, checkpoint=path)
    resumed = run(45, discipline=concurrent, threads=2, resume=path, checkpoint=path)
    assert resumed.total_updates == 45


def test_what_was_saved_while_training_resumes_to_the_same_bits(path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(_: lsh.Progress) -> None:
        if path.exists() and json.loads(checkpoint.read(path)[2]["run"])["updates"] > 0:
            raise Enough

    with pytest.raises(Enough):
        run(
            1,
            until=lsh.until(seconds=60),
            checkpoint=lsh.Checkpoint(path, every=0.002),
            observe=lsh.Observe(stop, every=0.02),
        )
    reached = json.loads(checkpoint.read(path)[2]["run"])["updates"]
    resumed = run(reached + 1000, resume=path)
    assert resumed.config["resumed_at"] == reached
    np.testing.assert_array_equal(resumed.parameters, run(reached + 1000).parameters)


def test_the_file_holds_a_description(path: Path) -> None:
    result = run(20, checkpoint=path)
    found, tensors, metadata = checkpoint.read(path)
    assert found == model().description
    assert json.loads(metadata["external"]) == {
        "dimension": D,
        "features": D,
        "y": "float32",
        "variables": [2, 3],
    }
    assert sorted(tensors) == ["parameters", "state.1.parameters", "state.2.parameters"]
    np.testing.assert_array_equal(tensors["parameters"], result.parameters)


def test_the_model_is_given_to_load(path: Path) -> None:
    result = run(20, checkpoint=path)
    mine = model()
    loaded, theta = lsh.load(path, mine)
    assert loaded is mine
    np.testing.assert_array_equal(theta, result.parameters)
    with pytest.raises(ValueError, match=r"its model is external.*leashed\.load\(path, leashed"):
        lsh.load(path)
    with pytest.raises(ValueError, match=r"features was 5 and is 4; give the same"):
        lsh.load(path, model(features=4))
    with pytest.raises(
        ValueError, match=r"another model \(ridge, d = 5\); use leashed\.models\.ex"
    ):
        lsh.load(path, models.linear_regression(4))
    with pytest.raises(TypeError, match=r"model must come from leashed\.models, got str"):
        lsh.load(path, "ridge")  # type: ignore[call-overload]


def test_the_call_in_the_message_makes_such_a_model(path: Path) -> None:
    lsh.save(path, model(), WANTED)
    with pytest.raises(ValueError, match="give the model") as caught:
        lsh.load(path)
    call = str(caught.value).partition("leashed.load(path, ")[2][:-1]
    made = eval(call, {"leashed": lsh, "gradient": squares})
    np.testing.assert_array_equal(lsh.load(path, made)[1], WANTED)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "lasso"}, "of the external model name was 'ridge' and is 'lasso'; give the same"),
        ({"dimension": 6, "variables": None}, r"dimension was 5 and is 6, variables was \(2, 3\)"),
        ({"variables": (3, 2)}, r"variables was \(2, 3\) and is \(3, 2\)"),
        ({"y": "int32"}, "y was 'float32' and is 'int32'"),
    ],
)
def test_another_model_is_not_continued(changed: dict[str, Any], message: str, path: Path) -> None:
    run(5, checkpoint=path)
    with pytest.raises(ValueError, match=rf"cannot resume .*{path.name}: .*{message}"):
        lsh.train(
            model(**changed),
            (np.ones((N, D)), np.ones(N)),
            until=lsh.until(updates=10),
            resume=path,
        )


def test_models_of_layers_and_external_ones_are_not_confused(path: Path) -> None:
    layered = models.linear_regression(D)
    data = lsh.Dataset.regression(np.ones((N, D)), np.ones(N))
    run(5, checkpoint=path)
    with pytest.raises(ValueError, match=r"cannot resume .* use leashed\.models\.external"):
        lsh.train(layered, data, until=lsh.until(updates=10), resume=path)
    lsh.train(layered, data, until=lsh.until(updates=5), checkpoint=path)
    with pytest.raises(ValueError, match=r"cannot resume .*use leashed\.load\(path\)\.model"):
        run(10, resume=path)


def test_the_rest_of_the_run_must_be_the_same(path: Path) -> None:
    run(5, checkpoint=path)
    with pytest.raises(ValueError, match="seed was 3 and is 4"):
        run(10, resume=path, seed=4)
    lsh.save(path, model(), WANTED)
    with pytest.raises(
        ValueError, match=r"no run; .*init=leashed\.load\(path, model\)\.parameters"
    ):
        run(10, resume=path)


def altered(content: bytes, **changed: Any) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header["__metadata__"]
    fields = {**json.loads(metadata["external"]), **changed}
    metadata["external"] = json.dumps({k: v for k, v in fields.items() if v is not None})
    metadata["checksum"] = checkpoint.checksum(header, [data])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_damaged_files_are_refused(path: Path) -> None:
    run(5, checkpoint=path)
    content = path.read_bytes()
    damaged = {
        "": content[:-10],
        "checksum": content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        "checksum ": content.replace(b'\\"features\\": 5', b'\\"features\\": 6'),
        "reads 1 to 8; upgrade": content.replace(b'"version": "8"', b'"version": "9"'),
        r"parameters is \[5\], the model needs \[6\]": altered(content, dimension=6, variables=[]),
        "variables must add up": altered(content, dimension=6),
        "dimension must be": altered(content, dimension=-1),
        "y must be one of": altered(content, y="int8"),
        "features": altered(content, features=None),
        "not iterable": altered(content, variables=3),
        "colour": altered(content, colour="red"),
    }
    for message, bad in damaged.items():
        assert bad != content
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=rf"cannot load .*{path.name}: .*{message.strip()}"):
            run(10, resume=path)


def test_what_is_loaded_alone_is_no_external_model(tmp_path: Path) -> None:
    lsh.save(tmp_path / "model", model(), WANTED)
    with pytest.raises(ValueError, match=r"cannot load .* external, and no file holds a grad"):
        lsh.load(tmp_path / "model")
