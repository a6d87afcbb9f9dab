"""How good predicted clicks are: AUC, GAUC, log loss, normalised entropy, calibration; and predicted
numbers: squared and absolute errors, R².

Functions of whole arrays, exact; ``ClickMetrics``, which takes them in parts, in memory that does not
grow; and ``progressive``, which has a training count them on what it is about to train on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.target import check_heads

__all__ = [
    "Classified",
    "ClickMetrics",
    "Errors",
    "HeadMetrics",
    "NumberMetrics",
    "Progressive",
    "Scored",
    "Values",
    "auc",
    "calibration",
    "gauc",
    "log_loss",
    "mae",
    "mse",
    "normalised_entropy",
    "progressive",
    "r2",
    "rmse",
    "undo_downsampling",
]

KEPT = 2**20


def auc(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The area under the ROC curve: the probability that of a click and a non-click, drawn by
    weight, the click has the higher score. A tie counts half.

    Args:
        scores: [n] or [n, 1], probabilities, logits or whatever rises with them; infinite ones are
            allowed.
        labels: [n], 0 or 1.
        weights: [n], finite and not negative. Default: 1 each.

    Returns:
        From 0 to 1; NaN where the clicks or the non-clicks weigh nothing, since there is no pair.

    Raises:
        TypeError: An argument is no array of numbers.
        ValueError: Lengths differ, there is no row, a score is NaN, a label is neither 0 nor 1, or
            a weight is wrong.
    """
    score = _scores("scores", scores)
    clicks, others = _weighed(labels, weights, len(score))
    order = np.argsort(score, kind="stable")
    score, clicks, others = score[order], clicks[order], others[order]
    last = np.append(score[1:] != score[:-1], True)  # of its ties
    up_to = np.cumsum(others)[last]
    clicks_at = np.diff(np.cumsum(clicks)[last], prepend=0.0)
    below = np.append(0.0, up_to[:-1])
    pairs = clicks.sum() * up_to[-1]
    return min(1.0, float(clicks_at @ (below + up_to) / 2 / pairs)) if pairs else math.nan


