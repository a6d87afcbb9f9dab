"""Each piece of Python in README.md and docs/ runs as it can be pasted, here or in the test of its page.

None is passed over in silence: a page that has one is in ``ELSEWHERE``, or its code runs here, after
what ``GIVEN`` says that the page supposes. A warning is an error, as everywhere in these tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "clicks.md": "tests/datasets/test_clicks_page.py",
    "cluster.md": "tests/cluster/test_docs.py",
    "extending.md": "tests/house/test_extending.py",
    "gradients.md": "tests/gradients/test_page.py",
    "metrics.md": "tests/docs/test_metrics_page.py",
    "normalisation.md": "tests/docs/test_normalisation_page.py",
    "reading.md": "tests/stream/test_reading_page.py",
    "recommenders.md": "tests/docs/test_recommenders_page.py",
    "replay.md": "tests/docs/test_replay_page.py",
    "retrieval.md": "tests/docs/test_retrieval_page.py",
    "sequences.md": "tests/docs/test_sequences_page.py",
    "serving.md": "tests/docs/test_serving_page.py",
    "simulation.md": "tests/docs/test_simulation_page.py",
    "tables.md": "tests/docs/test_tables_page.py",
}
"""By which test, of pages whose code runs there."""

GIVEN = {
    "checkpoints.md": """
import leashed
digits = leashed.datasets.synthetic_digits(n=500, test=100)
model, data = leashed.models.mlp(784, [4], 10), digits.train
clicks = leashed.datasets.synthetic_clicks(500, seed=0, cardinalities=50, test=100)
""",
    "estimators.md": """
import numpy as np
X = np.random.default_rng(0).normal(size=(200, 5))
y = (X[:, 0] > 0).astype(int)
""",
    "modes.md": "",
    "sparse.md": """
import numpy as np
import leashed as lsh
draw = np.random.default_rng(0)
with open("train.svm", "w") as svm, open("train.ffm", "w") as ffm, open("test.ffm", "w") as more:
    for _ in range(200):
        i, j = draw.integers(1, 9, 2)
        svm.write(f"{i % 2} {i}:1 {8 + j}:1\\n")
        for file in (ffm, more):
            file.write(f"{i % 2} 0:{i}:1 1:{8 + j}:1\\n")
rows = lsh.datasets.read_svmlight("train.svm", 1 << 18)
""",
    "training.md": "",
}
"""What pages suppose, of those whose code runs here."""

# An hour of training is a moment here.
HERE = {
    "checkpoints.md": [
        ("seconds=3600", "seconds=0.2"),
        ("epochs=30", "epochs=2000"),
    ],
}


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


PAGES = {page.name: page for page in (ROOT / "docs").glob("*.md") if blocks(page)}


def test_no_page_is_passed_over() -> None:
    assert {*ELSEWHERE, *GIVEN} == set(PAGES)
    assert not ELSEWHERE.keys() & GIVEN.keys()
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / test).read_text(encoding="utf-8"), test


def run(code: str, name: str) -> None:
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_a_pages_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "estimators.md":
        pytest.importorskip("sklearn", reason="scikit-learn is an optional extra")
    parts = blocks(PAGES[name])
    if name == "checkpoints.md":
        parts[2] = "model = leashed.models.dlrm(50, 4, bottom=(4,), top=(4,))\n" + parts[2]
    code = "\n".join([GIVEN[name], *parts])
    for before, after in HERE.get(name, ()):
        assert before in code
        code = code.replace(before, after)
    run(code, name)


README = ROOT / "README.md"


@pytest.mark.parametrize("place", range(3), ids=["frame", "gradient", "disciplines"])
def test_the_readmes_code_runs_as_pasted(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = blocks(README)
    assert len(parts) == 3
    if "pandas" in parts[place]:
        pytest.importorskip("pandas", reason="the test extra has pandas")
    monkeypatch.chdir(tmp_path)
    run(parts[place], "README.md")
    told = capsys.readouterr().out
    if place == 0:
        assert float(re.findall(r"AUC +([\d.]+)", told)[0]) > 0.6
        assert (tmp_path / "clicks").is_dir()
    elif place == 1:
        found = [float(number) for number in re.findall(r"-?\d+\.\d*", told)]
        assert found == pytest.approx(range(20), abs=0.5)
    else:
        assert "test accuracy 0.9" in told


def test_the_readmes_pieces_have_about_eight_lines() -> None:
    for code in blocks(README):
        assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_readme_is_at_most_700_words() -> None:
    """All words count, those of tables, code and its output too; of a link its text alone."""
    text = README.read_text(encoding="utf-8")
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 700


def test_the_readmes_first_screen_has_its_commands() -> None:
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:12])
    for target in ("demo", "test", "wheel"):
        assert re.search(rf"^make {target} ", first, re.MULTILINE)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_readmes_pictures_are_there_and_the_first_names_every_peer() -> None:
    pictures = re.findall(r"!\[.*?\]\((\S+)\)", README.read_text(encoding="utf-8"))
    assert all((ROOT / picture).stat().st_size for picture in pictures)
    drawn = (ROOT / pictures[0]).read_text(encoding="utf-8")
    for peer in ("PyTorch", "scikit-learn", "Vowpal Wabbit", "LightGBM"):
        assert peer in drawn
