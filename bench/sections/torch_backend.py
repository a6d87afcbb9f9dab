"""leashed.torch against PyTorch's own: the optimizer in one loop, and threads against processes.

``optimizer``: the same training loop with ``torch.optim``'s optimizer (as it comes, and with
``fused=True``) and with ``leashed.torch.Optimizer``, on one thread's own clock, in short turns.

``hogwild``: ``leashed.torch.fit`` with threads against PyTorch's multiprocessing Hogwild, its
example's way: processes that share the module's memory, with an optimizer each. Both also with the
module traced by ``torch.jit.trace``, which runs without Python and so without the GIL.
"""

from __future__ import annotations

from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal

PLACE, TITLE = 130, "PyTorch on the engine"


def measure(bench: Bench) -> dict[str, list[Record]]:
    """``optimizer``: steps per second and ratios; ``hogwild``: steps per second of every turn."""
    from bench import torch_loops  # noqa: PLC0415

    return torch_loops.measure(bench)


def optimizer_ratio(results: Results) -> float | None:
    """Steps per second of a loop over those with PyTorch's faster optimizer, least of all."""
    found = figures.part(results, "torch_backend", "optimizer")
    return min((min(record["ratio"].values()) for record in found), default=None)


def fit_ratio(results: Results) -> float | None:
    """``leashed.torch.fit`` over PyTorch's processes, each at its best, least of all."""
    found = figures.part(results, "torch_backend", "hogwild")
    return min(
        (
            figures.ratio(r, figures.fastest(r, "leashed"), figures.fastest(r, "torch"))
            for r in found
        ),
        default=None,
    )


def words(results: Results) -> str:
    """PyTorch on the engine's memory."""
    loops = figures.part(results, "torch_backend", "optimizer")
    if not loops:
        return ""
    kinds = list(loops[0]["ratio"])
    rows = [
        [
            f"{r['model']}, batch {r['batch_size']}, {r['rule']}",
            *(f"{value:,.0f}" for value in r["steps_per_second"].values()),
            *(f"{r['ratio'][kind]:.3f}" for kind in kinds),
        ]
        for r in loops
    ]
    head = ["steps/s", *loops[0]["steps_per_second"], *(f"over {kind}" for kind in kinds)]
    teams = figures.part(results, "torch_backend", "hogwild")
    names = list(teams[0]["rate"]) if teams else []
    team_rows = []
    for r in teams:
        top = figures.fastest(r, "leashed"), figures.fastest(r, "torch")
        team_rows.append(
            [
                f"{r['model']}, batch {r['batch_size']}, {r['workers']} workers",
                *(
                    f"**{figures.rate(r, name):,.0f}**"
                    if name in top
                    else f"{figures.rate(r, name):,.0f}"
                    for name in names
                ),
                f"{figures.ratio(r, 'leashed', 'torch'):.2f}",
                f"{figures.ratio(r, *top):.2f}",
            ]
        )
    return paragraphs(
        "The same training loop on one thread, with `leashed.torch.Optimizer` and with `torch.optim`'s "
        "optimizer, as it comes and fused:",
        table(head, rows),
        "`leashed.torch.fit` with threads and PyTorch's multiprocessing Hogwild with as many "
        "processes, steps per second of all; *traced*: the module is a graph of `torch.jit.trace`, "
        "which runs without the GIL. Bold: the fastest of each.",
        table(["steps/s", *names, "neither traced", "best over best"], team_rows),
    )


def profile(results: Results) -> str:
    """What an optimizer's step is of a loop, and what threads share."""
    loops = figures.part(results, "torch_backend", "optimizer")
    worst = min(loops, key=lambda r: min(r["ratio"].values()))
    step = 1e6 / worst["steps_per_second"]["leashed"]
    lost = step * (1.0 - min(worst["ratio"].values()))
    return (
        f"Of the loops, {worst['model']} with {worst['rule']} at batch {worst['batch_size']} has the "
        f"least ratio: {number(lost)} of {number(step)} µs a step. Of the threads: they share the GIL. "
        "After every small operation a thread must have it again, and one that has to wait for it "
        "sleeps; processes do not meet. A traced module asks for it five times a step instead of a "
        "dozen."
    )


GOALS = (
    Goal(
        "PyTorch loop with leashed.torch.Optimizer over torch.optim's, fused or not, least",
        1.0,
        optimizer_ratio,
    ),
    Goal("leashed.torch.fit over PyTorch's multiprocessing Hogwild, least", 1.0, fit_ratio),
)
PROFILES = {"PyTorch on the engine": profile}
