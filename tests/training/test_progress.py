import io
import math
import sys
from types import SimpleNamespace

import pytest

import leashed as lsh
from leashed.stopping import Until
from leashed.training.outcome import Progress
from leashed.training.progress import Bar, Line, bar, brief, completed, describe, of_run


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


def test_a_dumb_terminal_gets_lines_without_escapes(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    now = 100.0
    monkeypatch.setattr("leashed.training.progress.time.monotonic", lambda: now)
    stream = Terminal()
    line = Line(stream)
    for now in (101.0, 106.0):
        line.show(f"at {now:g}")
    line.clear()
    assert stream.getvalue() == "at 106\n"


def test_elsewhere_lines_come_now_and_then(monkeypatch):
    now = 100.0
    monkeypatch.setattr("leashed.training.progress.time.monotonic", lambda: now)
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


def test_of_a_stream_nobody_knows_how_far_it_is():
    assert completed(Until(epochs=1.0), at(), examples=0) == 0.0
    assert of_run(Until(epochs=1.0), at(), 0, brief) == brief(at())
    assert of_run(Until(seconds=4.0), at(), 0, brief).startswith("█████░░░░░  50%  loss 1.00")


def test_in_brief_a_run_is_loss_rate_and_the_best_measure_there_is():
    assert brief(at()) == "loss 1.00  1,000 EPS"
    assert brief(at(validation_accuracy=0.9)).endswith("  val 90.0%")
    assert brief(at(validation_accuracy=0.9, validation_auc=0.7)).endswith("EPS  val AUC 0.7000")


@pytest.fixture
def terminal(monkeypatch):
    """Standard error as a terminal of 80 columns."""
    stream = Terminal()
    monkeypatch.setattr(
        "leashed.training.progress.sys", SimpleNamespace(stderr=stream, stdout=io.StringIO())
    )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


DATA = lsh.datasets.synthetic_clicks(2000, seed=0, cardinalities=50, test=200)
SMALL = lsh.models.dlrm(dim=4, bottom=(4,), top=(4,))


def trained(**options):
    return lsh.train(SMALL, DATA, until=lsh.until(epochs=1), threads=1, **options)


@pytest.mark.parametrize("rich", [True, False])
def test_progress_draws_a_bar_with_loss_eps_and_auc(rich, terminal, monkeypatch):
    if rich:
        pytest.importorskip("rich", reason="rich is optional")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    result = trained(progress=True)
    shown = terminal.getvalue().removesuffix("\x1b[?25h")
    assert shown.endswith("\n")
    last = shown.rstrip().replace("\r", "\n").splitlines()[-1]
    assert f"val AUC {result.validation_auc[-1]:.4f}" in last
    assert "loss 0." in last
    assert "EPS" in last
    assert "100%" in last
    assert ("━" in last) == rich
    assert ("█" * 10 in last) != rich
    plain = lsh.train(SMALL, DATA, until=lsh.until(epochs=1), threads=1)
    assert (plain.parameters == result.parameters).all()


def test_without_a_terminal_progress_is_quiet(capsys):
    trained(progress=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("given", [{}, {"progress": False}])
def test_no_bar_where_none_is_asked_for(given, terminal):
    trained(**given)
    assert terminal.getvalue() == ""


def test_a_bar_is_an_option_of_observe_too(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    trained(observe=lsh.Observe(progress=True))
    assert "EPS" in terminal.getvalue()
    with pytest.raises(ValueError, match="progress is a part of observe"):
        trained(observe=print, progress=True)
    with pytest.raises(TypeError, match="progress must be callable, True or False, got 1"):
        lsh.Observe(progress=1)


def test_a_function_goes_on_being_taken_as_progress():
    seen = []
    with pytest.warns(DeprecationWarning, match="progress is a part of observe"):
        trained(progress=seen.append)
    assert seen


def test_days_have_bars_with_their_names(terminal, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    days = {"monday": DATA.train, "tuesday": DATA.test}
    lsh.continual(SMALL, days, folder=tmp_path / "run", threads=1, progress=True)
    lines = [part for part in terminal.getvalue().split("\n") if part]
    assert [line.count("monday  ") > 0 for line in lines] == [True, False]
    assert "tuesday  " in lines[1]


def test_virtual_time_has_a_bar(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    lsh.simulate(
        lsh.models.mlp(784, [4], 10),
        lsh.datasets.synthetic_digits(100, test=20),
        cluster=lsh.simulation.constant(2, 0.01),
        until=lsh.until(epochs=1),
        batch_size=10,
        progress=True,
    )
    assert "100%" in terminal.getvalue()


def test_a_failed_run_leaves_the_terminal_as_it_was(terminal):
    def fail():
        with Bar(Until(epochs=1.0), 100) as shown:
            shown(at())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert terminal.getvalue().endswith(("\n", "\x1b[?25h"))


def test_what_is_printed_beside_a_bar_stays_in_the_file_that_it_goes_to(monkeypatch):
    pytest.importorskip("rich", reason="rich is optional")
    monkeypatch.setenv("TERM", "xterm")
    screen, file = Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", file)
    with Bar(Until(epochs=1.0), 100):
        print("a result")
    assert file.getvalue() == "a result\n"
    assert "a result" not in screen.getvalue()
