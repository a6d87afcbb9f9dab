"""The bits that one thread gives, as a table of digests in JSON: what compare-bits compares.

It runs on an old version as on a new one, and so names nothing but the public interface. A key says
what ran: section/model or source/discipline/rule/policy/…. What a version cannot do has the name of
its error for a digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import leashed as lsh
from leashed import gradients, models, modes, schedules, simulation, staleness

Digests = dict[str, str]

DISCIPLINES = {
    "sequential": lsh.Sequential(),
    "synchronous": lsh.Synchronous(),
    "locked": lsh.Locked(),
    "hogwild": lsh.Hogwild(),
    "hogwild-direct": lsh.Hogwild(copy=False),
    "leashed": lsh.Leashed(),
    "leashed-1": lsh.Leashed(1),
    "leashed-0": lsh.Leashed(0),
}
RULES: dict[str, lsh.Rule] = {
    "sgd": lsh.SGD(0.05),
    "sgd-decay": lsh.SGD(0.05, weight_decay=0.1),
    "sgd-decoupled": lsh.SGD(0.05, weight_decay=0.1, decoupled=True),
    "sgd-clip-value": lsh.SGD(0.05, clip_value=0.05),
    "sgd-clip-norm": lsh.SGD(0.05, clip_norm=0.3),
    "sgd-all": lsh.SGD(0.05, weight_decay=0.1, decoupled=True, clip_value=0.08, clip_norm=0.2),
    "momentum": lsh.Momentum(0.02, 0.9),
    "momentum-all": lsh.Momentum(0.02, 0.8, weight_decay=0.05, clip_value=0.1, clip_norm=0.5),
    "nesterov": lsh.Nesterov(0.02, 0.9),
    "nesterov-decay": lsh.Nesterov(0.02, 0.9, weight_decay=0.05, clip_norm=0.5),
    "adagrad": lsh.Adagrad(0.05),
    "adagrad-decay": lsh.Adagrad(0.05, initial_accumulator=0.1, weight_decay=0.05),
    "adagrad-clip": lsh.Adagrad(0.05, clip_value=0.1),
    "rmsprop": lsh.RMSprop(0.01),
    "rmsprop-decay": lsh.RMSprop(0.01, 0.9, 1e-6, weight_decay=0.05, clip_norm=0.5),
    "adam": lsh.Adam(0.01),
    "adam-decay": lsh.Adam(0.01, 0.8, 0.99, 1e-6, weight_decay=0.05, clip_norm=0.4),
    "adam-clip": lsh.Adam(0.01, clip_value=0.1),
    "adamw": lsh.AdamW(0.01, weight_decay=0.1),
    "adamw-clip": lsh.AdamW(0.01, weight_decay=0.1, clip_norm=0.3),
    "swap-adagrad": lsh.SWAP(lsh.Adagrad(0.05), 3, 0.5),
    "swap-rmsprop": lsh.SWAP(lsh.RMSprop(0.01, 0.9), 3, 0.5),
    "swap-adam": lsh.SWAP(lsh.Adam(0.01), 2, 0.6),
    "swap-adamw": lsh.SWAP(lsh.AdamW(0.01), 1, 0.9),
    "sgd-constant": lsh.SGD(schedules.constant(0.05)),
    "sgd-step": lsh.SGD(schedules.step(0.05, every=3, factor=0.5)),
    "sgd-cosine": lsh.SGD(schedules.cosine(0.05, total=9)),
    "momentum-cosine": lsh.Momentum(schedules.cosine(0.05, total=20, final=0.001)),
    "adagrad-step": lsh.Adagrad(schedules.step(0.05, every=2)),
    "adam-warmup": lsh.Adam(schedules.warmup(0.05, steps=5)),
    "adamw-warmup-cosine": lsh.AdamW(
        schedules.warmup(schedules.cosine(0.05, total=11), steps=4, start=0.1)
    ),
    "nesterov-scaled": lsh.Nesterov(schedules.scaled(schedules.step(0.05, every=4))),
}
POLICIES: dict[str, staleness.Policy] = {
    "none": staleness.none(),
    "inverse": staleness.inverse(),
    "power-2": staleness.power(2),
    "power-half": staleness.power(0.5),
    "normalized": staleness.normalized(2),
    "normalized-printed": staleness.normalized_as_printed(2),
    "tau-normalized": staleness.tau_normalized(2, 1),
    "tau-normalized-given": staleness.tau_normalized(2, 1, mean=3, deviation=2),
    "tau-short": staleness.tau_normalized_short(1),
    "stage-inverse": staleness.stage_aware(staleness.inverse()),
    "stage-table": staleness.stage_aware(staleness.table([1, 0.8, 0.3, 0.1]), 2.0),
    "stage-tail": staleness.stage_aware(staleness.tail_tau(warmup=3)),
    "cutoff": staleness.cutoff(2),
    "tail-tau": staleness.tail_tau(warmup=3),
    "fleet": staleness.fleet(),
    "fleet-given": staleness.fleet(4.0),
    "mindthestep": staleness.mindthestep(),
    "mindthestep-given": staleness.mindthestep(2.0, 0.5),
    "table": staleness.table([1, 0.5, 0.25, 0]),
    "function": staleness.from_function(lambda tau: 1 / (1 + tau * tau), 16),
}
FEW_RULES = ("sgd", "momentum-all", "adam", "swap-adagrad")
FEW_POLICIES = ("none", "stage-inverse", "tail-tau")
SCRATCH = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None


def digest(*parts: Any) -> str:
    """Of arrays, bit by bit, and of what else can be printed."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(f"{part.dtype}{part.shape}".encode())
            sha.update(np.ascontiguousarray(part).tobytes())
        else:
            sha.update(repr(part).encode())
    return sha.hexdigest()[:20]


