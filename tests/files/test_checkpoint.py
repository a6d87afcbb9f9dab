"""Models in files: whole or not at all, and nothing but ValueError for what is not one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from leashed import Model, load, models, save
from leashed.files import model_file
from leashed.models import Conv2d, Dense, MaxPool, ReLU, Sigmoid, Tanh

MODELS = [
    models.mlp(784, [128, 128, 128], 10),
    models.cnn(),
    models.lenet(),
    models.linear_regression(3, l2=0.1),
    models.linear_svm(5, 3),
    models.logistic_regression(4, l2=1e-3),
    models.mlp(3, [], 2, name='Straße "§" \n'),
    Model((3, 1, 1), (Dense(2, bias=False),)),
    Model((3, 1, 1), (Dense(2), Tanh(), Dense(3), Sigmoid(), Dense(2))),
    Model(
        (2, 9, 8),
        (ReLU(), Conv2d(3, 2, stride=2, padding=1), MaxPool(3, 1), MaxPool(2), Dense(4), ReLU()),
        name="",
    ),
]
SMALL = models.mlp(3, [2], 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def header_of(content: bytes) -> dict[str, Any]:
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def with_header(content: bytes, header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model.name))
def test_a_model_survives_a_round_trip(model: Model, path: Path) -> None:
    theta = model.init(3, "normal")
    theta[:2] = [np.float32(1e-45), np.finfo(np.float32).max]
    save(path, model, theta)
    loaded, parameters = load(str(path))
    assert loaded == model
    assert loaded.name == model.name
    assert parameters.dtype == np.float32
    assert parameters.flags.writeable
    np.testing.assert_array_equal(parameters, theta)
    first = path.read_bytes()
    save(path, loaded, parameters)
    assert path.read_bytes() == first


def test_the_file_is_safetensors(path: Path) -> None:
    model = models.cnn((1, 10, 10), 4)
    theta = model.init(1)
    save(path, model, theta)
    content = path.read_bytes()
    header = header_of(content)
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert all(isinstance(v, str) for v in header["__metadata__"].values())
    for name, part in model.unflatten(theta).items():
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F32"
        raw = content[8 + length :][begin:end]
        np.testing.assert_array_equal(
            np.frombuffer(raw, "<f4").reshape(header[name]["shape"]), part
        )
    assert len(header) == 1 + len(model.unflatten(theta))


def test_parameters_are_placed_by_their_names(path: Path) -> None:
    """As another program may order the tensors."""
    theta = SMALL.init(1)
    save(path, SMALL, theta)
    content = path.read_bytes()
    header = header_of(content)
    data = content[8 + int.from_bytes(content[:8], "little") :]
    reordered, offset = b"", 0
    for name in sorted(SMALL.unflatten(theta), reverse=True):
        begin, end = header[name]["data_offsets"]
        reordered += data[begin:end]
        header[name]["data_offsets"] = [offset, offset + end - begin]
        offset += end - begin
    header["__metadata__"]["checksum"] = model_file.checksum(header, [reordered])
    path.write_bytes(with_header(content, header)[: -len(data)] + reordered)
    np.testing.assert_array_equal(load(path)[1], theta)


def test_parameters_of_any_float_are_saved(path: Path) -> None:
    theta = SMALL.init(1)
    save(path, SMALL, theta.astype(np.float64))
    np.testing.assert_array_equal(load(path)[1], theta)
    save(path, SMALL, np.repeat(theta, 2)[::2])
    np.testing.assert_array_equal(load(path)[1], theta)


@pytest.mark.parametrize("where", [(io, "BufferedWriter"), (os, "fsync"), (Path, "replace")])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=["os", "^C"])
def test_a_failure_while_writing_leaves_the_old_file(
    where: tuple[object, str], error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, SMALL, SMALL.init(1))
    old = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*where, fail)
        with pytest.raises(type(error)):
            save(path, MODELS[0], MODELS[0].init(2))
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]
    save(path, MODELS[0], MODELS[0].init(2))
    assert load(path)[0] == MODELS[0]


def test_a_new_file_has_the_usual_permissions(path: Path) -> None:
    save(path, SMALL, SMALL.init())
    usual = path.with_name("usual")
    usual.touch()
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_truncated_file_is_refused(path: Path) -> None:
    save(path, SMALL, SMALL.init(1))
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for length in {0, 1, 7, 8, 9, header - 1, header, header + 1, len(content) - 4,
                   len(content) - 1, *range(0, len(content), 37)}:  # fmt: skip
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"cannot load .*{path.name}"):
            load(path)


def change(*keys: str, to: object) -> Callable[[dict[str, Any]], None]:
    def apply(header: dict[str, Any]) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = to

    return apply


def layers(*fields: object) -> Callable[[dict[str, Any]], None]:
    return change("__metadata__", "layers", to=json.dumps(fields))


DENSE = {"kind": "Dense", "outputs": 2}


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (change("__metadata__", "format", to="pt"), "no leashed model"),
        (change("__metadata__", "version", to="9"), "version is 9.* reads 1 to 8; upgrade"),
        (change("__metadata__", "version", to="0"), "upgrade"),
        (change("__metadata__", "name", to="other"), "checksum is not that of its content"),
        (change("__metadata__", "checksum", to="00"), "checksum"),
        (change("__metadata__", "loss", to="hinge"), "checksum"),
        (change("__metadata__", "loss", to="none"), "loss must be one of"),
        (change("__metadata__", "l2", to="-1"), "l2"),
        (lambda header: header["__metadata__"].pop("checksum"), "lacks 'checksum'"),
        (change("__metadata__", "version", to="new"), ""),
        (change("__metadata__", "version", to=None), ""),
        (change("__metadata__", "version", to="-1"), ""),
        (change("__metadata__", "name", to=None), ""),
        (change("__metadata__", "input_shape", to="[3, 1]"), "input_shape"),
        (change("__metadata__", "input_shape", to="7"), ""),
        (change("__metadata__", "input_shape", to="[4, 1, 1]"), "0.weight is .* the model needs"),
        (change("__metadata__", "input_shape", to="[-3, 1, 1]"), "input_shape"),
        (change("__metadata__", "input_shape", to="[" * 100_000), ""),
        (change("__metadata__", "layers", to="[" * 100_000), ""),
        (change("__metadata__", "layers", to="{}"), ""),
        (change("__metadata__", "layers", to="null"), ""),
        (layers(), "at least one layer"),
        (layers("Dense"), ""),
        (layers(DENSE), "checksum"),
        (layers({"outputs": 2}), "lacks 'kind'"),
        (layers({"kind": "Model"}), "Model"),
        (layers({"kind": ["Dense"]}), ""),
        (layers({**DENSE, "extra": 1}), "extra"),
        (layers({"kind": "Dense", "outputs": 2.5}), "outputs"),
        (layers({"kind": "Dense", "outputs": 10**30}), "outputs"),
        (layers({"kind": "Dense", "outputs": 2**31 - 1}), "0.weight is"),
        (layers(*[{"kind": "Dense", "outputs": 2**62}, {"kind": "Dense", "outputs": 4}] * 4), ""),
        (layers(*[{"kind": "Conv2d", "filters": 1, "kernel": 1, "padding": 2**63}]), "padding"),
        (change("0.weight", "shape", to=[2, 3]), "0.weight"),
        (change("0.weight", "shape", to=[-1]), "0.weight"),
        (change("0.weight", "dtype", to="F64"), "0.weight"),
        (change("0.weight", "data_offsets", to=[0, 20]), "0.weight has 20 bytes"),
        (change("0.weight", "data_offsets", to=[0, 1000]), "0.weight"),
        (change("0.weight", "data_offsets", to=[-24, 0]), ""),
        (change("0.weight", "data_offsets", to=[8, 32]), "overlap"),
        (change("0.weight", "data_offsets", to=[0.0, 24.0]), ""),
        (change("0.weight", "data_offsets", to=None), ""),
        (change("0.weight", to=3), ""),
        (lambda header: header.pop("0.weight"), "lacks '0.weight'"),
        (lambda header: header.pop("__metadata__"), "lacks '__metadata__'"),
        (lambda header: header.clear(), "lacks '__metadata__'"),
    ],
)  # fmt: skip
def test_an_altered_header_is_refused(
    alter: Callable[[dict[str, Any]], object], message: str, path: Path
) -> None:
    save(path, SMALL, SMALL.init(1))
    content = path.read_bytes()
    header = header_of(content)
    alter(header)
    path.write_bytes(with_header(content, header))
    with pytest.raises(ValueError, match=rf"(?s)cannot load .*{path.name}: .*{message}"):
        load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        b"\x00" * 100,
        b"\xff" * 100,
        b"PK\x03\x04" + b"\x00" * 100,
        b"\x80\x04\x95" + b"\x00" * 100,
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (4).to_bytes(8, "little") + b"\xff\xfe\xff\xfe",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (17).to_bytes(8, "little") + b'{"weight": "text"',
        b"\x93NUMPY" + b"\x01" * 200,
    ],
    ids=lambda content: repr(content[:12]),
)
def test_another_kind_of_file_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"cannot load .*{path.name}"):
        load(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_refused(value: float, path: Path) -> None:
    save(path, SMALL, SMALL.init(1))
    content = path.read_bytes()
    path.write_bytes(content[:-4] + np.array([value], "<f4").tobytes())
    with pytest.raises(ValueError, match=rf"cannot load .*{path.name}"):
        load(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(OSError, match=tmp_path.name):
        save(tmp_path, SMALL, SMALL.init())
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "model"
    save(path, models.cnn((1, 10, 10), 3), models.cnn((1, 10, 10), 3).init(1))
    return path, path.read_bytes()


MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "insert", "copy"]),
        st.integers(0, 1200) | st.integers(0, 10_000),
        st.binary(min_size=1, max_size=8) | st.sampled_from([b"9", b"-", b"[", b"null", b'"']),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(400))
@given(mutations=MUTATIONS)
def test_fuzzed_files_are_loaded_or_refused(
    valid: tuple[Path, bytes], mutations: list[tuple[str, int, bytes]]
) -> None:
    path, original = valid
    content = bytearray(original)
    for kind, position, piece in mutations:
        at = position % (len(content) + 1)
        if kind == "set":
            content[at : at + len(piece)] = piece
        elif kind == "delete":
            del content[at : at + len(piece)]
        elif kind == "insert":
            content[at:at] = piece
        else:
            content[at:at] = content[at : at + 16 * len(piece)]
    path.write_bytes(content)
    try:
        model, theta = load(path)
    except ValueError as error:
        assert str(error).startswith(f"cannot load {path}: ")  # noqa: PT017
    else:
        assert theta.shape == (model.dimension,)
        assert np.isfinite(theta).all()
        assert model.predict(theta, np.zeros((2, model.features))).shape == (2, model.classes)


def test_a_changed_parameter_is_noticed(path: Path) -> None:
    save(path, SMALL, SMALL.init(1))
    content = path.read_bytes()
    path.write_bytes(content[:-4] + np.array([0.5], "<f4").tobytes())
    with pytest.raises(ValueError, match=rf"cannot load .*{path.name}: its checksum"):
        load(path)


def test_files_of_the_first_version_are_read(path: Path) -> None:
    """They had no checksum."""
    theta = SMALL.init(1)
    save(path, SMALL, theta)
    content = path.read_bytes()
    header = header_of(content)
    for key in ("checksum", "loss", "l2"):
        del header["__metadata__"][key]
    header["__metadata__"]["version"] = "1"
    path.write_bytes(with_header(content, header))
    np.testing.assert_array_equal(load(path)[1], theta)
