"""Independent runs on all processors."""

from __future__ import annotations

import time

import pytest

from leashed.studies.side_by_side import side_by_side


def test_results_come_in_the_order_of_what_was_asked() -> None:
    assert list(side_by_side(lambda k: k * k, range(20))) == [k * k for k in range(20)]


def test_an_exception_ends_what_has_not_begun() -> None:
    begun = []

    def run(k: int) -> int:
        begun.append(k)
        if k == 3:
            raise ValueError("three")
        time.sleep(0.001)
        return k

    with pytest.raises(ValueError, match="three"):
        list(side_by_side(run, range(100_000)))
    assert len(begun) < 100_000
