"""The page's part on recording: what goals ask for, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs


def _one(results: Results, figure: str) -> Record | None:
    found = only(figures.figures(results, "recording"), figure=figure)
    return found[0] if found else None


def nanoseconds(results: Results) -> float | None:
    """Of a recorded update in a loop of its own."""
    found = _one(results, "record")
    return None if found is None else 1e9 * float(found["seconds"])


def size(results: Results) -> float | None:
    """Bytes of it."""
    found = _one(results, "record")
    return None if found is None else float(found["bytes"])


def rate(results: Results) -> float | None:
    """Examples per second with a record over those without."""
    found = _one(results, "training")
    return None if found is None else float(found["ratio"])


def words(results: Results) -> str:
    """All of it."""
    record, training = _one(results, "record"), _one(results, "training")
    if record is None or training is None:
        return ""
    return paragraphs(
        f"An update is written in {number(1e9 * record['seconds'])} ns, in a loop of its own, new "
        f"pages included, and takes {record['bytes']:.2f} bytes.",
        f"Training at d = {training['dimension']:,}, batch {training['batch_size']}, "
        f"{count(training['threads'], 'thread')}, with a record: {training['ratio']:.3f} of the "
        f"examples per second of that without, which takes turns with it "
        f"({len(training['eps'])} each).",
        _by_a_mode(results),
    )


def _by_a_mode(results: Results) -> str:
    """The same of a mode; nothing where it was not measured."""
    record, training = _one(results, "mode record"), _one(results, "mode training")
    if record is None or training is None:
        return ""
    return (
        f"By a mode a push and the pull after it are written in {number(1e9 * record['seconds'])} "
        f"ns, and take {record['bytes']:.2f} bytes; ASP's rate with a record is "
        f"{training['ratio']:.3f} of that without."
    )


SECTIONS: dict[str, Callable[[Results], str]] = {"Recording": words}
PROFILES = {"recording": ("Recording", words)}
"""By the name that goals give: a heading and what is below it."""
