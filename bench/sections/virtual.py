"""Virtual time: DLRM by 3,000 asynchronous workers beside the plain sequential loop.

Both take turns in one process, in which nothing else is kept, so that its peak is the
simulation's. What a run takes before its workers have begun and behind their last update, of which
evaluations are most, is left out: of a long run and a short one the difference counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.context import Bench

_WORKERS = 3000
_SECONDS = 5.0  # of a turn
_ROUNDS = 3


def measure(bench: Bench) -> list[dict[str, Any]]:
    """One record, with the turns of both and the peak of memory."""
    command = [sys.executable, "-m", "bench.virtual_dlrm", str(_WORKERS)]
    seconds, rounds = bench.seconds(_SECONDS, least=0.5), bench.times(_ROUNDS)
    told = subprocess.run(
        [*command, str(seconds), str(rounds)], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout
    return [json.loads(told)]
