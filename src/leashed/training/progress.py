"""How far a training is: a line that rewrites itself on a terminal, and a bar for ``progress=True``."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from leashed.base.closing import Closing
from leashed.base.table import found, number
from leashed.metrics import Values
from leashed.stopping import Until
from leashed.training.outcome import Progress

__all__ = ["Bar", "Line", "bar", "brief", "completed", "describe", "of_run", "tell", "watched"]

_BAR = 10
_QUIET_SECONDS = 5.0


def tell(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr)


def rewrites(stream: TextIO | None) -> bool:
    """Whether a line that was written there can be written anew."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


class Line:
    """Shows one changing line on a stream.

    Args:
        stream: usually standard error. If it is no terminal, or one that cannot rewrite a line
            (``TERM=dumb``), at most one line every five seconds is written to it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = rewrites(stream)
        self._last = time.monotonic()
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._stream.flush()
            self._shown = True
        elif time.monotonic() - self._last >= _QUIET_SECONDS:
            self._last = time.monotonic()
            self._stream.write(text + "\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the line, so that something else can be written."""
        self._end("\r\x1b[K")

    def leave(self) -> None:
        """Go on below it."""
        self._end("\n")

    def _end(self, text: str) -> None:
        if self._shown:
            self._stream.write(text)
            self._stream.flush()
            self._shown = False


class Bar(Closing):
    """What ``progress=True`` draws on standard error: how far a run is, its loss, EPS and AUC. By
    rich where it is installed; nothing where there is no terminal.

    Args:
        until: when the run ends.
        examples: of the training set; 0: of a stream, which nobody knows.
        title: before it.
    """

    def __init__(self, until: Until, examples: int, title: str = "") -> None:
        self._until, self._examples, self._title = until, examples, title
        self._rich: Any = None
        self._line: Line | None = None
        if sys.stderr is None or not sys.stderr.isatty():
            return
        self._line = Line(sys.stderr)
        if rewrites(sys.stderr):
            self._rich = _rich(title)
            self._task = self._rich and self._rich.add_task(title, total=None, told="")

    def __call__(self, now: Progress) -> None:
        if self._rich is not None:
            share = completed(self._until, now, self._examples)
            total = 1.0 if _measured(self._until, self._examples) else None
            self._rich.update(self._task, completed=share, total=total, told=brief(now))
            self._rich.refresh()
        elif self._line is not None:
            title = f"{self._title}  " if self._title else ""
            self._line.show(title + of_run(self._until, now, self._examples, brief))

    def close(self) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._line is not None:
            self._line.leave()


def _rich(title: str) -> Any:
    """A started bar of rich, that no thread refreshes; None where rich is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415 (optional)
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        return None
    columns = [BarColumn(2 * _BAR), TaskProgressColumn(), TimeElapsedColumn()]
    named = [TextColumn("{task.description}", markup=False)] if title else []
    told = TextColumn("{task.fields[told]}", markup=False)
    # What is printed meanwhile goes above the bar, but into a file or a pipe if it was to go there.
    printed = sys.stdout is not None and sys.stdout.isatty()
    console = Console(file=sys.stderr)
    shown = Progress(
        *named, *columns, told, console=console, auto_refresh=False, redirect_stdout=printed
    )
    shown.start()
    return shown


@contextmanager
def watched(
    progress: Callable[..., object] | bool | None, until: Until, examples: int, title: str = ""
) -> Iterator[Callable[[Progress], object] | None]:
    """What a run calls after evaluations: what was given, of ``True`` a bar that is there meanwhile,
    and of ``False`` nothing.
    """
    if progress is True:
        with Bar(until, examples, title) as made:
            yield made
    else:
        yield progress or None


def bar(share: float) -> str:
    """A bar that is filled to a share between 0 and 1."""
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * filled + "░" * (_BAR - filled)


def _measured(until: Until, examples: int) -> bool:
    """Whether it can be told how far a run is: not of a stream until its end."""
    return bool(examples) or until.seconds is not None or until.updates is not None


def completed(until: Until, now: Progress, examples: int) -> float:
    """How far a run is, from 0 to 1, by whichever of its stop rules is nearest to being met.

    Args:
        until: the stop rules.
        now: the state.
        examples: size of the training set; 0 where nobody knows.
    """
    shares = [0.0]
    if until.seconds is not None:
        shares.append(now.seconds / until.seconds)
    if until.updates is not None:
        shares.append(now.updates / until.updates)
    if until.epochs is not None and now.eps > 0.0 and examples:
        shares.append(now.eps * now.seconds / examples / until.epochs)
    targets = [] if until.loss is None else [until.loss]
    if until.loss_fraction is not None:
        targets.append(until.loss_fractions[-1] * now.initial_loss)
    shares += [
        math.log(now.initial_loss / now.loss) / math.log(now.initial_loss / target)
        for target in targets
        if 0.0 < target < now.initial_loss and 0.0 < now.loss < math.inf
    ]
    return min(1.0, max(shares))


def of_run(until: Until, now: Progress, examples: int, told: Callable[[Progress], str]) -> str:
    """A bar, where it can be told how far the run is, and the state in words."""
    if not _measured(until, examples):
        return told(now)
    share = completed(until, now, examples)
    return f"{bar(share)} {100.0 * share:3.0f}%  {told(now)}"


def _quality(now: Progress) -> list[str]:
    """How good it is on data that it was not trained on, where there are any."""
    told = []
    if not math.isnan(now.validation_accuracy):
        told.append(f"val {100.0 * now.validation_accuracy:.1f}%")
    if not math.isnan(now.validation_auc):
        told.append(f"val AUC {now.validation_auc:.4f}{_each(now, 'validation_auc')}")
    elif not math.isnan(now.auc):
        told.append(f"AUC {now.auc:.4f}{_each(now, 'auc')}")
    return told


def _each(now: Progress, name: str) -> str:
    """Of several labels."""
    told = [f"{head} {one[name]:.4f}" for head, one in now.heads.items()]
    return f" ({', '.join(told)})" if told else ""


def _scored(values: Values) -> str:
    told = [f"{head} {one.auc:.4f}" for head, one in values.heads.items()]
    return f"AUC {values.auc:.4f}" + (f" ({', '.join(told)})" if told else "")


def _rate(now: Progress) -> str:
    return f"{0.0 if math.isnan(now.eps) else now.eps:,.0f} EPS"


def brief(now: Progress) -> str:
    """Loss, EPS and AUC, or accuracy."""
    quality = _quality(now)[-1:]
    if now.total is not None and not quality:
        quality = [_scored(now.total)]
    return "  ".join([f"loss {number(now.loss)}", _rate(now), *quality])


def describe(now: Progress) -> str:
    """The state of a run in one line."""
    parts = [
        f"{now.seconds:.1f} s",
        f"loss {number(now.loss)}",
        _rate(now),
        f"staleness {number(now.mean_staleness)}",
        *_quality(now),
    ]
    if now.total is not None:
        parts.append(f"scored {_scored(now.total)} NE {now.total.normalised_entropy:.4f}")
        if not math.isnan(now.total.gauc):
            parts.append(f"GAUC {now.total.gauc:.4f}")
    parts += [f"{name} {found(value)}" for name, value in now.observed.items()]
    return "  ".join(parts)
