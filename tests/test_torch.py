"""leashed.torch: the optimizer in PyTorch's place, and training by threads."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh

torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
torch.set_num_threads(1)  # its own threads would only wait for each other here

STEPS = 200
TOLERANCE = 2e-5

RULES: dict[str, tuple[lsh.Rule, str, dict[str, Any]]] = {
    "SGD": (lsh.SGD(0.05, weight_decay=0.1), "SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "Momentum": (lsh.Momentum(0.02, 0.9), "SGD", {"lr": 0.02, "momentum": 0.9}),
    "Nesterov": (lsh.Nesterov(0.02, 0.9), "SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "Adagrad": (lsh.Adagrad(0.05), "Adagrad", {"lr": 0.05}),
    "RMSprop": (lsh.RMSprop(0.01), "RMSprop", {"lr": 0.01}),
    "Adam": (lsh.Adam(0.01), "Adam", {"lr": 0.01}),
    "AdamW": (lsh.AdamW(0.01), "AdamW", {"lr": 0.01}),
    "dampened": (
        lsh.Momentum(0.02, 0.9, dampening=0.3),
        "SGD",
        {"lr": 0.02, "momentum": 0.9, "dampening": 0.3},
    ),
    "centered": (lsh.RMSprop(0.01, centered=True), "RMSprop", {"lr": 0.01, "centered": True}),
    "AMSGrad": (lsh.Adam(0.01, amsgrad=True), "Adam", {"lr": 0.01, "amsgrad": True}),
}


def network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(7, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3, bias=False)
    )


def problem(n: int = 256, seed: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 7, generator=generator)
    return x, (x[:, :3] + 0.1 * torch.randn(n, 3, generator=generator)).argmax(1)


def step(module: Any, optimizer: Any, seed: int) -> float:
    x, y = problem(32, seed)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(module(x), y)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def assert_equal(ours: Any, theirs: Any, tolerance: float = TOLERANCE) -> None:
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", RULES)
def test_a_loop_changes_by_one_line(name: str) -> None:
    rule, kind, settings = RULES[name]
    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
    reference = getattr(torch.optim, kind)(theirs.parameters(), **settings)
    for seed in range(STEPS):
        assert step(ours, optimizer, seed) == pytest.approx(step(theirs, reference, seed), abs=1e-4)
        assert_equal(ours, theirs)


@pytest.mark.parametrize("name", RULES)
def test_state_dict_round_trip(name: str) -> None:
    rule, _, _ = RULES[name]
    module = network()
    optimizer = lsh.torch.Optimizer(module.parameters(), rule)
    for seed in range(20):
        step(module, optimizer, seed)
    file = io.BytesIO()
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = network(5)
    resumed = lsh.torch.Optimizer(other.parameters(), rule)
    step(other, resumed, 99)
    other.load_state_dict(saved["module"])
    resumed.load_state_dict(saved["optimizer"])
    for seed in range(20, 40):
        step(module, optimizer, seed)
        step(other, resumed, seed)
        assert_equal(module, other, 0)


@pytest.mark.parametrize("name", sorted(set(RULES) - {"SGD"}))
def test_pytorchs_own_state_can_be_loaded(name: str) -> None:
    rule, kind, settings = RULES[name]
    theirs = network()
    reference = getattr(torch.optim, kind)(theirs.parameters(), **settings)
    for seed in range(20):
        step(theirs, reference, seed)
    ours = copy.deepcopy(theirs)
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
    state = reference.state_dict()
    optimizer.load_state_dict(state)
    mine = optimizer.state_dict()
    assert mine.keys() == state.keys()
    for key, values in state["state"].items():
        for entry, value in values.items():
            np.testing.assert_array_equal(np.asarray(value), np.asarray(mine["state"][key][entry]))
    for seed in range(20, 60):
        step(theirs, reference, seed)
        step(ours, optimizer, seed)
        assert_equal(ours, theirs)


@pytest.mark.parametrize("name", RULES)
def test_pytorch_loads_the_state(name: str) -> None:
    rule, kind, settings = RULES[name]
    ours = network()
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
    for seed in range(20):
        step(ours, optimizer, seed)
    theirs = copy.deepcopy(ours)
    reference = getattr(torch.optim, kind)(theirs.parameters(), **settings)
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(20, 40):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        assert_equal(ours, theirs)


def test_loaded_settings_are_taken_over() -> None:
    ours, theirs = network(), network()
    reference = torch.optim.Adam(theirs.parameters(), 0.02, betas=(0.5, 0.9), eps=1e-3)
    step(theirs, reference, 0)
    optimizer = lsh.torch.Optimizer(ours.parameters(), lsh.Adam(0.01))
    ours.load_state_dict(theirs.state_dict())
    optimizer.load_state_dict(reference.state_dict())
    for seed in range(1, 20):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        assert_equal(ours, theirs)


def test_a_state_that_does_not_fit_is_refused_and_nothing_changed() -> None:
    module, other = network(), network()
    optimizer = lsh.torch.Optimizer(module.parameters(), lsh.Adam(0.01))
    twin = lsh.torch.Optimizer(other.parameters(), lsh.Adam(0.01))
    for seed in range(3):
        step(module, optimizer, seed)
        step(other, twin, seed)
    wide = torch.nn.Sequential(
        torch.nn.Linear(1, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3, False)
    )
    states = {
        "'exp_avg': \\(13, 1\\)": torch.optim.Adam(wide.parameters()),
        "{'momentum_buffer'": torch.optim.SGD(network().parameters(), 0.1, momentum=0.9),
        "'max_exp_avg_sq'": torch.optim.Adam(network().parameters(), amsgrad=True),
    }
    for message, reference in states.items():
        for p in reference.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        reference.step()
        with pytest.raises(ValueError, match=message):
            optimizer.load_state_dict(reference.state_dict())
    for seed in range(3, 6):
        step(module, optimizer, seed)
        step(other, twin, seed)
        assert_equal(module, other, 0)


@pytest.mark.parametrize("name", RULES)
def test_copies_go_on_by_themselves(name: str) -> None:
    module = network()
    groups = [{"params": [p], "lr": 0.01 * k} for k, p in enumerate(module.parameters())]
    optimizer = lsh.torch.Optimizer(groups, RULES[name][0])
    for seed in range(5):
        step(module, optimizer, seed)
    copies = [copy.deepcopy((module, optimizer)), pickle.loads(pickle.dumps((module, optimizer)))]
    for seed in range(5, 10):
        step(module, optimizer, seed)
    for other, copied in copies:
        for seed in range(5, 10):
            step(other, copied, seed)
        assert_equal(module, other, 0)


def test_a_schedule_goes_on_with_the_steps_of_the_group() -> None:
    rule = lsh.SGD(lsh.schedules.step(1.0, every=3, factor=0.5))
    first, second = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = lsh.torch.Optimizer([first, second], rule)
    for p in (first, first, second, second):
        optimizer.zero_grad()
        p.grad = torch.ones(2)
        optimizer.step()
    resumed = lsh.torch.Optimizer([torch.nn.Parameter(torch.zeros(2)) for _ in "12"], rule)
    resumed.load_state_dict(optimizer.state_dict())
    p = resumed.param_groups[0]["params"][0]
    p.grad = torch.ones(2)
    resumed.step()
    np.testing.assert_array_equal(p.detach().numpy(), [-0.5, -0.5])


def test_parameters_are_views_of_one_vector() -> None:
    module = network()
    before = [p.detach().clone() for p in module.parameters()]
    objects = list(module.parameters())
    lsh.torch.Optimizer(module.parameters(), lsh.Adam(1e-3))
    parameters = list(module.parameters())
    assert all(p is q for p, q in zip(parameters, objects, strict=True))
    begin = parameters[0].data_ptr()
    offset = 0
    for p, was in zip(parameters, before, strict=True):
        assert p.data_ptr() == begin + 4 * offset
        assert torch.equal(p, was)
        offset += p.numel()


def test_schedulers_and_groups_of_pytorch_work() -> None:
    def setting(module: Any) -> list[dict[str, Any]]:
        first, second = module[0], module[2]
        return [
            {"params": first.parameters(), "lr": 0.02, "weight_decay": 0.1},
            {"params": second.parameters()},
        ]

    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(setting(ours), lsh.Adam(0.01))
    reference = torch.optim.Adam(setting(theirs), 0.01)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 10, 0.5) for o in (optimizer, reference)]
    for seed in range(50):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        for schedule in schedules:
            schedule.step()
        assert_equal(ours, theirs)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02 / 32)


@pytest.mark.parametrize(
    ("rule", "kind", "settings"),
    [
        (lsh.Momentum(0.02, 0.9), "SGD", {"momentum": 0.5, "dampening": 0.1, "maximize": True}),
        (lsh.RMSprop(0.02), "RMSprop", {"alpha": 0.9, "eps": 1e-3}),
        (lsh.Adam(0.02), "Adam", {"betas": (0.5, 0.9), "weight_decay": 0.1}),
    ],
    ids=["Momentum", "RMSprop", "Adam"],
)
def test_settings_of_a_group_are_its_own(rule: Any, kind: str, settings: dict[str, Any]) -> None:
    def groups(module: Any) -> list[dict[str, Any]]:
        first, second = module[0], module[2]
        return [{"params": first.parameters(), **settings}, {"params": second.parameters()}]

    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(groups(ours), rule)
    rest = {"momentum": 0.9} if kind == "SGD" else {}
    reference = getattr(torch.optim, kind)(groups(theirs), lr=0.02, **rest)
    for seed in range(20):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("rule", "kind", "settings"),
    [
        (lsh.Adam(0.02), "Adam", {"betas": (0.5, 0.9), "eps": 1e-4, "amsgrad": True}),
        (lsh.AdamW(0.02), "AdamW", {"betas": [0.5, 0.9], "weight_decay": 0.1}),
        (lsh.Adam(1.0), "Adam", {"lr": 0.02}),
    ],
    ids=["Adam", "AdamW", "lr"],
)
def test_settings_are_said_by_pytorchs_names(
    rule: Any, kind: str, settings: dict[str, Any]
) -> None:
    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule, **settings)
    reference = getattr(torch.optim, kind)(theirs.parameters(), **{"lr": 0.02, **settings})
    for seed in range(20):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        assert_equal(ours, theirs)


def test_settings_that_no_rule_has_are_told_with_those_that_it_has() -> None:
    for settings, error, message in (
        ({"beta": (0.9, 0.9)}, TypeError, "Adam has no beta; .* betas"),
        ({"betas": 0.9}, TypeError, "betas must be a pair of numbers, got 0.9"),
        ({"betas": (0.9, 1.0)}, ValueError, "beta2 must be less than 1"),
    ):
        with pytest.raises(error, match=message):
            lsh.torch.Optimizer(network().parameters(), lsh.Adam(0.1), **settings)


def test_settings_that_the_rule_has_not_are_refused() -> None:
    for rule, settings, message in (
        (lsh.SGD(0.1), {"momentum": 0.9}, "momentum=0.9, but SGD has momentum=0.0"),
        (lsh.Momentum(0.1), {"nesterov": True}, "nesterov=True, but Momentum has"),
        (lsh.Adagrad(0.1), {"lr_decay": 0.1}, "lr_decay=0.1, but Adagrad has"),
        (lsh.Adam(0.1), {"amsgrad": True}, "whose state is another one"),
        (lsh.RMSprop(0.1), {"centered": True}, "whose state is another one"),
        (lsh.Adam(0.1), {"betas": (1.5, 0.9)}, "beta1 must be less than 1"),
        (lsh.Adam(0.1), {"decoupled_weight_decay": True}, "but Adam has decoupled_weight_decay"),
    ):
        with pytest.raises(ValueError, match=message):
            lsh.torch.Optimizer([{"params": network().parameters(), **settings}], rule)
    with pytest.raises(TypeError, match="betas must be a pair of numbers"):
        lsh.torch.Optimizer([{"params": network().parameters(), "betas": 0.9}], lsh.Adam(0.1))


def test_ctrl_c_leaves_no_half_a_group_and_no_half_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    module = network()
    first, *others = module.parameters()
    optimizer = lsh.torch.Optimizer([first], lsh.Adam(0.01))
    step(module, optimizer, 0)
    state = optimizer.state_dict()

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("leashed.torch.optimizer._Group", stop)
        with pytest.raises(KeyboardInterrupt):
            optimizer.add_param_group({"params": others})
    with monkeypatch.context() as patch:
        patch.setattr(lsh.torch.Optimizer, "_load", stop)
        with pytest.raises(KeyboardInterrupt):
            optimizer.load_state_dict({**state, "state": {}})
    assert len(optimizer.param_groups) == 1
    assert int(optimizer.state_dict()["state"][0]["step"]) == 1
    step(module, optimizer, 1)


def test_a_learning_rate_may_be_a_tensor_and_a_group_that_is_wrong_is_not_kept() -> None:
    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(ours[0].parameters(), lsh.Adam(0.01))
    with pytest.raises(ValueError, match="lr must be at least 0"):
        optimizer.add_param_group({"params": list(ours[2].parameters()), "lr": -1.0})
    optimizer.add_param_group({"params": list(ours[2].parameters()), "lr": torch.tensor(0.25)})
    groups = [
        {"params": theirs[0].parameters()},
        {"params": theirs[2].parameters(), "lr": 0.25},
    ]
    reference = torch.optim.Adam(groups, lr=0.01)
    for seed in range(5):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        assert_equal(ours, theirs)


def test_schedulers_that_cycle_momentum_work() -> None:
    for rule, make in (
        (lsh.Momentum(0.02, 0.9), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
        (lsh.Adam(0.02), lambda p: torch.optim.Adam(p, 0.02)),
    ):
        ours, theirs = network(), network()
        pair = lsh.torch.Optimizer(ours.parameters(), rule), make(theirs.parameters())
        cycles = [torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20) for o in pair]
        for seed in range(20):
            step(ours, pair[0], seed)
            step(theirs, pair[1], seed)
            assert_equal(ours, theirs)
            for cycle in cycles:
                cycle.step()


@pytest.mark.parametrize("name", RULES)
def test_a_parameter_without_a_gradient_takes_no_step(name: str) -> None:
    """One has a gradient every time, one every other time, and one from the tenth time on."""
    rule, kind, settings = RULES[name]
    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
    reference = getattr(torch.optim, kind)(theirs.parameters(), **settings)
    for seed in range(60):
        x, y = problem(32, seed)
        for module, one in ((ours, optimizer), (theirs, reference)):
            one.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            first, second, _ = module.parameters()
            first.grad = first.grad if seed % 2 else None
            second.grad = second.grad if seed >= 10 else None
            one.step()
        assert_equal(ours, theirs)
        if seed == 30:  # the counts are in the state
            state = copy.deepcopy(optimizer.state_dict())
            assert [int(state["state"][k]["step"]) for k in range(3)] == [15, 21, 31]
            optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
            optimizer.load_state_dict(state)


@pytest.mark.parametrize("name", RULES)
def test_pytorchs_warm_up_from_0_and_decay_to_0(name: str) -> None:
    rule, kind, settings = RULES[name]
    ours, theirs = network(), network()
    optimizer = lsh.torch.Optimizer(ours.parameters(), rule)
    reference = getattr(torch.optim, kind)(theirs.parameters(), **settings)
    factor = lambda step: min(step / 5, max(0.0, (20 - step) / 15))
    schedulers = [torch.optim.lr_scheduler.LambdaLR(o, factor) for o in (optimizer, reference)]
    assert optimizer.param_groups[0]["lr"] == 0
    begin = network()
    for seed in range(25):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)
        if seed == 0:
            assert_equal(ours, begin, 0)
        if seed == 20:
            end = copy.deepcopy(ours)
        assert_equal(ours, theirs)
        for scheduler in schedulers:
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0
    assert_equal(ours, end, 0)


def test_a_parameter_without_a_gradient_stays() -> None:
    module = network()
    optimizer = lsh.torch.Optimizer(module.parameters(), lsh.Momentum(0.1))
    for seed in range(3):
        step(module, optimizer, seed)
    before = [p.detach().clone() for p in module.parameters()]
    step_without = list(module.parameters())
    optimizer.zero_grad()
    step_without[1].grad = torch.ones_like(step_without[1])
    optimizer.step()
    assert torch.equal(step_without[0], before[0])
    assert not torch.equal(step_without[1], before[1])
    optimizer.zero_grad()
    optimizer.step()  # no gradient at all: nothing
    assert torch.equal(step_without[2], before[2])


def test_swap_decays_a_parameter_without_a_gradient_at_a_periods_end() -> None:
    first, second = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(5))
    optimizer = lsh.torch.Optimizer([first, second], lsh.SWAP(lsh.Adagrad(0.1), 2, 0.5))
    sums = []
    for step in range(5):
        first.grad = torch.full((3,), 2.0)
        second.grad = torch.full((5,), 2.0) if step == 0 else None
        optimizer.step()
        sums.append([optimizer.state[p]["sum"].unique().tolist() for p in (first, second)])
    # Halved at t = 2 and t = 4, before what is new is added.
    assert sums == [[[a], [b]] for a, b in [(4, 4), (8, 4), (8, 2), (12, 2), (10, 1)]]
    assert float(optimizer.state[second]["step"]) == 1


def test_closures_and_own_schedules() -> None:
    module = network()
    rule = lsh.SGD(lsh.schedules.step(0.1, every=2, factor=0.5))
    optimizer = lsh.torch.Optimizer(module.parameters(), rule)
    x, y = problem()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        return loss

    first = float(optimizer.step(closure).detach())
    for _ in range(5):
        last = float(optimizer.step(closure).detach())
    assert last < first
    optimizer.param_groups[0]["lr"] = 1.0
    with pytest.raises(ValueError, match="the rule has a schedule of its own"):
        optimizer.step()


def test_wrong_parameters_are_named() -> None:
    make = lsh.torch.Optimizer
    with pytest.raises(TypeError, match=r"params\[0\] has dtype torch.float64"):
        make(network().double().parameters(), lsh.SGD(0.1))
    with pytest.raises(ValueError, match=r"params\[0\] is on device meta"):
        make([torch.nn.Parameter(torch.ones(3, device="meta"))], lsh.SGD(0.1))
    with pytest.raises(ValueError, match=r"params\[0\] is empty"):
        make([torch.nn.Parameter(torch.ones(0))], lsh.SGD(0.1))
    with pytest.raises(TypeError, match="rule must be SGD"):
        make(network().parameters(), 0.1)
    module = network()
    optimizer = make(module.parameters(), lsh.SGD(0.1))
    module[0].weight.grad = torch.ones_like(module[0].weight)
    module[0].weight.data = module[0].weight.data.clone()
    with pytest.raises(RuntimeError, match="no longer lies in the optimizer's memory"):
        optimizer.step()
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = make(embedding.parameters(), lsh.SGD(0.1))
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo; make it dense"):
        optimizer.step()


DISCIPLINES = (
    lsh.Sequential(),
    lsh.Locked(),
    lsh.Hogwild(),
    lsh.Hogwild(copy=False),
    lsh.Leashed(),
    lsh.Leashed(0),
)


@pytest.mark.parametrize("kind", DISCIPLINES, ids=lambda kind: kind.label)
def test_fit_trains_under_every_discipline(kind: lsh.Discipline) -> None:
    x, y = problem(512)
    module = network()
    objects = [p.data_ptr() for p in module.parameters()]
    threads = torch.get_num_threads()
    result = lsh.torch.fit(
        module,
        torch.nn.functional.cross_entropy,
        (x, y),
        rule=lsh.Adam(0.01),
        discipline=kind,
        staleness=lsh.staleness.inverse(),
        threads=1 if isinstance(kind, lsh.Sequential) else 2,
        batch_size=32,
        until=lsh.until(epochs=12),
    )
    assert result.losses.shape == (192,)
    assert result.updates + result.dropped == 192
    assert len(result.staleness) == result.updates
    assert result.losses[-16:].mean() < 0.6 * result.losses[:8].mean()
    assert (module(x).argmax(1) == y).float().mean() > 0.8
    assert [p.data_ptr() for p in module.parameters()] == objects
    assert torch.get_num_threads() == threads
    assert result.examples == 192 * 32
    assert result.eps > 0


def test_of_fewer_rows_than_64_a_batch_has_all() -> None:
    result = lsh.torch.fit(
        network(),
        torch.nn.functional.cross_entropy,
        problem(20),
        threads=1,
        until=lsh.until(epochs=3),
    )
    assert (result.updates, result.examples) == (3, 60)


def test_one_thread_is_a_plain_loop() -> None:
    x, y = problem(100)
    ours, theirs = network(), network()
    lsh.torch.fit(
        ours,
        torch.nn.functional.cross_entropy,
        torch.utils.data.TensorDataset(x, y),
        rule=lsh.SGD(0.1),
        threads=1,
        batch_size=16,
        seed=3,
        until=lsh.until(updates=25),
    )
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for k in range(25):
        rows = lsh._core.batch_rows(3, 100, 16, k)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(x[rows]), y[rows]).backward()
        optimizer.step()
    assert_equal(ours, theirs, 1e-6)


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        self.x, self.y = problem(64)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.x[row], int(self.y[row])


def test_fit_takes_map_style_datasets() -> None:
    result = lsh.torch.fit(
        network(), torch.nn.functional.cross_entropy, Rows(), until=lsh.until(updates=20)
    )
    assert result.updates >= 20


class ByName(torch.nn.Module):  # type: ignore[misc]
    """Takes two inputs, by place or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, left: Any, right: Any) -> Any:
        return self.inner(torch.cat([left, right], dim=1))


