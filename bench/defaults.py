"""Whether the defaults of models of clicks are right: each model trained with nothing told, beside the
best of a sweep over rule, rate, epochs, init and dim, and beside other libraries.

python -m bench.defaults [--only SET …] [--models MODEL …] [--page] [--quick]

- **Sets** (``click_sets.py``) are drawn by the seed and split in the order of time.
- **Defaults** are ``lsh.train(model, rows)``: what the package says when it is run. ``ARMS`` each
  differ from them by what their name tells; what a model of another set of arms would be is not tried.
- **The best** has the highest mean AUC on the rows to choose by, over the first ``--sweep`` seeds. It
  and the defaults are then trained with all ``--seeds``, and both are told by the AUC of the test rows.
- **Right** is a default whose mean is at most ``NEAR`` below the best one's, or below it by at most two
  standard errors of the mean difference, seed by seed.
- Peers are tried at all of their settings and told by their best one, chosen in the same way.

Each fit is a line of ``--output``; what has one is not run again, so that a run that was stopped goes
on, and a file that is gone begins anew. At the end ``docs/defaults.md`` is made from it; ``--page``
does that alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from bench import machine
from bench.click_sets import SETS, ClickSet, Held, criteo
from bench.context import Record, only
from bench.markdown import count, number, paragraphs, table
from bench.run import RESULTS, ROOT, versions
from bench.sections import clicks
from leashed.base.machine import cores
from leashed.base.table import MISSING
from leashed.training import defaults

NEAR = 0.01
ROWS = 100_000
OF_ROWS = ("dlrm", "deepfm", "dcn", "wide_deep")
OF_HISTORIES = ("din", "dien", "ecommerce")
MODELS = (*OF_ROWS, *OF_HISTORIES)
CRITEO = "Criteo's sample"
_DATA = ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class Setting:
    """What a training is told; None: nothing of that."""

    rule: lsh.rules.Rule | None = None
    epochs: int | None = None
    dim: int | None = None
    init: str | None = None

    def __str__(self) -> str:
        told = [] if self.rule is None else [f"{type(self.rule).__name__}({self.rule.lr:g})"]
        told += [] if self.epochs is None else [count(self.epochs, "epoch")]
        told += [] if self.dim is None else [f"dim {self.dim}"]
        return ", ".join(told + ([] if self.init is None else [f"init {self.init}"])) or "defaults"

    def train(self, name: str, rows: Held, seed: int) -> tuple[float, Any]:
        """Seconds, and the probabilities of the rows that are held out."""
        model = made(name, rows, self.dim)
        told = {
            "rule": self.rule,
            "until": None if self.epochs is None else lsh.until(epochs=self.epochs),
            "init": self.init,
        }
        given = {key: value for key, value in told.items() if value is not None}
        seconds, result = clicks.timed(lambda: lsh.train(model, rows.train, seed=seed, **given))
        return seconds, result.model.predict(rows.held)


def made(name: str, rows: Held, dim: int | None = None) -> Any:
    told: dict[str, Any] = {} if dim is None else {"dim": dim}
    if name in OF_HISTORIES:
        told["dense"] = rows.train.numbers
    return getattr(lsh.models, name)(**told)


def usual(name: str) -> str:
    """What a training of that model does that is told nothing."""
    dim = inspect.signature(getattr(lsh.models, name)).parameters["dim"].default
    init = defaults.init(getattr(lsh.models, name)())
    seldom, often = (Setting(defaults.rule(of_clicks=True, often=o)) for o in (False, True))
    told = (
        f"{seldom} and 1 epoch, or {often} and 2 where there are {defaults.OFTEN} rows for each id"
    )
    return f"{told}, dim {dim}, init {init}"


def arms(name: str, rows: Held) -> list[Setting]:
    """The defaults, then what differs from them by one thing, then by two."""
    often = defaults.seen(made(name, rows).shaped(rows.train), rows.train).often
    rule: Any = defaults.rule(of_clicks=True, often=often)
    dim = inspect.signature(getattr(lsh.models, name)).parameters["dim"].default
    end: Any = defaults.end(made(name, rows), None, often)
    init = defaults.init(made(name, rows))

    def rate(by: float) -> Any:
        return replace(rule, lr=float(f"{rule.lr * by:.2g}"))

    others = (lsh.Adagrad(0.02), lsh.Adam(0.001), lsh.SGD(0.05))
    found = [
        *(Setting(rate(by)) for by in (0.1, 1 / 3, 1 / 2, 2, 3)),
        *(Setting(other) for other in others if type(other) is not type(rule)),
        *(Setting(epochs=epochs) for epochs in (1, 2, 3) if epochs != end.epochs),
        *(Setting(dim=each) for each in (max(1, dim // 2), 2 * dim)),
        Setting(init="glorot" if init != "glorot" else "he"),
        Setting(lsh.Adam(0.001), epochs=round(end.epochs) + 1),
    ]
    return [Setting(), *dict.fromkeys(found)]


@dataclass(frozen=True)
class Plan:
    """What is run: ``fewer`` leaves out arms and settings, for a look."""

    rows: int
    seeds: int
    sweep: int
    sets: Sequence[str]
    models: Sequence[str]
    peers: Sequence[str]
    folder: Path
    fewer: int | None = None


Run = Callable[[], tuple[float, Any]]  # seconds, and the held rows' scores


def ours(plan: Plan, data: ClickSet, seed: int) -> Iterator[tuple[str, Held, dict[str, Run]]]:
    """Each model with its arms."""
    for name in plan.models:
        rows = data.shown if name in OF_HISTORIES else data.rows
        if rows is not None:
            runs = {
                str(arm): lambda arm=arm, name=name, rows=rows: arm.train(name, rows, seed)
                for arm in arms(name, rows)[: plan.fewer]
            }
            yield name, rows, runs


def boosted(rows: clicks.Rows, folder: Path) -> clicks.Settings:  # noqa: ARG001
    """scikit-learn's trees; features of at most 255 ids are categories, others numbers."""
    made = importlib.import_module("sklearn.ensemble").HistGradientBoostingClassifier
    train, test = clicks.columns(rows)
    few = [rows.dense.train.numbers + f for f, n in enumerate(rows.codes.counts) if n <= 255]

    def run(rate: float) -> tuple[float, Any]:
        model = made(learning_rate=rate, categorical_features=few, random_state=rows.seed)
        seconds, _ = clicks.timed(lambda: model.fit(train, rows.dense.train.y))
        return seconds, model.decision_function(test)

    return {f"learning_rate={rate:g}": lambda r=rate: run(r) for rate in (0.1, 0.03)}  # type: ignore[misc]


