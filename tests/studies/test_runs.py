import dataclasses
import gzip
import math

import numpy as np
import pytest
from factories import make_comparison, make_result, make_run

from leashed.studies import runs
from leashed.studies.runs import Run


def test_a_run_is_described_by_the_config_of_its_result():
    run = make_run("HOG", 8, model="cnn", lr=0.1, batch_size=64, fractions=(0.1, 0.5))
    assert (run.algorithm, run.threads, run.model) == ("HOG", 8, "cnn")
    assert (run.lr, run.batch_size, run.dimension) == (0.1, 64, 27_354)
    assert run.fractions == (0.5, 0.1)


def test_without_a_benchmark_the_stop_rule_gives_the_precision():
    config = dict(make_run(fractions=(0.2,)).result.config)
    del config["fractions"]
    assert Run.of(make_result(config=config)).fractions == (0.2,)
    config["until"] = {"loss_fraction": [0.1, 0.5]}
    assert Run.of(make_result(config=config)).fractions == (0.5, 0.1)
    config["until"] = {"epochs": 3}
    assert Run.of(make_result(config=config)).fractions == ()


def test_a_run_knows_the_preset_it_belongs_to():
    assert make_run().preset is None
    assert make_run(more={"preset": "S3"}).preset == "S3"


def test_outcome_depends_on_the_precision():
    converged = make_run()
    assert converged.outcome(0.5) == "converged"
    assert converged.outcome(0.001) == "unfinished"
    assert make_run(outcome="diverged").outcome(0.5) == "diverged"
    assert make_run(outcome="crashed").outcome(0.5) == "crashed"
    assert make_run(outcome="diverged", reason="interrupted").outcome(0.5) == "interrupted"


@pytest.mark.parametrize(
    ("end", "reason", "outcome"),
    [
        (0.94, "seconds", "unfinished"),
        (0.94, "updates", "unfinished"),
        (0.94, "divergence", "diverged"),
        (0.95, "seconds", "diverged"),
        (1.0, "seconds", "diverged"),
        (3.0, "divergence", "diverged"),
    ],
)
@pytest.mark.parametrize("told", ["diverged", "unfinished"])
def test_what_a_limit_ended_has_diverged_only_where_it_learnt_nothing(told, end, reason, outcome):
    loss = np.array([2.0, 1.5, 2.0 * end])
    run = make_run(outcome=told, evaluations=3, loss=loss, reason=reason)
    assert run.outcome(0.5) == outcome


def test_the_preset_is_that_of_the_config():
    config = {**make_run().result.config, "preset": "S2"}
    assert Run.of(make_result(config=config)).preset == "S2"
    assert make_run().preset is None


def test_a_run_that_crashed_later_has_converged_before():
    loss = np.array([2.0, 0.5, np.nan])
    run = make_run(outcome="crashed", evaluations=3, loss=loss)
    assert run.outcome(0.5) == "converged"
    assert run.outcome(0.1) == "crashed"


def test_a_file_brings_all_runs_back(tmp_path):
    written = make_comparison(threads=(1, 2), repeats=1)
    path = tmp_path / "runs.jsonl"
    path.write_text("\n\n".join(run.result.to_json() for run in written), encoding="utf-8")
    read = runs.read(path)
    for one, other in zip(written, read, strict=True):
        for item in dataclasses.fields(Run):
            if item.name != "result":
                assert getattr(one, item.name) == getattr(other, item.name)
        assert one.result.seconds_to(0.5) == other.result.seconds_to(0.5)


@pytest.mark.parametrize("line", ["{}", "nonsense", make_result(config={}).to_json()])
def test_the_line_that_is_wrong_is_named(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    path.write_text(make_run().result.to_json() + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"runs\.jsonl, line 2: "):
        runs.read(path)


def test_a_last_line_without_an_end_is_passed_over_before_others_are_appended(tmp_path):
    path = tmp_path / "runs.jsonl"
    line = make_run().result.to_json() + "\n"
    for rest in ("", "{", line[:-1]):
        path.write_text(2 * line + rest, encoding="utf-8")
        found, size = runs.read_to_append(path)
        assert (len(found), size) == (2, len(2 * line.encode()))
    path.write_text(line + "{\n" + line, encoding="utf-8")
    with pytest.raises(ValueError, match=r"runs\.jsonl, line 2: "):
        runs.read_to_append(path)


def test_a_packed_file_is_read_as_the_plain_one_whatever_its_name(tmp_path):
    text = "".join(run.result.to_json() + "\n" for run in make_comparison(repeats=1)).encode()
    plain = tmp_path / "runs.jsonl"
    plain.write_bytes(text)
    for name in ("runs.jsonl.gz", "packed.jsonl"):
        (tmp_path / name).write_bytes(gzip.compress(text, mtime=0))
        read = [run.result.to_json() for run in runs.read(tmp_path / name)]
        assert read == [run.result.to_json() for run in runs.read(plain)]


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_packed_file_is_named(tmp_path, damage):
    path = tmp_path / "runs.jsonl.gz"
    packed = bytearray(gzip.compress(make_run().result.to_json().encode() + b"\n", mtime=0))
    if damage == "cut":
        del packed[-9:]
    else:
        packed[-5] ^= 1
    path.write_bytes(packed)
    with pytest.raises(ValueError, match=r"runs\.jsonl\.gz: corrupt gzip file: "):
        runs.read(path)


def test_a_file_without_runs_is_refused(tmp_path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="no runs"):
        runs.read(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        runs.read(tmp_path / "missing")


@pytest.mark.parametrize("name", ["discipline", "rule", "threads", "model", "dimension", "until"])
def test_what_the_config_lacks_is_named(name):
    config = dict(make_run(fractions=()).result.config)
    del config[name]
    with pytest.raises(ValueError, match=name):
        Run.of(make_result(config=config))


def test_a_config_of_the_wrong_kind_is_refused():
    config = {**make_run().result.config, "rule": 3}
    with pytest.raises(ValueError, match="config of the result is wrong"):
        Run.of(make_result(config=config))


def test_a_run_that_reached_nothing_has_no_time():
    assert math.isnan(make_run(outcome="diverged").result.seconds_to(0.5))
