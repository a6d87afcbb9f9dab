"""Checkpoints of runs by a mode: what its server holds, who has which batch, and workers' own models."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matrix
import mode_kills
import numpy as np
import pytest
from files.test_resuming import Every
from simulation.test_simulated_modes import ALL

import leashed as lsh
from leashed import modes, rules, staleness
from leashed.files import checkpoint

KILLS = Path(__file__).parents[1] / "mode_kills.py"
# Those that time tells nothing.
TIMELESS = [m for m in ALL if not isinstance(m, (modes.Switching, modes.Automatic))]
Problem = Callable[[], tuple[Any, Any]]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Problem]:
    return matrix.problems(tmp_path_factory.mktemp("problems"))


def train(problem: Problem, updates: int, **given: Any) -> lsh.TrainResult:
    model, data = problem()
    settings = {"rule": lsh.Adam(0.02), "batch_size": 16, "threads": 1, "seed": 3, **given}
    return lsh.train(model, data, until=lsh.until(updates=updates, epochs=9), **settings)


def same(one: lsh.TrainResult, other: lsh.TrainResult) -> None:
    assert one.total_updates == other.total_updates
    np.testing.assert_array_equal(one.parameters, other.parameters)
    for name, table in one.tables.items():
        np.testing.assert_array_equal(
            table.lookup(np.arange(12)), other.tables[name].lookup(np.arange(12))
        )


@pytest.mark.parametrize("mode", TIMELESS, ids=repr)
def test_one_thread_goes_on_to_the_same_bits_by_every_mode(
    mode: modes.Mode, problems: dict[str, Problem], tmp_path: Path
) -> None:
    problem = problems["dense"]
    whole = train(problem, 13, mode=mode)
    train(problem, 7, mode=mode, checkpoint=tmp_path / "run")
    resumed = train(problem, 13, mode=mode, resume=tmp_path / "run")
    same(resumed, whole)
    assert resumed.config["resumed_at"] == 7


PROBLEMS = [
    "sparse",
    "fm",
    "tables",
    "stream",
    "stream of clicks",
    "stream of sparse rows",
    "external",
]


@pytest.mark.parametrize("mode", [modes.ASP(), modes.GBA(m=3), modes.Ensemble()], ids=repr)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_one_thread_goes_on_to_the_same_bits_on_any_data(
    problem: str, mode: modes.Mode, problems: dict[str, Problem], tmp_path: Path
) -> None:
    of, rule = problems[problem], rules.SWAP(rules.Adagrad(0.05), 4)
    whole = train(of, 33, mode=mode, rule=rule)  # 25 batches a pass
    train(of, 11, mode=mode, rule=rule, checkpoint=lsh.Checkpoint(tmp_path / "run", updates=4))
    resumed = train(of, 33, mode=mode, rule=rule, resume=tmp_path / "run")
    same(resumed, whole)


@pytest.mark.parametrize(
    "mode",
    [modes.GBA(m=5, iota=1), modes.SHAT(), modes.EASGD(0.5, gap=3), modes.Swarm(h=3)],
    ids=repr,
)
@pytest.mark.parametrize("problem", ["dense", "sparse"])
def test_a_state_of_any_moment_goes_on_to_the_same_bits(
    problem: str, mode: modes.Mode, problems: dict[str, Problem]
) -> None:
    """Also one with gradients that wait for others."""
    states = Every()
    train(problems[problem], 60, mode=mode, checkpoint=lsh.Checkpoint(states, every=1e-9))
    whole = train(problems[problem], 80, mode=mode)
    for reached in (states.all[0], states.all[len(states.all) // 2], states.all[-1]):
        kept = Every()
        kept.reached = reached
        same(train(problems[problem], 80, mode=mode, resume=kept), whole)


@pytest.mark.parametrize("mode", [modes.GBA(m=5), modes.BSP(b2=4), modes.Sync()], ids=repr)
@pytest.mark.parametrize("problem", ["tables", "stream of clicks"])
def test_rows_of_held_gradients_go_on(
    problem: str, mode: modes.Mode, problems: dict[str, Problem], tmp_path: Path
) -> None:
    """A stop comes between two pushes that make one update."""

    class Enough(Exception):
        pass

    # What is held at the end of the data is applied, and a run that has more of them begins anew.
    def part(epochs: int, **given: Any) -> lsh.TrainResult:
        model, data = problems[problem]()
        rule = lsh.Adagrad(0.05)
        return lsh.train(
            model, data, until=lsh.until(epochs=epochs), mode=mode, rule=rule, batch_size=16,
            threads=1, **given,
        )  # fmt: skip

    kept = tmp_path / "run"
    held = 0
    for k in range(5):
        seconds = 0.002 * (k + 1)
        model, data = problems[problem]()
        first = lsh.train(
            model, data, until=lsh.until(epochs=400, seconds=seconds), mode=mode,
            rule=lsh.Adagrad(0.05), batch_size=16, threads=1, checkpoint=kept,
        )  # fmt: skip
        pushed = int(first.mode.worker_examples.sum())
        held += first.mode.applied < pushed
        resumed = part(400 if first.reason == "seconds" else 401, resume=kept)
        assert resumed.total_updates >= first.total_updates
        whole = part(400 if first.reason == "seconds" else 401)
        if first.reason == "seconds":
            same(resumed, whole)
    assert held > 0 or isinstance(mode, modes.Sync)


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_several_threads_go_on_and_lose_nothing(
    mode: modes.Mode, problems: dict[str, Problem], tmp_path: Path
) -> None:
    """What is pushed in both runs together is all examples, once."""
    kept = tmp_path / "run"

    def run(problem: str, **given: Any) -> lsh.TrainResult:
        model, data = problems[problem]()
        settings = {"rule": lsh.SGD(0.05), "batch_size": 16, "threads": 3, "mode": mode, **given}
        return lsh.train(model, data, **settings)

    for problem in ("dense", "stream"):
        first = run(problem, until=lsh.until(epochs=3, updates=9), checkpoint=kept)
        second = run(problem, until=lsh.until(epochs=3), resume=kept)
        pushed = [int(r.mode.worker_examples.sum()) for r in (first, second)]
        assert sum(pushed) == 3 * matrix.N
        assert second.reason == "epochs"
        assert problem == "stream" or second.final_loss < first.initial_loss


def test_a_switch_that_was_told_is_not_told_again(
    problems: dict[str, Problem], tmp_path: Path
) -> None:
    mode = modes.Switching(at=((1e-9, "gba"), (3600.0, "sync")))
    kept = tmp_path / "run"
    train(problems["dense"], 30, mode=mode, checkpoint=kept)
    resumed = train(problems["dense"], 60, mode=mode, resume=kept)
    assert resumed.total_updates == 60


@pytest.mark.parametrize("policy", [staleness.none(), staleness.stage_aware(staleness.inverse())])
def test_what_policies_have_gathered_goes_on(
    policy: staleness.Policy, problems: dict[str, Problem], tmp_path: Path
) -> None:
    kept, mode = tmp_path / "run", modes.ASP()
    whole = train(problems["fm"], 20, mode=mode, staleness=policy)
    train(problems["fm"], 9, mode=mode, staleness=policy, checkpoint=kept)
    same(train(problems["fm"], 20, mode=mode, staleness=policy, resume=kept), whole)


def test_what_does_not_fit_is_refused(problems: dict[str, Problem], tmp_path: Path) -> None:
    dense, kept = problems["dense"], tmp_path / "run"
    train(dense, 5, mode=modes.GBA(m=2), checkpoint=kept)
    for given, said in (
        ({"mode": modes.GBA(m=3)}, r"mode was gba\(.*m=2.* and is gba\(.*m=3"),
        ({"mode": modes.ASP()}, r"mode was gba\(.* and is asp\("),
        ({"mode": modes.GBA(m=2), "threads": 2}, r"workers=1.* and is .*workers=2"),
        ({"mode": modes.GBA(m=2, term=9.0)}, r"mode was gba\(.*term_ns"),
        ({}, r"mode was gba\(.* and is none"),
    ):
        with pytest.raises(ValueError, match=said):
            train(dense, 9, resume=kept, **given)
    train(dense, 5, checkpoint=kept)
    with pytest.raises(ValueError, match=r"mode was none and is asp\("):
        train(dense, 9, mode=modes.ASP(), resume=kept)
    with pytest.raises(ValueError, match="record is not for runs with a mode that go on"):
        train(
            dense, 9, mode=modes.ASP(), resume=kept, observe=lsh.Observe(record=tmp_path / "record")
        )


def test_a_mode_checkpoint_is_a_model_file(problems: dict[str, Problem], tmp_path: Path) -> None:
    """Of peers and of Ensemble with the mean of the models."""
    for mode in (modes.GBA(m=3), modes.Swarm(h=2), modes.Ensemble()):
        result = train(problems["dense"], 9, mode=mode, checkpoint=tmp_path / "run")
        np.testing.assert_array_equal(lsh.load(tmp_path / "run")[1], result.parameters)


def test_a_damaged_state_of_the_mode_is_refused(problems: dict[str, Problem]) -> None:
    states = Every()
    train(problems["dense"], 9, mode=modes.GBA(m=3), checkpoint=states)
    assert states.reached is not None
    numbers, vectors = states.reached.mode
    of, model = states.reached, Every()
    for wrong in ((numbers[:-1], vectors), (numbers, np.zeros(5, np.float32))):
        names = "vectors last_updates updates batches initial_loss staleness behind shrink"
        kept = {name: getattr(of, name) for name in names.split()}
        model.reached = type(of)(**kept, mode=wrong)
        with pytest.raises(ValueError, match=r"damaged|length"):
            train(problems["dense"], 19, mode=modes.GBA(m=3), resume=model)


def test_a_file_that_lacks_what_the_mode_had_is_refused(
    problems: dict[str, Problem], tmp_path: Path
) -> None:
    """Rather than its examples being trained on once more."""
    kept, (model, _) = tmp_path / "run", problems["dense"]()
    train(problems["dense"], 9, mode=modes.GBA(m=3), checkpoint=kept)
    _, tensors, metadata = checkpoint.read(kept)
    del tensors["mode.numbers"], tensors["mode.vectors"]
    checkpoint.write(kept, model, tensors, {"run": metadata["run"]})
    with pytest.raises(ValueError, match=r"lacks or has a wrong 'mode\.numbers'"):
        train(problems["dense"], 19, mode=modes.GBA(m=3), resume=kept)


@pytest.mark.process(2)
@pytest.mark.parametrize("name", mode_kills.LEDGERS)
def test_a_run_that_is_killed_again_and_again_trains_on_every_example_once(
    name: str, tmp_path: Path
) -> None:
    dice = random.Random(name)
    kept = tmp_path / "run.safetensors"
    for _ in range(4):
        before = kept.stat().st_mtime_ns if kept.exists() else 0
        process = subprocess.Popen([sys.executable, str(KILLS), name, str(tmp_path)])
        while process.poll() is None and (not kept.exists() or kept.stat().st_mtime_ns == before):
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.1))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    result = mode_kills.train(name, tmp_path)
    assert result.reason == "epochs"
    mode_kills.check(name, result.parameters)
