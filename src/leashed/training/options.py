"""Options of a training that belong together, each a value; and what they were called before."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from leashed import modes
from leashed.base import checks
from leashed.base.warning import warn
from leashed.stopping import Until

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from leashed.files.resuming import Kept
    from leashed.metrics import Progressive
    from leashed.models._running import Running
    from leashed.models.tables import Table
    from leashed.modes import Mode
    from leashed.sync import Cluster

EVALUATED_ROWS = 16_384

__all__ = ["EVALUATED_ROWS", "Checkpoint", "Init", "Observe", "Options", "options"]


@dataclass(frozen=True)
class Checkpoint:
    """A file that takes the state of a run at its end, and, where ``every`` or ``updates`` say so,
    while it goes on: parameters, the rule's state, counters and settings; of a model that reads tables
    a folder, with a file for each table (docs/checkpoints.md).

    Args:
        path: the file, or the folder. Default, for ``leashed.continual`` alone: in the run's folder.
        every: seconds between two, for which no thread stops. Under ``Leashed`` and the disciplines
            with a lock each is one published state; under ``Hogwild`` a copy of what threads change
            meanwhile, and rows of tables may be some updates ahead of the parameters.
        updates: so many updates between two, for each of which all workers wait, between two of their
            steps: with every update whose number is a multiple of it. So each is of one moment, rows
            and all, and a run that goes on from it with one thread comes to the same bits. Not with
            ``every``.
        incremental: of tables only the rows are written that have changed since the one before, and all
            anew where these files have come to half of those of all rows. For it a table keeps 12 bytes
            a row beside its ``max_bytes``, 4 where its ``rows`` are given; one without ``versions`` is
            written whole each time.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    path: str | os.PathLike[str] | Kept | None = None
    _: KW_ONLY
    every: float | None = None
    updates: int | None = None
    incremental: bool = False

    def __post_init__(self) -> None:
        if self.every is not None:
            checks.real("checkpoint.every", self.every, 0.0)
        if self.updates is not None:
            checks.whole("checkpoint.updates", self.updates, 1, 2**53)
        checks.flag("checkpoint.incremental", self.incremental)


