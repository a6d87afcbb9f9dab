"""Checkpoints of a whole run, each of one cut, in folders of the run's: ``checkpoints/7`` is that of cut 7.

Every member writes its own files there, and flushes them: a trainer its parameters with the rule's state,
and what it shares with those with which it sums; in a run by a mode its policy server these, for all, and
rows of tables; a sync server its fragments of w^PS; an embedding server its rows. The master writes
``manifest.json`` last, which names them with their sizes and checksums: only then there is a checkpoint, and
the one before goes. Of several policy servers it joins what these have of parameters first.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from leashed.base import atomic
from leashed.cluster import fingerprint, led_part, led_parts, packing
from leashed.cluster.messages import Account, Saved
from leashed.cluster.roles import ROLES
from leashed.files import folders, resuming

__all__ = [
    "Checkpoint",
    "found",
    "newest",
    "place",
    "put_array",
    "saved_of",
    "tidy",
    "write",
]

FOLDER = "checkpoints"
_MAY_DIFFER = {
    *fingerprint.of_begin(True),
    *fingerprint.of_checkpoint("any", 0),
    *fingerprint.of_servers({name: 0 for name, role in ROLES.items() if role.serves}),
    *fingerprint.of_job("any"),
    *fingerprint.of_tables({}),
    "batches",
    "mode",  # (which says how many workers there were: ``led_checkpoint`` compares the rest)
    "workers",
    "leashed",  # (files of other versions say what they are)
}
_NUMBER = re.compile(r"[1-9]\d{0,15}")


def place(run: Path, number: int) -> Path:
    """The folder of a cut's checkpoint in a run's folder."""
    return run / FOLDER / str(number)


def newest(run: Path) -> Path:
    """The newest whole checkpoint in a run's folder.

    Raises:
        FileNotFoundError: there is none.
    """
    found = [n for n in _numbers(run) if (place(run, n) / folders.MANIFEST).is_file()]
    if not found:
        raise FileNotFoundError(
            f"{run} has no whole checkpoint to go on from: its run writes them with --checkpoint-every, "
            "in a plan checkpoint_every in [cluster]; where its master ran on another machine, copy them here"
        )
    return place(run, max(found))


def found(path: str | os.PathLike[str]) -> Checkpoint | None:
    """That in this folder, or the newest whole one of the run in it; None: it is neither.

    Raises:
        FileNotFoundError: it is a run's, which has none.
        ValueError: its manifest is damaged, or it is a folder of runs.
    """
    folder = Path(path)
    if folders.is_one(folder):
        return Checkpoint(folder) if folders.is_joint(folder) else None
    if (folder / FOLDER).is_dir() or (folder / "run.json").is_file():
        return Checkpoint(newest(folder))
    if runs := [int(each.name[4:]) for each in folder.glob("run-*") if each.name[4:].isdecimal()]:
        raise ValueError(
            f"{folder} is the folder of {len(runs)} run{'s' * (len(runs) > 1)}, each in one of its own; "
            f"give the one to go on from, such as {folder / f'run-{max(runs)}'}"
        )
    return None


def tidy(run: Path, number: int | None, keep: Collection[Path]) -> None:
    """Removes the folders of cuts before that one, None: of all, but those."""
    kept = {folder.resolve() for folder in keep}
    for each in _numbers(run):
        if (number is None or each < number) and place(run, each).resolve() not in kept:
            shutil.rmtree(place(run, each), ignore_errors=True)


def put_array(path: Path, *arrays: NDArray[Any]) -> None:
    """A file of arrays, one behind the other, that is on the disk."""
    with atomic.opened(path) as file:
        for each in arrays:
            np.save(file, each, allow_pickle=False)


def saved_of(folder: Path, *names: str) -> list[Saved]:
    """What is told of files in it."""
    return [
        Saved(name, (folder / name).stat().st_size, folders.digest_of(folder / name))
        for name in names
    ]


def write(folder: Path, told: Mapping[str, Any], saved: Mapping[str, Sequence[Saved]]) -> None:
    """The manifest, which makes a checkpoint whole: ``told`` of the run, and the files of all.

    Raises:
        OSError: it cannot be written.
        ValueError: what several policy servers have saved is of no one moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = _joined(folder, saved)
    files = [msgspec.to_builtins(each) for of in saved.values() for each in of]
    for each in files:
        each["file"] = each.pop("name")
    trainers = _indices(saved, "trainer")  # none: a policy server has what they train
    first = f"trainer-{trainers[0]}.safetensors" if trainers else "policy-ps-0.safetensors"
    manifest = {
        "format": folders.CLUSTER,
        "version": 1,
        "exact": True,
        "members": sorted(saved),
        "model": next(each for each in files if each["file"] == first),
        "rows": _with_rows(saved),
        "files": files,
        **told,
    }
    folders.put_manifest(folder, manifest)