PEERS = {
    "LightGBM": clicks.lightgbm,
    "scikit-learn, trees": boosted,
    "scikit-learn, linear": clicks.scikit_learn,
    "PyTorch, DLRM": clicks.pytorch,
}


def peers(plan: Plan, data: ClickSet, seed: int) -> Iterator[tuple[str, Held, dict[str, Run]]]:
    """Each that is installed, with its settings."""
    rows = None
    for name in plan.peers:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ImportError):
            rows = rows or data.peers(cores(), seed)
            settings = PEERS[name](rows, Path(folder))
            yield name, data.rows, dict(itertools.islice(settings.items(), plan.fewer))


class Journal:
    """The records of a file, and those that are added to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]

    def has(self, **wanted: object) -> bool:
        return bool(only(self.records, **wanted))

    def add(self, record: Record) -> None:
        self.records.append(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def best(records: Sequence[Record], sweep: int) -> str | None:
    """The setting with the highest mean AUC on the rows to choose by, over the seeds of the sweep; of
    those that gave numbers with each. None: none did.
    """
    found: dict[str, list[float]] = {}
    for each in records:
        if each["seed"] < sweep:
            auc = each["validation"]
            found.setdefault(each["setting"], []).append(-math.inf if auc is None else auc)
    means = {setting: statistics.mean(aucs) for setting, aucs in found.items()}
    chosen = max(means, key=means.__getitem__, default=None)
    return None if chosen is None or means[chosen] == -math.inf else chosen


def sweep(plan: Plan, journal: Journal) -> None:
    """Runs what has no record yet."""
    for seed in range(plan.seeds):
        for name in plan.sets:
            data = SETS[name](plan.rows, seed)
            for who, rows, runs in itertools.chain(ours(plan, data, seed), peers(plan, data, seed)):
                at = {"set": name, "rows": plan.rows, "who": who, **_default(who)}
                if seed >= plan.sweep:
                    wanted = {"defaults", best(only(journal.records, **at), plan.sweep)}
                else:
                    wanted = set(runs)
                for setting, run in runs.items():
                    if setting in wanted and not journal.has(**at, seed=seed, setting=setting):
                        journal.add({**at, "seed": seed, "setting": setting, **_figures(run, rows)})
            print(f"{name}, seed {seed}", flush=True)


def _default(who: str) -> Record:
    """What the arms of a model differ from, for its records: others' are of other arms."""
    return {"default": usual(who)} if who in MODELS else {}


