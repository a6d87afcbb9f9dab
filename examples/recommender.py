"""A recommender: logs of clicks come in day by day, a model is trained on each as it comes, tested on
the next, and serves.

python examples/recommender.py [--days 4] [--rows 20000] [--folder FOLDER]

With a folder the second call goes on where the first has ended, or was killed: try Ctrl-C, kill -9,
and more days.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

import leashed as lsh


def write_log(path: Path, day: int, rows: int) -> None:
    """What people clicked on a day, as Criteo's data have it."""
    lines = lsh.datasets.synthetic_click_lines(rows, day=day, drift=0.1, cardinalities=1000)
    with path.open("wb") as file:
        file.writelines(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="default: one that is deleted at the end")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home.mkdir(exist_ok=True)
        logs = [home / f"day-{day}.tsv" for day in range(options.days)]
        for day, log in enumerate(logs):
            if not log.exists():
                write_log(log, day, options.rows)

        result = lsh.continual(
            lsh.models.dlrm(dim=8, bottom=(16, 8), top=(32, 16)),
            {log.name: lsh.stream.criteo(log) for log in logs},
            folder=home / "run",
            rule=lsh.Adagrad(0.03),
            batch_size=128,
            checkpoint=lsh.Checkpoint(updates=50),
            observe=lsh.Observe(metrics=lsh.metrics.progressive()),
            finished=tell,
        )
        print(f"{result.outcome}, {len(result.days)} days")

        # As a server would, in another process:
        served = lsh.load(home / "run")
        rows = lsh.stream.criteo(logs[-1]).read(5)
        said = served.model.predict(served.parameters, rows, served.tables, served.statistics)
        for p in said[:, 0]:
            print(f"clicked with probability {p:.3f}")


def tell(day: lsh.Day) -> None:
    auc = "nobody has predicted it"
    if day.yesterday is not None:
        auc = f"AUC {day.yesterday.auc:.4f} by the model of the day before"
    print(f"{day.name}: {day.examples:,} rows, {auc}; {day.rows:,} ids have rows")


if __name__ == "__main__":
    main()
