"""Staleness policies: what a gradient is multiplied by for its staleness τ.

    leashed.train(..., staleness=leashed.staleness.inverse())

τ counts from 0 the updates that were applied between reading the parameters and applying the
gradient. It is taken per update: under ``Leashed`` that of the vector actually replaced, found anew
at every attempt to publish; under ``Hogwild`` from the shared counter. ρ(τ) multiplies the
**gradient** and not the step size (extreme-scale-asgd, eq. 8), so momentum and accumulated squares
see a damped gradient and are not damped themselves. (Adam all but undoes a factor that is the same
for every gradient, since it divides by their size; what remains is the weight between them.) Weight
decay is not damped. Under ``Sequential`` and ``Synchronous`` τ is always 0.

A gradient of factor 0 is left out: no update is made of it, and ``TrainResult.excluded`` counts it.

extreme-scale-asgd counts τ from 1 (1 in synchronous training, mean n for n workers). Its formulas
are used as printed, of τ + 1, and so are its μ (docs/readings.md#words-that-differ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks, words
from leashed.base.choice import Choice, Setting

__all__ = [
    "Policy",
    "cutoff",
    "fleet",
    "from_function",
    "inverse",
    "mindthestep",
    "none",
    "normalized",
    "normalized_as_printed",
    "power",
    "stage_aware",
    "stage_aware_as_printed",
    "table",
    "tail_tau",
    "tau_normalized",
    "tau_normalized_short",
]

# Made of more than numbers.
_OF_OTHERS = ("Policy", "from_function", "stage_aware", "stage_aware_as_printed", "table")

_MAX_TABLE = 2**20


@dataclass(frozen=True)
class Policy:
    """A staleness policy; made by the functions below.

    Attributes:
        label: its name in tables, such as ``power(2)``.
        native: the native policy's name.
        settings: its numbers, and the policy that it changes, if any.
    """

    label: str
    native: str
    settings: tuple[tuple[str, float | tuple[float, ...] | Policy], ...] = ()

    def choice(self) -> Choice:
        """What the native core makes it from."""
        return self.native, {name: _setting(value) for name, value in self.settings}

    def config(self) -> str:
        """Its name and settings, as one of JSON's own types."""
        return self.label

    def factor(self, tau: ArrayLike, *, last_update: float = 0.0) -> NDArray[np.float64]:
        """ρ(τ), as the native core evaluates it before any update of a run.

        Args:
            tau: staleness from 0, of any shape.
            last_update: with ``stage_aware``: |Δw|, the norm of the variable's last update.

        Returns:
            float64, shaped as ``tau``.

        Raises:
            TypeError, ValueError: ``tau`` or ``last_update`` is no number from 0.
        """
        last_update = checks.real("last_update", last_update, 0.0, allow=True)
        values = checks.numeric("tau", tau).astype(np.float64)
        if not (values >= 0).all() or not np.isfinite(values).all():
            raise ValueError("tau must be finite and at least 0")
        flat = np.ascontiguousarray(values.ravel())
        factors = _core.staleness_factors(self.choice(), flat, last_update)
        return np.asarray(factors, np.float64).reshape(values.shape)


def _setting(value: float | tuple[float, ...] | Policy) -> Setting:
    if isinstance(value, Policy):
        return value.choice()
    return np.array(value, np.float64) if isinstance(value, tuple) else value


def of_choice(label: str, told: Choice) -> Policy:
    """The policy whose ``choice`` that is."""

    def setting(value: Setting) -> Any:
        if isinstance(value, tuple):
            return of_choice(value[0], value)
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value

    return Policy(label, told[0], tuple((name, setting(one)) for name, one in told[1].items()))


def none() -> Policy:
    """ρ = 1: gradients are applied as they are. The default."""
    return Policy("none", "none")


def inverse() -> Policy:
    """ρ = 1 / (τ + 1): staleness-aware asynchronous SGD (Zhang et al., 2016), the "linear" policy
    of extreme-scale-asgd; ``power(1)``.
    """
    return Policy("inverse", "power", (("k", 1.0),))


def power(k: float) -> Policy:
    """ρ = (τ + 1)^−k (extreme-scale-asgd, eq. 4).

    Args:
        k: above 0; the paper's 2 is "more reasonable in large-scale cases".

    Raises:
        TypeError, ValueError: ``k`` is not such a number.
    """
    k = checks.real("k", k, 0.0)
    return Policy(f"power({k:g})", "power", (("k", k),))


