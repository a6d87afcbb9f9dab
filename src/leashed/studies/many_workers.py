"""What the studies share that train a recommender by thousands of asynchronous workers, in virtual
time: extreme-scale-asgd, Figures 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from threading import Lock
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import datasets, modes
from leashed.base import checks
from leashed.datasets import ClickDataset, ClickSplit
from leashed.models import recommenders, tables
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.rules import Adagrad
from leashed.simulation.virtual_time import simulate
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.stale import TIMES
from leashed.studies.study import GoOn, Record, Study, option, unbroken
from leashed.training.options import Init, Observe
from leashed.training.result import TrainResult

__all__ = ["MODELS", "ManyWorkers", "Recommender"]

_EVALUATIONS = 10
_ACCUMULATED = 0.1
_TESTED = 10_000
_DIM = 8
_LONGEST = 10
_CATEGORIES = 100


class Recommender(NamedTuple):
    """A model, and its clicks.

    Attributes:
        words: what it is.
        graph: of so many ids of each feature.
        clicks: of so many rows, a seed and so many ids.
    """

    words: str
    graph: Callable[[int], Graph]
    clicks: Callable[[int, int, int], ClickSplit]


def _histories(rows: int, seed: int, ids: int) -> ClickSplit:
    return datasets.synthetic_histories(
        rows, seed, test=_TESTED, users=ids, items=ids, categories=_CATEGORIES, longest=_LONGEST
    )


def _criteo(rows: int, seed: int, ids: int) -> ClickSplit:
    return datasets.synthetic_clicks(rows, seed, test=_TESTED, cardinalities=ids)


MODELS: dict[str, Recommender] = {
    "ecommerce": Recommender(
        "Wide & Deep with attention (rows of 8, attention of 16 units, layers of 16 and 8)",
        lambda ids: recommenders.ecommerce(
            ids, ids, _CATEGORIES, _DIM, 1, (16,), (16, _DIM), longest=_LONGEST
        ),
        _histories,
    ),
    "wide_deep": Recommender(
        "Wide & Deep without attention (26 tables of rows of 8, layers of 16 and 8)",
        lambda ids: recommenders.wide_deep(ids, _DIM, 13, (16, _DIM), categories=26),
        _criteo,
    ),
    "dlrm": Recommender(
        "a small DLRM (26 tables of rows of 8, layers of 16, 8 and 16)",
        lambda ids: recommenders.dlrm(ids, _DIM, 13, (16, _DIM), (16,), categories=26),
        _criteo,
    ),
}
"""The paper's is the first, as far as it tells; its sizes are ours."""

_making = Lock()


@lru_cache(maxsize=1)
def _clicks(model: str, rows: int, seed: int, ids: int) -> ClickSplit:
    return MODELS[model].clicks(rows, seed, ids)


@dataclass(frozen=True)
class ManyWorkers(Study):
    """What to train.

    Args:
        model: of ``MODELS``.
        workers: numbers of workers.
        times: of ``stale.TIMES``.
        lr: of Adagrad, swept; the sums begin at 0.1 as TensorFlow's do: from 0 they would undo any
            damping that hardly varies.
        batch_size: clicks of a gradient.
        ids: of each feature.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    SIDE_BY_SIDE: ClassVar[bool] = True
    VARIED: ClassVar[str]
    """What is varied beside the workers, by its name in settings."""

    model: str = option("ecommerce", "what is trained", choices=MODELS)
    workers: tuple[int, ...] = option((1000, 3000), "numbers of them", checks.whole)
    times: str = option("normal", "of gradients", choices=TIMES)
    lr: tuple[float, ...] = option(
        (0.003, 0.01, 0.03), "of Adagrad, swept", partial(checks.real, above=0.0)
    )
    batch_size: int = 32
    ids: int = option(10_000, "of each feature", checks.whole, command=False)
    repeats: int = option(5, "seeds of each", checks.whole, short=2)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def arms(self) -> Iterable[str]:
        """The values of ``VARIED``."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Clicks of a seed."""
        raise NotImplementedError

    def clicks(self, repeat: int) -> ClickSplit:
        """Of a seed."""
        with _making:
            return _clicks(self.model, self.rows, self.seed + repeat, self.ids)

    def graph(self) -> Graph:
        """The model."""
        return MODELS[self.model].graph(self.ids)

    def tables(self, repeat: int, rate: float) -> dict[str, Table]:
        """New ones, trained by Adagrad without damping; a table keeps its rule, whatever the mode."""
        return tables.of(self.graph().tables, rule=Adagrad(rate), seed=self.seed + repeat)

    def train(
        self,
        setting: Record,
        rate: float,
        model: Graph,
        clicks: ClickDataset,
        damping: Policy,
        init: Init,
        go_on: GoOn,
    ) -> TrainResult:
        """One run over clicks, once, with ASP."""
        workers = setting["workers"]
        seconds = len(clicks) / self.batch_size / workers  # a gradient takes 1 in the mean
        result = simulate(
            model,
            clicks,
            validation=self.clicks(setting["repeat"]).test,
            cluster=TIMES[self.times](workers),
            mode=modes.ASP(),
            until=Until(epochs=1),
            rule=Adagrad(rate, initial_accumulator=_ACCUMULATED),
            staleness=damping,
            init=init,
            batch_size=self.batch_size,
            seed=self.seed + setting["repeat"],
            observe=Observe(go_on, every=seconds / _EVALUATIONS, rows=1),
        ).result
        return unbroken(result)

    def course(self, result: TrainResult) -> NDArray[np.float64]:
        """float64 [11]; the AUC of other clicks after each tenth of the run, NaN after a crash."""
        found = np.full(_EVALUATIONS + 1, np.nan)
        series = result.validation_auc[: _EVALUATIONS + 1]
        found[: len(series)] = series
        if result.outcome != "crashed":
            found[-1] = result.validation_auc[-1]
        return found

    def measured(
        self, records: Sequence[Record], lr: float | None = None
    ) -> Iterator[tuple[int, str, Record]]:
        """For each number of workers and arm what was measured, each as float64 [repeats, …], of the
        settings of that rate, or of those that name none.
        """
        for workers, arm in product(self.workers, self.arms()):
            mine = [
                one["measured"]
                for one in records
                if (one["setting"]["workers"], one["setting"][self.VARIED]) == (workers, arm)
                and one["setting"].get("lr") == lr
            ]
            if mine:
                found = {
                    name: np.array([one[name] for one in mine], np.float64) for name in mine[0]
                }
                yield workers, arm, found
