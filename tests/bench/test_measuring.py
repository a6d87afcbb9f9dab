"""The parts of the benchmark that compute something: turns, peers, inner loops, races."""

from pathlib import Path

import numpy as np
import pytest

import leashed as lsh
from bench import inner_loops
from bench.contenders import Snapshot
from bench.networks import NETWORKS, aligned, from_torch, memory_floats, to_torch, torch_parameters
from bench.numpy_sgd import Trainer
from bench.sections import time_to_loss
from bench.turns import Turn, quiet_median, repeat_disturbed


def test_only_quiet_turns_count_where_there_are_enough() -> None:
    assert quiet_median([1.0, 2.0, 3.0, 100.0], [1.0, 0.95, 0.91, 0.4]) == 2.0


def test_else_the_three_quietest_do() -> None:
    assert quiet_median([5.0, 1.0, 2.0, 3.0], [0.1, 0.5, 0.6, 0.95]) == 2.0


def test_a_turn_is_as_quiet_as_its_least_share() -> None:
    values, shares = [1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 1.0, 1.0]
    assert quiet_median(values, shares, [1.0, 1.0, 1.0, 0.2]) == 2.0


def test_a_disturbed_turn_is_replaced_by_a_quieter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.turns.busy_share", lambda _: 0.0)
    turns = {"a": [Turn(10.0, 1.0), Turn(4.0, 0.5)], "b": [Turn(7.0, 1.0)]}
    repeat_disturbed(turns, lambda _: Turn(9.0, 0.99), patience=60.0)
    assert turns == {"a": [Turn(10.0, 1.0), Turn(9.0, 0.99)], "b": [Turn(7.0, 1.0)]}


@pytest.mark.parametrize("network", NETWORKS)
def test_parameters_go_to_pytorch_and_back(network: str) -> None:
    theta = NETWORKS[network].init(3)
    memory = aligned(np.zeros(memory_floats(network), np.float32))
    to_torch(network, theta, memory)
    np.testing.assert_array_equal(from_torch(network, memory), theta)
    assert all(p.ctypes.data % 64 == 0 for p in torch_parameters(network, memory))


def test_numpy_takes_the_same_step_as_leashed(digits: lsh.Dataset) -> None:
    model = NETWORKS["MLP"]
    one_batch = lsh.Dataset.from_arrays(digits.x[:32], digits.y[:32])
    theta = model.init(0)
    trainer = Trainer(one_batch, 32, np.zeros(memory_floats("MLP"), np.float32), lr=0.1)
    trainer.parameters[...] = theta
    trainer.step()
    result = lsh.train(
        model,
        one_batch,
        discipline=lsh.Sequential(),
        rule=lsh.SGD(0.1),
        batch_size=32,
        init=theta,
        until=lsh.until(updates=1),
    )
    np.testing.assert_allclose(trainer.parameters, result.parameters, rtol=0, atol=1e-6)


@pytest.mark.parametrize("first", [0, 1, 7, 38, 39])
def test_a_race_ends_at_the_first_copy_that_is_there(first: int) -> None:
    copies = [Snapshot(0.1 * k, np.array([k], np.float32)) for k in range(40)]
    seconds = time_to_loss.reached(copies, lambda theta: bool(theta[0] >= first))
    assert seconds == pytest.approx(0.1 * first)


def test_a_race_may_not_end() -> None:
    copies = [Snapshot(0.1, np.zeros(1, np.float32))]
    assert time_to_loss.reached(copies, lambda _: False) == float("inf")


LISTING = """
0000000000000000 <leashed::(anonymous namespace)::tile<2ul>(leashed::Gemm const&, float*)>:
   0:\tvxorps %xmm0,%xmm0,%xmm0
   4:\tprefetcht0 0x40(%rax)
   8:\tvmovups (%rax),%ymm8
   c:\tvbroadcastss (%rcx),%ymm9
  10:\tvfmadd231ps %ymm8,%ymm9,%ymm0
  14:\tvfmadd231ps 0x20(%rax),%ymm9,%ymm1
  18:\tvfmadd231ps %ymm8,%ymm10,%ymm2
  1c:\tvfmadd231ps %ymm8,%ymm11,%ymm3
  20:\tvmovups %ymm8,(%rdx)
  24:\tadd    $0x40,%rax
  28:\tjne    4 <leashed::tile+0x4>
  2c:\tjmp    0 <leashed::tile>
"""


def test_an_inner_loop_is_counted_from_its_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ran:
        stdout = LISTING

    monkeypatch.setattr(inner_loops.subprocess, "run", lambda *_, **__: Ran())
    assert inner_loops.inner_loops(Path(), "x.cc", "v3") == [
        {
            "function": "tile<2ul>",
            "instructions": 10,
            "multiply_adds": 4,
            "loads": 2,
            "broadcasts": 1,
            "stores": 1,
            "prefetches": 1,
        }
    ]