def normalized(mu: float, k: float = 2.0) -> Policy:
    """ρ = 1 up to μ', (μ' / (τ + 1))^k above: staleness as it is in a baseline cluster is not
    damped, what goes beyond is damped relative to it.

    Eq. 7 of extreme-scale-asgd jumps at μ' as printed, against its own sentence about keeping a
    meaningful learning rate; this is continuous, and what Figure 2 calls "normalised to 1K"
    (docs/readings.md#staleness-and-data-normalisation-swap). The printed form is
    ``normalized_as_printed``.

    Args:
        mu: μ', the mean staleness of the baseline cluster, counted from 1: its number of workers.
            At least 1; the paper's: 1000.
        k: above 0.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    return _normalized("normalized", mu, k, as_printed=False)


def normalized_as_printed(mu: float, k: float = 2.0) -> Policy:
    """ρ = 1 up to μ', (τ + 1)^−k above (extreme-scale-asgd, eq. 7 with k = 2, to the letter).

    Args:
        mu: μ', as for ``normalized``.
        k: above 0.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    return _normalized("normalized_as_printed", mu, k, as_printed=True)


def _normalized(label: str, mu: float, k: float, *, as_printed: bool) -> Policy:
    mu = checks.real("mu", mu, 1.0, allow=True)
    k = checks.real("k", k, 0.0)
    settings = (("mu", mu), ("k", k), ("as_printed", float(as_printed)))
    return Policy(f"{label}({mu:g}, {k:g})", "normalized", settings)


