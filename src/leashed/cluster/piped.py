"""What comes through pipes: one reader has its rows as they come (``once_read``), where no row is wanted again
and nothing has to be known of all of them; else it is read to its end, into a file of the run's folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from leashed.cluster.plan import STDIN, WORDS, Plan, Train
from leashed.cluster.row_index import comes_once, standardised_in
from leashed.cluster.supervisor import say
from leashed.datasets.files import raw
from leashed.training.problems import sparse
from leashed.training.problems.files import existing

__all__ = ["are_there", "check", "copies", "kept"]

_PIPES = (
    "test",
    "data",
)  # fields of Train that may name one: rows to test are read to know the columns
_STDIN = 0  # its number
_PARQUET = b"PAR1"  # its files begin so
_COPIES = (".piped", ".parquet")  # how they end


def are_there(train: Train) -> bool:
    """Whether rows come through a pipe, or standard input."""
    return any(_is_pipe(train, name) for name in _PIPES)


def check(plan: Plan) -> None:
    """ValueError where several files are named that each process would read, and one of them is a pipe."""
    train = plan.train
    given = [] if train.test is None else [train.test]
    if not plan.cluster.readers:
        given += [train.data] if train.days is None else train.days
    for pattern in given:
        if pattern in (STDIN, *WORDS) or not (has_magic(pattern) or pattern in (train.days or ())):
            continue
        for path in sorted(glob(pattern)):  # noqa: PTH207 (Path.glob() takes no absolute pattern)
            if Path(path).is_fifo():
                of_test = pattern == train.test
                remedy = "" if of_test else "give cluster.readers 1, or "
                raise ValueError(
                    f"{path} is a pipe, which can be read once, and each trainer reads all files"
                    f"{' to test' if of_test else ''}: {remedy}name one pipe alone"
                )


def kept(plan: Plan) -> Plan:
    """The plan with a pipe as its reader opens it, or a file of the run's folder in its place, into which
    it has been read to its end.

    Raises:
        OSError: a pipe cannot be read, or the folder has no room for what comes.
        ValueError: standard input has nothing, or is closed.
    """
    train, folder = plan.train, plan.cluster.run
    for path in (train.test, train.schema):
        if path is not None:
            existing(path)  # before hours of copying
    for name in _PIPES:
        if not _is_pipe(train, name):
            continue
        given, why = getattr(train, name), "all of it is tested on"
        if given == STDIN and (sys.stdin is None or sys.stdin.closed):
            raise ValueError("train.data is standard input, which is closed: pipe rows into it")
        if name == "data":
            if (
                train.model in sparse.MODELS
            ):  # whose copy's name does not tell it, and before hours of copying
                told = sparse.format_of(Path(_opened(given)), train.format, train.schema)
                train = replace(train, format=told)
            opened = replace(train, data=_opened(given))
            if given == STDIN and stat.S_ISSOCK(os.fstat(_STDIN).st_mode):
                why = "it is a socket, which no other process can open"
            elif not (why := _why_copied(replace(plan, train=opened))):
                train = opened
                continue
        there: dict[str, Any] = {name: str(_copied(given, folder / f"{name}{_COPIES[0]}", why))}
        train = replace(train, **there)
    return replace(plan, train=train)


def copies(folder: Path) -> list[Path]:
    """Files of a run's folder into which pipes have been read, which nobody has but there."""
    return [path for path in folder.iterdir() if path.stem in _PIPES and path.suffix in _COPIES]


def _opened(given: str) -> str:
    """A pipe as other processes of this machine open it, also what a shell has opened for this one."""
    if given == STDIN:
        given = "/dev/fd/0"
    if (found := re.fullmatch(r"/dev/(?:fd/(\d+)|stdin)", given)) is None:
        return given
    return f"/proc/{os.getpid()}/fd/{found[1] or 0}"


def _why_copied(plan: Plan) -> str:
    """Why its rows cannot be trained on as they come; empty: they can."""
    if not plan.cluster.readers:
        return "there are no readers"
    if (what := plan.again()) is not None:
        return what
    try:
        problem = plan.problem()
    except (OSError, ValueError) as error:  # as of columns that nobody has named
        return str(error)
    if not comes_once(problem.train):
        return "it is a file"
    if standardised_in(problem.train, problem.model):
        return "numbers are standardised by those of all rows"
    return ""


def _is_pipe(train: Train, name: str) -> bool:
    given = getattr(train, name)
    if given is None or (name == "data" and given in WORDS):
        return False
    if name == "data" and given == STDIN:
        return True
    return Path(given).is_fifo()


def _copied(given: str, to: Path, why: str) -> Path:
    """All that comes, in a file of that name; of Parquet with its suffix."""
    name = "standard input" if given == STDIN else given
    say(f"leashed: {name} is read to its end, into {to}, before training begins: {why}")
    beside = to.with_suffix(".new")
    try:
        with (
            raw(_STDIN if given == STDIN else Path(_opened(given))) as source,
            beside.open("wb") as written,
        ):
            shutil.copyfileobj(source, written, 1 << 20)
        with beside.open("rb") as file:
            begins = file.read(len(_PARQUET))
        if not begins:
            raise ValueError(f"{name} has ended without a row")
        if begins == _PARQUET:
            to = to.with_suffix(_COPIES[1])
        return beside.replace(to)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            f"{name} cannot be copied to {to.parent}: {error.strerror}; give --run a folder with room for all of it"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