CROSS = torch.nn.functional.cross_entropy


def inputs_of(kind: str, x: Any, y: Any) -> Any:
    left, right = x[..., :3], x[..., 3:]
    return {
        "tuple": (left, right, y),
        "named": ({"left": left, "right": right}, y),
        "dict": {"left": left, "label": y, "right": right},
    }[kind]


class Examples(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, kind: str, x: Any, y: Any) -> None:
        self.kind, self.x, self.y = kind, x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> Any:
        return inputs_of(self.kind, self.x[row], self.y[row])


@pytest.mark.parametrize("kind", ["tuple", "named", "dict"])
@pytest.mark.parametrize("way", ["memory", "dataset", "loader"])
def test_inputs_are_told_apart_by_place_or_by_name(way: str, kind: str) -> None:
    x, y = problem(96)
    data = inputs_of(kind, x, y) if way == "memory" else Examples(kind, x, y)
    options: dict[str, Any] = {"target": "label"} if kind == "dict" else {}
    ours, theirs = ByName(), ByName()
    theirs.load_state_dict(ours.state_dict())
    settings: dict[str, Any] = {"rule": lsh.SGD(0.1), "threads": 1, "until": lsh.until(epochs=2)}
    if way == "loader":
        loader = torch.utils.data.DataLoader(data, batch_size=16)
        result = lsh.torch.fit(ours, CROSS, loader, **settings, **options)
        rows = [list(range(k % 6 * 16, k % 6 * 16 + 16)) for k in range(12)]
    else:
        result = lsh.torch.fit(ours, CROSS, data, batch_size=16, **settings, **options)
        rows = [lsh._core.batch_rows(0, 96, 16, k) for k in range(12)]
    assert (result.updates, result.examples) == (12, 192)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for some in rows:
        optimizer.zero_grad()
        CROSS(theirs(x[some][:, :3], x[some][:, 3:]), y[some]).backward()
        optimizer.step()
    assert_equal(ours, theirs, 1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_fit_takes_a_data_loader(threads: int) -> None:
    x, y = problem(250)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True
    )
    module = network()
    result = lsh.torch.fit(
        module, CROSS, loader, rule=lsh.Adam(0.01), threads=threads, until=lsh.until(epochs=15)
    )
    assert result.losses.shape == (120,)
    assert result.examples == 250 * 15
    assert result.losses[-8:].mean() < 0.7 * result.losses[:8].mean()
    some = lsh.torch.fit(module, CROSS, loader, threads=threads, until=lsh.until(updates=3))
    assert len(some.losses) == 3


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    def __init__(self, rows: int) -> None:
        self.x, self.y = problem(rows) if rows else ([], [])

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(self.x, self.y, strict=True))