def images(n: int, shape: tuple[int, ...], classes: int) -> lsh.Dataset:
    rng = np.random.default_rng(11)
    x = rng.random((n, math.prod(shape)), np.float32)
    y = rng.integers(0, classes, n)
    x[np.arange(n), y] += 1
    return lsh.Dataset.from_arrays(x, y, classes)


def rows(n: int, features: int, outputs: int) -> lsh.SparseDataset:
    """Rows of 1 to 8 columns, few of which are in most rows; labels, or numbers where 0 outputs."""
    rng = np.random.default_rng(12)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(1, 9, n))]).astype(np.int64)
    indices = np.minimum(rng.zipf(1.4, indptr[-1]) - 1, features - 1).astype(np.int32)
    data = rng.standard_normal(indptr[-1]).astype(np.float32)
    if outputs == 0:
        values = rng.standard_normal(n).astype(np.float32)
        return lsh.SparseDataset(indptr, indices, data, features, values, 0)
    labels = rng.integers(0, max(outputs, 2), n).astype(np.int32)
    return lsh.SparseDataset(indptr, indices, data, features, labels, max(outputs, 2))


def trained(model: Any, data: Any, updates: int, **arguments: Any) -> lsh.TrainResult:
    arguments = {"batch_size": 7, "threads": 1, "seed": 3, **arguments}
    return lsh.train(model, data, until=lsh.until(updates=updates), **arguments)


def of_result(result: lsh.TrainResult) -> str:
    return digest(result.parameters, result.total_updates, result.dropped, result.excluded)


def of_file(path: Path) -> str:
    """Of all tensors of a checkpoint: parameters, the rule's state, what a policy has seen."""
    tensors = load_file(path)
    return digest(*(part for name in sorted(tensors) for part in (name, tensors[name])))


Case = tuple[str, Callable[[], str]]


def dense() -> Iterator[Case]:
    """Every discipline, rule and policy on a small network."""
    model, data = models.mlp(23, [17], 5), images(90, (23,), 5)
    for d, discipline in DISCIPLINES.items():
        for r, rule in RULES.items():
            for p, policy in POLICIES.items():
                if p in FEW_POLICIES or r in FEW_RULES:
                    arguments = {"discipline": discipline, "rule": rule, "staleness": policy}
                    yield (
                        f"dense/mlp/{d}/{r}/{p}",
                        lambda a=arguments: of_result(trained(model, data, 8, **a)),
                    )
    for r, rule in RULES.items():  # the one discipline whose bits are the same with any threads
        arguments = {"discipline": lsh.Synchronous(), "rule": rule, "threads": 3}
        yield (
            f"dense/mlp/synchronous-3/{r}/none",
            lambda a=arguments: of_result(trained(model, data, 4, **a)),
        )


