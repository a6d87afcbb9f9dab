"""Each command in the blocks of README.md and docs/ runs as it can be pasted, here or in the test of its
page, and warns of nothing: a warning is an error, also in the processes that are started.

What takes minutes is made smaller here, and says how.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leashed.datasets import synthetic_click_lines

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "cluster.md": "tests/cluster/test_docs.py",
    "modes.md": "tests/cli/test_simulate.py",
    "reading.md": "tests/stream/test_reading_page.py",
    "recommenders.md": "tests/docs/test_recommenders_page.py",
    "replay.md": "tests/docs/test_replay_page.py",
    "serving.md": "tests/docs/test_serving_page.py",
    "simulation.md": "tests/docs/test_simulation_page.py",
}
"""By which test, of pages whose commands run there."""


def _svm(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("train.svm", "test.svm", "rows.svm"):
        rows = [f"{i % 2} {1 + i % 2}:1 {3 + j}:1\n" for i, j in draw.integers(0, 30, (300, 2))]
        (folder / name).write_text("".join(rows))


def _clicks(folder: Path) -> None:
    _svm(folder)
    lines = synthetic_click_lines(2000, 0, cardinalities=50)
    (folder / "clicks.tsv").write_bytes(b"".join(lines))


def _histories(folder: Path) -> None:
    rows = [f"{i % 2},{i % 5},{i % 7} {i % 3}\n" for i in range(300)]
    (folder / "clicks.csv").write_text("".join(["clicked,item,past\n", *rows]))
    past = {"kind": "id", "between": " ", "history_of": "item"}
    columns = {"clicked": {"kind": "label"}, "item": {"kind": "id"}, "past": past}
    (folder / "schema.json").write_text(json.dumps({"columns": columns}))


# By page: the files that it supposes, and what is another in words that take long.
HERE: dict[str, tuple[Callable[[Path], None], dict[str, str]]] = {
    "sequences.md": (_histories, {}),
    "sparse.md": (_svm, {}),
    "tour.md": (
        _svm,
        {
            "cluster up": "cluster up --epochs 1",
            "--data FOLDER": "",  # the digits in place of MNIST
            "--threads 2 --epochs 12": "--threads 2 --updates 5",
            "--epochs 10": "--epochs 1",
            "--epochs 30": "--epochs 1",
            "--checkpoint-every 60": "--checkpoint-every 1",
            "scaling": "scaling --repeats 1 --seconds 0.05",
            "--threads 1,2,8": "--threads 1,2",
            "--short": "--short --threads 1",
            "--seconds 30": "--seconds 2 --loss-fraction 0.7",
        },
    ),
    "training.md": (
        _clicks,
        {"--seconds 30": "--seconds 0.2", "--output": "--seconds 0.2 --output"},
    ),
}


def commands(page: Path) -> list[str]:
    """Those in blocks, with such as stand in the comment of another."""
    blocks = re.findall(
        r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        if told := re.match(r"(?:\$ )?(leashed [a-z].*?)(?:\s+# (.*))?$", line):
            found.append(told[1])
            if also := re.match(r"leashed [a-z].*", told[2] or ""):
                found.append(also[0])
    return found


PAGES = {
    page.name: found
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if (found := commands(page))
}


def test_no_page_is_passed_over() -> None:
    assert {*ELSEWHERE, *HERE} == set(PAGES)
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / test).read_text(encoding="utf-8"), test


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(HERE))
def test_a_pages_commands_run(name: str, tmp_path: Path) -> None:
    if name == "tour.md":
        pytest.importorskip("msgspec", reason="the cluster extra has msgspec")
        pytest.importorskip("matplotlib", reason="the plot extra has Matplotlib")
    write, smaller = HERE[name]
    write(tmp_path)
    text = "\n".join(PAGES[name])
    for before, after in smaller.items():
        assert before in text
        text = text.replace(before, after)
    main = "import sys; from leashed.cli import main; sys.exit(main())"
    for command in text.splitlines():
        ended = subprocess.run(
            ["bash", "-c", f'leashed() {{ "{sys.executable}" -c "{main}" "$@"; }}; {command}'],
            cwd=tmp_path,
            env={**os.environ, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