def _figures(run: Run, rows: Held) -> Record:
    seconds, scores = run()
    validation, test = (None if a is None else round(a, 5) for a in rows.aucs(scores))
    return {"validation": validation, "test": test, "seconds": round(seconds, 3)}


def constant(plan: Plan, journal: Journal) -> None:
    """Log loss of the models with their defaults on Criteo's sample, over that of the share of clicks."""
    if not (plan.folder / "criteo-sample").is_dir():
        print(f"{CRITEO} is not in {plan.folder}", flush=True)
        return
    for seed, name in itertools.product(range(plan.seeds), OF_ROWS):
        at = {"set": CRITEO, "rows": plan.rows, "who": name, "seed": seed, **_default(name)}
        if name in plan.models and not journal.has(**at):
            train, test = criteo(plan.folder, seed)
            _, p = Setting().train(name, Held(train, test), seed)
            found = {
                "loss": lsh.metrics.log_loss(p, test.y),
                "constant": lsh.metrics.log_loss(np.full(len(test), train.y.mean()), test.y),
                "auc": lsh.metrics.auc(p, test.y),
            }
            journal.add({**at, **{key: round(value, 5) for key, value in found.items()}})
    print(CRITEO, flush=True)


def error(values: Sequence[float]) -> float:
    """Standard error of the mean; infinite of one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


@dataclass(frozen=True)
class Judged:
    """A model on a set: the defaults and the best, by the AUC of the test rows, seed by seed."""

    model: str
    defaults: Sequence[float]
    setting: str
    best: Sequence[float]
    seconds: float

    @property
    def short(self) -> float:
        """How far the defaults are below the best, in the mean."""
        return statistics.mean(self.best) - statistics.mean(self.defaults)

    @property
    def error(self) -> float:
        return error([b - d for b, d in zip(self.best, self.defaults, strict=True)])

    @property
    def right(self) -> bool:
        return self.short <= NEAR or self.short <= 2 * self.error < math.inf


def judged(records: Sequence[Record], name: str, model: str) -> Judged | None:
    """None where it was not run."""
    found = only(records, set=name, who=model)
    chosen = best(found, sweep_of(records))
    if chosen is None:
        return None
    usual, other = ({r["seed"]: r for r in only(found, setting=s)} for s in ("defaults", chosen))
    seeds = sorted(usual.keys() & other.keys())
    seconds = statistics.median(usual[seed]["seconds"] for seed in seeds)
    aucs = [[of[seed]["test"] or 0.0 for seed in seeds] for of in (usual, other)]
    return Judged(model, aucs[0], chosen, aucs[1], seconds)


def sweep_of(records: Sequence[Record]) -> int:
    """How many seeds the sweep had."""
    return next((r["sweep"] for r in reversed(records) if r.get("about") == "run"), 1)


def current(records: Sequence[Record]) -> list[Record]:
    """The last run's account of itself, and those of as many rows and of the same defaults."""
    about = only(records, about="run")[-1]
    told: Mapping[str, str] = about["defaults"]
    return [
        about,
        *(
            each
            for each in only(records, rows=about["rows"])
            if "who" in each and each.get("default") == told.get(each["who"])
        ),
    ]


