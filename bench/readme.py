"""The README's example, so many times: what one run printed, the one in the middle, and the spread.

    python -m bench.readme 20          # prints the lines for the README
    python -m bench.readme 200 --write # and puts them there

With more than one thread the order of updates differs from run to run. Runs are ordered by the
accuracy that they reach; each has a process of its own, as a reader's has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
_EXAMPLE = re.compile(
    r"```python\n(?P<code>import leashed(?:(?!```).)*?)```\n\n```\n(?P<output>.*?)```\n\n(?P<spread>\(.*?\))\n",
    re.DOTALL,
)
_ACCURACY = re.compile(r"^test accuracy ([\d.]+)$", re.MULTILINE)
_LOSS = re.compile(r" to ([\d.e-]+) in ")


def example(text: str) -> re.Match[str]:
    """The example's code, its output and the sentence about the spread, by these names."""
    found = _EXAMPLE.search(text)
    if found is None:
        raise ValueError("README.md has no example with an output and a spread below it")
    return found


def accuracy(output: str) -> float:
    """What the example printed."""
    found = _ACCURACY.search(output)
    if found is None:
        raise ValueError(f"the example printed no test accuracy: {output}")
    return float(found[1])


def held(spread: str) -> tuple[float, float]:
    """The least and the greatest accuracy that the sentence tells."""
    low, high = re.findall(r"accuracy of ([\d.]+) to ([\d.]+)", spread)[0]
    return float(low), float(high)


def measure(code: str, times: int) -> tuple[str, str]:
    """The output of the run in the middle, and the sentence about all."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(times)
    ]
    outputs.sort(key=accuracy)
    losses = sorted(float(_LOSS.findall(output)[0]) for output in outputs)
    return outputs[times // 2], (
        f"(two cores, the run in the middle of {times} by `python -m bench.readme {times}`: with "
        "more than one thread the order of updates differs from run to run, and they ended at a "
        f"loss of {losses[0]:.2g} to {losses[-1]:.2g} and an accuracy of "
        f"{accuracy(outputs[0]):g} to {accuracy(outputs[-1]):g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=int)
    parser.add_argument("--write", action="store_true", help="put the lines into README.md")
    options = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    found = example(text)
    output, spread = measure(found["code"], options.times)
    print(f"{output}\n{spread}")
    if options.write:
        (a, b), (c, d) = found.span("output"), found.span("spread")
        README.write_text(text[:a] + output + text[b:c] + spread + text[d:], encoding="utf-8")


if __name__ == "__main__":
    main()