def test_fit_takes_loaders_without_a_length() -> None:
    loader = torch.utils.data.DataLoader(Stream(50), batch_size=20)
    for options in ({}, {"validation": problem(30)}):
        result = lsh.torch.fit(
            network(), CROSS, loader, threads=1, until=lsh.until(epochs=3), **options
        )
        assert (len(result.losses), result.examples) == (9, 150)
    with pytest.raises(ValueError, match=r"has no length, of which 1\.5 epochs"):
        lsh.torch.fit(network(), CROSS, loader, until=lsh.until(epochs=1.5))
    empty = torch.utils.data.DataLoader(Stream(0), batch_size=20)
    with pytest.raises(ValueError, match="the DataLoader gives no batches"):
        lsh.torch.fit(network(), CROSS, empty, threads=1, until=lsh.until(epochs=1))


@pytest.mark.parametrize("threads", [1, 2])
def test_validation_is_the_mean_loss_after_each_pass(threads: int) -> None:
    x, y = problem(300)
    module = torch.nn.Sequential(network(), torch.nn.Dropout(0.5))
    module[1].eval()
    told: list[Any] = []
    result = lsh.torch.fit(
        module,
        CROSS,
        (x[:200], y[:200]),
        validation=(x[200:], y[200:]),
        progress=told.append,
        rule=lsh.Adam(0.01),
        threads=threads,
        batch_size=48,
        until=lsh.until(epochs=4),
    )
    assert [one.epoch for one in told] == [1, 2, 3, 4]
    assert module[0].training
    assert not module[1].training
    module.eval()
    with torch.no_grad():
        last = CROSS(module(x[200:]), y[200:])
    np.testing.assert_allclose(result.validation_losses[-1], last, rtol=1e-5)
    np.testing.assert_allclose([one.validation_loss for one in told], result.validation_losses)
    np.testing.assert_allclose(told[0].loss, result.losses[:5].mean(), rtol=1e-5)
    assert told[-1].updates == result.updates == len(result.losses) == 17
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x[200:], y[200:]), batch_size=7
    )
    again = lsh.torch.fit(
        module, CROSS, (x, y), validation=loader, rule=lsh.SGD(0.0), until=lsh.until(epochs=1)
    )
    np.testing.assert_allclose(again.validation_losses, [last], rtol=1e-5)


