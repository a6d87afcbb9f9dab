"""What a checkpoint of a run has of its mode: the policy server's parameters, with all that its mode and its
rule have, in a model's file as a run on threads writes it; of tables the rows of the same moment; and beside
them what trainers have to know of it. Of several servers each writes its part (``led_part``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from leashed import _core
from leashed.base import atomic
from leashed.base.choice import Choice, from_json, to_json
from leashed.cluster import led_part, led_parts
from leashed.cluster.checkpoints import Checkpoint, saved_of
from leashed.cluster.led_rows import LedRows, Served
from leashed.cluster.messages import Saved
from leashed.files import model_file, resuming
from leashed.training.led_mode import LedMode

__all__ = ["Begun", "begun", "going_on", "save", "save_part"]

_MAY_DIFFER = ("workers", "examples")  # of a mode's settings


class Begun(NamedTuple):
    """What a policy server goes on from.

    Attributes:
        state: of it, and of how many nodes that is.
        leads: of servers that decide by themselves, whether its mode is the first's.
        let_go: what the run has let go by going on on other servers than there were; None: nothing.
    """

    state: tuple[_core.Resumption, int]
    leads: bool = False
    let_go: str | None = None


def save(
    folder: Path,
    led: LedMode,
    server: _core.PolicyServer,
    passed: float,
    commands: Sequence[tuple[float, int]],
    rows: LedRows | None = None,
    run: str = "",
) -> list[Saved]:
    """Write what a policy server has, which holds and is at rest, to a checkpoint's folder.

    Args:
        folder: the checkpoint's.
        led: the mode.
        server: that leads it; of several the first.
        passed: seconds since its first grant.
        commands: that are still to come.
        rows: of tables, of the run of that name. Default: there are none.
        run: this name.

    Raises:
        OSError: it cannot be written.
        ValueError: parameters are not finite.
    """
    # Who goes on is told what comes after `passed`: also what came due after the last look.
    passed = min([passed, *(math.nextafter(seconds, 0.0) for seconds, _ in commands)])
    left = [(seconds - passed, told) for seconds, told in commands]
    taken, saved = _taken(folder, server, lambda: server.take(left, led.batch_size), rows, run)
    config = {**led.config, "nodes": taken.nodes}
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        **{name: to_json(getattr(led, name)) for name in ("mode", "rule", "staleness")},
        "nodes": taken.nodes,
        "passed": passed,
        "rows": list(taken.rows),
        "strides": taken.strides,
    }
    if led.servers > 1:
        names = [led_part.name_of(0), led_parts.TOLD]
        led_part.put(folder / names[0], taken)
        told |= {"model": dict(led.model), "config": config, "alike": led.alike}
        told |= _placed(led)
    else:
        names = [led_parts.JOINED, led_parts.TOLD]
        model: Any = model_file.described(led.model)
        model_file.write(
            folder / names[0], model, *resuming.contents(model, taken.state, None, config)
        )
    with atomic.opened(folder / names[1]) as file:
        file.write(json.dumps(told).encode())
    return [*saved_of(folder, *names), *saved]


def save_part(
    folder: Path,
    index: int,
    server: _core.PartServer,
    rows: LedRows | None = None,
    run: str = "",
) -> list[Saved]:
    """As ``save``, of a server behind the first of several; ``index``: of the server.

    Raises:
        OSError: it cannot be written.
    """
    taken, saved = _taken(folder, server, server.take, rows, run)
    folder.mkdir(parents=True, exist_ok=True)
    name = led_part.name_of(index)
    led_part.put(folder / name, taken)
    return [*saved_of(folder, name), *saved]


def _taken(
    folder: Path,
    server: Served,
    take: Callable[[], tuple[Any, ...]],
    rows: LedRows | None,
    run: str,
) -> tuple[led_part.Taken, list[Saved]]:
    """What is taken of a server, with its rows, which are saved, of the same moment."""
    taken: list[tuple[Any, ...]] = []
    saved: list[Saved] = []
    if rows is None:
        taken.append(take())
    else:
        saved = rows.cut(folder, run, server, lambda: taken.append(take()))
    return led_part.Taken(*taken[0]), saved


def going_on(led: LedMode, begins: Checkpoint) -> LedMode:
    """The mode of a run that goes on from that checkpoint: with the settings of then, whatever the number of
    trainers is.

    Raises:
        FileNotFoundError: a file of it is missing.
        ValueError: it is of a run without a mode or by another one, another rule or policy, or nothing is
            left of its run.
    """
    told = _told(begins)
    if begins.complete:
        raise ValueError(
            f"all batches of the run of {begins.folder} are used: nothing is left of it; leashed.load reads "
            "its model, and init= begins with its parameters"
        )
    name, settings = from_json(told["mode"])
    for what in ("mode", "rule", "staleness"):
        was, here = _words(from_json(told[what])), _words(getattr(led, what))
        if was != here:
            raise ValueError(
                f"cannot go on from {begins.folder}: {what} was {was} and is {here}; give the same"
            )
    of_now = {"examples": led.mode[1]["examples"]}
    config = {
        **led.config,
        "mode": {**led.config["mode"], "workers": settings["workers"]},
    }
    return replace(
        led, mode=(name, {**settings, **of_now}), config=config, passed=float(told["passed"])
    )


def begun(led: LedMode, begins: Checkpoint, index: int = 0) -> Begun:
    """For the policy server, of several the one of that index.

    Where each decides by itself and there were as many, with the same parameters and rows, it goes on with what
    is its own; else all go on with what one server would have had.

    Raises:
        OSError: a file cannot be read.
        ValueError: one is damaged, or of another training.
    """
    path, let_go = begins.checked(led_parts.JOINED), None
    content = model_file.read(path)
    model: Any = model_file.described(led.model)
    state, _ = resuming.resume(path, content, model, dict(led.config))
    told = _told(begins)
    if not told.get("alike", True):
        if _placed(led) == {name: told[name] for name in _placed(led)}:
            own = led_part.read_own(begins.checked(led_part.own_of(index)))
            return Begun((led_parts.with_own(state, own, led.shards[index]), own.nodes))
        let_go = resuming.let_go(path, content)
    if led.servers > 1:
        begin, end = told["rows"]
        state = led_parts.of_server(
            state, (begin, end), told["strides"], led.shards, led.placement, index
        )
    return Begun((state, int(told["nodes"])), index > 0 and not led.alike, let_go)


def _placed(led: LedMode) -> dict[str, Any]:
    """Which of several servers has which parameters and rows, as JSON has it."""
    return {
        "shards": [[list(span) for span in shard] for shard in led.shards],
        "owners": list(led.owners),
    }


def _told(begins: Checkpoint) -> dict[str, Any]:
    if not begins.led:
        raise ValueError(
            f"cannot go on from {begins.folder}: its run was by no mode; leave mode out, or begin with "
            "init=leashed.load(folder).parameters"
        )
    told: dict[str, Any] = json.loads(begins.checked(led_parts.TOLD).read_text(encoding="utf-8"))
    return told


def _words(choice: Choice) -> str:
    """But for what may be another number."""
    name, settings = to_json(choice)
    kept = [f"{key}={settings[key]}" for key in sorted(settings) if key not in _MAY_DIFFER]
    return f"{name}({', '.join(kept)})"
