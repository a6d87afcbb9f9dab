"""What is made of a synchroniser."""

from __future__ import annotations

import numpy as np
import pytest

import leashed as lsh
from leashed.cluster.native import native


@pytest.mark.parametrize(
    ("within", "why"),
    [
        (np.full((1, 4), -1.0), "numbers from 0"),
        (np.full((1, 4), np.nan), "numbers from 0"),
        (np.zeros((2, 3)), r"shape \[workers, 4\]"),
    ],
)
def test_gaps_that_cannot_be_are_refused(within, why):
    with pytest.raises(ValueError, match=why):
        native(lsh.sync.MA(), 5, servers=0, workers=1, timeout=1.0, within=within)
