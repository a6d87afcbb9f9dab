#!/usr/bin/env python3
"""Puts mistakes in that commits have mended, one at a time, and demands that tests fail.

    tests/packaging/mistakes.py [--seed 28] [--count 20] [--only COMMIT …] [--list]

Drawn by the seed, which is printed, are commits whose message tells of a defect and which changed
few lines of the product; mistakes.toml has of each what it mended as an exact replacement in
today's files, or why there is none, and the tests that a tier keeps for that room. Each is put into
a copy of the commit that is checked out, in build/mistakes; what changed is compiled there; these
tests run, and have to fail. Before, they have passed there without a mistake.

Takes minutes for each, and some more where the core was not compiled in that copy before (seconds
with ccache). The exit status is 1 where a mistake was not found.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mistakes"
BUILD = COPY / "build" / "dev"
UNTIL = "915a836"  # the log that is drawn from ends here, so that a seed draws the same
TELLS = re.compile(
    r"(?i)\b(mend\w*|fix\w*|wrong|defect|no longer|lost|leak\w*|race\w*|deadlock|hang\w*|overflow\w*"
    r"|crash\w*|refused|never|cannot|could|not)\b"
)
MOST_LINES = 300
OF_MAKE_TEST = "not process and not long"


@dataclass(frozen=True)
class Mistake:
    """One of mistakes.toml."""

    commit: str
    what: str
    edits: list[dict[str, str]]
    tests: tuple[str, ...] = ()
    ctest: tuple[str, ...] = ()
    marker: str = OF_MAKE_TEST

    @classmethod
    def of(cls, told: dict[str, Any]) -> Mistake:
        lists = {name: tuple(told.get(name, ())) for name in ("tests", "ctest")}
        return cls(**{**told, **lists})

    @property
    def native(self) -> bool:
        """Whether something is to be compiled."""
        return any(edit["file"].endswith((".cc", ".h")) for edit in self.edits)

    @property
    def finders(self) -> str:
        return " ".join(self.tests or [f"test_{name}" for name in self.ctest])


def run(*command: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command; without ``check`` its status is for the caller to look at."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done


def candidates() -> list[tuple[str, str]]:
    """The commits to draw from: how they are named in short, and their message."""
    log = run("git", "log", "--no-merges", "--abbrev=7", "--format=%x00%h %s", "--numstat", UNTIL,
              cwd=ROOT).stdout  # fmt: skip
    found = []
    for block in log.split("\0")[1:]:
        commit, _, message = block.splitlines()[0].partition(" ")
        lines = [
            int(added) + int(removed)
            for added, removed in re.findall(
                r"^(\d+)\t(\d+)\t(?:src|cpp)/leashed/", block, re.MULTILINE
            )
        ]
        if lines and sum(lines) <= MOST_LINES and TELLS.search(message):
            found.append((commit, message))
    return found


def drawn(seed: int, count: int, known: dict[str, Mistake], left_out: dict[str, str]) -> list[str]:
    """``count`` commits of which a mistake is known, in the order drawn."""
    commits = candidates()
    random.Random(seed).shuffle(commits)
    found: list[str] = []
    for commit, message in commits:
        if len(found) == count:
            break
        if commit in known:
            found.append(commit)
        elif commit in left_out:
            print(f"left out: {commit} ({left_out[commit]})")
        else:
            raise SystemExit(f"mistakes.toml has nothing of {commit}: {message}")
    return found


def lookup(root: Path, end: str, *folders: str) -> Path:
    """The one file or folder of a tree whose path ends so."""
    found = [
        path
        for folder in folders
        for path in (root / folder).rglob(Path(end).name)
        if f"/{path.relative_to(root).as_posix()}".endswith(f"/{end}")
        and "__pycache__" not in path.parts
    ]
    if len(found) != 1:
        raise SystemExit(f"{end} is to be one of {', '.join(folders)}, and is {found or 'none'}")
    return found[0]


def with_mistake(root: Path, mistake: Mistake) -> dict[Path, str]:
    """The files of a tree that it changes, as they are with it."""
    now: dict[Path, str] = {}
    for edit in mistake.edits:
        path = lookup(root, edit["file"], "src/leashed", "cpp/leashed")
        text = now.get(path) or path.read_text("utf-8")
        if text.count(edit["old"]) != 1:
            raise SystemExit(
                f"{mistake.commit}: {path.relative_to(root)} has {text.count(edit['old'])} times, "
                f"and not once:\n{edit['old']}"
            )
        now[path] = text.replace(edit["old"], edit["new"])
    return now


def prepare(native: bool) -> None:
    """The copy, of the commit that is checked out, with what it needs to run."""
    if COPY.exists():
        run("git", "worktree", "remove", "--force", COPY, cwd=ROOT)
    run("git", "worktree", "prune", cwd=ROOT)
    run("git", "worktree", "add", "--detach", COPY, "HEAD", cwd=ROOT)
    if not native:
        here = run(sys.executable, "-c", "import leashed._core as c; print(c.__file__)").stdout
        module = Path(here.strip())
        (COPY / "src" / "leashed" / module.name).write_bytes(module.read_bytes())
        return
    pybind = run(sys.executable, "-m", "pybind11", "--cmakedir").stdout.strip()
    run("cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DLEASHED_TESTS=ON",
        f"-DPython_EXECUTABLE={sys.executable}", f"-DPYTHON_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind}", "-DSKBUILD_PROJECT_VERSION_FULL=0")  # fmt: skip


def build(mistake: Mistake) -> str | None:
    """Compiles what its tests need; None, or what the compiler said where it refused."""
    if not BUILD.exists():
        return None
    target = [f"test_{name}" for name in mistake.ctest] or ["_core"]
    done = run("cmake", "--build", BUILD, "--target", *target, "--", "-j2", check=False)
    if done.returncode:
        return done.stdout[-2000:]
    for module in BUILD.glob("_core*.so"):
        (COPY / "src" / "leashed" / module.name).write_bytes(module.read_bytes())
    return None


def failing(mistake: Mistake) -> list[str] | None:
    """The tests that fail, by name; [] where all pass; None where none could be run."""
    if mistake.ctest:
        wanted = f"^({'|'.join(mistake.ctest)})$"
        done = run("ctest", "--test-dir", BUILD, "-R", wanted, "--no-tests=error", "--timeout", 300,
                   "--output-on-failure", check=False)  # fmt: skip
        if not done.returncode:
            return []
        cases = re.findall(r"^TEST CASE:\s+(.*)$", done.stdout, re.MULTILINE)
        ended = re.findall(r"\d+ - (\w+) \((.*)\)", done.stdout)
        return list(dict.fromkeys(cases)) or [f"test_{name}: {how}" for name, how in ended] or None
    paths = [str(lookup(COPY, test, "tests")) for test in mistake.tests]
    done = run(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths, "-m",
               mistake.marker, check=False, cwd=COPY, env={**os.environ, "PYTHONPATH": str(COPY / "src")})  # fmt: skip
    if done.returncode == 0:
        return []
    if done.returncode != 1:
        print(done.stdout[-2000:], done.stderr[-2000:])
        return None
    return re.findall(r"^(?:FAILED|ERROR) \S*?(\w+\.py::\S+)", done.stdout, re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="COMMIT", help="these, whatever is drawn")
    parser.add_argument(
        "--list", action="store_true", help="say which, see that they fit, and run nothing"
    )
    asked = parser.parse_args()
    with (Path(__file__).parent / "mistakes.toml").open("rb") as file:
        told = tomllib.load(file)
    known = {each["commit"]: Mistake.of(each) for each in told["mistake"]}
    print(f"seed {asked.seed}")
    commits = asked.only or drawn(asked.seed, asked.count, known, told["left_out"])
    chosen = [known[commit] for commit in commits]
    for mistake in chosen:
        print(f"{mistake.commit}  {mistake.what}: {mistake.finders}")
        with_mistake(ROOT, mistake)
        for test in mistake.tests:
            lookup(ROOT, test, "tests")
    if asked.list:
        return 0

    prepare(any(mistake.native for mistake in chosen))
    sound: set[str] = set()  # tests that pass without a mistake
    rows = []
    for mistake in chosen:
        began = time.monotonic()
        if said := build(mistake):
            raise SystemExit(f"the core does not compile without a mistake:\n{said}")
        if mistake.finders not in sound and (failed := failing(mistake)) != []:
            raise SystemExit(f"{mistake.finders} fails without a mistake: {failed}")
        sound.add(mistake.finders)
        now = with_mistake(COPY, mistake)
        before = {path: path.read_text("utf-8") for path in now}
        for path, text in now.items():
            path.write_text(text, "utf-8")
        try:
            if said := build(mistake):
                raise SystemExit(f"{mistake.commit}: no mistake, it does not compile:\n{said}")
            found = failing(mistake)
        finally:
            for path, text in before.items():
                path.write_text(text, "utf-8")
        verdict = "not found" if not found else found[0]
        rows.append((mistake, verdict, time.monotonic() - began))
        print(f"{mistake.commit}  {verdict}  ({rows[-1][2]:.0f} s)", flush=True)
    run("git", "worktree", "remove", "--force", COPY, cwd=ROOT)

    print(
        "\n| mended by | mistake | put into | found by | seconds |\n| --- | --- | --- | --- | ---: |"
    )
    for mistake, verdict, seconds in rows:
        files = ", ".join(dict.fromkeys(edit["file"] for edit in mistake.edits))
        print(f"| {mistake.commit} | {mistake.what} | {files} | {verdict} | {seconds:.0f} |")
    missed = sum(verdict == "not found" for _, verdict, _ in rows)
    print(f"\n{len(rows) - missed} of {len(rows)} were found.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