def networks() -> Iterator[Case]:
    """Other networks: convolutions, every loss, penalties, layers without biases."""
    small = images(70, (1, 10, 11), 3)
    targets = lsh.Dataset.regression(small.x, small.x[:, 0] - small.x[:, 1])
    kinds: dict[str, tuple[Any, Any]] = {
        "cnn": (models.cnn((1, 10, 11), 3), small),
        "conv": (
            models.Model(
                (1, 10, 11),
                (
                    models.Conv2d(3, 3, stride=2, padding=1),
                    models.ReLU(),
                    models.Conv2d(5, 2),
                    models.MaxPool(2),
                    models.Dense(3, bias=False),
                ),
            ),
            small,
        ),
        "wide": (models.mlp(110, [133, 40], 3), small),
        "linear": (models.linear_regression(110, l2=0.01), targets),
        "softmax": (models.softmax_regression(110, 3, l2=0.01), small),
        "logistic": (models.logistic_regression(110, 3), small),
        "svm": (models.linear_svm(110, 3, l2=0.1), small),
    }
    for loss in ("softmax", "log_loss", "hinge"):
        layers = (models.Dense(9), models.ReLU(), models.Dense(3))
        kinds[f"mlp-{loss}"] = (models.Model((110, 1, 1), layers, loss=loss, l2=0.02), small)
    for name, (model, data) in kinds.items():
        for size in (1, 16, 40):
            for rule in ("sgd", "adam"):
                yield (
                    f"network/{name}/batch-{size}/{rule}",
                    lambda m=model, x=data, s=size, r=rule: of_result(
                        trained(m, x, 4, batch_size=s, rule=RULES[r], discipline=lsh.Leashed())
                    ),
                )
        theta = model.init(5, "normal")
        yield f"predict/{name}", lambda m=model, t=theta: digest(m.predict(t, small.x))
        yield (
            f"evaluation/{name}",
            lambda m=model, t=theta, x=data: digest(*map(float, m.evaluate(t, x))),
        )


