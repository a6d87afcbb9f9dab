"""The README's example runs, and reaches what the README says."""

from __future__ import annotations

import contextlib
import io

from bench import readme

# The range is the least and the greatest of 200 runs, so one run in a hundred lies outside by
# chance, and three in a row once in a million.
_RUNS = 3


def test_the_example_reaches_what_the_readme_says() -> None:
    found = readme.example(readme.README.read_text(encoding="utf-8"))
    low, high = readme.held(found["spread"])
    assert low <= readme.accuracy(found["output"]) <= high
    seen = []
    for _ in range(_RUNS):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found["code"], "README.md", "exec"), {})
        seen.append(readme.accuracy(printed.getvalue()))
        if low <= seen[-1] <= high:
            return
    raise AssertionError(f"test accuracies {seen} lie outside {low} to {high}")
