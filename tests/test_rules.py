"""Update rules step by step, against an independent reference and against PyTorch."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_rules import RULES, Reference

import leashed as lsh
from leashed import _core, rules, schedules

TOLERANCE = 2e-5
STEPS = 200
D = 83  # of no instruction set's length


def noisy_problem(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Where to begin and where the minimum of ½|θ − goal|² lies."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(D).astype(np.float32), rng.standard_normal(D).astype(np.float32)


def noise(seed: int = 1) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    while True:
        yield (0.3 * rng.standard_normal(D)).astype(np.float32)


@pytest.mark.parametrize("name", RULES)
def test_every_step_equals_the_reference(name: str) -> None:
    rule = RULES[name]()
    theta, goal = noisy_problem()
    ours = _core.RuleState(rule.choice(), theta)
    reference = Reference(rule, theta)
    for _, extra in zip(range(STEPS), noise(), strict=False):
        gradient = ours.vector(0) - goal + extra
        ours.update(gradient)
        reference.step(gradient)
        np.testing.assert_allclose(ours.vector(0), reference.theta, atol=TOLERANCE, rtol=0)
    for k, state in enumerate(rule.state_names):
        np.testing.assert_allclose(
            ours.vector(k + 1), reference.state(state), rtol=1e-4, atol=TOLERANCE
        )
    with pytest.raises(IndexError, match="no such state"):
        ours.vector(rule.state_vectors + 1)


def test_every_rule_has_a_reference_and_its_equal_in_pytorch() -> None:
    kinds = {type(make()) for make in RULES.values()}
    assert {*rules.RULES.values(), lsh.SWAP} == kinds
    optim = pytest.importorskip("torch").optim
    in_pytorch = {kind for kind in rules.RULES.values() if hasattr(optim, kind.__name__)}
    assert in_pytorch <= {type(rule) for rule, *_ in TORCH.values()}


TORCH = {
    "SGD": (lsh.SGD(0.05), "SGD", {"lr": 0.05}),
    "SGD, decay": (lsh.SGD(0.05, weight_decay=0.1), "SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "Momentum": (lsh.Momentum(0.02, 0.9), "SGD", {"lr": 0.02, "momentum": 0.9}),
    "Nesterov": (
        lsh.Nesterov(0.02, 0.9, weight_decay=0.01),
        "SGD",
        {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "Adagrad": (lsh.Adagrad(0.05), "Adagrad", {"lr": 0.05}),
    "RMSprop": (lsh.RMSprop(0.01), "RMSprop", {"lr": 0.01}),
    "Adam": (lsh.Adam(0.01, weight_decay=0.1), "Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW": (lsh.AdamW(0.01), "AdamW", {"lr": 0.01}),
    "Momentum, dampened": (
        lsh.Momentum(0.02, 0.9, dampening=0.3, weight_decay=0.01),
        "SGD",
        {"lr": 0.02, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "RMSprop, centered": (
        lsh.RMSprop(0.01, centered=True, weight_decay=0.1),
        "RMSprop",
        {"lr": 0.01, "centered": True, "weight_decay": 0.1},
    ),
    "Adam, AMSGrad": (
        lsh.Adam(0.01, 0.9, 0.9, amsgrad=True),
        "Adam",
        {"lr": 0.01, "betas": (0.9, 0.9), "amsgrad": True},
    ),
    "AdamW, AMSGrad": (
        lsh.AdamW(0.01, 0.9, 0.9, amsgrad=True),
        "AdamW",
        {"lr": 0.01, "betas": (0.9, 0.9), "amsgrad": True},
    ),
}
CLIMBING = {
    f"{name}, climbing": (
        dataclasses.replace(rule, maximize=True),
        optimizer,
        {**settings, "maximize": True},
    )
    for name, (rule, optimizer, settings) in TORCH.items()
}


@pytest.mark.parametrize("name", TORCH | CLIMBING)
@pytest.mark.parametrize("clip_norm", [None, 2.0])
def test_every_step_equals_pytorch(name: str, clip_norm: float | None) -> None:
    torch = pytest.importorskip("torch")
    rule, optimizer, settings = (TORCH | CLIMBING)[name]
    if clip_norm is not None:
        rule = dataclasses.replace(rule, clip_norm=clip_norm)
    theta, goal = noisy_problem()
    away = -1 if rule.maximize else 1  # the maximum of −½|θ − goal|²
    ours = _core.RuleState(rule.choice(), theta)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    theirs = getattr(torch.optim, optimizer)([parameter], **settings)
    for _, extra in zip(range(STEPS), noise(), strict=False):
        gradient = away * (ours.vector(0) - goal + extra)
        ours.update(gradient)
        parameter.grad = torch.from_numpy(gradient.copy())
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([parameter], clip_norm)
        theirs.step()
        np.testing.assert_allclose(
            ours.vector(0), parameter.detach().numpy(), atol=TOLERANCE, rtol=0
        )


def test_swap_decays_at_the_end_of_each_period_and_not_at_first() -> None:
    """Algorithm 2 with constant gradients of 1: v counts the steps, weighted by period."""
    ours = _core.RuleState(
        lsh.SWAP(lsh.Adagrad(0.1), period=4, decay=0.5).choice(), np.zeros(3, "f")
    )
    expected = [1, 2, 3, 4, 3, 4, 5, 6, 4, 5]  # at t = 4 and t = 8: half of what there was, plus 1
    for v in expected:
        ours.update(np.ones(3, np.float32))
        np.testing.assert_array_equal(ours.vector(1), np.full(3, v, np.float32))


def test_swap_leaves_the_first_moment_of_adam_alone() -> None:
    plain = _core.RuleState(lsh.Adam(0.1).choice(), np.zeros(3, np.float32))
    swap = _core.RuleState(lsh.SWAP(lsh.Adam(0.1), 2, 0.25).choice(), np.zeros(3, np.float32))
    for _ in range(3):
        for state in (plain, swap):
            state.update(np.ones(3, np.float32))
    np.testing.assert_array_equal(plain.vector(1), swap.vector(1))
    v = 1e-3 * (0.999 * 0.25 * (1 + 0.999) + 1)  # the third update, t = 2, decays the two before
    np.testing.assert_allclose(swap.vector(2), np.full(3, v), rtol=1e-6)


@pytest.mark.parametrize("make", rules.RULES.values())
def test_a_learning_rate_of_0_leaves_the_parameters_and_not_the_state(
    make: type[rules.Stepping],
) -> None:
    theta, _ = noisy_problem()
    for lr in (0.0, 0, schedules.constant(0.0), 1e-60):
        ours = _core.RuleState(make(lr).choice(), theta)
        for _, gradient in zip(range(5), noise(), strict=False):
            ours.update(gradient)
        np.testing.assert_array_equal(ours.vector(0), theta)
        for k, name in enumerate(make(lr).state_names):
            assert ours.vector(k + 1).any() or name == "residual"  # 0 without a penalty


def test_swap_over_centered_rmsprop_is_an_error() -> None:
    with pytest.raises(TypeError, match="centered RMSprop does not keep alone"):
        lsh.SWAP(lsh.RMSprop(0.1, centered=True), 10)


def test_a_variance_below_0_is_0() -> None:
    """Of gradients that are always the same, the variance goes to 0 and is rounded either way."""
    ours = _core.RuleState(
        lsh.RMSprop(1e-3, 0.5, eps=1.0, centered=True).choice(), np.zeros(40, "f")
    )
    gradient = np.linspace(0.1, 3, 40, dtype=np.float32)
    for _ in range(100):
        ours.update(gradient)
    variance = ours.vector(1) - ours.vector(2).astype(np.float64) ** 2
    assert variance.min() < 0
    before = ours.vector(0)
    ours.update(gradient)
    np.testing.assert_allclose(before - ours.vector(0), 1e-3 * gradient, rtol=5e-3)


def test_a_rule_is_exchanged_while_another_thread_updates() -> None:
    d = 4000
    state = _core.RuleState(lsh.Adam(0.1).choice(), np.zeros(d, np.float32))
    ones = np.ones(d, np.float32)
    address = ones.ctypes.data
    pieces = [(address + 4 * i, i, i + 1, 0) for i in range(d)]
    running = threading.Event()

    def updates() -> None:
        for _ in range(60):
            running.set()
            state.update_pieces(pieces)

    threads = [threading.Thread(target=updates) for _ in range(2)]
    for thread in threads:
        thread.start()
    running.wait()
    while any(thread.is_alive() for thread in threads):
        state.set_rule(lsh.Adam(0.2).choice())
        assert len(np.unique(state.vector(0))) == 1
        assert state.t <= 120
    for thread in threads:
        thread.join()
    assert state.t == 120


def test_swap_as_printed_has_epsilon_inside_the_root() -> None:
    """Algorithm 2, line 9; at the first update v is g²."""
    gradient = np.array([0.0, 1e-3, 2.0, -30.0], np.float32)
    for as_printed in (False, True):
        rule = lsh.SWAP(lsh.Adagrad(0.1, eps=0.25), 5, as_printed=as_printed)
        ours = _core.RuleState(rule.choice(), np.zeros(4, np.float32))
        ours.update(gradient)
        root = np.sqrt(gradient**2 + 0.25) if as_printed else np.abs(gradient) + 0.25
        np.testing.assert_allclose(ours.vector(0), -0.1 * gradient / root, rtol=1e-6)
        np.testing.assert_array_equal(ours.vector(1), gradient**2)


def test_swap_as_printed_is_of_adagrad() -> None:
    plain, printed = (lsh.SWAP(lsh.Adagrad(0.1), 7, as_printed=it) for it in (False, True))
    assert "as_printed" not in plain.config()["swap"]  # as in files that were written before
    assert printed.config()["swap"]["as_printed"] is True
    with pytest.raises(TypeError, match="wrap Adagrad, or Adam without as_printed"):
        lsh.SWAP(lsh.Adam(0.1), 7, as_printed=True)
    with pytest.raises(TypeError, match="as_printed must be True or False"):
        lsh.SWAP(lsh.Adagrad(0.1), 7, as_printed=1)


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Momentum(0.1), lsh.Nesterov(0.1), "adam", None])
def test_swap_over_what_accumulates_nothing_is_an_error(rule: object) -> None:
    with pytest.raises(TypeError, match=r"wrap .*Adagrad, .*Adam"):
        lsh.SWAP(rule, 10)


@pytest.mark.parametrize("make", [lsh.SGD, lsh.Momentum, lsh.Adagrad, lsh.RMSprop, lsh.Adam])
def test_a_schedule_sets_the_step_of_every_update(make: type[lsh.Rule]) -> None:
    schedule = schedules.warmup(schedules.step(0.05, every=20, factor=0.5), steps=10)
    theta, goal = noisy_problem()
    ours = _core.RuleState(make(schedule).choice(), theta)
    reference = Reference(make(0.05), theta)
    for t, extra in zip(range(STEPS), noise(), strict=False):
        gradient = ours.vector(0) - goal + extra
        ours.update(gradient)
        reference.step(gradient, lr=0.05 * 0.5 ** (t // 20) * min((t + 1) / 10, 1.0))
        np.testing.assert_allclose(ours.vector(0), reference.theta, atol=TOLERANCE, rtol=0)


def test_nan_and_infinity_are_not_hidden_by_clipping() -> None:
    for rule in (lsh.SGD(0.1, clip_value=1.0), lsh.SGD(0.1, clip_norm=1.0)):
        ours = _core.RuleState(rule.choice(), np.zeros(40, np.float32))
        gradient = np.zeros(40, np.float32)
        gradient[[3, 39]] = np.nan
        ours.update(gradient)
        assert np.isnan(ours.vector(0)[[3, 39]]).all()


def test_a_norm_beyond_float32_is_clipped() -> None:
    ours = _core.RuleState(lsh.SGD(1.0, clip_norm=2.0).choice(), np.zeros(4, np.float32))
    ours.update(np.full(4, 1e30, np.float32))
    np.testing.assert_allclose(ours.vector(0), np.full(4, -1.0), rtol=1e-6)


def test_the_configuration_names_what_is_not_the_default() -> None:
    assert lsh.SGD(0.1).config() == {"name": "SGD", "lr": 0.1}
    assert lsh.Adam(0.1, eps=1e-6, clip_norm=1.0).config() == {
        "name": "Adam", "lr": 0.1, "eps": 1e-6, "clip_norm": 1.0
    }  # fmt: skip
    rule = lsh.SWAP(lsh.Adagrad(schedules.cosine(0.5, total=10)), 7, 0.9)
    assert rule.config() == {
        "name": "Adagrad",
        "lr": 0.5,
        "schedule": {"name": "cosine", "lr": 0.5, "total": 10.0, "final": 0.0},
        "swap": {"period": 7, "decay": 0.9},
    }
