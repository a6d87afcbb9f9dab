"""The machines take the same actions as the oracles; ``compare.py`` does this at length."""

from __future__ import annotations

import pytest
from policies.compare import compare
from policies.schedules import ALGORITHMS

from leashed import _core

SCHEDULES = 30


@pytest.mark.skipif(
    not hasattr(_core, "PolicyMachine"), reason="leashed._core has no PolicyMachine to compare"
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_machines_do_what_the_oracles_do(algorithm: str) -> None:
    difference = compare(algorithm, range(SCHEDULES), 1, _core.PolicyMachine)
    assert difference is None, f"\n{difference}"
