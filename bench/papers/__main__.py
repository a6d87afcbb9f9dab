"""Writes the papers' pages, ``docs/papers/<paper>.md``, from the results in ``bench/experiments``.

python -m bench.papers [PAPER ...] [--check]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.papers.page import PAGES, papers, write


def differing(paper: str, pages: Path = PAGES) -> list[str]:
    """In what a page, or a figure of its, is not what the results make."""
    with tempfile.TemporaryDirectory() as scratch:
        made = write(paper, Path(scratch))
        page = pages / made.name
        if not page.exists() or page.read_text("utf-8") != made.read_text("utf-8"):
            return [f"{page} is not what python -m bench.papers {paper} makes"]
        drawn = sorted(path.name for path in Path(scratch).iterdir())
    return [f"{pages / name} is missing" for name in drawn if not (pages / name).exists()]


def main() -> int:
    known = papers()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(known)}")
    parser.add_argument("--check", action="store_true", help="write nothing, tell what differs")
    asked = parser.parse_args()
    for paper in asked.papers:
        if paper not in known:
            parser.error(f"PAPER must be among {', '.join(known)}, got {paper}")
    wrong = []
    for paper in asked.papers or known:
        if asked.check:
            wrong += differing(paper)
        else:
            print(write(paper))
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