@pytest.mark.parametrize("terminal", [True, False])
def test_passes_between_change_nothing_and_are_told_on_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    x, y = problem(100)
    ends = []
    for options in ({}, {"progress": True}, {"validation": (x, y)}):
        module = network()
        lsh.torch.fit(
            module,
            CROSS,
            (x, y),
            rule=lsh.Adam(0.01),
            threads=1,
            batch_size=16,
            until=lsh.until(epochs=2.5),
            **options,
        )
        ends.append(torch.cat([p.flatten() for p in module.parameters()]))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    lines = capsys.readouterr().err.splitlines()
    passes = ["epoch 1", "epoch 2", "epoch 3"] if terminal else []
    assert [line.split(":")[0] for line in lines] == passes


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adam(0.01)], ids=str)
def test_a_checkpoint_goes_on_to_the_same_bits(rule: Any, tmp_path: Path) -> None:
    x, y = problem(100)

    def trained(epochs: int, seed: int = 0, **options: Any) -> tuple[Any, Any]:
        module = torch.nn.Sequential(network(seed), torch.nn.BatchNorm1d(3))
        result = lsh.torch.fit(
            module,
            CROSS,
            (x, y),
            rule=rule,
            threads=1,
            batch_size=16,
            validation=(x, y),
            until=lsh.until(epochs=epochs),
            **options,
        )
        return module, result

    file = tmp_path / "checkpoint"
    whole, all_of_it = trained(5)
    trained(2, checkpoint=file)
    rest, result = trained(5, seed=1, resume=file, checkpoint=file)
    for name, value in whole.state_dict().items():
        assert torch.equal(rest.state_dict()[name], value), name
    assert result.updates == all_of_it.updates
    np.testing.assert_array_equal(result.validation_losses, all_of_it.validation_losses)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    _, nothing = trained(5, resume=file)
    assert len(nothing.losses) == 0
    for options, message in (
        ({"resume": tmp_path / "none"}, "resume: there is no file"),
        ({"resume": file, "batch_size": 8}, "with batch_size=16, and this one has 8"),
        ({"resume": file, "rule": lsh.Momentum(0.1)}, "is of a run with rule="),
        ({"resume": file, "seed": 3}, "with seed=0, and this one has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            lsh.torch.fit(
                torch.nn.Sequential(network(), torch.nn.BatchNorm1d(3)),
                CROSS,
                (x, y),
                **{"rule": rule, "batch_size": 16, "until": lsh.until(epochs=5), **options},
            )
    with pytest.raises(ValueError, match="is of another module"):
        lsh.torch.fit(
            network(),
            CROSS,
            (x, y),
            rule=rule,
            batch_size=16,
            resume=file,
            until=lsh.until(epochs=5),
        )
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"resume: .* cannot be read"):
        trained(5, resume=file)


