"""What recording a run costs: an update in a loop of its own, and training beside the same unrecorded."""

from __future__ import annotations

from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import count, number, paragraphs
from bench.section import Goal

PLACE, TITLE = 200, "Recording"

_SECONDS = 2.0
_TURN = 0.4
_TURNS = 25


def measure(bench: Bench) -> list[Record]:
    """A record of the loop, with its bytes, and one of training with all threads."""
    return bench.run(
        "bench_trace",
        bench.threads,
        bench.seconds(_SECONDS),
        bench.seconds(_TURN, least=0.1),
        bench.times(_TURNS, least=3),
    )


def nanoseconds(results: Results) -> float | None:
    """Of a recorded update in a loop of its own."""
    found = figures.one(results, "recording", "record")
    return None if found is None else 1e9 * float(found["seconds"])


def size(results: Results) -> float | None:
    """Bytes of it."""
    found = figures.one(results, "recording", "record")
    return None if found is None else float(found["bytes"])


def rate(results: Results) -> float | None:
    """Examples per second with a record over those without."""
    found = figures.one(results, "recording", "training")
    return None if found is None else float(found["ratio"])


def words(results: Results) -> str:
    """All of it."""
    record, training = (
        figures.one(results, "recording", "record"),
        figures.one(results, "recording", "training"),
    )
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
    record, training = (
        figures.one(results, "recording", "mode record"),
        figures.one(results, "recording", "mode training"),
    )
    if record is None or training is None:
        return ""
    return (
        f"By a mode a push and the pull after it are written in {number(1e9 * record['seconds'])} "
        f"ns, and take {record['bytes']:.2f} bytes; ASP's rate with a record is "
        f"{training['ratio']:.3f} of that without."
    )


GOALS = (
    Goal("a recorded update", 20.0, nanoseconds, least=False, unit=" ns"),
    Goal("bytes of it", 10.0, size, least=False),
    Goal("training with a record, d = 1,000, all threads, EPS over without", 0.99, rate),
)
