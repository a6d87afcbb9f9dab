"""What the papers on parameter servers compute, in plain NumPy and double precision.

Written from SHAT (eqs. 1 to 4), GBA (eqs. 2 to 4 and the aggregation of section 4.1) and
extreme-scale-asgd (the section on staleness), read as docs/readings.md says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def shat_alpha(n: int, c: int, base: float = math.e) -> float:
    """α = 1 − s/log n with s = n/c (SHAT, eq. 4), the weight of the global model.

    Clipped to [0, 1]; 1 where there is one worker, whose logarithm is 0; 0 where nobody else has
    updated the global model, and s is infinite.

    Args:
        n: workers.
        c: updates by others since the worker's last one.
        base: of the logarithm; the paper does not say; it is read as e.
    """
    return _alpha(n, c, math.log(n) / math.log(base))


def shat_root_alpha(n: int, c: int) -> float:
    """α = 1 − s/√n (SHAT-root, section 4.1.2), clipped like :func:`shat_alpha`."""
    return _alpha(n, c, math.sqrt(n))


def _alpha(n: int, c: int, scale: float) -> float:
    if n == 1:
        return 1.0
    if c == 0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - n / c / scale))


def shat_rho(alpha: float, eta: float) -> float:
    """ρ of SHAT's eq. 1, the weight of ½‖wⁱ − w̃‖², of which the mixing is a step: α = η·ρ."""
    return alpha / eta


def shat_objective(
    losses: Sequence[float], own: Sequence[ArrayLike], shared: ArrayLike, rho: float
) -> float:
    """SHAT's eq. 1: Σ F(wⁱ, xⁱ) + ρ/2 ‖wⁱ − w̃‖²."""
    apart = [np.sum((np.asarray(w, float) - np.asarray(shared, float)) ** 2) for w in own]
    return float(sum(losses) + rho / 2.0 * sum(apart))


def shat_step(
    w: ArrayLike, gradient: ArrayLike, shared: ArrayLike, eta: float, alpha: float
) -> Array:
    """A worker's step by eq. 2 as eq. 3 takes it: w ← w − ηg, then w ← (1 − α) w + α w̃."""
    moved = np.asarray(w, float) - eta * np.asarray(gradient, float)
    return (1.0 - alpha) * moved + alpha * np.asarray(shared, float)


def aggregate_dense(gradients: Mapping[int, ArrayLike], divisor: float) -> Array:
    """The dense gradients that are kept, by batch number: summed in its order, and divided."""
    total = np.zeros_like(np.asarray(next(iter(gradients.values())), float))
    for number in sorted(gradients):
        total = total + np.asarray(gradients[number], float)
    return total / divisor


def aggregate_rows(
    batches: Mapping[int, Mapping[int, ArrayLike]], divide_by: str | float = "kept"
) -> dict[int, Array]:
    """GBA's aggregation of row gradients: for each id, their sum over the batches that are kept.

    Args:
        batches: of each batch that is kept, by its number, the gradients by id.
        divide_by: ``"kept"``: the number of batches kept, so that without staleness GBA is Sync;
            ``"containing"``: of those that contain the id; a number: that, such as M.
    """
    found = {}
    for id_ in sorted({id_ for rows in batches.values() for id_ in rows}):
        containing = {number: rows[id_] for number, rows in batches.items() if id_ in rows}
        if divide_by == "kept":
            divisor = float(len(batches))
        elif divide_by == "containing":
            divisor = float(len(containing))
        else:
            divisor = float(divide_by)
        found[id_] = aggregate_dense(containing, divisor)
    return found


def staleness_moments(rates: ArrayLike) -> tuple[float, float]:
    """Mean and variance of τ over the updates of workers that push as Poisson processes.

    Worker i pushes at rate γᵢ, Γ is their sum. Between its pull and its push lies an exponential
    time of mean 1/γᵢ, in which the others push a Poisson number with rate Γ − γᵢ. Mixed, this is
    geometric with mean λᵢ = (Γ − γᵢ)/γᵢ and second moment λᵢ + 2λᵢ². A share γᵢ/Γ of the updates is
    its. So E[τ] = Σ (Γ − γᵢ)/Γ = n − 1 at any rates: E[τ] + 1 = n, the paper's result (it counts
    the worker's own push). With n equal rates λ = n − 1, and the variance is

        λ + 2λ² − λ² = (n − 1) + (n − 1)² = n(n − 1).

    The mean is n − 1 whatever the times are distributed like, if nobody waits: each push makes the
    n − 1 gradients under way one update staler. The variance is not: it is 0 for constant times.

    Args:
        rates: γᵢ, [n], per second, positive.
    """
    own = np.asarray(rates, float)
    others = (own.sum() - own) / own
    share = own / own.sum()
    mean = float(np.sum(share * others))
    return mean, float(np.sum(share * (others + 2.0 * others**2)) - mean**2)


def gba_zeta(
    updated: Iterable[tuple[AbstractSet[int], AbstractSet[int]]], parameters: int
) -> float:
    """ζ (GBA, below eq. 3): the mean share of parameters updated both in step k and in step τ(m, k).

    Args:
        updated: for each gradient, the parameters that step k and step τ(m, k) update.
        parameters: how many the model has.
    """
    shares = [len(now & then) / parameters for now, then in updated]
    return sum(shares) / len(shares)


def gba_gamma(now: Sequence[ArrayLike], then: Sequence[ArrayLike], zeta: float = 1.0) -> float:
    """The least γ of GBA's eq. 3: ζ E‖∇F(w_k) − ∇F(w_τ)‖² / E‖∇F(w_k)‖².

    Args:
        now: ∇F(w_k) for each gradient.
        then: ∇F(w_τ(m, k)) for each.
        zeta: see :func:`gba_zeta`.
    """
    moved = np.mean([np.sum(np.subtract(a, b) ** 2) for a, b in zip(now, then, strict=True)])
    return float(zeta * moved / np.mean([np.sum(np.square(a)) for a in now]))


def gba_p0(tokens: Iterable[tuple[int, int]]) -> float:
    """p₀ (GBA, below eq. 4), as it can be measured: how often the token is the global step.

    The paper's is a lower bound of a probability given the past; a frequency only estimates it.

    Args:
        tokens: of each gradient applied its token and k.
    """
    fresh = [token == k for token, k in tokens]
    return sum(fresh) / len(fresh)


def gba_gamma_prime(gamma: float, p0: float) -> float:
    """γ' = 1 − γ + p₀/2 (GBA, below eq. 4); as printed it is 3/2 without any staleness."""
    return 1.0 - gamma + p0 / 2.0


def gba_error_bound(
    k: int,
    *,
    eta: float,
    lipschitz: float,
    variance: float,
    convexity: float,
    batch: float,
    start: float,
    gamma_prime: float = 1.0,
) -> float:
    """The bound on E[F(w_k)] − F* (GBA, eq. 4; with γ' = 1 eq. 2, the synchronous one).

    Args:
        k: updates made.
        eta: learning rate.
        lipschitz: L.
        variance: σ².
        convexity: c of the strong convexity.
        batch: the global batch, M·B_a or N_s·B_s.
        start: F(w₀) − F*.
        gamma_prime: see :func:`gba_gamma_prime`.
    """
    floor = eta * lipschitz * variance / (2.0 * convexity * gamma_prime * batch)
    return floor + (1.0 - eta * gamma_prime * convexity) ** k * (start - floor)
