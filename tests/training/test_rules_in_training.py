"""Update rules and staleness policies under every discipline, in whole training runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_rules import RULES

import leashed as lsh
from leashed import Discipline, rules, schedules, staleness

MODEL = lsh.models.mlp(784, [16], 10)


def run(
    digits: lsh.Dataset, rule: lsh.Rule, discipline: Discipline, **arguments: object
) -> lsh.TrainResult:
    arguments.setdefault("until", lsh.until(updates=30))
    arguments.setdefault("threads", 1)
    return lsh.train(MODEL, digits, rule=rule, discipline=discipline, batch_size=16, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RULES)
def test_one_thread_gives_the_same_bits_under_every_discipline(
    name: str, concurrent: Discipline, digits: lsh.Dataset
) -> None:
    rule = RULES[name]()
    wanted = run(digits, rule, lsh.Sequential())
    got = run(digits, rule, concurrent)
    np.testing.assert_array_equal(got.parameters, wanted.parameters)
    assert np.isfinite(got.parameters).all()


@pytest.mark.parametrize("kind", rules.RULES.values())
def test_a_learning_rate_of_0_leaves_the_parameters_as_they_are(
    kind: type[rules.Stepping], discipline: Discipline, digits: lsh.Dataset
) -> None:
    begin = np.random.default_rng(0).normal(0, 0.1, MODEL.dimension).astype(np.float32)
    result = run(digits, kind(0.0), discipline, init=begin)
    np.testing.assert_array_equal(result.parameters, begin)
    assert result.total_updates == 30


@pytest.mark.parametrize(
    "policy",
    [
        staleness.stage_aware(staleness.inverse()),
        staleness.tau_normalized(10, 3),
        staleness.tail_tau(warmup=5),
        staleness.mindthestep(2.0),
        staleness.table([0.5, 0.25]),
    ],
    ids=lambda policy: policy.label,
)
def test_one_thread_gives_the_same_bits_under_any_policy(
    policy: staleness.Policy, concurrent: Discipline, digits: lsh.Dataset
) -> None:
    wanted = run(digits, lsh.Momentum(0.05), lsh.Sequential(), staleness=policy)
    got = run(digits, lsh.Momentum(0.05), concurrent, staleness=policy)
    np.testing.assert_array_equal(got.parameters, wanted.parameters)


def test_a_policy_multiplies_the_gradient_and_not_the_step(digits: lsh.Dataset) -> None:
    """A table of ½ halves plain SGD's steps, but not those of Adagrad, which divides by them."""
    half = staleness.table([0.5])
    plain = run(digits, lsh.SGD(0.05), lsh.Leashed())
    halved = run(digits, lsh.SGD(0.1), lsh.Leashed(), staleness=half)
    np.testing.assert_allclose(halved.parameters, plain.parameters, rtol=1e-5, atol=1e-6)
    rule = lsh.Adagrad(0.01)
    same = run(digits, rule, lsh.Leashed(), staleness=half)
    np.testing.assert_allclose(
        same.parameters, run(digits, rule, lsh.Leashed()).parameters, rtol=1e-2, atol=1e-4
    )


@pytest.mark.parametrize("make", [lsh.Adam, lsh.AdamW, lsh.RMSprop])
def test_adaptive_rules_learn_with_many_threads(
    make: type[lsh.Rule], concurrent: Discipline, digits: lsh.Dataset
) -> None:
    result = run(
        digits, make(2e-3), concurrent, threads=4, until=lsh.until(loss_fraction=0.2, seconds=120)
    )
    assert result.outcome == "converged"
    assert result.excluded == 0


@pytest.mark.parametrize("make", [lsh.Momentum, lsh.Nesterov, lsh.Adagrad])
def test_the_others_learn_with_many_threads(
    make: type[lsh.Rule], concurrent: Discipline, digits: lsh.Dataset
) -> None:
    lr = 0.02 if make is lsh.Adagrad else 0.005
    result = run(
        digits,
        make(schedules.warmup(lr, steps=20), clip_norm=5.0),
        concurrent,
        threads=4,
        staleness=staleness.stage_aware(staleness.inverse()),
        until=lsh.until(loss_fraction=0.3, seconds=120),
    )
    assert result.outcome == "converged"


@pytest.mark.parametrize("discipline", [lsh.Locked(), lsh.Hogwild(), lsh.Leashed()])
def test_the_cutoff_leaves_out_what_is_too_stale(discipline: Discipline) -> None:
    """The first gradient waits until others have made ten more: it is left out, and its worker goes
    on before the rest do.
    """
    turn = threading.Condition()
    calls: dict[int, int] = {}

    def gradient(_theta: object, _x: object, _y: object, out: NDArray[np.float32]) -> float:
        with turn:
            me = threading.get_ident()
            calls[me] = calls.get(me, 0) + 1
            turn.notify_all()
            first = next(iter(calls))
            others = lambda: sum(calls.values()) - calls[first]
            if me == first and calls[me] == 1:
                assert turn.wait_for(lambda: others() > 10, timeout=60)
            elif others() > 20:
                assert turn.wait_for(lambda: calls[first] > 1, timeout=60)
        out[:] = 0.01
        return 1.0

    result = lsh.train(
        lsh.models.external(gradient, loss=lambda *_: 1.0, dimension=4, features=3),
        (np.ones((64, 3)), np.zeros(64)),
        rule=lsh.SGD(0.05),
        discipline=discipline,
        threads=2,
        batch_size=4,
        staleness=staleness.cutoff(2),
        until=lsh.until(updates=200),
        observe=lsh.Observe(every=60),
    )
    assert result.total_updates == 200
    assert result.staleness.max() <= 2
    assert result.gradients == 200 + result.dropped + result.excluded
    assert result.excluded > 0
    assert lsh.TrainResult.from_json(result.to_json()).excluded == result.excluded


def test_the_linear_scaling_of_a_step_follows_the_threads(digits: lsh.Dataset) -> None:
    scaled = lsh.SGD(schedules.scaled(0.02))
    for threads in (1, 3):
        wanted = run(digits, lsh.SGD(0.02 * threads), lsh.Synchronous(), threads=threads)
        got = run(digits, scaled, lsh.Synchronous(), threads=threads)
        np.testing.assert_allclose(got.parameters, wanted.parameters, rtol=1e-5, atol=1e-7)


def test_the_configuration_is_in_the_result(digits: lsh.Dataset) -> None:
    result = run(digits, lsh.Adam(1e-3), lsh.Leashed(), staleness=staleness.power(2))
    assert result.config["rule"] == {"name": "Adam", "lr": 1e-3}
    assert result.config["staleness"] == "power(2)"