def test_what_the_rules_states_are_of_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    options: dict[str, Any] = {"threads": 1, "until": lsh.until(epochs=1)}
    rule = lsh.Adam(0.01, beta1=0.8, beta2=0.99)
    lsh.torch.fit(network(), CROSS, problem(), rule=rule, checkpoint=file, **options)
    options["until"] = lsh.until(epochs=2)
    for other in (lsh.Adam(0.01), lsh.Adam(0.01, beta1=0.8, beta2=0.99, eps=1e-3)):
        with pytest.raises(ValueError, match=r"is of a run with rule=.*0\.8"):
            lsh.torch.fit(network(), CROSS, problem(), rule=other, resume=file, **options)
    slower = lsh.Adam(lsh.schedules.step(0.001, every=5), beta1=0.8, beta2=0.99)
    lsh.torch.fit(network(), CROSS, problem(), rule=slower, resume=file, **options)
    content = torch.load(file, weights_only=True)
    torch.save({**content, "rule": "Adam"}, file)  # as files were before
    lsh.torch.fit(network(), CROSS, problem(), rule=lsh.Adam(0.01), resume=file, **options)


def test_what_is_drawn_goes_on_too(tmp_path: Path) -> None:
    def trained(epochs: int, seed: int, **options: Any) -> Any:
        module = torch.nn.Sequential(torch.nn.Dropout(0.5), network())
        torch.manual_seed(seed)
        until = lsh.until(epochs=epochs)
        lsh.torch.fit(module, CROSS, problem(100), threads=1, until=until, **options)
        return module

    trained(2, 3, checkpoint=tmp_path / "checkpoint")
    assert_equal(trained(4, 9, resume=tmp_path / "checkpoint"), trained(4, 3))


