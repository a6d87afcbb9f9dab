"""Training a model on every core."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from leashed.base.target import Labels
from leashed.disciplines import Discipline
from leashed.disciplines import of as check_discipline  # noqa: F401
from leashed.files import resuming
from leashed.modes import Mode
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.training import request
from leashed.training.options import Checkpoint, Init, Observe
from leashed.training.outcome import Progress, progress_of, result_of, told_by  # noqa: F401
from leashed.training.recordings import AnyModel
from leashed.training.request import (  # noqa: F401
    check_dense_part,
    tables_for,
)
from leashed.training.result import TrainResult
from leashed.training.run import mean_loss, run, train_passes  # noqa: F401
from leashed.training.sets import (  # noqa: F401
    AnyData,
    batches_of,
    head_of,
    sets_of,
    source_of,
)

if TYPE_CHECKING:
    from leashed.sync import Cluster

# (What is imported and not used here lay here before.)
__all__ = ["Progress", "train"]


def train(
    model: AnyModel,
    data: AnyData,
    *,
    label: Labels | None = None,
    columns: Any = None,
    bad: str | None = None,
    shuffle: int | None = None,
    validation: Any = None,
    seed: int = 0,
    init: str | ArrayLike | Init | None = None,
    until: Until | None = None,
    rule: Rule | str | None = None,
    batch_size: int | None = None,
    threads: int | str | None = None,
    progress: bool = False,
    observe: Observe | Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | resuming.Kept | Checkpoint | None = None,
    resume: resuming.Resume | None = None,
    cluster: Cluster | None = None,
    discipline: Discipline | str | None = None,
    staleness: Policy | str | None = None,
    mode: Mode | str | None = None,
    dense: str = "server",
    **old: Any,
) -> TrainResult:
    """Train ``model`` on ``data`` with native threads that never take the GIL.

        data = lsh.datasets.synthetic_digits()
        result = lsh.train(lsh.models.mlp(784, [128], 10), data, until=lsh.until(epochs=5))
        print(result.final_loss, result.validation_accuracy[-1])

        result = lsh.train(lsh.models.dlrm(), frame, label="clicked")    # a DataFrame, or "logs/*.parquet"

    docs/training.md says what each argument means beside the others, docs/combinations.md what does
    not go together. Ctrl-C returns the state reached, with ``reason == "interrupted"``.

    What is trained:
        model: from :mod:`leashed.models`; ``models.external`` takes a gradient of your own.
        data: a set of :mod:`leashed.datasets`, a pair of arrays, a DataFrame (what has
            ``__arrow_c_stream__``), the path of Parquet or CSV, or a ``leashed.stream``, read meanwhile.
        label: of a DataFrame or files, the column that is to be predicted, or several, each 0 or 1.
        columns: of these, what each becomes, as of ``stream.table``. Default: as ``stream.infer`` finds.
        bad: of these, ``"skip"`` leaves out rows that are none, and says how many. Default: ``"fail"``.
        shuffle: of a path whose rows are read meanwhile, so many in an order drawn from the seed.
        validation: a set like ``data`` that is evaluated beside it; a ``Split`` brings its test set.
        seed: of the initial parameters and of the batches, from 0.
        init: ``"he"``, ``"glorot"``, ``"normal"``, or parameters, float32 [d]; of a model that reads
            tables ``lsh.Init(parameters, tables=...)``. Default: ``"glorot"`` of graphs, else ``"he"``.

    How, and until when:
        until: ``lsh.until(epochs=...)``, or ``lsh.until(patience=3, metric="auc")``, which keeps the best
            state on ``validation``. Default of models of clicks: one or two epochs; others are to be told.
        rule: as ``Adam(0.01)``, ``"adam:lr=0.01"``. Default: ``SGD(0.05)``, of clicks Adagrad by 0.01 to 0.04.
        batch_size: examples per gradient, at most all. Default: 64, or fewer (docs/training.md).
        threads: default: the processors this process may use. ``"auto"``: as many as train fastest.

    What is seen and kept:
        progress: ``True``: a bar with loss, EPS and AUC, where there is a terminal.
        observe: called with a ``Progress`` after every evaluation; ``lsh.Observe(...)`` records the run too.
        checkpoint: a file (with tables a folder) of the end's state, or ``lsh.Checkpoint(path, every=...)``.
        resume: such a file or folder to go on from, with the same arguments.

    For clusters and research:
        cluster: in which this process is a trainer, of ``leashed.cluster.join(sync=...)``.
        discipline: how threads share parameters, as ``Leashed()`` (default) or ``"hogwild"``.
        staleness: what a stale gradient counts, as ``"power:k=2"``. Default: ``"none"``.
        mode: in place of one, as ``"gba:m=8"``: the threads are workers of a parameter server, or peers.
        dense: of a mode in a cluster, who sums gradients: ``"server"``, or in Sync workers, ``"all-reduce"``.
        **old: arguments that are a part of one of these by now, with a DeprecationWarning.

    Returns:
        A ``TrainResult``. One ``RuntimeWarning`` with the remedy tells where it crashed, or began badly.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it. No thread has started.
        OSError: a file cannot be read or written, or the cluster's master cannot be reached.
    """
    tables = {"label": label, "columns": columns, "bad": bad, "shuffle": shuffle}
    old |= {name: value for name, value in tables.items() if value is not None}
    if progress is not False:
        old["progress"] = progress
    return run(
        request.of(
            model,
            data,
            until=until,
            discipline=discipline,
            mode=mode,
            rule=rule,
            staleness=staleness,
            threads=threads,
            batch_size=batch_size,
            seed=seed,
            init=init,
            validation=validation,
            observe=observe,
            checkpoint=checkpoint,
            resume=resume,
            cluster=cluster,
            dense=dense,
            old=old,
        )
    )
