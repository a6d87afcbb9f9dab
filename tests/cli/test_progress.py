import io
import math

import pytest

from leashed.cli.progress import Line, bar, completed, describe
from leashed.stopping import Until
from leashed.training.outcome import Progress


def at(**changes):
    values = {
        "seconds": 2.0,
        "updates": 100,
        "loss": 1.0,
        "accuracy": 0.5,
        "validation_accuracy": math.nan,
        "eps": 1000.0,
        "mean_staleness": 1.25,
        "initial_loss": 2.0,
    }
    return Progress(**{**values, **changes})


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_line_rewrites_itself():
    stream = Terminal()
    line = Line(stream)
    line.show("one")
    line.show("two")
    line.clear()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("two\r\x1b[K")


def test_elsewhere_lines_come_now_and_then(monkeypatch):
    now = 100.0
    monkeypatch.setattr("leashed.cli.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    line = Line(stream)
    for now in (101.0, 104.9, 105.0, 106.0, 111.0):
        line.show(f"at {now:g}")
    line.clear()
    assert stream.getvalue() == "at 105\nat 111\n"


@pytest.mark.parametrize(
    ("until", "share"),
    [
        (Until(seconds=8.0), 0.25),
        (Until(updates=400), 0.25),
        (Until(epochs=8.0), 0.25),
        (Until(loss_fraction=0.25), 0.5),
        (Until(loss=0.5), 0.5),
        (Until(seconds=8.0, updates=200), 0.5),
        (Until(seconds=1.0), 1.0),
        (Until(divergence=3.0), 0.0),
        (Until(loss=5.0), 0.0),
    ],
)
def test_the_nearest_stop_rule_says_how_far_a_run_is(until, share):
    assert completed(until, at(), examples=1000) == pytest.approx(share)


@pytest.mark.parametrize("loss", [math.nan, math.inf, 3.0, 0.0])
def test_any_loss_gives_a_share(loss):
    assert 0.0 <= completed(Until(loss_fraction=0.1), at(loss=loss), 1000) <= 1.0


def test_before_the_first_gradient_nothing_is_done():
    start = at(seconds=0.0, updates=0, eps=math.nan, mean_staleness=math.nan, loss=2.0)
    assert completed(Until(epochs=3.0, loss_fraction=0.5), start, 1000) == 0.0
    assert "0 EPS" in describe(start)


def test_a_bar_is_filled_to_its_share():
    assert bar(0.0) == "░" * 10
    assert bar(0.5) == "█" * 5 + "░" * 5
    assert bar(7.0) == "█" * 10


def test_the_line_has_loss_throughput_and_staleness():
    text = describe(at(validation_accuracy=0.9))
    for part in ("2.0 s", "loss 1.00", "1,000 EPS", "staleness 1.25", "val 90.0%"):
        assert part in text


def test_the_line_fits_a_terminal_of_80_columns():
    long = at(seconds=99.9, loss=0.0123, eps=999_999.0, mean_staleness=12.3, validation_accuracy=1)
    assert len(f"{bar(1.0)} 100%  {describe(long)}") < 80


def test_the_auc_is_that_of_the_validation_set_where_there_is_one():
    assert "AUC" not in describe(at())
    assert describe(at(auc=0.75)).endswith("  AUC 0.7500")
    assert describe(at(auc=0.75, validation_auc=0.7)).endswith("  val AUC 0.7000")