def test_a_module_is_as_before_where_a_checkpoint_is_of_another(tmp_path: Path) -> None:
    file, options = tmp_path / "checkpoint", {"threads": 1, "until": lsh.until(epochs=1)}
    lsh.torch.fit(network(), CROSS, problem(), checkpoint=file, **options)
    ours = network(5)
    ours[-1] = torch.nn.Linear(ours[-1].in_features, 9)
    before = copy.deepcopy(ours)
    with pytest.raises(ValueError, match="is of another module"):
        lsh.torch.fit(ours, CROSS, problem(), resume=file, **options)
    assert_equal(ours, before)


def test_so_are_its_tables(tmp_path: Path) -> None:
    """Of which the first fits."""

    def module(dim: int, seed: int) -> Any:
        made = [
            lsh.torch.Embedding(
                9, d, init=lsh.models.tables.normal(1.0), rule=lsh.SGD(1.0), seed=seed
            )
            for d in (2, dim)
        ]
        return torch.nn.ModuleList([*made, torch.nn.Linear(2 + dim, 1)])

    class Both(torch.nn.Module):
        def __init__(self, dim: int, seed: int) -> None:
            super().__init__()
            self.parts = module(dim, seed)

        def forward(self, ids: Any) -> Any:
            return self.parts[2](torch.cat([part(ids) for part in self.parts[:2]], 1))[:, 0]

    def rows(of: Any) -> Any:
        return [part.table.lookup(np.arange(9)) for part in of.parts[:2]]

    file, options = tmp_path / "checkpoint", {"threads": 1, "until": lsh.until(epochs=1)}
    data = (torch.arange(9), torch.arange(9.0))
    lsh.torch.fit(Both(3, 0), torch.nn.functional.mse_loss, data, checkpoint=file, **options)
    ours = Both(4, 1)
    before = rows(ours)
    with pytest.raises(ValueError, match="is of another module"):
        lsh.torch.fit(ours, torch.nn.functional.mse_loss, data, resume=file, **options)
    for one, other in zip(before, rows(ours), strict=True):
        np.testing.assert_array_equal(one, other)