class Checkpoint:
    """A whole one, as it is read.

    Args:
        folder: of it.

    Attributes:
        folder: this.
        told: of the run: ``run``, ``fingerprint``, ``total``, ``batch_size``, ``next`` and ``open`` of its
            ledger.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its manifest is damaged, or of something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folders.manifest_of(folder, folders.CLUSTER)
        self._members: list[str] = self.told["members"]

    @property
    def led(self) -> bool:
        """Whether a policy server has saved what was trained, by a mode."""
        return bool(_indices(self._members, "policy-ps"))

    @property
    def trainers(self) -> list[int]:
        """The numbers of those that have saved."""
        return _indices(self._members, "trainer")

    @property
    def number(self) -> int:
        """The cut's."""
        return int(self.told["number"])

    @property
    def account(self) -> Account:
        """Which of the run's batches are used."""
        return Account(self.told["next"], [(first, count) for first, count in self.told["open"]])

    @property
    def begun(self) -> Account:
        """Which batches of a run that goes on from it are used when that begins."""
        return Account() if self.complete else self.account

    @property
    def complete(self) -> bool:
        """Whether all of the run's batches are used: who goes on does so with other data."""
        return bool(self.told["next"] == self.told["total"] and not self.told["open"])

    def require(self, words: Mapping[str, str], *, same_data: bool = False) -> None:
        """ValueError where a run with this fingerprint cannot go on from it. Numbers of processes, and of
        batches in all, may be others, and where it is complete the data, unless they are to be the same, and
        with them examples of a batch: of who asks for another number each trainer tells.
        """
        others = set(_MAY_DIFFER)
        if self.complete and not same_data:
            others |= {"data", "batch_size"}
        was = {k: v for k, v in self.told["fingerprint"].items() if k not in others}
        if unlike := [name for name in was if words.get(name, was[name]) != was[name]]:
            told = "; ".join(f"{name} was {was[name]} and is {words[name]}" for name in unlike)
            raise ValueError(f"cannot go on from {self.folder}: {told}; give the same")

    def check(self) -> None:
        """That all files are what the manifest says.

        Raises:
            FileNotFoundError: one is missing.
            ValueError: one is damaged.
        """
        for told in self.told["files"]:
            self.checked(told["file"])
        self.rows()

    def checked(self, name: str) -> Path:
        """The path of a file that is what the manifest says.

        Raises:
            FileNotFoundError: it is missing.
            ValueError: it is damaged.
        """
        told = next(each for each in self.told["files"] if each["file"] == name)
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing, which its checkpoint names: copy that folder whole, or go on from another"
            )
        if path.stat().st_size != told["bytes"] or folders.digest_of(path) != told["sha256"]:
            raise ValueError(f"{path} is damaged: it is not what its checkpoint says")
        return path

    def trainer(self, index: int) -> resuming.AtCut:
        """What that trainer goes on from: its own file, or where there was none of that number that of
        the first.
        """
        return (resuming.AtEnd if self.complete else resuming.AtCut)(self.file(index))

    def file(self, index: int) -> Path:
        """The file of that.

        Raises:
            ValueError: trainers have saved nothing.
        """
        if self.led:
            raise ValueError(
                f"{self.folder} is of a run by a mode, of which its policy server has saved all: go on from it "
                "with that mode and policy_servers=1, or in one process"
            )
        known = self.trainers
        return self.checked(f"trainer-{index if index in known else known[0]}.safetensors")

    def within(self, index: int) -> NDArray[np.float64] | None:
        """Where each worker of that trainer, or where there was none of that number of the first, was between
        two rounds, float64 [workers, 4]; None: none of them synchronised by itself.
        """
        path = self.file(index).with_suffix(".within")
        if all(told["file"] != path.name for told in self.told["files"]):
            return None
        within: NDArray[np.float64] = np.load(self.checked(path.name), allow_pickle=False)
        return within

    def states(self, dimension: int) -> NDArray[np.float32] | None:
        """What trainers that sum have together, w^global and its velocity, one behind the other."""
        path = self.folder / f"trainer-{self.trainers[0]}.states"
        if all(told["file"] != path.name for told in self.told["files"]):
            return None
        states: NDArray[np.float32] = np.load(self.checked(path.name), allow_pickle=False)
        if states.size % dimension:
            raise ValueError(f"{path} is of other parameters than {dimension}")
        return states

    def w_ps(self, dimension: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]] | None:
        """w^PS, of whatever number of sync servers, and of each fragment whether they have it; None: the
        run had none.
        """
        servers = _indices(self._members, "sync-ps")
        if not servers:
            return None
        cut = packing.fragments(dimension)
        values, known = np.zeros(dimension, np.float32), np.zeros(len(cut), np.bool_)
        for index in servers:
            path = self.checked(f"sync-ps-{index}.part")
            with path.open("rb") as file:
                mine, present, held = (np.load(file, allow_pickle=False) for _ in range(3))
            at = 0
            for fragment, there in zip(mine, present, strict=True):
                first, end = cut[int(fragment)]
                values[first:end] = held[at : at + end - first]
                known[fragment] = there
                at += end - first
            if at != len(held):
                raise ValueError(f"{path} is of other parameters than {dimension}")
        return values, known

    def rows(self) -> list[folders.Rows]:
        """What the embedding servers, or policy servers, have saved of tables, in their order."""
        return [
            folders.Rows(self.checked(f"{name}/{folders.MANIFEST}").parent)
            for name in self.told["rows"]
        ]


