import math

import pytest

from leashed.base import table


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1234.5, "1,234"),
        (12.345, "12.3"),
        (0.012345, "0.0123"),
        (1.2345e-9, "1.23e-09"),
        (9.999, "10.0"),
        (-3.14159, "-3.14"),
        (math.nan, "–"),
        (math.inf, "∞"),
    ],
)
def test_numbers_have_three_digits(value, shown):
    assert table.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (3.5e-5, "35.0 µs"), (math.nan, "–")],
)
def test_durations_have_their_unit(seconds, shown):
    assert table.duration(seconds) == shown


def test_a_spread_is_the_median_and_the_extremes():
    assert table.spread([]) == "–"
    assert table.spread([2.0]) == "2.00"
    assert table.spread([3.0, 1.0, 2.0]) == "2.00 (1.00–3.00)"
    assert table.spread([4.0, 1.0, 2.0, 3.0]) == "2.50 (1.00–4.00)"


def test_a_table_is_aligned():
    lines = table.text(["name", "n"], [["a", "1,000"], ["long name", "2"]]).splitlines()
    assert lines[0] == "name           n"
    assert lines[2] == "a          1,000"
    assert lines[3] == "long name      2"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="as many columns"):
        table.text(["a", "b"], [["1"]])


def test_percentages_and_sizes():
    assert table.percent(0.5) == "50%"
    assert table.percent(0.025) == "2.5%"
    assert table.mebibytes(3 * 2**20) == "3.00 MiB"