def gauc(
    scores: ArrayLike, labels: ArrayLike, users: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The mean AUC of users, each weighed by all of its rows: Σ_u w_u AUC_u / Σ_u w_u over users that
    have clicks and others (Zhu et al., "Optimized cost per click in Taobao display advertising", KDD
    2017). What ranks users among each other, such as how often one clicks, does not count in it.

    Args:
        scores, labels, weights: As for ``auc``.
        users: [n], whose each row is; anything that can be compared, such as numbers or strings.

    Returns:
        From 0 to 1; NaN where no user has clicks and others.

    Raises:
        TypeError, ValueError: As for ``auc``, and where ``users`` is of another length.
    """
    score = _scores("scores", scores)
    clicks, others = _weighed(labels, weights, len(score))
    given = np.asarray(users)
    if given.shape != score.shape:
        raise ValueError(f"users must have one for each score, {len(score)}, got {given.shape}")
    user = np.unique(given, return_inverse=True)[1]
    order = np.lexsort((score, user))
    score, user, clicks, others = score[order], user[order], clicks[order], others[order]
    clicked, not_clicked = np.bincount(user, clicks), np.bincount(user, others)
    both = (clicked > 0) & (not_clicked > 0)
    if not both.any():
        return math.nan
    weight = (clicked + not_clicked)[both]
    if weights is not None:  # sums go over users: a heavy one is not to swallow the others
        clicks = clicks / np.where(clicked > 0, clicked, 1)[user]
        others = others / np.where(not_clicked > 0, not_clicked, 1)[user]
        clicked, not_clicked = np.bincount(user, clicks), np.bincount(user, others)
    last = np.append((score[1:] != score[:-1]) | (user[1:] != user[:-1]), True)  # of its ties
    of = user[last]
    first = np.append(True, of[1:] != of[:-1])  # of its user
    up_to = np.cumsum(others)[last]
    clicks_at = np.diff(np.cumsum(clicks)[last], prepend=0.0)
    below = np.append(0.0, up_to[:-1])
    before = below[first][of]  # of other users
    won = np.bincount(of, clicks_at * ((below + up_to) / 2 - before))
    aucs = won[both] / (clicked[both] * not_clicked[both])
    return float(np.average(aucs, weights=weight))


def log_loss(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The weighted mean of −y ln p − (1 − y) ln(1 − p).

    Args:
        probabilities: [n], from 0 to 1; one that is certain and wrong makes the loss infinite.
        labels, weights: As for ``auc``.

    Returns:
        In nats; NaN where all weights are 0.

    Raises:
        TypeError, ValueError: As for ``auc``, and where a probability is outside 0 to 1.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    return _log_loss(p, clicks, others)


def normalised_entropy(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The log loss over the entropy of the share of clicks (He et al., "Practical lessons from
    predicting clicks on ads at Facebook", ADKDD 2014): 1 is what the best constant reaches, and
    less is better.

    Args:
        probabilities, labels, weights: As for ``log_loss``.

    Returns:
        NaN where all labels are the same: their entropy is 0.

    Raises:
        TypeError, ValueError: As for ``log_loss``.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    if not (clicks.any() and others.any()):
        return math.nan
    # The smaller share of both: the larger may round to 1.
    share = min(clicks.sum(), others.sum()) / (clicks.sum() + others.sum())
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    return float(_log_loss(p, clicks, others) / entropy)


def calibration(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Clicks expected over clicks: 1.1 where 10 % too many are expected.

    Args:
        probabilities, labels, weights: As for ``log_loss``.

    Returns:
        NaN where there is no click.

    Raises:
        TypeError, ValueError: As for ``log_loss``.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    return float(p @ (clicks + others) / clicks.sum()) if clicks.any() else math.nan


def undo_downsampling(probabilities: ArrayLike, negatives: float) -> NDArray[np.float64]:
    """What a model that was trained on ``leashed.datasets.downsample(data, negatives)`` predicts for
    rows of which none was left out: p ÷ (p + (1 − p) ÷ negatives) (He et al., "Practical lessons
    from predicting clicks on ads at Facebook", 2014, section 6.3).

    Args:
        probabilities: [n], from 0 to 1.
        negatives: The probability with which rows that were not clicked were kept, above 0, at most
            1.

    Returns:
        [n], in the same order.

    Raises:
        TypeError, ValueError: As for ``log_loss``, or ``negatives`` is out of range.
    """
    p = _probabilities(probabilities)
    negatives = checks.real("negatives", negatives, 0.0)
    if negatives > 1:
        raise ValueError(f"negatives must be at most 1, got {negatives:g}")
    return negatives * p / (negatives * p + (1 - p))


@dataclass(frozen=True)
class Errors:
    """How far predicted numbers are off; NaN where there is no row of weight.

    Attributes:
        rows: How many there were.
        mse, rmse, mae, r2: As the functions of their names.
    """

    rows: int
    mse: float
    rmse: float
    mae: float
    r2: float


@dataclass(frozen=True)
class Classified:
    """How good predicted classes are.

    Attributes:
        rows: How many there were.
        accuracy: Share whose likeliest class is the right one.
        log_loss: The mean of −ln of what the right class was given, by weight.
    """

    rows: int
    accuracy: float
    log_loss: float


class NumberMetrics:
    """Errors of numbers that come in parts.

    told = lsh.metrics.NumberMetrics()
    told.add(model.predict(part), part.y)
    told.values().rmse
    """

    def __init__(self) -> None:
        self._rows, self._first = 0, 0.0
        self._sums = np.zeros(5)

    def add(
        self, predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        """Count rows.

        Args:
            predicted: [n] or [n, 1], not NaN.
            values: [n], finite, what should have been predicted.
            weights: [n], finite and not negative. Default: 1 each.

        Raises:
            TypeError, ValueError: As for ``mse``.
        """
        said = _scores("predicted", predicted)
        true = np.asarray(checks.numeric("values", values), np.float64)
        if true.shape != said.shape or not len(said):
            raise ValueError(
                f"values must have one for each prediction, at least 1, got shape {true.shape}"
            )
        if not np.isfinite(true).all():
            first = int(np.argmin(np.isfinite(true)))
            raise ValueError(f"values[{first}] is {true[first]}; a value is finite")
        weight = _row_weights(weights, len(said))
        if not self._rows:
            self._first = float(true[0])  # sums of squares lose no digits to a large mean
        self._rows += len(said)
        away, error = true - self._first, said - true
        self._sums += [
            weight.sum(),
            weight @ error**2,
            weight @ np.abs(error),
            weight @ away,
            weight @ away**2,
        ]

    def values(self) -> Errors:
        """Of all rows so far."""
        weight, squares, absolute, total, spread = self._sums.tolist()
        if not weight:
            return Errors(self._rows, math.nan, math.nan, math.nan, math.nan)
        mean_squared, variance = squares / weight, spread / weight - (total / weight) ** 2
        explained = 1 - mean_squared / variance if variance > 0 else math.nan
        return Errors(
            self._rows, mean_squared, math.sqrt(mean_squared), absolute / weight, explained
        )


def _errors(predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None) -> Errors:
    counted = NumberMetrics()
    counted.add(predicted, values, weights)
    return counted.values()


def mse(predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The weighted mean of squared errors; NaN where all weigh nothing.

    Args:
        predicted: [n] or [n, 1], what a model said.
        values: [n], what it should have said, finite.
        weights: [n], finite and not negative. Default: 1 each.

    Raises:
        TypeError: An argument is no array of numbers.
        ValueError: Lengths differ, there is no row, or a number is NaN.
    """
    return _errors(predicted, values, weights).mse


def rmse(predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The root of ``mse``, whose arguments it has."""
    return _errors(predicted, values, weights).rmse


def mae(predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The weighted mean of absolute errors; arguments as of ``mse``."""
    return _errors(predicted, values, weights).mae


def r2(predicted: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The share of the values' variance that is explained, 1 − ``mse`` / variance: 1 at best, 0 of who
    says their mean; NaN where they are all the same. Arguments as of ``mse``.
    """
    return _errors(predicted, values, weights).r2


@dataclass(frozen=True)
class Values:
    """Metrics of the rows so far; NaN as the functions of their names say.

    Attributes:
        rows: How many there were.
        auc: To within ``auc_error``.
        auc_error: The exact AUC is no further away than this.
        log_loss: In nats.
        normalised_entropy: Log loss over the entropy of the share of clicks.
        calibration: Clicks expected over clicks.
        gauc: Of the users that are kept; NaN where users are not known.
        gauc_error: That of all users is no further from it, with 95%: 0 where all are kept.
        users: How many ``gauc`` is of: those kept that have clicks and others.
        user_share: Of all users, the share that is kept.
        heads: Of several labels those of each, by name; the others are then means over the labels of
            which they can be told, and the largest numbers of rows and users. Else empty.
    """

    rows: int
    auc: float
    auc_error: float
    log_loss: float
    normalised_entropy: float
    calibration: float
    gauc: float = math.nan
    gauc_error: float = math.nan
    users: int = 0
    user_share: float = 0.0
    heads: dict[str, Values] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, told: Mapping[str, Any], heads: Sequence[str] = ()) -> Values:
        """Of what the core tells, of several labels of these names, or a file."""
        several = told.get("heads")
        if not several:
            return cls(**{name: value for name, value in told.items() if name != "heads"})
        named = several if isinstance(several, Mapping) else dict(zip(heads, several, strict=True))
        return cls.mean({name: cls.of(one) for name, one in named.items()})

    @classmethod
    def mean(cls, heads: dict[str, Values]) -> Values:
        """Of several labels."""
        means: dict[str, Any] = {}
        for name in _MEANS:
            means[name] = mean_of_known(getattr(one, name) for one in heads.values())
        largest = {name: max(getattr(one, name) for one in heads.values()) for name in _LARGEST}
        return cls(**means, **largest, heads=heads)


_LARGEST = ("rows", "users")
_MEANS = tuple(
    one.name for one in fields(Values) if one.name != "heads" and one.name not in _LARGEST
)


@dataclass(frozen=True, eq=False)
class Progressive:
    """What ``progressive`` returns."""

    gauc: str | ArrayLike | None
    kept: int


def progressive(gauc: str | ArrayLike | None = None, kept: int = KEPT) -> Progressive:
    """Progressive validation: each batch is scored with parameters that it has not been trained on
    yet, by the forward pass that its gradient takes anyhow (Blum, Kalai, Langford, "Beating the
    hold-out", COLT 1999). For ``lsh.Observe(metrics=)``; ``result.metrics`` has what was counted.

    In a second pass over the same data the rows have been trained on in the first: then it is no
    validation any more.

    Args:
        gauc: whose each row is, to tell GAUC: the name of a feature of a ``ClickDataset`` or a
            ``Stream`` that has one id a row, which the model need not read; or whole numbers [n] for
            the rows of a training set in memory. Default: no GAUC.
        kept: rows of users that are kept, 16 bytes each; where there are more, half of the users are
            left out, and half of those that stay, until they fit: the same users however many
            threads there are. (Beside them about 3 · ``kept`` more may lie with the threads and in
            the window.)

    Raises:
        TypeError, ValueError: ``kept`` is no whole number of at least 1.
    """
    return Progressive(gauc, checks.whole("kept", kept, 1, 2**40))


@dataclass(frozen=True, eq=False)
class Scored:
    """What progressive validation counted: W windows, each up to an evaluation by the monitor.

    A window is made of whole batches, those that each thread had finished when the monitor looked, so
    its rows may be some batches off from the gradients of that moment; at the end none is missing.

    Attributes:
        seconds: float64 [W]; since training began.
        updates: int64 [W]; published by then.
        window: of the rows since the window before, [W].
        total: of all rows of this run up to then, [W].
    """

    seconds: NDArray[np.float64]
    updates: NDArray[np.int64]
    window: tuple[Values, ...]
    total: tuple[Values, ...]

    @classmethod
    def of(cls, windows: list[dict[str, Any]], heads: Sequence[str] = ()) -> Scored:
        """From what the core, of several labels of these names, or a file, has of each window."""
        return cls(
            np.array([one["seconds"] for one in windows], np.float64),
            np.array([one["updates"] for one in windows], np.int64),
            tuple(Values.of(one["window"], heads) for one in windows),
            tuple(Values.of(one["total"], heads) for one in windows),
        )

    def windows(self) -> list[dict[str, Any]]:
        """The other way round."""
        columns = zip(self.seconds, self.updates, self.window, self.total, strict=True)
        return [
            {
                "seconds": float(seconds),
                "updates": int(updates),
                "window": asdict(window),
                "total": asdict(total),
            }
            for seconds, updates, window, total in columns
        ]


class ClickMetrics:
    """Metrics of a stream of logits and labels, in 1 MiB however long it is.

    The AUC is made from counts of clicks and non-clicks in 2¹⁶ bins of the logits, 128 for each
    power of two: pairs within a bin count as ties, so that it is off by at most
    ½ Σ_b p_b n_b / (P N), which is told beside it.

        metrics = lsh.metrics.ClickMetrics()
        for logits, labels in batches:
            metrics.add(logits, labels)
        print(metrics.values().auc)

    One of these is for one thread; ``merge`` adds those of others.

    Args:
        kept: rows of users that are kept for GAUC, as for ``progressive``. Default: none, and no
            GAUC.

    Raises:
        TypeError, ValueError: ``kept`` is no whole number.
    """

    def __init__(self, kept: int = 0) -> None:
        self._kept = checks.whole("kept", kept, 0, 2**40)
        self._native = _core.ClickMetrics(self._kept)

    def add(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        weights: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> None:
        """Count rows in.

        Args:
            logits: [n], ln(p / (1 − p)); taken as float32, infinite ones are allowed.
            labels, weights: As for ``auc``; weights are taken as float32.
            users: whole numbers [n], whose each row is, where ``kept`` is not 0.

        Raises:
            TypeError, ValueError: As for ``auc``, or ``users`` are missing or not wanted; then
                nothing has been counted.
        """
        if (users is not None) != (self._kept > 0):
            raise ValueError(
                "users must be given with each add where kept is not 0, and else not; "
                f"ClickMetrics(kept={KEPT}) takes them"
            )
        score = _scores("logits", logits)
        if not len(score) and not len(np.atleast_1d(labels)):
            return
        with np.errstate(over="ignore"):
            single = score.astype(np.float32)
            weighed = (
                None
                if weights is None
                else np.ascontiguousarray(checks.numeric("weights", weights), np.float32)
            )
        _weighed(labels, weighed, len(score))
        self._native.add(
            single,
            np.ascontiguousarray(labels, np.int32),
            weighed,
            None if users is None else users_of(users, len(score)),
        )

    def merge(self, other: ClickMetrics) -> None:
        """Add what another one has counted."""
        if not isinstance(other, ClickMetrics):
            raise TypeError(f"other must be ClickMetrics, got {type(other).__name__}")
        if (other._kept > 0) != (self._kept > 0):
            raise ValueError("other must know users where this one does, and else not")
        self._native.merge(other._native)

    def values(self) -> Values:
        """The metrics of all rows so far."""
        return Values(**self._native.values())


class HeadMetrics:
    """``ClickMetrics`` of several labels a row, as of a click and a purchase. A label that is not known, NaN,
    does not count.

        metrics = lsh.metrics.HeadMetrics(["clicked", "bought"])
        metrics.add(logits, labels)
        metrics.values().heads["bought"].auc

    Args:
        heads: the names of the labels, two at least.
        kept: as of ``ClickMetrics``, of each.

    Raises:
        TypeError, ValueError: ``heads`` are no such names, or ``kept`` is no whole number.
    """

    def __init__(self, heads: Sequence[str], kept: int = 0) -> None:
        self._counted = {name: ClickMetrics(kept) for name in check_heads("heads", heads)}

    def add(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        weights: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> None:
        """Count rows in.

        Args:
            logits: [n, heads], ln(p / (1 − p)).
            labels: [n, heads], each 0 or 1, or NaN where it is not known.
            weights, users: as of ``ClickMetrics.add``.

        Raises:
            TypeError, ValueError: as of ``ClickMetrics.add``, or a shape is another.
        """
        said, true = checks.numeric("logits", logits), checks.numeric("labels", labels)
        for name, given in (("logits", said), ("labels", true)):
            if given.ndim != 2 or given.shape != (len(said), len(self._counted)):
                raise ValueError(
                    f"{name} must have shape [n, {len(self._counted)}], one for each of "
                    f"{', '.join(self._counted)}, got {given.shape}"
                )
        whose = None if users is None else users_of(users, len(said))
        heavy = None if weights is None else _row_weights(weights, len(said))
        parts = []
        for k, counted in enumerate(self._counted.values()):
            known = ~np.isnan(true[:, k])
            part = ClickMetrics(counted._kept)
            part.add(
                said[known, k],
                true[known, k],
                None if heavy is None else heavy[known],
                None if whose is None else whose[known],
            )
            parts.append(part)
        # Of all labels, or of none where those of one are wrong.
        for counted, part in zip(self._counted.values(), parts, strict=True):
            counted.merge(part)

    def values(self) -> Values:
        """The metrics of all rows so far, of each label and in the mean."""
        return Values.mean({name: one.values() for name, one in self._counted.items()})


def mean_of_known(values: Iterable[float]) -> float:
    """Of those that are no NaN; NaN where all are."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def users_of(users: ArrayLike, rows: int) -> NDArray[np.uint64]:
    """Whole numbers [rows] as their 64 bits."""
    array = np.asarray(users)
    if array.dtype.kind not in "iu":
        raise TypeError(f"users must be whole numbers, got {array.dtype}; number them from 0")
    if array.shape != (rows,):
        raise ValueError(f"users must have one for each of the {rows} rows, got {array.shape}")
    return np.ascontiguousarray(array).astype(np.uint64)


def _scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = checks.numeric(name, values)
    if array.ndim == 2 and array.shape[1] == 1:  # as models predict them
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"{name} must have shape [n], got {array.shape}; give one label's at a time, {name}[:, 0]"
            if array.ndim == 2
            else f"{name} must have shape [n], got {array.shape}; flatten it with .ravel()"
        )
    scores = array.astype(np.float64)
    if np.isnan(scores).any():
        raise ValueError(f"{name}[{int(np.argmax(np.isnan(scores)))}] is NaN; leave such rows out")
    return scores


def _probabilities(values: ArrayLike) -> NDArray[np.float64]:
    p = _scores("probabilities", values)
    wrong = (p < 0) | (p > 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"probabilities[{first}] is {p[first]:g}, outside 0 to 1; of logits take "
            "1 / (1 + np.exp(-logits))"
        )
    return p


def _weighed(
    labels: ArrayLike, weights: ArrayLike | None, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weight of each row where it is a click, and where it is none; else 0."""
    y = checks.numeric("labels", labels)
    if y.shape != (rows,) or not rows:
        raise ValueError(f"labels must have one value for each score, at least 1, got {y.shape}")
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"labels[{first}] is {y[first]}; a label is 0, or 1 for a click")
    w = _row_weights(weights, rows)
    return np.where(y == 1, w, 0.0), np.where(y == 1, 0.0, w)


def _row_weights(weights: ArrayLike | None, rows: int) -> NDArray[np.float64]:
    w = np.ones(rows) if weights is None else checks.numeric("weights", weights).astype(np.float64)
    if w.shape != (rows,):
        raise ValueError(f"weights must have one value for each score, {rows}, got shape {w.shape}")
    wrong = ~(np.isfinite(w) & (w >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"weights[{first}] is {w[first]}; a weight is finite and not negative")
    return w


def _log_loss(
    p: NDArray[np.float64], clicks: NDArray[np.float64], others: NDArray[np.float64]
) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(clicks > 0, -np.log(p), 0.0) * clicks
        losses += np.where(others > 0, -np.log1p(-p), 0.0) * others
    total = (clicks + others).sum()
    return float(losses.sum() / total) if total else math.nan
