"""The page's part on recommenders beside DLRM, and the figures that goals ask for."""

from __future__ import annotations

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, table, thousands
from bench.turns import quiet_median

TITLES = {"youtube_dnn": "YouTubeDNN", "din": "DIN"}


def _rates(record: Record) -> dict[str, float]:
    return {
        name: quiet_median(rates, record["cpu_share"][name])
        for name, rates in record["rate"].items()
    }


def _over_torch(record: Record) -> float | None:
    rates = _rates(record)
    peers = [rate for name, rate in rates.items() if name.startswith("PyTorch")]
    return rates[f"leashed ×{record['threads']}"] / max(peers) if peers else None


def over_torch(model: str, batch: int, results: Results) -> float | None:
    """Examples per second over PyTorch's at its best number of threads."""
    found = only(figures.figures(results, "zoo") or [], figure=model, batch=batch)
    return _over_torch(found[0]) if found else None


def recommenders(results: Results) -> str:
    """Examples per second of each model, by batch size."""
    rows = [
        [
            TITLES[record["figure"]],
            str(record["batch"]),
            ", ".join(f"{name} {thousands(rate)}" for name, rate in _rates(record).items()),
            "" if (ratio := _over_torch(record)) is None else f"{number(ratio)}×",
        ]
        for record in figures.figures(results, "zoo") or []
    ]
    return table(["model", "batch", "examples/s", "over PyTorch's best"], rows) if rows else ""


SECTIONS = {"Recommenders": recommenders}
PROFILES = {"zoo": ("Recommenders", recommenders)}
