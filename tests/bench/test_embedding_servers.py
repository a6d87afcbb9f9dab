"""What ``docs/cluster.md`` says of quality over embedding servers."""

import gzip
import json
from pathlib import Path

from bench import embedding_servers

PROJECT = Path(__file__).resolve().parents[2]


def test_the_documents_have_what_the_runs_came_to() -> None:
    packed = PROJECT / "bench/experiments/amd-epyc-v4-2-cores/embedding-servers.jsonl.gz"
    with gzip.open(packed, "rt") as file:
        records = [json.loads(line) for line in file]
    assert embedding_servers.page(records) in (PROJECT / "docs/cluster.md").read_text()
    seeds = {"dlrm": 5, "din": 15}
    assert len(records) == sum(seeds.values()) * len(embedding_servers.ARMS)


def test_an_arm_is_within_by_its_mean_and_the_same_by_its_differences() -> None:
    arms = list(embedding_servers.ARMS)
    of = {arms[0]: (0.6, 0.8), arms[1]: (0.61, 0.81), arms[2]: (0.95, 1.3)}
    records = [
        {"model": "dlrm", "arm": arm, "seed": seed, "test_auc": value}
        for arm, values in of.items()
        for seed, value in enumerate(values)
    ]
    lines = [line.split(" | ") for line in embedding_servers.page(records).splitlines()]
    assert [line[3:] for line in lines[3:]] == [
        ["yes", "+0.0100 ± 0.0000", "no |"],
        ["yes", "+0.4250 ± 0.9530", "yes |"],
    ]
