"""Every command of docs/cluster.md runs, on this machine, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import slurm, written
from cluster.processes import pids

from leashed.datasets import synthetic_click_lines

pytest.importorskip("msgspec")

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
LINES = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
PROGRAMS = {
    "train.py": "EASGD(alpha=0.5), servers=2",
    "tables-train.py": "trained = lsh.load(result",
    "loop-train.py": "cluster.tables(",
    "stream-train.py": "readers=",
}
_TOOLS = Path(sys.executable).parent
_MINUTES = 240.0


def block(kind: str, word: str) -> str:
    """The one block of that kind with that word."""
    (found,) = [text for other, text in BLOCKS if other == kind and word in text]
    return found


def run(command: str, folder: Path, **environment: str) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=surroundings() | environment,
        capture_output=True,
        text=True,
        timeout=_MINUTES,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def surroundings() -> dict[str, str]:
    """With this Python's programs before others, and where a warning is an error."""
    path = f"{_TOOLS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONWARNINGS": "error"}


def needed(program: str) -> None:
    if shutil.which(program, path=surroundings()["PATH"]) is None:
        pytest.skip(f"{program} is not installed here")


@pytest.mark.process
@pytest.mark.parametrize(
    "line",
    [
        line
        for line in LINES
        if line.startswith(("leashed cluster up", "leashed elp")) and "--days" not in line
    ],
)
def test_on_one_machine(line: str, tmp_path: Path) -> None:
    if "gloo" in line:
        pytest.importorskip("torch")
    if "rows.svm" in line:
        written.rows(tmp_path / "rows.svm", 0)
    printed = run(line, tmp_path)
    if "elp" in line:
        assert "128" in printed
        return
    assert re.search(r"ledger +total [\d,]+, complete [\d,]+, outstanding 0, free 0", printed)
    assert re.search(r"test accuracy +\d", printed)
    if "--run" in line:
        folder = tmp_path / line.split("--run ", maxsplit=1)[1].split(maxsplit=1)[0]
        assert (folder / "run.json").exists()
        assert any((folder / name).exists() for name in ("output.safetensors", "output"))


@pytest.mark.process
@pytest.mark.parametrize("line", [line for line in LINES if "--days" in line])
def test_day_after_day(line: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for day in (1, 2):
        lines = synthetic_click_lines(500, 0, day=day, cardinalities=100)
        (tmp_path / "logs" / f"day-{day}.tsv").write_bytes(b"".join(lines))
    printed = run(line, tmp_path)
    assert re.search(r"^day-1.tsv +500 .*\nday-2.tsv +500 ", printed, re.MULTILINE)


@pytest.mark.process
def test_a_run_that_is_killed_is_resumed(tmp_path: Path) -> None:
    up, resume = block("sh", "cluster resume").splitlines()
    # (Of so few data it would end before.)
    line = up.replace("--checkpoint-every 30", "--checkpoint-every 0.5 --epochs 20")
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=tmp_path,
        env=surroundings(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        end = time.monotonic() + _MINUTES
        while not list(tmp_path.glob("days/checkpoints/*/manifest.json")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.1)
        process.kill()  # and its children, by that
    while pids(tmp_path / "days"):
        assert time.monotonic() < end
        time.sleep(0.1)
    # (Twenty passes take long.)
    plan = tmp_path / "days" / "plan.toml"
    plan.write_text(plan.read_text().replace("epochs = 20.0", "epochs = 2.0"), encoding="utf-8")
    printed = run(resume, tmp_path)
    assert re.search(r"ledger +total [\d,]+, complete [\d,]+, outstanding 0, free 0", printed)
    assert "resumed 0," not in printed
    assert (tmp_path / "days" / "output" / "manifest.json").exists()


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.startswith("leashed cluster size")]
)
def test_how_many_servers(line: str, tmp_path: Path) -> None:
    printed, shown = run(line, tmp_path), block("text", "servers needed")
    assert re.sub(r"[\d.]+", "0", _words(printed)) == re.sub(r"[\d.]+", "0", _words(shown))
    moved = r"[\d.]+ and [\d.]+ bytes in, [\d.]+ and [\d.]+ out\."  # the same everywhere
    assert re.findall(moved, printed) == re.findall(moved, shown) != []


