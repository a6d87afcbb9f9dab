"""Files that are there whole or not at all, also where a handler forks while one is written: then it
is the parent's alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leashed.base import atomic

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

PARTS = [b"a" * 10, b"b" * 100_000, b"c" * 10]


class Ended(Exception):
    """What a handler raises in the child."""


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_file_that_is_being_written_at_a_fork_is_the_parents(
    tmp_path: Path, before: int, raises: bool
) -> None:
    path, parent, status = tmp_path / "file", os.getpid(), -1
    path.write_bytes(b"old")

    def content() -> Iterator[bytes]:
        """Forks before that part, or behind all; the parent goes on when the child has ended."""
        nonlocal status
        for i in range(4):
            if i == before:
                child = os.fork()
                if child:
                    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                elif raises:
                    raise Ended
            yield from PARTS[i : i + 1]

    try:
        atomic.write(path, content())
    except BaseException as error:
        if os.getpid() == parent:
            raise
        refused = isinstance(error, RuntimeError) and "forked" in str(error)
        os._exit(3 if (isinstance(error, Ended) if raises else refused) else 1)
    if os.getpid() != parent:
        os._exit(2)
    assert status == 3
    assert path.read_bytes() == b"".join(PARTS)
    assert list(tmp_path.iterdir()) == [path]
