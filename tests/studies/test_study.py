"""Every study is kept, gone on with, broken off and told alike, by its command."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import leashed as lsh
from leashed.cli import _parser, main, study
from leashed.studies import damping, shat
from leashed.studies.study import Kept, Part, Study, plain, revived, run
from leashed.studies.swap import Curve
from leashed.training.problems.problem import Problem, build_model

tune_study = importlib.import_module("leashed.studies.tune")
SHADOWSYNC = ["bench", "shadowsync", "--threads", "1", "--gaps", "5", "--repeats", "1"]
FIGURE = [*SHADOWSYNC, "--trainers", "2", "--servers", "1"]
PASS = ["--trainers", "2", "--kinds", "bmuf", "--examples", "64"]
GRID = ["--alpha", "0.5", "--eta", "0.5", "--momentum", "0"]
PLAYED = ["--virtual", "--passes", "1", "--examples", "64"]
CLICKS = ["bench", "shadowsync", "--threads", "1", "--repeats", "1", "--trainers", "2"]
CLICKS += ["--examples", "64"]
PACED = ["--pace", "0.002", "--dimension", "100", "--scale", "0.02"]

SHARED = ["--workers", "2", "--batch-size", "8", "--sync-workers", "2", "--rows", "160"]
SHARED += ["--repeats", "1"]

# The command of each, as small as it can be; what cannot be gone on with, and how that is named.
COMMANDS: dict[str, tuple[list[str], list[str], str]] = {
    "combinations": (["bench", "combinations", "--rules", "SGD,Adam"], ["--threads", "2"], "threads"),
    "contention": (
        ["bench", "contention", "--threads", "1,2", "--persistence", "inf,0", "--repeats", "2",
         "--costs", "0.004,0.001", "--virtual"],
        ["--seed", "1"],
        "seed",
    ),
    "damping": (
        ["bench", "staleness", "--damping", "--workers", "2", "--repeats", "2"],
        ["--seed", "1"],
        "seed",
    ),
    "figure5": ([*FIGURE, *PACED], ["--pace", "0.003"], "pace"),
    "global-batch": (
        ["bench", "global-batch", *SHARED, "--counts", "2", "--batches", "4"], ["--lr", "1"], "lr"
    ),
    "gradient-norms": (
        ["bench", "gradient-norms", *SHARED, "--batches", "4", "--updates", "2"], ["--lr", "1"], "lr"
    ),
    "hyperparameters": (["bench", "hyperparameters", *SHARED], ["--lr", "1"], "lr"),
    "normalisation": (
        ["bench", "normalisation", "--workers", "2", "--repeats", "1", "--batch-size", "8"],
        ["--lr", "1"],
        "lr",
    ),
    "persistence": (
        ["bench", "persistence", "--threads", "2", "--repeats", "1", "--cap", "2",
         "--ratio", "9", "--batch-size", "8"],
        ["--seed", "1"],
        "seed",
    ),
    "scaling": (
        ["bench", "scaling", "--threads", "1", "--batch-size", "16", "--epsilon", "0.99",
         "--algorithm", "sequential,hogwild", "--repeats", "1", "--seconds", "20"],
        ["--seconds", "10"],
        "seconds",
    ),
    "shat": (
        ["bench", "shat", "--workers", "2", "--epochs", "0.1", "--repeats", "1", "--lr", "0.001"],
        ["--momentum", "0"],
        "momentum",
    ),
    "staleness": (
        ["bench", "staleness", "--workers", "2,3", "--updates", "40"], ["--updates", "50"], "updates"
    ),
    "swap": (["bench", "swap", "--days", "1", "--repeats", "1"], ["--drift", "0"], "drift"),
    "sweep": ([*SHADOWSYNC, "--sweep", *PASS, *GRID], ["--lr", "1"], "lr"),
    "switching": (["bench", "switching", *SHARED], ["--lr", "1"], "lr"),
    "table2": ([*SHADOWSYNC, "--table2", *PASS, "--varying", "3/1"], ["--lr", "1"], "lr"),
    "tune": (
        ["tune", "--seconds", "300", "--threads", "1", "--batch-size", "64", "--loss-fraction", "0.9"],
        ["--loss-fraction", "0.8"],
        "loss_fraction",
    ),
    "virtual-figure5": ([*FIGURE, *PLAYED], ["--lr", "1"], "lr"),
    "virtual-figure6": ([*CLICKS, "--figure6"], ["--eta", "0.5"], "eta"),
    "virtual-figure8": ([*CLICKS, "--figure8", "--threads", "1,2"], ["--lr", "1"], "lr"),
    "virtual-served": (
        [*CLICKS, "--embedding-servers", "--threads", "1,2", "--gaps", "2"], ["--lr", "1"], "lr"
    ),
    "virtual-sweep": ([*SHADOWSYNC, "--sweep", *PASS, *GRID, *PLAYED], ["--lr", "1"], "lr"),
    "virtual-table2": (
        [*SHADOWSYNC, "--table2", *PASS, *PLAYED, "--model", "mlp"], ["--lr", "1"], "lr"
    ),
    "virtual-table2b": (
        [*CLICKS, "--table2b", "--gaps", "2"], ["--pace", "0.03"], "pace"
    ),
}  # fmt: skip
FEWER = {
    "damping": {"warm": 100, "updates": 2, "ids": 100, "lr": (0.01, 0.1)},
    "normalisation": {"updates": 10, "ids": 100, "lr": (0.01, 0.1)},
    "swap": {"rows": 160, "batch_size": 8},
}
"""Of studies whose command has no option for it."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few digits, few clicks, few choices, and a clock of trials for the search."""
    data = lsh.datasets.synthetic_digits(96, seed=0, test=32)
    for module in ("combinations", "contention", "scaling", "study"):
        monkeypatch.setattr(f"leashed.cli.{module}.load_data", lambda _: data)
    problem = Problem(build_model("mlp", data.train), data.train, None)
    monkeypatch.setattr("leashed.cli.tune.problem_of", lambda _: problem)

    def given(options, kind, whole=study.given):
        return {**FEWER.get(kind.NAME, {}), **whole(options, kind)}

    monkeypatch.setattr("leashed.cli.study.given", given)
    for name in ("METHODS", "SHARDINGS", "CLUSTERS"):
        few = dict(list(getattr(shat, name).items())[:2])
        monkeypatch.setattr(f"leashed.studies.shat.{name}", few)
    monkeypatch.setattr("leashed.studies.shat.HETEROGENEOUS", ("ASP",))
    monkeypatch.setattr("leashed.studies.switching.STALE_WORKERS", 4)
    monkeypatch.setattr("leashed.studies.combinations.DISCIPLINES", (lsh.Sequential(),))
    monkeypatch.setattr("leashed.studies.combinations.POLICIES", (lsh.staleness.none(),))
    begun: list[int] = []

    def counted(*arguments, train=tune_study.train, **how):
        begun.append(1)
        return train(*arguments, **how)

    monkeypatch.setattr(tune_study, "train", counted)
    monkeypatch.setattr(tune_study, "time", SimpleNamespace(monotonic=lambda: 25.0 * len(begun)))


