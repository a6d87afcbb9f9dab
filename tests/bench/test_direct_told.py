"""What docs/transport.md says of sums of all with all is what was measured."""

import json

from bench import direct_reduce
from bench.run import ROOT


def test_what_a_sum_takes_is_told() -> None:
    measured = (ROOT / "bench" / "results" / "direct_reduce.jsonl").read_text("utf-8")
    records = [json.loads(line) for line in measured.splitlines()]
    page = (ROOT / "docs" / "transport.md").read_text("utf-8")
    assert direct_reduce.words(records) in page
