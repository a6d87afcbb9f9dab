"""A line of progress that rewrites itself on a terminal, and now and then a line elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TextIO

from leashed.base.table import found, number
from leashed.stopping import Until
from leashed.training.outcome import Progress

_BAR = 10
_QUIET_SECONDS = 5.0


def tell(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr)


class Line:
    """Shows one changing line on a stream.

    Args:
        stream: usually standard error. If it is no terminal, at most one line every five seconds
            is written to it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
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
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


def bar(share: float) -> str:
    """A bar that is filled to a share between 0 and 1."""
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * filled + "░" * (_BAR - filled)


def completed(until: Until, now: Progress, examples: int) -> float:
    """How far a run is, from 0 to 1, by whichever of its stop rules is nearest to being met.

    Args:
        until: the stop rules.
        now: the state.
        examples: size of the training set.
    """
    shares = [0.0]
    if until.seconds is not None:
        shares.append(now.seconds / until.seconds)
    if until.updates is not None:
        shares.append(now.updates / until.updates)
    if until.epochs is not None and now.eps > 0.0:
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


def describe(now: Progress) -> str:
    """The state of a run in one line."""
    parts = [
        f"{now.seconds:.1f} s",
        f"loss {number(now.loss)}",
        f"{0.0 if math.isnan(now.eps) else now.eps:,.0f} EPS",
        f"staleness {number(now.mean_staleness)}",
    ]
    if not math.isnan(now.validation_accuracy):
        parts.append(f"val {100.0 * now.validation_accuracy:.1f}%")
    if not math.isnan(now.validation_auc):
        parts.append(f"val AUC {now.validation_auc:.4f}")
    elif not math.isnan(now.auc):
        parts.append(f"AUC {now.auc:.4f}")
    if now.total is not None:
        parts.append(f"scored AUC {now.total.auc:.4f} NE {now.total.normalised_entropy:.4f}")
        if not math.isnan(now.total.gauc):
            parts.append(f"GAUC {now.total.gauc:.4f}")
    parts += [f"{name} {found(value)}" for name, value in now.observed.items()]
    return "  ".join(parts)
