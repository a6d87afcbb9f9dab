"""Section IV of the Leashed-SGD paper: how many threads are in the retry loop, and when.

Of m threads, n are in the LAU-SPC loop (load, update, try to publish) and m - n compute
gradients. Threads enter the loop at the rate (m - n)/T_c and leave it at n/T_u (eq. 3), or, where
a persistence bound sends some away without publishing, at n(1 + gamma)/T_u (eq. 6).

T_c and T_u are seconds throughout. The paper's recurrence (eq. 4) has no time unit; here it has an
explicit step, and the limit of small steps is what :func:`occupancy` evaluates.
"""

# ruff: noqa: N803 (T_c and T_u are the paper's names)
from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks
from leashed.training.result import gamma

__all__ = [
    "closed_form",
    "fixed_point",
    "fixed_point_persistence",
    "gamma",
    "occupancy",
    "recurrence",
]


def _positive(name: str, value: float) -> float:
    return checks.real(name, value, 0.0)


def _gamma(value: float, *, infinite: bool = True) -> float:
    return checks.real("gamma", value, 0.0, infinite=infinite, allow=True)


def _start(n0: float, m: int) -> float:
    if checks.real("n0", n0, 0.0, allow=True) > m:
        raise ValueError(f"n0 must be at most m = {m}, got {n0:g}")
    return float(n0)


def fixed_point(m: int, T_c: float, T_u: float) -> float:
    """n*, the number of threads in the retry loop at which it stays constant (below eq. 4).

    n* = m / (T_c/T_u + 1)

    Args:
        m: threads, at least 1.
        T_c: seconds to compute a gradient.
        T_u: seconds to update a parameter vector.

    Raises:
        TypeError, ValueError: an argument is out of range; the message names it.
    """
    return fixed_point_persistence(m, T_c, T_u, 0.0)


def fixed_point_persistence(m: int, T_c: float, T_u: float, gamma: float) -> float:
    """n*_gamma, the fixed point under a persistence bound (eq. 7).

    n*_gamma = m / ((T_c/T_u)(1 + gamma) + 1)

    It also estimates E[tau_s], the staleness from updates that overtake one in the loop.

    Args:
        m: threads, at least 1.
        T_c: seconds to compute a gradient.
        T_u: seconds to update a parameter vector.
        gamma: increase of the departure rate, at least 0 (:func:`gamma`).

    Raises:
        TypeError, ValueError: an argument is out of range; the message names it.
    """
    m = checks.whole("m", m, 1)
    ratio = _positive("T_c", T_c) / _positive("T_u", T_u)
    return m / (ratio * (1.0 + _gamma(gamma)) + 1.0)


def occupancy(
    t: ArrayLike, m: int, T_c: float, T_u: float, n0: float = 0.0, gamma: float = 0.0
) -> NDArray[np.float64]:
    """n(t), the number of threads in the retry loop after t seconds: eq. 5's continuous limit.

    n(t) = n* + (n0 - n*) exp(-(1/T_c + (1 + gamma)/T_u) t)

    The closed form as printed (:func:`closed_form`) needs 1/T_c + 1/T_u < 2 to converge, which no
    choice of time unit gives it; this converges for every T_c and T_u.

    Args:
        t: seconds, not negative, any shape.
        m: threads, at least 1.
        T_c: seconds to compute a gradient.
        T_u: seconds to update a parameter vector.
        n0: threads in the loop at t = 0.
        gamma: increase of the departure rate by a persistence bound (eq. 6). Infinite: whoever
            enters the loop leaves it at once, n(t) = 0 from t > 0 on.

    Returns:
        float64, the shape of ``t``.

    Raises:
        TypeError, ValueError: an argument is out of range; the message names it.
    """
    limit = fixed_point_persistence(m, T_c, T_u, gamma)
    times = np.asarray(t, dtype=np.float64)
    if not (times >= 0.0).all():
        raise ValueError("t must not be negative or NaN")
    rate = 1.0 / T_c + (1.0 + gamma) / T_u
    # At t = 0 nothing has changed, whatever the rate.
    passed = np.multiply(rate, times, out=np.zeros_like(times), where=times > 0.0)
    return np.asarray(limit + (_start(n0, m) - limit) * np.exp(-passed), dtype=np.float64)


def recurrence(
    steps: int,
    m: int,
    T_c: float,
    T_u: float,
    n0: float = 0.0,
    dt: float = 1.0,
    gamma: float = 0.0,
) -> NDArray[np.float64]:
    """n_0 … n_steps by eq. 4 (with eq. 6 for gamma > 0), in time steps of ``dt`` seconds.

    n_{k+1} = n_k + dt ((m - n_k)/T_c - (1 + gamma) n_k/T_u)

    With dt = 1 it is eq. 4 as printed. It tends to :func:`occupancy` as dt tends to 0, and does
    not converge unless dt (1/T_c + (1 + gamma)/T_u) < 2.

    Args:
        steps: how many steps, at least 0.
        m: threads, at least 1.
        T_c: seconds to compute a gradient.
        T_u: seconds to update a parameter vector.
        n0: threads in the loop at the start.
        dt: seconds per step.
        gamma: increase of the departure rate by a persistence bound; finite.

    Returns:
        float64 [steps + 1].

    Raises:
        TypeError, ValueError: an argument is out of range; the message names it.
    """
    steps, m = checks.whole("steps", steps, 0), checks.whole("m", m, 1)
    arrival = _positive("dt", dt) / _positive("T_c", T_c)
    departure = dt * (1.0 + _gamma(gamma, infinite=False)) / _positive("T_u", T_u)
    n = np.empty(steps + 1, dtype=np.float64)
    n[0] = _start(n0, m)
    for k in range(steps):
        n[k + 1] = n[k] + arrival * (m - n[k]) - departure * n[k]
    return n


def closed_form(
    t: ArrayLike, m: int, T_c: float, T_u: float, n0: float = 0.0
) -> NDArray[np.float64]:
    """n_t by eq. 5 as printed: the solution of eq. 4 after t whole steps of one time unit.

    n_t = (1 - q^t)/(1 + T_c/T_u) m + q^t n0, with q = 1 - 1/T_c - 1/T_u

    Kept for comparison; :func:`occupancy` is what leashed evaluates.

    Args:
        t: whole numbers of steps, not negative, any shape.
        m: threads, at least 1.
        T_c: time units to compute a gradient.
        T_u: time units to update a parameter vector.
        n0: threads in the loop at the start.

    Returns:
        float64, the shape of ``t``.

    Raises:
        TypeError, ValueError: an argument is out of range; the message names it.
    """
    limit = fixed_point(m, T_c, T_u)
    steps = np.asarray(t)
    if not np.issubdtype(steps.dtype, np.integer):
        raise TypeError("t must be whole numbers of steps")
    if (steps < 0).any():
        raise ValueError("t must not be negative")
    power = np.power(1.0 - 1.0 / T_c - 1.0 / T_u, steps, dtype=np.float64)
    return np.asarray((1.0 - power) * limit + power * _start(n0, m), dtype=np.float64)