def names(path: Path) -> list[str]:
    """What each record is of."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        config = record.get("config")
        found.append(str(record["setting"] if config is None else config["discipline"]))
    return found


def test_every_study_is_tried() -> None:
    assert sorted(kind.NAME for kind in study.STUDIES) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_study_has_the_options(name: str) -> None:
    command = COMMANDS[name][0]
    options = _parser().parse_args(
        [*command, "--output", "a", "--resume", "--minutes", "1", "--report", "b"]
    )
    assert (options.output, options.report) == (Path("a"), Path("b"))
    assert (options.resume, options.minutes) == (True, 1.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_kept_and_gone_on_with(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    command, others, differing = COMMANDS[name]
    file, page, again = (tmp_path / name for name in ("runs.jsonl", "page.html", "again.html"))
    kept = [*command, "--output", str(file)]

    assert main([*kept, "--minutes", "1e-9"]) == 3
    told = capsys.readouterr().err
    assert "are left; the same command with --resume goes on" in told
    assert "\nleft: " in told
    (first,) = names(file)

    assert main(kept) == 2
    assert "--resume adds what is missing" in capsys.readouterr().err
    assert main([*kept, "--resume", "--report", str(page)]) == 0
    assert page.stat().st_size > 1000
    whole = file.read_bytes()
    every = names(file)
    assert every[0] == first
    assert len(set(every)) == len(every) > 1
    assert main(["report", str(file), "-o", str(again)]) == 0
    assert again.read_bytes() == page.read_bytes()

    capsys.readouterr()
    file.write_bytes(whole + b'{"half')
    assert main([*kept, "--resume"]) == 0
    assert "its last line was not written to the end and is dropped" in capsys.readouterr().err
    assert file.read_bytes().startswith(whole)

    lines = whole.splitlines(keepends=True)
    half = lines[: len(lines) // 2] if name == "tune" else lines[::2]
    file.write_bytes(b"".join(half))
    assert main([*kept, "--resume"]) == 0
    assert file.read_bytes().startswith(b"".join(half))
    if name == "tune":  # what the others came to decides what is tried next
        assert len(set(names(file))) == len(names(file)) >= len(every) - 1
    else:
        assert sorted(names(file)) == sorted(every)

    before = file.read_bytes()
    capsys.readouterr()
    assert main([*kept, *others, "--resume"]) == 2
    assert f" {differing} " in capsys.readouterr().err
    assert file.read_bytes() == before


class Squares(Study):
    """What a study has to say of itself."""

    NAME, TITLE = "squares", "Squares"

    def __init__(self, most: int = 4, repeats: int = 1) -> None:
        self.most, self.repeats = most, repeats
        self.ran: list[int] = []

    def conditions(self, data):
        return {"data": data}

    def settings(self):
        return [{"repeat": r, "n": n} for r in range(self.repeats) for n in range(self.most)]

    def measure(self, setting, data, go_on):  # noqa: ARG002
        self.ran.append(setting["n"])
        if setting["n"] == 13:
            raise KeyboardInterrupt
        return {"square": setting["n"] ** 2}

    def parts(self, records):
        return [Part("Squares", None, str([r["measured"]["square"] for r in records]))]


def test_what_is_told_is_of_whole_repeats() -> None:
    asked = Squares(2, repeats=2)
    records = asked.all()
    assert [r["measured"]["square"] for r in asked.shown(records[::-1])] == [0, 1, 0, 1]
    assert [r["setting"]["repeat"] for r in asked.shown(records[:3])] == [0, 0]
    assert asked.text(asked.shown(records)) == "[0, 1, 0, 1]"


def test_a_run_is_begun_if_it_would_end_in_time_by_those_before(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("leashed.studies.study.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Squares):
        def measure(self, setting, data, go_on):
            now[0] += 20.0
            return super().measure(setting, data, go_on)

    asked = Slow()
    assert [s["n"] for s in run(asked, minutes=1.01).left] == [3]
    assert [s["n"] for s in run(asked, minutes=0.99).left] == [2, 3]
    assert [s["n"] for s in run(asked, minutes=1e-9).left] == [1, 2, 3]
    assert run(asked).left == []


def test_ctrl_c_leaves_what_has_not_ended(tmp_path: Path) -> None:
    for kind in (Squares, type("Together", (Squares,), {"SIDE_BY_SIDE": True})):
        path = tmp_path / f"{kind.__name__}.jsonl"
        ran = run(kind(20), kept=Kept(path))
        assert ran.interrupted
        assert len(ran.records) + len(ran.left) == 20
        assert {"repeat": 0, "n": 13} in ran.left
        assert len(path.read_text().splitlines()) == len(ran.records) >= 12


def test_a_run_that_ctrl_c_has_cut_short_is_no_record() -> None:
    asked = damping.Asked(workers=(3,), updates=300, warm=200, ids=100, repeats=2, lr=(0.01,))

    def begun(_: object, number: int) -> None:
        if number == 2:  # others are under way
            raise KeyboardInterrupt

    ran = run(asked, begun=begun)
    assert ran.interrupted
    assert len(ran.records) < 3
    assert len(ran.left) == 10 - len(ran.records)
    for record in ran.records:
        assert None not in record["measured"]["auc"]


def test_an_error_keeps_what_ended_before(tmp_path: Path) -> None:
    class Wrong(Squares):
        def measure(self, setting, data, go_on):
            if setting["n"] == 2:
                raise ValueError("two")
            return super().measure(setting, data, go_on)

    path = tmp_path / "wrong.jsonl"
    with pytest.raises(ValueError, match="two"):
        run(Wrong(), kept=Kept(path))
    kept = Kept(path, resume=True)
    assert [r["setting"]["n"] for r in kept.records] == [0, 1]
    assert run(Squares(), kept=kept).left == []
    assert len(path.read_text().splitlines()) == 4


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"study": "squares"}\n')
    with pytest.raises(ValueError, match=r"runs\.jsonl, line 1: this is no record of a study"):
        Kept(path, resume=True)
    other = {"study": "cubes", "setting": {}, "conditions": {}, "measured": {}}
    path.write_text(json.dumps(other) + "\n")
    with pytest.raises(ValueError, match="its records are of cubes, not of squares"):
        run(Squares(), kept=Kept(path, resume=True))


def test_what_is_measured_is_json_and_back() -> None:
    curve = Curve("a", np.array([[0.5, np.nan]]), np.array([1.0]), np.zeros((1, 0)))
    text = json.dumps(plain(curve), allow_nan=False)
    found = revived(Curve, json.loads(text))
    np.testing.assert_array_equal(found.auc, curve.auc)
    assert found.auc.dtype == found.accumulator.dtype == np.float64
    assert plain(np.float32(0.5)) == 0.5
    assert revived(dict, {"x": None, "n": [1, 2]})["n"].dtype == np.int64


def test_records_and_results_have_a_page_each(tmp_path: Path, capsys) -> None:
    pytest.importorskip("matplotlib")
    records, results = tmp_path / "records.jsonl", tmp_path / "results.jsonl"
    command = [*COMMANDS["staleness"][0], "--output", str(records)]
    assert main(command) == 0
    assert main([*COMMANDS["scaling"][0], "--output", str(results)]) == 0
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["report", str(records), str(results), "-o", str(page)]) == 2
    assert "have a page each" in capsys.readouterr().err
    assert main(["report", str(records), "--threads", "2", "-o", str(page)]) == 2
    assert "--threads and --figures go with" in capsys.readouterr().err
    assert main([*command, "--resume", "--report", str(records)]) == 2
    assert "is what --output writes" in capsys.readouterr().err


EXPERIMENTS = Path(__file__).parents[2] / "bench/experiments"


@pytest.mark.parametrize(
    "file", ["virtual-figure5", "figure5", "table2", "sweep", "virtual-table2"]
)
def test_records_that_were_kept_before_are_told(file: str) -> None:
    records, _ = study.read(EXPERIMENTS / f"intel-xeon-v4-2-cores/{file}.jsonl.gz")
    kinds = {kind.NAME: kind for kind in study.STUDIES}
    of = {record["study"] for record in records}
    asked = kinds[of.pop()].of(records)
    assert not of
    assert asked.parts(asked.shown(records))[0].found.rows


def test_a_file_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"half')
    early = Kept(path, resume=True)

    class Other(Squares):
        def measure(self, setting, data, go_on):
            with pytest.raises(ValueError, match="another process writes to it"):
                run(Squares(), kept=Kept(path, resume=True))
            return super().measure(setting, data, go_on)

    assert run(Other(), kept=Kept(path, resume=True)).left == []
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="has changed since it was read"):
        run(Squares(), kept=early)
    assert path.read_bytes() == whole
    assert len(Kept(path, resume=True).records) == 4


@pytest.mark.parametrize("other", ["--output", "--report"])
def test_no_file_is_written_over_another(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file = str(tmp_path / "one.jsonl")
    assert main([*COMMANDS["combinations"][0], "--page", file, other, file]) == 2
    assert f"--page {file} is what {other} writes" in capsys.readouterr().err
    plot = str(tmp_path / "one.png")
    assert main([*COMMANDS["figure5"][0], "--plot", plot, other, plot]) == 2
    assert f"--plot {plot} is what {other} writes" in capsys.readouterr().err


def test_a_page_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(tmp_path / "page.md")
    assert main([*COMMANDS["combinations"][0], "--output", page, "--resume"]) == 2
    assert f"--output {page} is a page" in capsys.readouterr().err


def test_json_lines_are_all_that_standard_output_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS["tune"][0], "--json-lines"]) == 0
    told = capsys.readouterr()
    assert all(json.loads(line)["study"] == "tune" for line in told.out.splitlines())
    assert "(median)" in told.err


def test_what_is_wrong_with_no_file_is_told_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--batch-size", "1000000"]) == 2
    told = capsys.readouterr().err
    assert "batch_sizes must hold one of at most 96 examples" in told
    assert "None" not in told
    assert "--output" not in told


def test_a_page_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    file, page = tmp_path / "runs.jsonl", tmp_path / "page.html"
    assert main([*COMMANDS["swap"][0], "--output", str(file), "--minutes", "1e-9"]) == 3
    assert main(["report", str(file), "-o", str(page)]) == 2
    assert "no repeat is whole" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize("name", ["combinations", "scaling"])
def test_runs_on_other_examples_of_that_name_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of MNIST and Fashion-MNIST, which lie in folders alike."""
    file = tmp_path / "runs.jsonl"
    command = [*COMMANDS[name][0], "--output", str(file)]
    assert main([*command, "--minutes", "1e-9"]) == 3
    train, test = (
        dataclasses.replace(now, name=then.name)
        for then, now in zip(
            *(lsh.datasets.synthetic_digits(96, seed=seed, test=32) for seed in (0, 1)), strict=True
        )
    )
    other = lsh.datasets.Split(train, test)
    monkeypatch.setattr(f"leashed.cli.{name}.load_data", lambda _: other)
    assert main([*command, "--resume"]) == 2
    assert "under other conditions: digest" in capsys.readouterr().err
    lines = file.read_text("utf-8").splitlines()
    before = [json.loads(line) for line in lines]
    for record in before:  # as they were kept before there was one
        del record["conditions" if name == "combinations" else "config"]["digest"]
    file.write_text("".join(json.dumps(record) + "\n" for record in before))
    assert main([*command, "--resume"]) == 0