def page(everything: Sequence[Record]) -> str:
    """The text of ``docs/defaults.md``."""
    records = current(everything)
    about = records[0]
    settings = {r["setting"] for r in records if r.get("who") in MODELS and "setting" in r}
    sets = [name for name in SETS if only(records, set=name)]
    verdicts = {
        name: [found for m in MODELS if (found := judged(records, name, m))] for name in sets
    }
    text = paragraphs(
        "# Defaults of models of clicks",
        "Made by `python -m bench.defaults`; not written by hand. What `lsh.train` is told nothing of it "
        f"takes from its defaults ([training.md](training.md)): {_told(about['defaults'])}. Here is what "
        "that is worth beside the best of a sweep over rule, rate, epochs, init and dim, and beside "
        "other libraries.",
        f"{about['rows']:,} training rows, and half as many held out behind them in time: the first "
        f"half of those to choose by, the second to test. {count(about['seeds'], 'seed')}, each with "
        f"rows of its own; the best of {len(settings)} arms is chosen by the mean AUC over "
        f"{count(about['sweep'], 'seed')} and then trained with all. AUC is that of the test rows. A "
        f"default (where there is no ±, there is one seed) is right if it is at most {NEAR:g} below the best, or at most two standard errors of "
        "the difference. Seconds are those of `lsh.train` "
        f"with defaults, and of the call that trains for others, {count(about['threads'], 'thread')} "
        f"({about['cpu']}); the machine had other work meanwhile, so take them as rough. {about['versions']}.",
        _since(about["defaults"]),
        _summary(verdicts),
        *(
            f"## {_TITLES[name]}\n\n{_of_set(records, name, found)}"
            for name, found in verdicts.items()
        ),
        _of_criteo(records),
        _of_arms(records, sets),
    )
    return text + "\n"


_TITLES = {
    "generated": "The generator's clicks",
    "shop": "Users, items, prices and histories",
    "drifting": "Strong drift, 30% clicked",
}
assert _TITLES.keys() == SETS.keys()


def _since(then: Mapping[str, str]) -> str:
    """What there is to say where defaults are no longer those of the records."""
    now = {name: usual(name) for name in MODELS}
    if now == then:
        return ""
    return f"**Since these runs the defaults have changed: {_told(now)}.** To be run anew."


def _told(usual_of: Mapping[str, str]) -> str:
    """The defaults of all models, those together that are the same."""
    of: dict[str, list[str]] = {}
    for model, told in usual_of.items():
        of.setdefault(told, []).append(f"`{model}`")
    if len(of) == 1:
        return next(iter(of))
    return "; ".join(f"{', '.join(models)}: {told}" for told, models in of.items())


def _summary(verdicts: Mapping[str, Sequence[Judged]]) -> str:
    pairs = [(name, each) for name, found in verdicts.items() for each in found]
    wrong = [(name, each) for name, each in pairs if not each.right]
    lines = [
        f"- `{each.model}` on {_TITLES[name].lower()}: {each.short:.4f} below `{each.setting}`"
        for name, each in wrong
    ]
    told = f"**Right are {len(pairs) - len(wrong)} of {len(pairs)} pairs of a model and a set.**"
    return paragraphs(told + (" Not:" if wrong else ""), "\n".join(lines))


def _mean(values: Sequence[float]) -> str:
    half = error(values)
    return f"{statistics.mean(values):.4f}" + ("" if half == math.inf else f" ± {half:.4f}")


def _of_set(records: Sequence[Record], name: str, found: Sequence[Judged]) -> str:
    lines = [
        [
            f"`{each.model}`",
            _mean(each.defaults),
            each.setting,
            _mean(each.best),
            f"{each.short:+.4f}" + ("" if each.error == math.inf else f" ± {each.error:.4f}"),
            "right" if each.right else "**wrong**",
            number(each.seconds),
        ]
        for each in found
    ]
    head = ["", "AUC of the defaults", "best setting", "its AUC", "more by", "", "seconds"]
    first = (inspect.getdoc(SETS[name]) or "").replace("\n", " ").replace("``", "`")
    return paragraphs(first, table(head, lines), _of_peers(records, name))


def _of_peers(records: Sequence[Record], name: str) -> str:
    lines = []
    for peer in PEERS:
        found = only(records, set=name, who=peer)
        chosen = best(found, sweep_of(records))
        if chosen is None:
            lines.append([peer, "absent or not run", MISSING, MISSING])
            continue
        runs = only(found, setting=chosen)
        aucs = [r["test"] or 0.0 for r in runs]
        lines.append(
            [peer, chosen, _mean(aucs), number(statistics.median(r["seconds"] for r in runs))]
        )
    return table(["peer", "best setting", "its AUC", "seconds"], lines)


