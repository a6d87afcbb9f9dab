"""What a rank starts beside its training."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from leashed.cluster.children import Children

PATIENCE = 60.0
_WAITS = "import sys, pathlib, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"


def until(folder: Path) -> Callable[[str, int], Sequence[str]]:
    """Programs that run until there is a file of their name."""
    return lambda role, _: [sys.executable, "-c", _WAITS, str(folder / role)]


@pytest.mark.process
def test_servers_stay_for_as_long_as_the_master_runs(tmp_path: Path) -> None:
    """Whose trainers may still evaluate by their rows, though this rank is done."""
    children = Children(tmp_path, until(tmp_path), [("master", 0)], [("embedding-ps", 0)])
    ending = threading.Thread(target=children.end, args=(0.2, "master"))
    ending.start()
    for _ in range(20):
        time.sleep(0.05)
        assert children.running("embedding-ps")
        assert ending.is_alive()
    (tmp_path / "master").touch()
    ending.join(PATIENCE)
    assert not ending.is_alive()
    assert not children.running("embedding-ps")


@pytest.mark.process
def test_where_the_master_has_failed_nobody_is_waited_for(tmp_path: Path) -> None:
    def command(role: str, index: int) -> Sequence[str]:
        if role == "master":
            return [sys.executable, "-c", "raise SystemExit(3)"]
        return until(tmp_path)(role, index)

    children = Children(tmp_path, command, [("master", 0)], [("embedding-ps", 0)])
    children.end(0.2, "master")
    assert not children.running("embedding-ps")
    assert children.statuses("master") == [3]
