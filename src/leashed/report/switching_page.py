"""The page of ``leashed bench switching``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leashed import simulation
from leashed.report import html_page
from leashed.report.html_page import Section
from leashed.report.plots import switching as plots
from leashed.report.switching import Found, parts, tendencies
from leashed.studies.intervals import interval

__all__ = ["write"]


def write(path: Path, found: Found) -> None:
    """Write it."""
    daily, states, switches, bound = parts(found)
    load = np.asarray(simulation.day(1, 1.0).compute[1]["load"])
    lines = {
        plan: {mode: [interval(list(day)) for day in by_seed.T] for mode, by_seed in modes.items()}
        for plan, modes in tendencies(found).items()
    }
    html_page.studies(
        path,
        "Modes of training on a shared cluster",
        [
            Section(
                *daily,
                plots.day({one.mode: one.eps for one in found.daily}, load),
                "Throughput of the modes in each hour of a day (gba, Figure 1).",
            ),
            Section(*states),
            Section(
                *switches,
                plots.switches(lines, found.setting.base),
                "AUC of the next day (gba, Figure 6), with its 95% interval over the seeds; the "
                "switch is at the dotted line. A mode much worse than all others is below the axes.",
            ),
            Section(*bound),
        ],
    )