@dataclass(frozen=True)
class Observe:
    """What is looked at while a training goes on, which changes nothing of it.

    Args:
        progress: called with a ``Progress`` after every evaluation; an exception it raises stops the
            run. ``True``: a bar on standard error with loss, EPS and AUC, by rich where that is
            installed (extra ``view``); nothing where there is no terminal.
        every: seconds between evaluations of the loss, which run on the calling thread beside the
            workers. Default: as often as keeps them to a tenth of one thread.
        rows: evaluations of the training set are of at most so many of its rows (though of 256, where
            it has them), always the same: blocks of 256 neighbours, evenly over all. Loss, accuracy
            and AUC of it are these rows', and so are the stop rules' losses;
            ``result.config["evaluated_rows"]`` tells how many. None: all. A validation set is always
            evaluated whole.
        metrics: ``leashed.metrics.progressive(...)``: AUC, log loss and more of each batch as its
            gradient finds it, before it is trained on; ``result.metrics`` and ``Progress`` have them. For
            models of one output with the loss ``log_loss``. Default: nothing is counted.
        record: a file that takes which gradient was computed on which version of the parameters, and
            when it was applied, with which factor, for ``leashed.replay`` (docs/replay.md): about 6 bytes
            a gradient, by a mode about 10, beside the parameters of the beginning and the end. Written
            in place of a file that is there; a RuntimeWarning where that fails in mid-run, which goes on
            unrecorded. Default: nothing is recorded.
        counting: who looks on at the training's steps, each as ``"NAME:key=value,…"``; ``Progress`` and
            the result have what it found, as ``observed``, by name. ``"gradient_norms"`` finds the mean
            of the gradients' norms and the largest. Where sparse data are updated in place gradients
            are computed for it alone, of all parameters. Default: nobody.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    progress: Callable[..., object] | bool | None = None
    _: KW_ONLY
    every: float | None = None
    rows: int | None = EVALUATED_ROWS
    metrics: Progressive | None = None
    record: str | os.PathLike[str] | None = None
    counting: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not (
            self.progress is None or isinstance(self.progress, bool) or callable(self.progress)
        ):
            raise TypeError(f"progress must be callable, True or False, got {self.progress!r}")
        if self.every is not None:
            checks.real("observe.every", self.every, 0.0)
        if self.rows is not None:
            checks.whole("observe.rows", self.rows, 1, 2**53)


@dataclass(frozen=True, eq=False)
class Init:
    """What a training begins with.

    Args:
        parameters: ``"he"``, ``"glorot"``, ``"normal"`` (see ``Model.init``) or parameters, float32 [d].
            Default: ``"glorot"`` of graphs, ``"he"`` of other models.
        tables: those that the model reads, by name, trained where they are: each row by its table's
            rule and staleness policy, also where the gradient of the parameters is dropped or excluded.
            Where one refuses ids for want of room, a RuntimeWarning says so, once and as soon as it is
            seen. Default: ``leashed.tables.of(model.tables, rule=rule, staleness=staleness,
            seed=seed)``; give tables where rows take no such rule or policy.
        statistics: running ones that go on, of a model that normalises, as ``Trained.train`` gives them.
            Default: they begin with the first batch.
    """

    parameters: str | ArrayLike | None = None
    tables: Mapping[str, Table] | None = None
    statistics: Running | None = None


class Options(NamedTuple):
    """Each as its value."""

    init: Init
    mode: Mode | None
    observe: Observe
    checkpoint: Checkpoint | None
    cluster: Cluster | None


# Arguments of before: in which option each is now, and as what.
OLD = {
    "tables": ("init", "tables"),
    "term": ("mode", "term"),
    "progress": ("observe", "progress"),
    "evaluate_every": ("observe", "every"),
    "metrics": ("observe", "metrics"),
    "record": ("observe", "record"),
    "checkpoint_every": ("checkpoint", "every"),
    "checkpoint_updates": ("checkpoint", "updates"),
    "incremental": ("checkpoint", "incremental"),
    "sync": ("cluster", "sync"),
}
_NOW = {
    "init": "init=lsh.Init(tables=...)",
    "mode": "the mode, as in lsh.modes.ASP(term=...)",
    "observe": "observe=lsh.Observe({}=...)",
    "checkpoint": "checkpoint=lsh.Checkpoint(path, {}=...)",
    "cluster": "lsh.cluster.join(sync=...)",
}


def options(
    init: object,
    mode: Mode | str | None,
    observe: object,
    checkpoint: object,
    cluster: Cluster | None,
    old: Mapping[str, Any],
    taken: Collection[str],
) -> Options:
    """What was given for each as its value, with what was given by an argument of before, of which a
    DeprecationWarning tells. ``taken``: which of these whoever was called has.

    Raises:
        TypeError: an argument is none, or no such value.
        ValueError: something is given twice, or without what it is a part of.
    """
    given = {
        "init": init if isinstance(init, Init) else Init(cast("Any", init)),
        "mode": None if mode is None else modes.of(mode),
        "observe": _observed(observe),
        "checkpoint": _kept(checkpoint),
        "cluster": cluster,
    }
    for name, value in old.items():
        if name not in OLD or OLD[name][0] not in taken:
            from difflib import get_close_matches  # noqa: PLC0415 (seldom asked for)

            of_before = (each for each, (whole, _) in OLD.items() if whole in taken)
            near = get_close_matches(name, [*taken, *of_before], 1)
            if name in Until.__dataclass_fields__:
                near = [f"until=leashed.until({name}=...)"]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"there is no argument {name}{hint}")
        whole, part = OLD[name]
        now = _NOW[whole].format(part)
        if value is not None and value is not False:
            given[whole] = _with(whole, given[whole], part, value, f"{name} is a part of {now}")
        if not (name == "progress" and isinstance(value, bool)):
            warn(f"the argument {name} is a part of {now} by now", DeprecationWarning)
    return Options(**cast("dict[str, Any]", given))


def _with(whole: str, given: Any, part: str, value: object, told: str) -> Any:
    if given is None:
        raise ValueError(f"{told}, which is not given; give {whole} as well")
    if getattr(given, part, None) not in (None, False):
        raise ValueError(f"{told}, where it is given too; leave one of the two out")
    if whole == "cluster":
        from leashed.sync import Synced, check  # noqa: PLC0415 (seldom asked for)

        return Synced(given, cast("Any", check(value, given)))
    return replace(given, **{part: value})


def _observed(given: object) -> Observe:
    if given is None or isinstance(given, Observe):
        return given or Observe()
    if callable(given):
        return Observe(given)
    raise TypeError(f"observe must be leashed.Observe(...) or a function, got {given!r}")


def _kept(given: object) -> Checkpoint | None:
    if given is None or isinstance(given, Checkpoint):
        return given
    return Checkpoint(cast("Any", given))