def tau_normalized(
    baseline_mean: float = 1000.0,
    baseline_deviation: float = math.sqrt(4770.0),
    *,
    mean: float | None = None,
    deviation: float | None = None,
) -> Policy:
    """ρ = 1 / max(1, τ'), τ' = δ'(τ + 1 − μ)/δ + μ': staleness here gets the mean and the standard
    deviation that it has in a baseline cluster (extreme-scale-asgd, "Staleness Normalization").

    The step size is meant to be tuned with it: where staleness is at its mean, ρ is 1/μ'.

    Args:
        baseline_mean: μ', counted from 1: the baseline cluster's number of workers.
        baseline_deviation: δ'. Default: the paper's 1,000 workers.
        mean: μ, of staleness here, counted from 1 as well. Default: that of the updates so far.
        deviation: δ, of staleness here, above 0. Default: that of the updates so far; before there
            is any spread τ' is μ'.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    settings = [
        ("baseline_mean", checks.real("baseline_mean", baseline_mean, 1.0, allow=True)),
        ("baseline_deviation", checks.real("baseline_deviation", baseline_deviation, 0.0)),
    ]
    if mean is not None:
        settings.append(("mean", checks.real("mean", mean, 1.0, allow=True)))
    if deviation is not None:
        settings.append(("deviation", checks.real("deviation", deviation, 0.0)))
    label = f"tau_normalized({baseline_mean:g}, {baseline_deviation:.4g})"
    return Policy(label, "tau_normalized", tuple(settings))


def tau_normalized_short(
    baseline_deviation: float = math.sqrt(4770.0), *, deviation: float | None = None
) -> Policy:
    """ρ = 1 / max(1, τ'), τ' = δ'(τ + 1)/δ: the short form of ``tau_normalized``.

    Args:
        baseline_deviation: δ'. Default: the paper's 1,000 workers.
        deviation: δ, of staleness here, above 0. Default: that of the updates so far; before there
            is any spread ρ is 1.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    settings = [("baseline_deviation", checks.real("baseline_deviation", baseline_deviation, 0.0))]
    if deviation is not None:
        settings.append(("deviation", checks.real("deviation", deviation, 0.0)))
    label = f"tau_normalized_short({baseline_deviation:.4g})"
    return Policy(label, "tau_normalized", tuple(settings))


def stage_aware(policy: Policy, lam: float = 1.0) -> Policy:
    """ρ(τ · trans(Δw)) with trans(Δw) = sigmoid(λ|Δw|) (extreme-scale-asgd, eqs. 5 and 6), over any
    policy: while a variable still moves fast, staleness counts in full; once it hardly moves, half.

    trans multiplies the staleness counted from 0, so that a fresh gradient stays one: of the
    paper's staleness, which counts from 1, ρ is taken at 1 + τ · trans
    (docs/readings.md#staleness-and-data-normalisation-swap). The printed form is
    ``stage_aware_as_printed``.

    |Δw| is the Euclidean norm of the last update of the variable: each weight matrix and each bias
    of the model is one, with a factor of its own. Before the first update it is 0.

    Args:
        policy: ρ.
        lam: λ, above 0.

    Raises:
        TypeError, ValueError: ``policy`` is no policy, or is stage-aware already, or ``lam`` is
            not such a number.
    """
    return _stage_aware("stage_aware", policy, lam, as_printed=False)


def stage_aware_as_printed(policy: Policy, lam: float = 1.0) -> Policy:
    """ρ((τ + 1) · trans(Δw)) of the paper's staleness, which counts from 1 (extreme-scale-asgd,
    eqs. 5 and 6, to the letter): a fresh gradient of a variable at rest, whose trans is 1/2, is
    multiplied by 2 under ``inverse``, by 2ᵏ under ``power(k)``. Otherwise as ``stage_aware``.

    ``table``, ``from_function``, ``tail_tau`` and ``mindthestep`` take what is below 1 for fresh.

    Args:
        policy: ρ.
        lam: λ, above 0.

    Raises:
        TypeError, ValueError: ``policy`` is no policy, or is stage-aware already, or ``lam`` is
            not such a number.
    """
    return _stage_aware("stage_aware_as_printed", policy, lam, as_printed=True)


def _stage_aware(label: str, policy: Policy, lam: float, *, as_printed: bool) -> Policy:
    policy = of("policy", policy)
    if policy.native == "stage_aware":
        raise ValueError("policy is stage-aware already; wrap the one inside it")
    lam = checks.real("lam", lam, 0.0)
    settings = (("policy", policy), ("lam", lam), ("as_printed", float(as_printed)))
    return Policy(f"{label}({policy.label}, {lam:g})", "stage_aware", settings)


def cutoff(iota: int) -> Policy:
    """ρ = 1 up to ι, 0 above (after GBA, eq. 1): too stale a gradient is left out.

    τ is gradient staleness: updates between reading the parameters and applying the gradient. Eq. 1
    has data staleness in its place, k − the batch's token: global steps between handing the batch
    out and applying its gradient (docs/readings.md#words-that-differ). That one is ``iota`` of
    ``modes.GBA``.

    Args:
        iota: ι, from 0; the paper's: 4.

    Raises:
        TypeError, ValueError: ``iota`` is not a whole number from 0.
    """
    iota = checks.whole("iota", iota, 0, 2**53)
    return Policy(f"cutoff({iota})", "cutoff", (("iota", float(iota)),))


def tail_tau(amplitude: float = 0.9, warmup: int = 1000) -> Policy:
    """TAIL-τ: ρ = 1 + A (1 − 2 F(τ)), F(τ) the share of this run's updates that were less stale
    (Bäckström, Papatriantafilou and Tsigas, "ASAP.SGD: Instance-based Adaptiveness to Staleness in
    Asynchronous SGD", ICML 2022). Fresh gradients count up to 1 + A, the stalest 1 − A.

    The formula is that of the authors' own program (dcs-chalmers/shared-memory-sgd), which this is
    written after; the paper's text was not at hand. There A is 1, and F is measured once, over a
    window of early updates; here it goes on being measured. The values of ``amplitude`` and
    ``warmup`` are ours.

    At A = 1 a gradient that is staler than all before it counts nothing (ρ is the smallest number
    above 0). It is an update all the same, as in that program, so that F learns of it: no gradient
    is left out.

    Args:
        amplitude: A, above 0 and at most 1.
        warmup: updates before which ρ is 1; from 1.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    amplitude = checks.real("amplitude", amplitude, 0.0)
    if amplitude > 1.0:
        raise ValueError(f"amplitude must be at most 1, got {amplitude:g}")
    warmup = checks.whole("warmup", warmup, maximum=2**53)
    settings = (("amplitude", amplitude), ("warmup", float(warmup)))
    return Policy(f"tail_tau({amplitude:g})", "tail_tau", settings)


def fleet(threshold: float | None = None, percentile: float = 99.7) -> Policy:
    """FLeet's AdaSGD: ρ = e^(−βτ), β such that ρ = 1/(τ + 1) at τ = τ_thres / 2 (Damaskinos et al.,
    "FLeet: Online Federated Learning via Staleness Awareness and Performance Prediction",
    Middleware 2020).

    The formula for β agrees with the program of Bäckström et al. (dcs-chalmers/shared-memory-sgd),
    which takes τ_thres = number of threads + 1. That the paper takes a percentile of the staleness
    seen, and the default 99.7, could not be verified against its text, which was not at hand; nor
    is the paper's second factor here, which boosts a stale gradient from labels that the model has
    seen little of.

    Args:
        threshold: τ_thres, above 0. Default: measured, the percentile of the staleness so far, at
            least 1.
        percentile: above 0 and at most 100.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    percentile = checks.real("percentile", percentile, 0.0)
    if percentile > 100.0:
        raise ValueError(f"percentile must be at most 100, got {percentile:g}")
    fixed = 0.0 if threshold is None else checks.real("threshold", threshold, 0.0)
    label = f"fleet({percentile:g}%)" if threshold is None else f"fleet({fixed:g})"
    return Policy(label, "fleet", (("threshold", fixed), ("percentile", percentile)))


