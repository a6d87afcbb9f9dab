"""How many descriptors a process of a run may have."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

LOW = 64
STARTS = {
    "role": "from pathlib import Path; from leashed.cluster import role; "
    "role.status('trainer', Path('none'), 0)",
    "child": "import runpy, sys; sys.argv = ['child', 'master', 'none', '0']\n"
    "try: runpy.run_module('leashed.cluster.child', run_name='__main__')\n"
    "except SystemExit: pass",
}


@pytest.mark.process
@pytest.mark.parametrize("start", STARTS)
def test_a_role_may_have_as_many_as_its_hard_limit_says(start: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LOW}, {most}))"
    tell = "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    program = f"import resource; {low}\n{STARTS[start]}\n{tell}"
    told = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert told.split() == [str(most), str(most)]