def test_where_no_checkpoint_can_be_is_said_before_training(tmp_path: Path) -> None:
    def loss(*_: Any) -> Any:
        raise AssertionError

    for file, error, message in (
        (tmp_path / "none" / "file", FileNotFoundError, "its folder does not exist"),
        (tmp_path, IsADirectoryError, "is a folder; name a file"),
        (3, TypeError, "checkpoint must be a path, got 3"),
    ):
        with pytest.raises(error, match=message):
            lsh.torch.fit(network(), loss, problem(), checkpoint=file, until=lsh.until(epochs=1))


class Boom(Exception):
    pass


LOADER = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*problem()), batch_size=16)


def test_what_fails_stops_fit_and_surfaces() -> None:
    def boom(*_: Any) -> Any:
        raise Boom("in the loss")

    module = network()
    objects = [p.data_ptr() for p in module.parameters()]
    with pytest.raises(Boom, match="in the loss"):
        lsh.torch.fit(module, boom, problem(), threads=2, until=lsh.until(epochs=1))
    assert [p.data_ptr() for p in module.parameters()] == objects

    def nan(*outputs: Any) -> Any:
        return outputs[0].sum() * float("nan")

    with pytest.raises(FloatingPointError, match="the loss is nan"):
        lsh.torch.fit(module, nan, problem(), threads=2, until=lsh.until(epochs=1))


