"""How much memory there is: of the system, and of control groups of both versions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import leashed as lsh
from leashed.base import memory
from leashed.models import tables

MIB, NONE = 2**20, 2**63 - 4096  # what v1 says where there is no limit


def system(root: Path, files: dict[str, str], left: int = 100 * MIB) -> Path:
    meminfo = f"MemTotal: {2**30} kB\nMemFree: 5 kB\nMemAvailable: {left // 1024} kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def second(at: str, limit: int | str, used: int, cached: int = 0) -> dict[str, str]:
    active = cached // 3
    stat = f"anon 5\ninactive_file {cached - active}\nactive_file {active}\nactive_anon 7\n"
    told = {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {f"sys/fs/cgroup{at}/{name}": text for name, text in told.items()}


def first(at: str, limit: int, used: int, cached: int = 0) -> dict[str, str]:
    told = {
        "limit_in_bytes": f"{limit}\n",
        "usage_in_bytes": f"{used}\n",
        "stat": f"inactive_file 3\ntotal_inactive_file {cached}\n",
    }
    return {f"sys/fs/cgroup/memory{at}/memory.{name}": text for name, text in told.items()}


OF_V1 = "9:name=systemd:/\n4:memory,blkio:/a/b\n0::/\n"
FILES: dict[str, tuple[dict[str, str], int]] = {
    "no groups": ({}, 100),
    "v2": ({"proc/self/cgroup": "0::/a/b\n", **second("/a/b", 50 * MIB, 20 * MIB)}, 30),
    "v2, caches": (
        {"proc/self/cgroup": "0::/a\n", **second("/a", 50 * MIB, 20 * MIB, 5 * MIB)},
        35,
    ),
    "v2, of a group above": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            **second("/a/b", "max", 20 * MIB),
            **second("/a", 40 * MIB, 30 * MIB),
        },
        10,
    ),
    "v2, of a container that sees its own alone": (
        {"proc/self/cgroup": "0::/\n", **second("", 50 * MIB, 20 * MIB)},
        30,
    ),
    "v2, without a limit": ({"proc/self/cgroup": "0::/a\n", **second("/a", "max", MIB)}, 100),
    "v2, above what is left": (
        {"proc/self/cgroup": "0::/a\n", **second("/a", 500 * MIB, 20 * MIB)},
        100,
    ),
    "v2, used up": ({"proc/self/cgroup": "0::/a\n", **second("/a", MIB, 2 * MIB)}, 0),
    "v1": ({"proc/self/cgroup": OF_V1, **first("/a/b", 50 * MIB, 20 * MIB, MIB)}, 31),
    "v1, without a limit": ({"proc/self/cgroup": OF_V1, **first("/a/b", NONE, 20 * MIB)}, 100),
    "v1, of a container that sees its own alone": (
        {"proc/self/cgroup": OF_V1, **first("", 50 * MIB, 10 * MIB)},
        40,
    ),
    "both": (
        {
            "proc/self/cgroup": OF_V1 + "0::/c\n",
            **first("/a/b", 60 * MIB, 10 * MIB),
            **second("/unified/c", 60 * MIB, 20 * MIB),
        },
        40,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_least_that_is_left_counts(name: str, tmp_path: Path) -> None:
    files, left = FILES[name]
    assert memory.available(system(tmp_path, files)) == left * MIB


def test_where_nothing_tells_nothing_is_known(tmp_path: Path) -> None:
    assert memory.available(tmp_path) is None


def test_this_machine_has_some_left() -> None:
    left = memory.available()
    assert left is not None
    assert left > 0


def test_a_table_larger_than_memory_is_refused_before_it_is_made() -> None:
    left = memory.available()
    assert left is not None
    rows = left // 32  # which take some times as much
    with pytest.raises(ValueError, match=r"table big of [\d,]+ rows.*GiB.*fewer rows.*max_bytes"):
        lsh.Table(rows=rows, dim=32, init=tables.zeros(), rule=lsh.SGD(0.1), name="big")


def test_tables_that_are_larger_together_are_refused_before_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = lsh.models.dlrm([1000, 2000, None], dim=16, bottom=(16,))
    row = 4 * 16 + 4 * 16 + 16  # Adagrad's state, and the head
    made: list[object] = []
    monkeypatch.setattr(tables, "Table", lambda **_: made.append(_) or SimpleNamespace())
    monkeypatch.setattr(memory, "available", lambda: 3000 * row - 1)
    with pytest.raises(ValueError, match=r"2 tables of 3,000 rows in all would take"):
        tables.of(model.tables)
    assert not made
    monkeypatch.setattr(memory, "available", lambda: 3000 * row)
    tables.of(model.tables)
    assert len(made) == 3
    monkeypatch.setattr(memory, "available", lambda: None)
    tables.of(model.tables)


TOTALS = {
    "nothing": ("8000000 kB", {}, 8_000_000 * 1024),
    "v2": (
        "8000000 kB",
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "3000000\n"},
        3_000_000,
    ),
    "v2 without a limit": (
        "8000000 kB",
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
        8_000_000 * 1024,
    ),
    "v1": (
        "8000000 kB",
        {
            "proc/self/cgroup": "4:memory:/a\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "5000000\n",
        },
        5_000_000,
    ),
    "v1 without a limit": (
        "8000000 kB",
        {
            "proc/self/cgroup": "4:memory:/a\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{2**63 - 4096}\n",
        },
        8_000_000 * 1024,
    ),
}


@pytest.mark.parametrize("name", TOTALS)
def test_the_machine_is_as_large_as_its_control_group(name: str, tmp_path: Path) -> None:
    of_system, files, expected = TOTALS[name]
    used = {
        path.replace("memory.max", "memory.current").replace("limit", "usage"): "1000\n"
        for path in files
        if "memory." in path
    }
    for path, text in {"proc/meminfo": f"MemTotal: {of_system}\n", **files, **used}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert memory.total(tmp_path) == expected


def test_of_no_machine_nothing_is_known(tmp_path: Path) -> None:
    assert memory.total(tmp_path) is None
