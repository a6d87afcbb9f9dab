"""What GBA's convergence bound rests on, measured: γ, ζ and p₀ of gba's eqs. 3 and 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.datasets import ClickDataset
from leashed.models.graphs import Graph
from leashed.simulation.virtual_time import Simulation, simulate
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.side_by_side import side_by_side
from leashed.studies.switching import MODES, STATES, Setting, crash
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init

__all__ = ["POINTS", "Bound", "both_updated", "bound", "bounds", "measured"]

_BEHIND = 5  # steps by which a gradient that iota = 4 lets pass can be behind, and none
_SAMPLE = 20_000
POINTS = (0.25, 0.5, 0.75)  # of a day's steps


class Bound(NamedTuple):
    """In one state of the cluster, as means over the repeats.

    Attributes:
        state: of ``STATES``.
        change: E|∇F(w_k) − ∇F(w_{k−s})|² / E|∇F(w_k)|² for s = 0, 1, … steps, float64 [2, 5]: of
            dense parameters and of rows.
        behind: float64 [5]; shares of the gradients kept whose token was so many steps behind.
        zeta: ζ of dense parameters, 1, and of rows: the probability that two steps in turn update
            one.
    """

    state: str
    change: NDArray[np.float64]
    behind: NDArray[np.float64]
    zeta: tuple[float, float]

    @property
    def p0(self) -> float:
        """Share of the gradients whose token was the step that they were applied at, or ahead."""
        return float(self.behind[0])

    @property
    def gamma(self) -> NDArray[np.float64]:
        """γ of eq. 3, float64 [2]: of dense parameters and of rows."""
        return np.asarray(self.zeta * (self.change @ self.behind))

    @property
    def gamma_prime(self) -> NDArray[np.float64]:
        """γ' = 1 − γ + p₀/2 of eq. 4, float64 [2]; the larger, the faster."""
        return 1.0 - self.gamma + self.p0 / 2.0


class _Piece(NamedTuple):
    state: str
    seed: int
    share: float


class _Measured(NamedTuple):
    differences: NDArray[np.float64]  # |∇F(w_k) − ∇F(w_{k−s})|² [2, 5]
    squares: NDArray[np.float64]  # |∇F(w_k)|² [2]
    staleness: NDArray[np.int64]  # of the gradients kept until then


def both_updated(graph: Graph, clicks: ClickDataset, batch: int) -> float:
    """The probability that a row of a table is updated by both of two steps in turn of ``batch``
    clicks each.
    """
    steps = len(clicks) // batch
    ids = recommender.columns(clicks[: steps * batch])
    read: dict[str, set[int]] = {}
    for k, node in enumerate(graph.embeddings):
        feature = k if node.feature is None else node.feature
        read.setdefault(node.table.name, set()).add(feature)
    both = size = 0
    for spec in graph.tables:
        assert spec.rows is not None
        touched = np.zeros((steps, spec.rows), bool)
        for feature in read[spec.name]:
            of, click = ids[feature]
            touched[click // batch, of] = True
        both += int(np.count_nonzero(touched[1:] & touched[:-1]))
        size += spec.rows
    return both / ((steps - 1) * size)


def bounds(setting: Setting) -> Iterator[Bound]:
    """In every state of the cluster, where GBA trains for a day from the beginning. F is the loss of
    the day's first clicks.
    """
    (clicks,) = setting.days_of(setting.rows, 1)
    pieces = [
        _Piece(state, seed, share) for state, seed, share in product(STATES, setting.seeds, POINTS)
    ]
    found = side_by_side(lambda piece: measured(setting, piece, clicks), pieces)
    zeta = both_updated(setting.graph(), clicks, setting.workers * setting.batch_size)
    for state in STATES:
        yield bound(state, [next(found) for piece in pieces if piece.state == state], zeta)


def measured(setting: Setting, piece: _Piece, clicks: ClickDataset) -> _Measured:
    """At one moment of a training on the day's ``clicks``."""
    k = max(_BEHIND, round(piece.share * (setting.rows // (setting.workers * setting.batch_size))))
    sample, latest = clicks[:_SAMPLE], _trained(setting, piece, clicks, k)
    graph = setting.graph()
    now = recommender.gradient(latest.result, sample, graph)
    found = [np.zeros(2)]
    for s in range(1, _BEHIND):
        trained = _trained(setting, piece, clicks, k - s).result
        before = recommender.gradient(trained, sample, graph)
        found.append(_squares(now.dense - before.dense, now.rows - before.rows))
    assert latest.mode is not None
    seen = latest.mode.data_staleness[:_BEHIND]
    return _Measured(np.array(found).T, _squares(*now), np.pad(seen, (0, _BEHIND - len(seen))))


def bound(state: str, of_state: Sequence[_Measured], zeta: float) -> Bound:
    """Of what was measured in a state, with the ζ of rows."""
    counts = np.sum([one.staleness for one in of_state], axis=0)
    differences = np.sum([one.differences for one in of_state], axis=0)
    squares = np.sum([one.squares for one in of_state], axis=0)
    kept = counts.sum()
    behind = counts / kept if kept else np.full(_BEHIND, np.nan)
    return Bound(state, differences / squares[:, None], behind, (1.0, zeta))


def _squares(dense: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.array([np.sum(part.astype(np.float64) ** 2) for part in (dense, rows)])


@ends_are_told()
def _trained(setting: Setting, piece: _Piece, data: ClickDataset, updates: int) -> Simulation:
    """After so many updates: of one seed the beginning of a longer training is a shorter one."""
    trained = simulate(
        setting.graph(),
        data,
        cluster=setting.cluster("GBA", piece.state),
        mode=MODES["GBA"](setting.workers),
        until=Until(updates=updates),
        rule=setting.rule("GBA"),
        batch_size=setting.batch_size,
        seed=piece.seed,
        init=Init(tables=setting.tables(piece.seed)),
    )
    recommender.require_finite(trained.result, *crash("GBA", piece.state))
    return trained