def _numbers(run: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [int(p.name) for p in (run / FOLDER).iterdir() if _NUMBER.fullmatch(p.name)]
    return []


def _joined(folder: Path, saved: Mapping[str, Sequence[Saved]]) -> Mapping[str, Sequence[Saved]]:
    """Of several policy servers, what one would have saved of parameters in place of each one's part."""
    servers = len(_indices(saved, "policy-ps"))
    if servers < 2:
        return saved
    made = led_parts.join(folder, servers)
    gone = {led_parts.TOLD, *map(led_part.name_of, range(servers))}
    return {
        name: [
            *saved_of(folder, *made.get(name, ())),
            *(one for one in of if one.name not in gone),
        ]
        for name, of in saved.items()
    }


def _with_rows(saved: Mapping[str, Sequence[Saved]]) -> list[str]:
    """Who has saved rows of tables."""
    names = (
        f"{role}-{index}"
        for role in ("embedding-ps", "policy-ps")
        for index in _indices(saved, role)
    )
    return [
        name
        for name in names
        if any(one.name == f"{name}/{folders.MANIFEST}" for one in saved[name])
    ]


def _indices(names: Collection[str], role: str) -> list[int]:
    parts = [name.rpartition("-") for name in names]
    return sorted(int(index) for of, _, index in parts if of == role)