def _words(printed: str) -> str:
    """What is printed but for what is measured, whose units and number of digits differ."""
    told = printed.partition("\nmeasured in")[0]
    return re.sub(r"by (memory|processor|link, in|link, out);", "by ;", re.sub(" +", " ", told))


@pytest.mark.process
@pytest.mark.parametrize("line", [line for line in LINES if "train.py" in line])
def test_started_by_others(line: str, tmp_path: Path) -> None:
    program = line.split(maxsplit=1)[0]
    needed(program)
    if program == "torchrun":
        pytest.importorskip("torch")
    name = line.rsplit(maxsplit=1)[-1]
    text = block("python", PROGRAMS[name])
    (tmp_path / name).write_text(text, encoding="utf-8")
    visits = "".join(f"{k % 2},{k % 7 - 3 * (k % 2)},{k % 5}\n" for k in range(500))
    for part in range(2):
        (tmp_path / f"visits-{part}.csv").write_text(f"bought,price,visits\n{visits}")
    if program != "srun":
        printed = run(line, tmp_path)
    elif why := slurm.missing():
        pytest.skip(why)
    else:
        with slurm.running(tmp_path / "slurm", [slurm.Node("n0")]) as env:
            printed = run(line, tmp_path, SLURM_CONF=env["SLURM_CONF"])
    assert sorted(re.findall(r"^(\d) \d", printed, re.MULTILINE)) == ["0", "1"]


@pytest.mark.process
@pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))
def test_as_a_job_of_slurm(tmp_path: Path) -> None:
    """Of two tasks on one node, where the page has four nodes."""
    text = block("python", PROGRAMS["train.py"]).replace("servers=2", 'servers=2, key="key"')
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    (tmp_path / "job.sh").write_text(block("bash", "#SBATCH"), encoding="utf-8")
    size = "--nodes=1 --ntasks-per-node=2 --cpus-per-task=1"
    with slurm.running(tmp_path / "slurm", [slurm.Node("n0")]) as env:
        run(f"sbatch --wait {size} -o said job.sh", tmp_path, SLURM_CONF=env["SLURM_CONF"])
    said = (tmp_path / "said").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^(\d) \d", said, re.MULTILINE)) == ["0", "1"]


@pytest.mark.process
def test_by_hand(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plan = block("toml", "[cluster]").replace("10.0.0.1:28471", f"127.0.0.1:{port}")
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    run(block("sh", "urandom"), tmp_path)
    processes = []
    for line in block("sh", "cluster role").splitlines():
        processes.append(
            subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=tmp_path, env=surroundings())
        )
        time.sleep(0.05)
    try:
        for process in processes:
            assert process.wait(_MINUTES) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    run(block("sh", "cluster status"), tmp_path)
    assert (tmp_path / "run" / "output.safetensors").exists()
    report = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"] > 0


@pytest.mark.long
@pytest.mark.process
def test_over_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "plan.toml").write_text(
        block("toml", "[cluster]")
        .replace("10.0.0.1:28471", "127.0.0.1:0")
        .replace('key = "key"', ""),
        encoding="utf-8",
    )
    script = block("python", "ray.init").replace(
        "ray.init()", "ray.init(num_cpus=8, include_dashboard=False)"
    )
    printed = run(f"{sys.executable} -W ignore -c '{script}'", tmp_path, HOME=str(tmp_path))
    ledger = eval(printed.splitlines()[-1])
    assert ledger["complete"] == ledger["total"] > 0


def test_nothing_on_the_page_is_left_out() -> None:
    tried = ("leashed cluster ", "leashed elp", "(umask 077;")
    assert [line for line in LINES if "train.py" not in line and not line.startswith(tried)] == []
    named = re.findall(r"`(leashed [^`]*|python [^`]*)`", PAGE)
    for command in named:
        if command.startswith("python"):
            program = command.split()[1]
            module = command.split()[2].replace(".", "/") + ".py" if program == "-m" else program
            assert Path(module).exists()
        elif command != "leashed.cluster":
            words = command.split()
            run(
                f"{' '.join(words[: words.index('--figure5') if '--figure5' in words else 3])} --help",
                Path(),
            )