def _of_criteo(records: Sequence[Record]) -> str:
    lines = []
    for model in OF_ROWS:
        found = only(records, set=CRITEO, who=model)
        if found:
            over = [r["loss"] - r["constant"] for r in found]
            lines.append(
                [
                    f"`{model}`",
                    f"{statistics.mean(r['loss'] for r in found):.4f}",
                    f"{statistics.mean(r['constant'] for r in found):.4f}",
                    f"{max(over):+.4f}",
                    _mean([r["auc"] for r in found]),
                ]
            )
    if not lines:
        return ""
    head = ["", "log loss", "of the share of clicks", "more by, at most", "AUC"]
    return paragraphs(
        f"## {CRITEO}",
        "2,000 rows, of which each seed holds out another quarter; the share of clicks is that of the "
        "rows trained on.",
        table(head, lines),
    )


def _of_arms(records: Sequence[Record], sets: Sequence[str]) -> str:
    """By how much each arm is above the defaults on the rows to choose by, over models."""
    gains: dict[str, dict[str, list[float]]] = {}
    for name, model in itertools.product(sets, MODELS):
        found = only(records, set=name, who=model)
        usual_of = {r["seed"]: r["validation"] for r in only(found, setting="defaults")}
        for each in found:
            base, seed = usual_of.get(each["seed"]), each["seed"]
            if base is not None and each["setting"] != "defaults" and seed < sweep_of(records):
                of = gains.setdefault(each["setting"], {}).setdefault(name, [])
                of.append((each["validation"] or 0.5) - base)
    lines = [
        [arm, *(f"{statistics.mean(of[n]):+.4f}" if n in of else MISSING for n in sets)]
        for arm, of in sorted(gains.items())
    ]
    if not lines:
        return ""
    return paragraphs(
        "## What each arm changes",
        "AUC on the rows to choose by, less that of the defaults with the same seed; the mean over "
        "models. An arm that is told no epochs has those of the defaults.",
        table(["told", *(_TITLES[n].lower() for n in sets)], lines),
        "A second pass pays where ids come often and costs where they are rare, whatever the model: "
        "so it is the data that tell how many there are.",
    )


def parsed(arguments: Sequence[str] | None) -> tuple[Plan, Any]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="training rows (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=6, help="of default and best (default: 6)")
    parser.add_argument("--sweep", type=int, default=2, help="seeds of all arms (default: 2)")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LEASHED_DATA", _DATA)))
    parser.add_argument("--output", type=Path, default=RESULTS / "defaults.jsonl")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page goes")
    parser.add_argument("--page", action="store_true", help="make the page alone")
    parser.add_argument("--quick", action="store_true", help="few rows, arms and settings: a look")
    options = parser.parse_args(arguments)
    quick = options.quick
    plan = Plan(
        2_000 if quick else options.rows,
        1 if quick else options.seeds,
        1 if quick else min(options.sweep, options.seeds),
        options.only,
        options.models,
        options.peers,
        options.data,
        2 if quick else None,
    )
    return plan, options


def main(arguments: Sequence[str] | None = None) -> None:
    plan, options = parsed(arguments)
    journal = Journal(options.output)
    if not options.page:
        told = machine.describe()
        about = {
            "about": "run",
            **{key: getattr(plan, key) for key in ("rows", "seeds", "sweep")},
            "defaults": {name: usual(name) for name in MODELS},
            "threads": cores(),
            "cpu": told["cpu"],
            "versions": ", ".join(f"{k} {v}" for k, v in versions().items() if k in _NAMED),
        }
        if not journal.has(**about):
            journal.add(about)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arms that diverge
            start = time.monotonic()
            sweep(plan, journal)
            constant(plan, journal)
            print(f"{time.monotonic() - start:.0f} s", flush=True)
    (options.docs / "defaults.md").write_text(page(journal.records), "utf-8")
    print(options.docs / "defaults.md")


_NAMED = ("torch", "scikit-learn", "lightgbm")

if __name__ == "__main__":
    main()