def mindthestep(
    mean: float | None = None,
    momentum: float = 1.0,
    bound: float = 5.0,
    *,
    scaled: bool = False,
) -> Policy:
    """MindTheStep-AsyncPSGD for staleness that is Poisson distributed with mean λ:
    ρ = λ^−τ τ! (1 − κ P[staleness < τ]), at most ``bound`` (Bäckström, Papatriantafilou and
    Tsigas, "MindTheStep-AsyncPSGD: Adaptive Asynchronous Parallel Stochastic Gradient Descent",
    IEEE Big Data 2019, arXiv:1911.03444).

    Only the paper's abstract was at hand: the formula, that κ stands for its K over the step size,
    the bound of 5 and the scaling are as remembered and **not verified**. The paper's general
    (Conway-Maxwell-Poisson) form is left out. At κ = 1 ρ is 1 at τ = 0 and falls with τ, for any λ;
    at κ < 1 it grows again beyond λ.

    Around λ ρ is about √λ e^−λ: of gradients as stale as most, nothing is left at a mean of 20. The
    paper's experiments scale the step so that its mean E[α(τ)] over the staleness of the system is
    the step given; so does ``scaled``. Whether their mean is taken before or after the bound is not
    known to us; here it is after, so that what is applied is the step given in the mean.

    Args:
        mean: λ, above 0. Default: the mean staleness of the updates so far.
        momentum: κ, from 0 to 1.
        bound: largest ρ, above 0; above 1 if ``scaled``.
        scaled: multiply ρ by the number that makes its mean over the updates so far 1; it is found
            anew whenever there are a sixteenth more of them. Before the first ρ is 1.

    Raises:
        TypeError, ValueError: an argument is not such a number, or ``scaled`` no bool.
    """
    momentum = checks.real("momentum", momentum, 0.0, allow=True)
    if momentum > 1.0:
        raise ValueError(f"momentum must be at most 1, got {momentum:g}")
    if not isinstance(scaled, bool):
        raise TypeError(f"scaled must be True or False, got {scaled!r}")
    bound = checks.real("bound", bound, 1.0 if scaled else 0.0)
    fixed = 0.0 if mean is None else checks.real("mean", mean, 0.0)
    given = [] if mean is None else [f"{fixed:g}"]
    shown = ", ".join([*given, *(["scaled"] if scaled else [])])
    settings = (
        ("mean", fixed),
        ("momentum", momentum),
        ("bound", bound),
        ("scaled", float(scaled)),
    )
    return Policy(f"mindthestep({shown})" if shown else "mindthestep", "mindthestep", settings)


def table(values: ArrayLike) -> Policy:
    """A policy of one's own: ρ at τ = 0, 1, 2, …, linear between them (a stage-aware τ is not
    whole), the last value from there on.

    Args:
        values: [n] from 0, the first above 0, n at least 1.

    Raises:
        TypeError, ValueError: ``values`` is not such a vector.
    """
    array = checks.numeric("values", values).astype(np.float64)
    if array.ndim != 1 or not 1 <= array.size <= _MAX_TABLE:
        raise ValueError(
            f"values must be one-dimensional, of length 1 to {_MAX_TABLE}, got shape {array.shape}"
        )
    if not np.isfinite(array).all() or (array < 0).any():
        first = int(np.flatnonzero(~(np.isfinite(array) & (array >= 0)))[0])
        raise ValueError(f"values[{first}] is {array[first]:g}; a factor is finite and at least 0")
    if array[0] == 0:
        raise ValueError("values[0] is 0; a gradient of staleness 0 must count, or nothing would")
    return Policy(f"table({array.size} values)", "table", (("values", tuple(array.tolist())),))


def from_function(f: Callable[[int], float], length: int = 1024) -> Policy:
    """A policy of one's own as a function, called once for each whole τ below ``length`` and never
    again; see ``table``.

    Args:
        f: ρ(τ) for an int τ, from 0, above 0 at τ = 0.
        length: staleness from ``length`` − 1 on has the factor f(length − 1).

    Raises:
        TypeError, ValueError: ``f`` is not callable, or gives what is no number from 0; what it
            raises itself is passed on.
    """
    if not callable(f):
        raise TypeError(f"f must be callable, got {f!r}")
    length = checks.whole("length", length, maximum=_MAX_TABLE)
    values = [checks.real(f"f({tau})", f(tau)) for tau in range(length)]
    return table(values)


def of(name: str, policy: Any) -> Policy:
    """``policy``, or what its word stands for: ``"inverse"``, ``"power:k=2"``.

    Raises:
        TypeError: it is neither; the message begins with ``name``.
        ValueError: there is no such word; the message says which there are.
    """
    if isinstance(policy, str):
        return words.made(POLICIES, name, policy)()
    if not isinstance(policy, Policy):
        raise TypeError(
            f"{name} must come from leashed.staleness, such as inverse(), got {policy!r}"
        )
    return policy


# Every policy that numbers describe, by the command line's name.
POLICIES: Mapping[str, Callable[..., Policy]] = {
    name: globals()[name] for name in __all__ if name not in _OF_OTHERS
}