def test_a_gradient_that_is_not_finite_leaves_the_parameters_as_they_were() -> None:
    module = network()
    before = [p.detach().clone() for p in module.parameters()]

    def root_of_zero(outputs: Any, _: Any) -> Any:
        return (0 * outputs).sum().sqrt()  # 0, whose derivative is infinite

    with pytest.raises(ValueError, match=r"gradient\[0\] is nan; .*parameters are unchanged"):
        lsh.torch.fit(module, root_of_zero, problem(), threads=1, until=lsh.until(epochs=1))
    for p, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(p, old)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"module": torch.nn.functional.relu}, TypeError, "module must be a torch.nn.Module"),
        ({"loss_fn": None}, TypeError, "loss_fn must be callable"),
        ({"dataset": 3}, TypeError, "dataset must be a pair of tensors or a map-style dataset"),
        (
            {"dataset": (torch.ones(3, 7), torch.ones(2))},
            ValueError,
            r"pair of tensors \(x, y\) of equal length",
        ),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"threads": 0}, ValueError, "threads must be at least 1"),
        ({"discipline": lsh.Synchronous()}, ValueError, "discipline must not be Synchronous"),
        ({"until": lsh.until(loss=1.0)}, ValueError, "fit evaluates no loss"),
        ({"until": 3}, TypeError, "until must be"),
        ({"rule": "adma"}, ValueError, "rule 'adma' is unknown; choose one of sgd"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        (
            {"dataset": LOADER, "batch_size": 8},
            ValueError,
            "batch_size is settled by the DataLoader",
        ),
        ({"dataset": LOADER, "seed": 8}, ValueError, "seed is settled by the DataLoader"),
        ({"dataset": {"x": torch.ones(64, 7)}}, ValueError, "target= names the one that loss_fn"),
        ({"target": "y"}, ValueError, "target='y' is of batches that are dicts; leave it out"),
        ({"progress": 3}, TypeError, "progress must be True, False or callable"),
        ({"validation": 3}, TypeError, "validation: dataset must be a pair"),
        ({"module": torch.nn.ReLU()}, ValueError, r"module.parameters\(\) holds no parameters"),
    ],
)
def test_a_wrong_fit_is_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    settings: dict[str, Any] = {
        "module": network(),
        "loss_fn": torch.nn.functional.cross_entropy,
        "dataset": problem(),
        "until": lsh.until(epochs=1),
        **arguments,
    }
    with pytest.raises(error, match=message):
        lsh.torch.fit(
            settings.pop("module"), settings.pop("loss_fn"), settings.pop("dataset"), **settings
        )
