"""How the sweep of the defaults chooses and judges, and that it goes on where it was."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas", reason="pandas (extra test) is not installed")
pytest.importorskip("pyarrow", reason="pyarrow (extra test) is not installed")
pytest.importorskip("sklearn", reason="scikit-learn (extra test) is not installed")

from bench import defaults
from bench.click_sets import SETS
from bench.run import ROOT

RECORDS = ROOT / "bench" / "results" / "defaults.jsonl"


def fits(seed: int, **aucs: tuple[float | None, float]) -> list[dict[str, Any]]:
    return [
        {"set": "shop", "who": "dlrm", "seed": seed, "setting": s, "validation": v, "test": t}
        | {"seconds": 1.0}
        for s, (v, t) in aucs.items()
    ]


def test_the_best_is_chosen_by_rows_that_do_not_test() -> None:
    records = fits(0, defaults=(0.70, 0.90), other=(0.71, 0.60), mad=(None, 0.0))
    assert defaults.best(records, 1) == "other"
    assert defaults.best(fits(0, mad=(None, 0.0)), 1) is None


def test_seeds_behind_the_sweep_choose_nothing() -> None:
    records = fits(0, defaults=(0.70, 0.7), other=(0.69, 0.7)) + fits(1, other=(0.99, 0.7))
    assert defaults.best(records, 1) == "defaults"
    assert defaults.best(records, 2) == "other"


@pytest.mark.parametrize(
    ("gaps", "right"),
    [
        ((0.009, 0.009), True),  # near
        ((0.020, 0.021), False),
        ((0.000, 0.060), True),  # 0.03, of which one standard error is 0.03
        ((-0.05, -0.05), True),
    ],
)
def test_what_is_right_is_near_the_best_or_not_told_apart_from_it(
    gaps: tuple[float, ...], right: bool
) -> None:
    records: list[dict[str, Any]] = []
    for seed, gap in enumerate(gaps):
        records += fits(seed, defaults=(0.7, 0.7), other=(0.8, 0.7 + gap))
    found = defaults.judged(records, "shop", "dlrm")
    assert found is not None
    assert (found.setting, found.right) == ("other", right)


def test_one_seed_has_no_error_that_excuses() -> None:
    found = defaults.judged(fits(0, defaults=(0.7, 0.7), other=(0.8, 0.72)), "shop", "dlrm")
    assert found is not None
    assert not found.right


@pytest.mark.parametrize("name", SETS)
def test_sets_are_split_in_time_and_peers_read_the_same_rows(name: str) -> None:
    data = SETS[name](600, 3)
    train, held = data.rows
    assert (len(train), len(held), data.rows.middle) == (600, 300, 150)
    rows = data.peers(1, 3)
    assert (len(rows.codes.train), len(rows.codes.test)) == (600, 300)
    assert rows.codes.train.shape[1] + len(rows.codes.bag_counts) == train.features
    assert (rows.codes.train.max(axis=0) < rows.codes.counts).all()
    assert abs(rows.dense.train.x.mean()) < 1e-3
    assert rows.dense.test.y.tolist() == held.y.tolist()


def test_arms_differ_and_the_defaults_are_told_nothing() -> None:
    data = SETS["shop"](600, 3)
    for name in defaults.MODELS:
        rows = data.shown if name in defaults.OF_HISTORIES else data.rows
        assert rows is not None
        arms = defaults.arms(name, rows)
        assert str(arms[0]) == "defaults"
        assert len({str(arm) for arm in arms}) == len(arms)


def test_a_look_writes_records_and_the_page_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "records.jsonl"
    arguments = ["--quick", "--only", "shop", "--models", "dlrm", "din", "--output", str(output)]
    arguments += ["--peers", "scikit-learn, linear", "--data", str(tmp_path), "--docs"]
    defaults.main([*arguments, str(tmp_path)])
    records = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [r["who"] for r in records[1:]] == ["dlrm"] * 2 + ["din"] * 2 + [
        "scikit-learn, linear"
    ] * 2
    assert all(0.4 < r["test"] < 1 for r in records[1:])
    page = (tmp_path / "defaults.md").read_text("utf-8")
    assert f"{records[1]['test']:.4f}" in page
    assert "| LightGBM | absent or not run |" in page

    def refused(*_: object) -> None:
        raise AssertionError("what has a record is run again")

    whole = output.read_text("utf-8")
    output.write_text("".join(whole.splitlines(keepends=True)[:-1]), "utf-8")
    monkeypatch.setattr(defaults.Setting, "train", refused)
    defaults.main([*arguments, str(tmp_path)])
    assert len(output.read_text("utf-8").splitlines()) == len(records)


def test_the_page_is_what_the_records_say() -> None:
    if not RECORDS.exists():
        pytest.skip("an archive without bench/results")
    records = defaults.Journal(RECORDS).records
    assert (ROOT / "docs" / "defaults.md").read_text("utf-8") == defaults.page(records)


def test_the_page_tells_of_defaults_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, changed = (
        tmp_path / "records.jsonl",
        "Since these runs the defaults have changed: other",
    )
    arguments = [
        "--quick",
        "--only",
        "shop",
        "--models",
        "dlrm",
        "--peers",
        "--output",
        str(output),
    ]
    defaults.main([*arguments, "--data", str(tmp_path), "--docs", str(tmp_path)])
    records = defaults.Journal(output).records
    assert changed not in defaults.page(records)
    monkeypatch.setattr(defaults, "usual", lambda _: "other")
    assert changed in defaults.page(records)