def test_costs_that_are_gone_on_with_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *_ = COMMANDS["contention"]
    command = [*command, "--output", str(tmp_path / "runs.jsonl")]
    assert main([*command, "--minutes", "1e-9"]) == 3
    without = [word for word in command if word not in ("--costs", "0.004,0.001")]
    capsys.readouterr()
    assert main([*without, "--model", "cnn", "--resume"]) == 0
    assert "T_c and T_u are those of its records, whatever --model is" in capsys.readouterr().err


def test_a_search_whose_time_is_all_but_spent_has_nothing_left() -> None:
    digits = lsh.datasets.synthetic_digits(96, seed=0, test=32).train
    data = Problem(build_model("mlp", digits), digits, None)
    asked = tune_study.Search(seconds=3.0, threads=1, batch_sizes=(64,))
    record = asked.record(
        {"discipline": "LSH_ps∞", "threads": 1, "batch_size": 64, "lr": 0.1, "seed": 0},
        data,
        {"seconds": 1.0, "outcome": "converged", "elapsed": 1.0, "spent": 2.9999},
    )
    assert asked.left([record], data) == []


def test_a_search_without_finalists_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that got there with one seed did not with another."""
    tries: list[int] = []

    class Search(tune_study._Search):
        def run(self, trained, candidate, seed):  # noqa: ARG002
            tries.append(seed)
            assert len(tries) < 1000
            seconds = float("inf") if seed else 1.0
            self.trials.append(tune_study.Trial(candidate, seed, seconds, "unfinished", 1.0))
            return self.trials[-1]

    looks = iter(range(10_000))
    clock = SimpleNamespace(monotonic=lambda: next(looks) * 1e-9)
    monkeypatch.setattr(tune_study, "time", clock)
    search = Search(0.1, 1.0, [64], 1, 0)
    monkeypatch.setattr(tune_study, "_ways", lambda *_: iter(()))
    for candidate, seed in search:
        search.run(None, candidate, seed)
    assert max(tries) == tune_study._SEEDS
