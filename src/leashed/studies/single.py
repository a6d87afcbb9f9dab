"""One run of a plan: in this process, or in one of its own.

What a process has allocated and freed before shows in its resident memory, and one run would carry
the history of the others. So where memory is measured each gets a fresh process:
``python -m leashed.studies.single JOB``, with the data as a file at its standard input. It writes
lines of JSON to its standard output: ``progress`` after every evaluation, and at last the
``result`` or an ``error``. Ctrl-C is for the process that started it, which passes it on.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from leashed import simulation
from leashed.base.closing import Closing
from leashed.datasets import Dataset
from leashed.disciplines import Synchronous
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.simulation.virtual_time import Costs
from leashed.stopping import Until
from leashed.studies.plan import DISCIPLINES, Plan, Setting, build_model
from leashed.training.doubts import ends_are_told
from leashed.training.options import Observe
from leashed.training.outcome import Progress
from leashed.training.result import TrainResult
from leashed.training.train import train

__all__ = ["Apart", "train_setting"]

_NO_PARAMETERS = np.empty(0, dtype=np.float32)
_PIECE = 1 << 16
_UPDATES = 50  # from one evaluation in virtual time to the next
_DEVIATION = 0.05  # of T_c in virtual time, in its own unit


@ends_are_told()
def train_setting(
    plan: Plan,
    setting: Setting,
    data: Dataset,
    progress: Callable[[Progress], object] | None = None,
) -> TrainResult:
    """Run one setting of a plan.

    The result comes without its parameters, so that keeping it does not add to the memory that
    later runs measure. Its ``config`` tells of the plan too.

    Args:
        plan: what it belongs to.
        setting: what to run.
        data: the training set, with the plan's pixels.
        progress: called after every evaluation, as in :func:`leashed.train`.
    """
    _forget_memory()
    model, costs = build_model(setting.model, data), plan.costs_of(setting.model)
    seconds = plan.seconds if costs is None else plan.cap * costs.compute
    asked: dict[str, Any] = {
        "until": Until(loss_fraction=plan.epsilon, seconds=seconds),
        "discipline": DISCIPLINES[setting.algorithm],
        "rule": SGD(setting.lr),
        "batch_size": plan.batch_size,
        "seed": plan.seed + setting.repeat,
        "init": plan.init,
    }
    every = plan.evaluate_every
    if costs is None:
        result = train(
            model,
            data,
            threads=setting.threads,
            observe=Observe(progress, every=every, rows=None),
            **asked,
        )
    else:
        result = _played(
            model, data, setting.threads, costs, Observe(progress, every=every, rows=None), asked
        )
    config = {**result.config, **plan.stamp(setting)}
    return dataclasses.replace(result, config=config, parameters=_NO_PARAMETERS)


def _played(
    model: Model,
    data: Dataset,
    threads: int,
    costs: Costs,
    observe: Observe,
    asked: dict[str, Any],
) -> TrainResult:
    """In virtual time, evaluated every fifty updates or so unless it is said how often."""
    if observe.every is None:
        at_once = 1 if isinstance(asked["discipline"], Synchronous) else threads
        every = _UPDATES * max((costs.compute + costs.update) / at_once, costs.update)
        observe = dataclasses.replace(observe, every=every)
    cluster = simulation.normal(
        threads,
        costs.compute,
        _DEVIATION * costs.compute,
        update=costs.update,
        copy=costs.copy,
    )
    return simulation.simulate(model, data, cluster=cluster, observe=observe, **asked).result


class Apart(Closing):
    """Runs settings of a plan as :func:`train_setting` does, each in a process of its own.

    Args:
        plan: what they belong to.
        data: the training set, with the plan's pixels.
    """

    def __init__(self, plan: Plan, data: Dataset) -> None:
        arrays: dict[str, Any] = {"x": data.x, "y": data.y}
        if data.weights is not None:
            arrays["weights"] = data.weights
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        np.savez(self._file, **arrays)
        self._job = {
            "plan": dataclasses.asdict(plan),
            "data": {
                "classes": data.classes,
                "name": data.name,
                "image_shape": data.image_shape,
            },
        }

    def close(self) -> None:
        """Runs no more; the data are let go."""
        self._file.close()

    def __call__(
        self, setting: Setting, progress: Callable[[Progress], object] | None = None
    ) -> TrainResult:
        """Run one setting. After Ctrl-C its process ends, with the state reached as the result.

        Raises:
            ChildProcessError: the process ended without a result; the message says why.
            KeyboardInterrupt: it was not yet training.
        """
        self._file.seek(0)
        job = json.dumps({**self._job, "setting": dataclasses.asdict(setting)})
        with subprocess.Popen(  # noqa: S603 (this Python, and JSON as its argument)
            [sys.executable, "-m", __name__, job],
            stdin=self._file,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a terminal's Ctrl-C comes here alone
        ) as process:
            listener = _Listener(process, str(setting))
            try:
                try:
                    result = listener.result(progress)
                except KeyboardInterrupt:
                    if not listener.training:
                        raise
                    process.send_signal(signal.SIGINT)
                    result = listener.result(None)
                    if result is None:
                        raise
            finally:
                process.kill()
        if result is None:
            raise ChildProcessError(f"{setting}: its process ended without a result")
        return result


class _Listener:
    """Hears what a run's process has to say; asked again after Ctrl-C, it has missed nothing."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process, self._name = process, name
        self._received = b""
        self.training = False

    def result(self, progress: Callable[[Progress], object] | None) -> TrainResult | None:
        """The result; None where the process was interrupted before it had one."""
        assert self._process.stdout is not None
        while piece := self._process.stdout.read(_PIECE):
            self._received += piece
            while b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                said = json.loads(line)
                if "error" in said:
                    raise ChildProcessError(f"{self._name}: {said['error']}")
                if "result" in said:
                    return TrainResult.from_json(said["result"])
                self.training = True
                if progress is not None:
                    progress(Progress(**said["progress"]))
        status = self._process.wait()
        if status == _INTERRUPTED:
            return None
        cause = signal.Signals(-status).name if status < 0 else f"status {status}"
        raise ChildProcessError(f"{self._name}: its process ended with {cause}, without a result")


_INTERRUPTED = 130


def _say(kind: str, value: Any) -> None:
    print(json.dumps({kind: value}), flush=True)


def _main(job: str) -> int:
    """The process of one run."""
    try:
        asked = json.loads(job)
        arrays = np.load(sys.stdin.buffer)
        data = Dataset(**arrays, **asked["data"])
        result = train_setting(
            Plan(**asked["plan"]),
            Setting(**asked["setting"]),
            data,
            lambda now: _say("progress", dataclasses.asdict(now)),
        )
        _say("result", result.to_json())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # nobody waits for it any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        _say("error", f"{type(error).__name__}: {error}")
        return 1
    return 0


def _forget_memory() -> None:
    """Gives freed memory back to the system and starts its peak anew.

    So the peak that a run reports is not that of the runs before it in the same process, or of
    reading the data. Where the system cannot do it, that is what it reports.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        pass


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
