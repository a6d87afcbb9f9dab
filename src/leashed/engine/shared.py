"""A parameter vector that processes share, under a name."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, disciplines
from leashed import staleness as policies
from leashed.base import checks, choice
from leashed.base.closing import Closing
from leashed.disciplines import Discipline, Hogwild, Leashed
from leashed.engine.vector import Update
from leashed.rules import SGD, Rule, check_rule
from leashed.staleness import Policy

__all__ = ["SharedVector", "View", "clean"]

_FOLDER = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is)
_PREFIX = "leashed."
_MOST_PARTICIPANTS = 4096
_DESCRIPTION = 1  # version


class View:
    """What ``SharedVector.read`` gives: a context manager, and the version that it read.

    Attributes:
        t: version of the vector entered last.
    """

    def __init__(self, native: _core.SharedVector, owner: SharedVector) -> None:
        self._native = native
        self._owner = owner
        self.t = 0

    def __enter__(self) -> NDArray[np.float32]:
        theta, self.t = self._native.read()
        self._owner._t_read = self.t
        self._theta: NDArray[np.float32] | None = theta
        return theta

    def __exit__(self, *_: object) -> None:
        self._theta = None


class SharedVector(Closing):
    """One vector in POSIX shared memory that several processes train, lock-free.

        with SharedVector.create("mine", theta0, rule=leashed.Adam(1e-3), participants=4) as vector:
            ...                                     # in the other processes: attach("mine")
            with vector.read() as theta:            # read-only, never changes
                g = gradient(theta)
            vector.push(g)

    A process may die at any moment, also by kill -9, without corrupting or blocking the others: it
    leaves a complete vector and no lock. What it held is released by whoever finds it dead, and its
    place can be taken; the same where a process replaces itself (``os.execv``). The name goes with
    the last process. (docs/shared_memory.md tells how, and what the limits are.)

    Each object is one participant, used by one thread at a time; threads that are to run side by
    side attach once each. A forked child attaches itself. Pickled, it attaches where it arrives.
    """

    def __init__(self, native: _core.SharedVector, name: str, config: dict[str, Any]) -> None:
        self._native = native
        self._name = name
        self._config = config
        self._t_read = native.t
        self._finalizer = weakref.finalize(self, native.close)

    @classmethod
    def create(
        cls,
        name: str,
        theta: ArrayLike,
        *,
        rule: Rule | str | None = None,
        discipline: Discipline | str | None = None,
        staleness: Policy | str | None = None,
        participants: int = 8,
    ) -> SharedVector:
        """Make a vector under ``name`` and take part in it.

        Rule, discipline and policy are kept with the vector: all participants apply the same. A
        policy that adapts to the staleness it sees (``tail_tau``, …) sees its own process's.

        Args:
            name: 1 to 200 letters, digits, ``.``, ``-``, ``_``; the file is /dev/shm/leashed.NAME,
                readable by this user alone.
            theta: initial values [d], converted to float32 and copied.
            rule: default ``SGD(lr=0.05)``.
            discipline: ``Leashed()`` (default), or ``Hogwild()``: one vector changed in place, whose
                views change while they are read, and of which a killed process leaves a part of its
                last update. (A lock would stay locked when its holder dies.)
            staleness: what a gradient is multiplied by for its staleness. Default: ``none()``.
            participants: the most at one time. Under ``Leashed`` each takes four times the memory
                of θ and the rule's state, all of it at once.

        Raises:
            TypeError, ValueError: an argument is wrong, the name is in use or another user's, or
                there is no room in /dev/shm.
        """
        name = _name(name)
        theta = checks.vector("theta", theta)
        rule = SGD(0.05) if rule is None else check_rule(rule)
        discipline = Leashed() if discipline is None else disciplines.of(discipline)
        if not isinstance(discipline, Leashed | Hogwild):
            raise TypeError(
                "discipline must be Leashed() or Hogwild(): a lock or a barrier would wait for ever "
                f"for a process that was killed; got {discipline!r}"
            )
        staleness = policies.of("staleness", policies.none() if staleness is None else staleness)
        participants = checks.whole("participants", participants, maximum=_MOST_PARTICIPANTS)
        config = {"rule": rule.config(), "discipline": discipline.label}
        config["staleness"] = staleness.config()
        _, settings = discipline.choice()
        persistence = settings.get("persistence", 0.0)
        description = {
            "version": _DESCRIPTION,
            "dimension": len(theta),
            "config": config,
            "rule": choice.to_json(rule.choice()),
            "staleness": choice.to_json(staleness.choice()),
            "persistence": persistence,
        }
        native = _core.SharedVector.create(
            name=name,
            theta=theta,
            participants=participants,
            in_place=isinstance(discipline, Hogwild),
            description=json.dumps(description),
            rule=rule.choice(),
            staleness=staleness.choice(),
            persistence=persistence,
        )
        _start_janitor(name)
        return cls(native, name, config)

    @classmethod
    def attach(cls, name: str) -> SharedVector:
        """Take part in the vector of that name.

        Raises:
            TypeError, ValueError: there is none of that name (any more), it is another user's, of
                another release or damaged, or all places are taken.
        """
        name = _name(name)
        found: dict[str, Any] = {}

        def choices(text: bytes) -> tuple[int, choice.Choice, choice.Choice, float]:
            try:
                found.update(json.loads(text))
                if found["version"] == _DESCRIPTION:
                    _ = found["config"]
                    rule, staleness = (choice.from_json(found[k]) for k in ("rule", "staleness"))
                    return int(found["dimension"]), rule, staleness, float(found["persistence"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{_core.SharedVector.path(name)} is damaged; end its participants and remove "
                    f"it ({error})"
                ) from error
            raise ValueError(
                f"the shared vector {name!r} has description version {found['version']}, this "
                f"release shares version {_DESCRIPTION}; use one release in all processes"
            )

        native = _core.SharedVector.attach(name, choices)
        _start_janitor(name)
        return cls(native, name, found["config"])

    def read(self) -> View:
        """A context manager that pins the latest θ and gives it as a read-only float32 [d] array,
        without a copy, with its version in the attribute ``t``.

        The array may be kept: its vector stays pinned until the last reference to it is gone; at
        most two may be alive at once. Under ``Hogwild`` it is the vector that others change.

        Raises (when entered):
            ValueError: too many views are alive, or this is closed or a forked child's.
        """
        return View(self._native, self)

    def push(self, gradient: ArrayLike, *, t_read: int | None = None) -> Update:
        """Update the vector with a gradient.

        Args:
            gradient: [d].
            t_read: version that it was computed on. Default: that of the last ``read``.

        Raises:
            TypeError, ValueError: an argument is wrong, or this is closed or a forked child's;
                nothing has changed.
        """
        t_read = self._t_read if t_read is None else checks.whole("t_read", t_read, 0, self.t)
        vector = checks.vector("gradient", gradient, len(self))
        return Update(*self._native.push(vector, t_read))

    def state(self) -> tuple[NDArray[np.float32], int]:
        """Copies of θ and of the rule's states, [1 + S, d], and their version: one published state
        (under ``Hogwild``: while it changes).
        """
        return self._native.state()

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def config(self) -> dict[str, Any]:
        """Rule, discipline and staleness policy, as JSON's own types."""
        return self._config

    @property
    def t(self) -> int:
        """Updates published so far, by all."""
        return self._native.t

    @property
    def live(self) -> int:
        """Vectors in use: the latest, those pinned, those about to be published."""
        return self._native.live

    @property
    def participants(self) -> int:
        """The most participants at one time."""
        return self._native.participants

    @property
    def pids(self) -> list[int]:
        """The processes that take part now, one entry for each participant."""
        return self._native.pids

    def reap(self) -> None:
        """Release what dead participants held now, and not only when a place is needed."""
        self._native.reap()

    def close(self) -> None:
        """Leave; the last participant takes the name along. Views stay valid, and hold this
        participant's place, until the last reference to them is gone.
        """
        self._finalizer()

    def __len__(self) -> int:
        return self._native.length

    def __repr__(self) -> str:
        if self._native.closed:
            return f"SharedVector({self._name!r}, closed)"
        return f"SharedVector({self._name!r}, d={len(self)}, t={self.t}, pids={self.pids})"

    def __reduce__(self) -> Any:
        return SharedVector.attach, (self._name,)


def clean() -> tuple[list[str], list[str]]:
    """Remove all names that nobody uses any more: what is left where the participants and the
    process that waits for their end were all killed.

    Returns:
        The names removed, and those of this user that are in use.
    """
    removed, used = [], []
    for path in sorted(_FOLDER.glob(f"{_PREFIX}*")):
        name = path.name.removeprefix(_PREFIX)
        try:
            if _core.SharedVector.clean(name):
                removed.append(name)
            elif path.exists():
                used.append(name)
        except ValueError:
            continue  # another user's
    return removed, used


def _name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}")
    return name


def _start_janitor(name: str) -> None:
    """One for each vector; a second finds that it is, and ends."""
    if not sys.executable or getattr(sys, "frozen", False):
        return  # an embedded interpreter is no program that could be run
    path = Path(_core.SharedVector.path(name))
    try:
        inode = path.stat().st_ino
        subprocess.run(  # noqa: S603 (our own file)
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("_janitor.py")), str(path),
             str(inode)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True, check=False,
        )  # fmt: skip
    except OSError:
        return  # no such file: all have left; or no more processes: the name is left to clean()
