"""What several policy servers have saved of one cut, each with a part of the parameters and of the rows of
tables. The master joins it to what one server would have saved; of that each server of a run that goes on
takes what is its own, however many there are.

Where all of them decide alike, what their mode has is the same, and they hold gradients of the same pushes, of
which each has its part; where each decides by itself, ``led_apart`` sees to that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import atomic
from leashed.cluster import led_apart, led_held, led_part
from leashed.cluster.led_held import Words
from leashed.cluster.led_part import Own, Part
from leashed.files import model_file, resuming

__all__ = ["JOINED", "TOLD", "join", "of_server", "with_own"]

JOINED = "policy-ps-0.safetensors"
"""The file that is joined, or that one server writes."""
TOLD = "policy-ps-0.json"
"""What is told beside it."""


def join(folder: Path, servers: int) -> dict[str, list[str]]:
    """Write what so many servers' files in a checkpoint's folder make, with what ``TOLD`` tells of
    them, and remove these.

    Returns:
        The files there are in their place, by server.

    Raises:
        OSError: a file cannot be read, or the joined one not be written.
        ValueError: they are of no one moment, or parameters are not finite.
    """
    told = json.loads((folder / TOLD).read_text(encoding="utf-8"))
    parts = [led_part.read(folder / led_part.name_of(index)) for index in range(servers)]
    made: dict[str, list[str]] = {f"policy-ps-{index}": [] for index in range(servers)}
    _check_moment(parts)
    config = told["config"]
    if told["alike"]:
        _check_held(parts)
        whole = parts
    else:
        whole, let_go = led_apart.shared(parts)
        config["let_go"] = {**let_go._asdict(), "servers": servers}
        for index, part in enumerate(parts):
            name = led_part.own_of(index)
            led_part.put_own(folder / name, part)
            made[f"policy-ps-{index}"].append(name)
    shards = told["shards"]
    first = whole[0]
    begin, end = first.rows
    tables = [led_held.tables_of(told["owners"], index) for index in range(servers)]
    told["strides"] = _strides(whole, tables)
    rows = led_held.join(
        [
            led_held.among(
                led_held.slots(part.words[slice(*part.rows)], part.strides), its, told["strides"]
            )
            for part, its in zip(whole, tables, strict=True)
        ]
    )
    model: Any = model_file.described(told["model"])
    state = _state(
        first,
        _scattered([part.vectors for part in whole], shards, model.dimension),
        np.concatenate([first.words[:begin], rows, first.words[end:]]),
        _scattered([part.mode for part in whole], shards, model.dimension),
    )
    model_file.write(folder / JOINED, model, *resuming.contents(model, state, None, config))
    told["rows"] = [begin, begin + len(rows)]
    with atomic.opened(folder / TOLD) as file:
        file.write(json.dumps(told).encode())
    made["policy-ps-0"] += [JOINED, TOLD]
    for index in range(servers):
        (folder / led_part.name_of(index)).unlink()
    return made


def of_server(
    state: _core.Resumption,
    rows: tuple[int, int],
    strides: Sequence[int],
    shards: Sequence[Sequence[tuple[int, int]]],
    placement: _core.RowPlacement | None,
    index: int,
) -> _core.Resumption:
    """What one of several servers goes on from.

    Args:
        state: of all.
        rows: which words of the mode's are of rows that are held.
        strides: by table floats from one gradient of a row to the next.
        shards: what each has of the parameters, as [begin, end).
        placement: which one has which rows; None: there are none.
        index: of the server.

    Raises:
        ValueError: the state is damaged.
    """
    words, vectors = state.mode
    dimension = state.vectors.shape[1]
    begin, end = rows
    mine = words[begin:end]
    if placement is not None:
        pushes = list(led_held.slots(mine, strides))
        mine = led_held.words_of(led_held.own(pushes, placement, index))
    columns = _columns(shards[index])
    mode = (
        np.concatenate([words[:begin], mine, words[end:]]),
        np.ascontiguousarray(vectors.reshape(-1, dimension)[:, columns]).ravel(),
    )
    return _of_part(state, columns, state.updates, mode)


def with_own(
    state: _core.Resumption, own: Own, shards: Sequence[tuple[int, int]]
) -> _core.Resumption:
    """What a server goes on from that has been there before, with what is its own.

    Args:
        state: of all.
        own: of it.
        shards: what it has of the parameters, as [begin, end).
    """
    return _of_part(state, _columns(shards), own.updates, (own.words, own.mode))


def _check_moment(parts: Sequence[Part]) -> None:
    first = parts[0]
    for index, part in enumerate(parts[1:], 1):
        if part.position != first.position:
            raise ValueError(
                f"policy server {index} is at line {part.position} of the log, and the first at "
                f"{first.position}"
            )


def _check_held(parts: Sequence[Part]) -> None:
    first = parts[0]
    for index, part in enumerate(parts[1:], 1):
        if part.held.tolist() != first.held.tolist():
            raise ValueError(
                f"policy server {index} holds gradients of other pushes than the first: a part of one was "
                "lost with its worker"
            )


def _strides(parts: Sequence[Part], tables: Sequence[Sequence[int]]) -> list[int]:
    """Of all tables, of which each server has some, by their numbers."""
    found: dict[int, int] = {}
    for part, its in zip(parts, tables, strict=True):
        found |= zip(its, part.strides, strict=True)
    return [found[t] for t in sorted(found)]


def _columns(spans: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(*span) for span in spans])


def _of_part(
    state: _core.Resumption,
    columns: NDArray[np.int64],
    updates: int,
    mode: tuple[Words, NDArray[np.float32]],
) -> _core.Resumption:
    return _core.Resumption(
        vectors=np.ascontiguousarray(state.vectors[:, columns]),
        last_updates=state.last_updates,
        updates=updates,
        batches=state.batches,
        initial_loss=state.initial_loss,
        staleness=state.staleness,
        behind=state.behind,
        shrink=state.shrink,
        mode=mode,
    )


def _state(
    first: Part, vectors: NDArray[np.float32], words: Words, mode: NDArray[np.float32]
) -> _core.Resumption:
    nothing = np.empty(0, np.float32)
    return _core.Resumption(
        vectors=vectors,
        last_updates=nothing,
        updates=first.updates,
        batches=first.batches,
        initial_loss=math.nan,
        staleness=[],
        behind=nothing,
        shrink=(0.0, [], 0),
        mode=(words, mode.ravel()),
    )


def _scattered(
    parts: Sequence[NDArray[np.float32]],
    shards: Sequence[Sequence[Sequence[int]]],
    dimension: int,
) -> NDArray[np.float32]:
    """Vectors of all parameters, of each server's part of them."""
    found = np.zeros((len(parts[0]), dimension), np.float32)
    for part, spans in zip(parts, shards, strict=True):
        found[:, _columns(spans)] = part
    return found
