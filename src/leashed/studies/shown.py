"""Which of the runs in a file a figure shows: those of one study at the step that performs best.

Runs belong to one study if they share the model, the preset and the precisions they were asked
for; only they are repeats of each other. Where the paper's figure shows a step of its Table I, ours
shows the runs of that preset, if the file has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leashed.studies.comparison import study_key, study_order, yardstick
from leashed.studies.runs import Run


def studies(runs: Iterable[Run], *presets: str) -> list[list[Run]]:
    """The studies among the runs: those of the presets, or all if there is none of them."""
    groups: dict[object, list[Run]] = {}
    for run in sorted(runs, key=study_order):
        groups.setdefault(study_key(run), []).append(run)
    named = [study for study in groups.values() if (study[0].preset or "").startswith(presets)]
    return named if presets and named else list(groups.values())


def overview(runs: Iterable[Run], *presets: str) -> list[Run]:
    """The study with the most thread counts, and then the most runs, at its best step."""

    def width(study: Sequence[Run]) -> tuple[bool, int, int]:
        return (bool(study[0].fractions), len({run.threads for run in study}), len(study))

    return yardstick(max(studies(runs, *presets), key=width, default=[]))


def name(study: Sequence[Run], among: Sequence[Sequence[Run]]) -> str:
    """What tells a study from others: its preset, and its precisions where that is not enough."""
    preset = study[0].preset or ""
    if sum(other[0].preset == study[0].preset for other in among) <= 1:
        return preset
    asked = ", ".join(f"{100.0 * f:g}%" for f in study[0].fractions)
    return f"{preset} to {asked}".strip() if asked else f"{preset} without ε".strip()


def setting(runs: Sequence[Run], study: str = "", m: int | None = None) -> str:
    """What all of the runs share, for a title: study, model, threads if given, step, batch size."""
    first = runs[0]
    threads = "" if m is None else f"m = {m}"
    parts = [study or first.preset or "", first.model, threads]
    parts += [f"η = {first.lr:g}", f"batch {first.batch_size}"]
    return ", ".join(part for part in parts if part)


def isolated(run: Run) -> bool:
    """Whether the run had a process to itself, so that its memory is its own."""
    return run.result.config.get("isolated") is True


def memory(runs: Sequence[Run]) -> list[list[Run]]:
    """What tells of memory, for every model (the MLP first).

    Runs with a process each, if there are some, and then those that shared one and so carry the
    history of the runs before.
    """
    of_models = {run.model: True for run in sorted(runs, key=study_order)}
    groups = [
        overview([run for run in runs if run.model == model and isolated(run) is alone], "S5")
        for model in of_models
        for alone in (True, False)
    ]
    return [group for group in groups if group]
