"""Leashed-SGD: what its figures claim.

K. Bäckström, I. Walulya, M. Papatriantafilou, P. Tsigas: *Consistent Lock-free Parallel Stochastic
Gradient Descent for Fast and Stable Convergence*.
"""

from __future__ import annotations

from bench.papers.claim import Claim, End, Told

CLAIMS = [
    Claim(
        at="Figures 1 and 2",
        claim="The threads around the shared vector, and who accesses it when.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
]