def sparse() -> Iterator[Case]:
    """Rows in CSR form: in place where that can be, whole vectors where not."""
    outputs = {"log_loss": 1, "hinge": 1, "squared_error": 0, "softmax": 3}
    for loss, count in outputs.items():
        data = rows(150, 70, count)
        for l2 in (0.0, 0.03):
            for bias in (True, False):
                model = models.Model((70, 1, 1), (models.Dense(max(count, 1), bias),), "linear", loss, l2)  # fmt: skip
                theta = model.init(5)
                name = f"{loss}{'-l2' if l2 else ''}{'' if bias else '-no-bias'}"
                for d, discipline in DISCIPLINES.items():
                    for r in ("sgd", "adagrad", "sgd-cosine", "adagrad-step", "adam"):
                        for size in (1, 3, 64):
                            if loss != "log_loss" and (size == 64 or r == "adagrad-step"):
                                continue
                            yield (
                                f"sparse/{name}/{d}/{r}/batch-{size}",
                                lambda m=model, x=data, d=discipline, r=r, s=size: of_result(
                                    trained(m, x, 90 // s + 30, batch_size=s, discipline=d, rule=RULES[r])
                                ),
                            )  # fmt: skip
                yield f"predict/{name}", lambda m=model, t=theta, x=data: digest(m.predict(t, x))
                yield (
                    f"evaluation/sparse-{name}",
                    lambda m=model, t=theta, x=data: digest(*map(float, m.evaluate(t, x))),
                )
    model, data = models.logistic_regression(70), rows(150, 70, 1)
    for r in ("sgd", "adagrad"):
        for p, policy in POLICIES.items():
            yield (
                f"sparse/log_loss/hogwild/{r}/{p}",
                lambda r=r, p=policy: of_result(
                    trained(model, data, 30, discipline=lsh.Hogwild(), rule=RULES[r], staleness=p)
                ),
            )


def resumed() -> Iterator[Case]:
    """A run interrupted and gone on with: all tensors of its last checkpoint."""
    network, table = models.mlp(23, [17], 5), images(90, (23,), 5)
    linear, csr = models.logistic_regression(70, l2=0.01), rows(150, 70, 1)

    def twice(model: Any, data: Any, **arguments: Any) -> str:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            first, second = Path(folder) / "first", Path(folder) / "second"
            trained(model, data, 5, checkpoint=first, **arguments)
            trained(model, data, 11, checkpoint=second, resume=first, **arguments)
            return digest(of_file(first), of_file(second))

    for d, discipline in DISCIPLINES.items():
        for r, rule in RULES.items():
            for p in ("none", "stage-tail") if r in FEW_RULES else ("none",):
                arguments = {"discipline": discipline, "rule": rule, "staleness": POLICIES[p]}
                yield f"resumed/mlp/{d}/{r}/{p}", lambda a=arguments: twice(network, table, **a)
        for r in ("sgd", "adagrad"):
            arguments = {"discipline": discipline, "rule": RULES[r]}
            yield f"resumed/rows/{d}/{r}", lambda a=arguments: twice(linear, csr, **a)
    for p, policy in POLICIES.items():
        arguments = {"discipline": lsh.Leashed(), "rule": RULES["momentum"], "staleness": policy}
        yield f"resumed/mlp/leashed/momentum/{p}", lambda a=arguments: twice(network, table, **a)


def external() -> Iterator[Case]:
    """Gradients of the user's own: a Python function, and one called as a C function is."""
    data = images(90, (23,), 5)

    def python(theta: Any, x: Any, y: Any, out: Any) -> float:
        error = x * theta - y[:, None]
        out[:] = (error * x).sum(axis=0)
        return float(np.square(error).sum())

    def native(theta: Any, x: Any, index: Any, y: Any, batch: int, out: Any, *_: Any) -> float:
        weights = np.ctypeslib.as_array(theta, (23,))
        picked = np.ctypeslib.as_array(index, (batch,))
        examples = np.ctypeslib.as_array(x, (int(picked.max()) + 1, 23))[picked]
        labels = np.ctypeslib.as_array(y, (batch,)).copy()
        result = np.empty(23, np.float32)
        loss = python(weights, examples, labels, result)
        if out:
            np.ctypeslib.as_array(out, (23,))[:] = result
        return loss

    for name, function in (("python", python), ("c", gradients.c_type()(native))):
        model = models.external(function, dimension=23, features=23, variables=(10, 13))
        for d, discipline in DISCIPLINES.items():
            for r in FEW_RULES:
                for p in FEW_POLICIES:
                    arguments = {"discipline": discipline, "rule": RULES[r], "init": "normal"}
                    yield (
                        f"external/{name}/{d}/{r}/{p}",
                        lambda m=model, p=p, a=arguments: of_result(
                            trained(m, data, 6, staleness=POLICIES[p], **a)
                        ),
                    )


D = 83
NOISE = (0.3 * np.random.default_rng(1).standard_normal((16, D))).astype(np.float32)
GOAL = np.linspace(-1, 1, D, dtype=np.float32)
VARIABLES = (40, 3, 40)


def engine() -> Iterator[Case]:
    """A loop of one's own, its gradients stale by 0 to 4 updates."""

    def push(discipline: lsh.Discipline, rule: lsh.Rule, policy: staleness.Policy) -> str:
        became = []
        with lsh.Engine(
            np.zeros(D), rule=rule, discipline=discipline, staleness=policy, workers=1, variables=VARIABLES
        ) as own:  # fmt: skip
            for k, noise in enumerate(NOISE):
                with own.read() as theta:
                    gradient = theta - GOAL + noise
                became.append(tuple(own.push(gradient, t=max(0, own.t - k * 7 % 5))))
            return digest(own.parameters(), own.t, became, *own.state)

    def push_sparse(discipline: lsh.Discipline, rule: lsh.Rule, policy: staleness.Policy) -> str:
        became = []
        with lsh.Engine(
            np.zeros(D), rule=rule, discipline=discipline, staleness=policy, workers=1
        ) as own:
            for k, noise in enumerate(NOISE):
                with own.read() as theta:
                    index = np.arange(k % 5, D, 3 + k, dtype=np.int64)
                    values = (theta - GOAL + noise)[index]
                t = max(0, own.t - k * 7 % 5)
                became.append(tuple(own.push_sparse(index, values, t=t)))
            return digest(own.parameters(), own.t, became, *own.state)

    for d, discipline in DISCIPLINES.items():
        if isinstance(discipline, lsh.Synchronous):
            continue
        for p, policy in POLICIES.items():
            for r, rule in RULES.items():
                yield (
                    f"engine/push/{d}/{r}/{p}",
                    lambda d=discipline, r=rule, p=policy: push(d, r, p),
                )
            if isinstance(discipline, lsh.Hogwild):
                for r in ("sgd", "sgd-cosine", "adagrad", "adagrad-step", "sgd-clip-value"):
                    yield (
                        f"engine/push_sparse/{d}/{r}/{p}",
                        lambda d=discipline, r=RULES[r], p=policy: push_sparse(d, r, p),
                    )


def vectors() -> Iterator[Case]:
    """Vectors of the user's own, in one process and between several; one beyond the caches."""

    def own() -> str:
        vector = lsh.ParameterVector(np.zeros(D))
        became = [
            tuple(vector.update(noise, 0.1, t_read=max(0, vector.t - k % 3)))
            for k, noise in enumerate(NOISE)
        ]
        with vector.read() as theta:
            return digest(theta, became)

    def shared(discipline: lsh.Discipline, rule: lsh.Rule, policy: staleness.Policy) -> str:
        name = f"bits-{os.getpid()}"
        became = []
        with lsh.SharedVector.create(
            name, np.zeros(D), rule=rule, discipline=discipline, staleness=policy, participants=2
        ) as vector:
            for k, noise in enumerate(NOISE[:8]):
                with vector.read() as theta:
                    gradient = theta - GOAL + noise
                pushed = vector.push(gradient, t_read=max(0, vector.t - k * 7 % 5))
                became.append(tuple(pushed))
            states, t = vector.state()
            return digest(states, t, became)

    def large(discipline: lsh.Discipline, rule: lsh.Rule) -> str:
        size = 9_000_011
        gradient = np.resize(NOISE.ravel(), size)
        with lsh.Engine(np.zeros(size), rule=rule, discipline=discipline, workers=1) as own:
            for _ in range(2):
                with own.read():
                    pass
                own.push(gradient)
            return digest(own.parameters())

    yield "vector/own", own
    for d in ("leashed", "leashed-1", "hogwild"):
        for r, rule in RULES.items():
            if d == "leashed" or r in FEW_RULES:
                for p in FEW_POLICIES if r in FEW_RULES else ("inverse",):
                    yield (
                        f"vector/shared/{d}/{r}/{p}",
                        lambda d=d, r=rule, p=p: shared(DISCIPLINES[d], r, POLICIES[p]),
                    )
    for d in ("leashed", "hogwild"):
        for r in ("sgd", "adam"):
            yield f"vector/large/{d}/{r}", lambda d=d, r=r: large(DISCIPLINES[d], RULES[r])


def optimizer() -> Iterator[Case]:
    """``leashed.torch.Optimizer``, where PyTorch is."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return
    torch.set_num_threads(1)

    def steps(rule: lsh.Rule) -> str:
        parameters = [
            torch.nn.Parameter(torch.from_numpy(part.copy()))
            for part in np.split(np.zeros(D, np.float32), [40, 43])
        ]
        stepping = lsh.torch.Optimizer(parameters, rule)
        for noise in NOISE:
            for p, part in zip(parameters, np.split(noise, [40, 43]), strict=True):
                p.grad = p.detach() + torch.from_numpy(part)
            stepping.step()
        return digest(*(p.detach().numpy() for p in parameters))

    for r, rule in RULES.items():
        yield f"torch/{r}", lambda rule=rule: steps(rule)


def servers() -> Iterator[Case]:
    """Tables whose rows are on several servers, in virtual time."""
    graph = models.dlrm(50, 4, 2, bottom=(4,), top=(4,), categories=3)
    rng = np.random.default_rng(13)
    data = lsh.datasets.ClickDataset.from_arrays(
        rng.random((90, 2), np.float32), rng.integers(0, 50, (90, 3)), rng.integers(0, 2, 90)
    )
    cluster = simulation.exponential(4, 1e-3).over(simulation.Network(1e6, server_bandwidth=1e6))

    def played(mode: modes.Mode, tables: str) -> str:
        run = lsh.simulate(
            graph,
            data,
            cluster=cluster,
            mode=mode,
            shards=simulation.memorywise(3, tables=tables),
            batch_size=7,
            until=lsh.until(epochs=2),
            seed=3,
        )
        return digest(run.result.parameters, run.result.elapsed, run.result.rows)

    for mode in (modes.ASP(), modes.SSP(s=1), modes.GBA(m=3)):
        for tables in ("hash", "whole"):
            yield (
                f"servers/dlrm/{tables}/{type(mode).__name__}",
                lambda mode=mode, tables=tables: played(mode, tables),
            )


SECTIONS = (dense, networks, sparse, resumed, external, engine, vectors, optimizer, servers)


def main() -> None:
    found: Digests = {}
    for section in SECTIONS:
        for key, run in section():
            try:
                found[key] = run()
            except Exception as error:  # noqa: BLE001  (its name is compared)
                found[key] = type(error).__name__
    assert len(set(found)) == len(found)
    json.dump(found, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
