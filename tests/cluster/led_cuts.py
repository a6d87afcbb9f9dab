"""A checkpoint of the midst of a run by a mode on threads of this process."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.inside import PATIENCE
from cluster.led import led
from cluster.test_led_modes import together

import leashed as lsh
from leashed.cluster.checkpoints import Checkpoint, newest

ATTEMPTS = 10  # a machine that is busy elsewhere makes no cut while a small run trains


def caught(
    folder: Path,
    to: Path,
    model: Any,
    data: Any,
    trainers: int,
    asked: dict[str, Any],
    wanted: Callable[[Path], bool] = lambda _: True,
    **given: Any,
) -> tuple[Path, lsh.TrainResult]:
    """A copy of a checkpoint of a run's midst, and what the run's first trainer came to; ``wanted``: whether it is
    one that is to be copied; ``given``: of ``led``.
    """
    for attempt in range(ATTEMPTS):
        run = folder / str(attempt)
        first = _run_and_copy(run, to, model, data, trainers, asked, wanted, **given)
        if to.exists():
            return to, first
    raise AssertionError(f"{ATTEMPTS} runs were over before a checkpoint of them was copied")


def _run_and_copy(
    folder: Path,
    to: Path,
    model: Any,
    data: Any,
    trainers: int,
    asked: dict[str, Any],
    wanted: Callable[[Path], bool],
    **given: Any,
) -> lsh.TrainResult:
    """What the first trainer came to, and ``to``, unless the run was over before."""
    with led(folder, model, data, trainers, checkpoint_every=0.02, **given, **asked) as run:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            training = pool.submit(together, run, asked, trainers, model, data)
            deadline = time.monotonic() + PATIENCE
            while not to.exists() and not training.done():
                assert time.monotonic() < deadline
                with contextlib.suppress(OSError):
                    found = Checkpoint(newest(folder))
                    # Some batches: of the first few a mode may have made no update yet.
                    some = 8 <= found.account.used < found.told["total"]
                    if some and wanted(found.folder):
                        part = to.with_suffix(".part")
                        shutil.rmtree(part, ignore_errors=True)
                        shutil.copytree(found.folder, part)
                        part.rename(to)
                        # Fifty more cuts a second would take most of what the run takes.
                        run._run._master._coordinator._cuts._cutting._every = PATIENCE
                time.sleep(0.002)
            first: lsh.TrainResult = training.result()[0]
        report = run.report()
    assert run.error is None
    assert report["state"] == "ended"
    assert report["checkpoints"]["made"] > 0
    return first
