"""Normalised graphs against PyTorch, in training, evaluation and prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_reference import draw, reference, tables_of
from made_clicks import clicks

import leashed as lsh
from leashed import _core, models
from leashed.files import resuming
from leashed.models import (
    BatchNorm,
    Concat,
    DataNorm,
    Dense,
    Embedding,
    Graph,
    Input,
    Product,
    ReLU,
    Sum,
    TableSpec,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def batch_norms() -> Graph:
    """Before a ReLU and alone, of rows and of values that others read too."""
    e = Embedding(TableSpec("a", 6))
    z = Input(4) >> BatchNorm() >> Dense(6) >> BatchNorm(eps=1e-2) >> ReLU()
    both = Concat(z, e, Product(z, e)) >> BatchNorm()
    return Graph(Sum(both >> Dense(1), Concat(both, e) >> Dense(5) >> ReLU() >> Dense(1)))


def data_norms() -> Graph:
    """Behind a ReLU, so that means are away from 0, or are 0 and constant."""
    e = Embedding(TableSpec("a", 6)) >> Dense(6) >> ReLU() >> DataNorm() >> ReLU()
    z = Input(4) >> Dense(6) >> ReLU() >> DataNorm()
    return Graph(Concat(z, e, Product(z, e)) >> Dense(5) >> ReLU() >> Dense(1))


GRAPHS = {"batch": batch_norms, "data": data_norms}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("size", [2, 17, 130])
def test_loss_and_gradients_are_those_of_autograd(name: str, size: int) -> None:
    graph = GRAPHS[name]()
    random = np.random.default_rng(size)
    theta = graph.init(1) + random.normal(0, 0.1, graph.dimension).astype(np.float32)
    tables = tables_of(graph, random)
    for kind in ("one", "bags"):
        batch = draw(graph, size, random, kind)
        loss, dense, rows = reference(graph, theta, tables, batch)
        columns = [column.native for column in batch.columns]
        for isa in _core.available_isas():
            own = graph.native_at(isa).gradient(theta, batch.x, batch.y, columns, tables)
            np.testing.assert_allclose(own[0], loss, rtol=1e-4)
            scale = max(np.abs(dense).max(), 1)
            np.testing.assert_allclose(own[1], dense, atol=1e-4 * scale)
            for got, expected in zip(own[2], rows, strict=True):
                np.testing.assert_allclose(got, expected, atol=1e-4 * scale)


class Normed(torch.nn.Module):  # type: ignore[misc]
    """Dense(16), a normalisation, ReLU, Dense(1)."""

    def __init__(self, graph: Graph, norm: Any) -> None:
        super().__init__()
        start = graph.unflatten(graph.init(7, "he"))
        self.first, self.last = torch.nn.Linear(6, 16), torch.nn.Linear(16, 1)
        self.norm = norm
        with torch.no_grad():
            for layer, i in ((self.first, 1), (self.last, 4)):
                layer.weight.copy_(torch.tensor(start[f"{i}.weight"]).T)
                layer.bias.copy_(torch.tensor(start[f"{i}.bias"]))
        self.double()

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.norm(self.first(x))))[:, 0]

    def flat(self) -> np.ndarray[Any, Any]:
        parts = [
            self.first.weight.T,
            self.first.bias,
            self.norm.weight,
            self.norm.bias,
            self.last.weight.T,
            self.last.bias,
        ]
        return np.concatenate([part.detach().numpy().ravel() for part in parts])


class OwnDataNorm(torch.nn.Module):  # type: ignore[misc]
    """Eq. 10, with running means as PyTorch's normalisations have them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.bias = torch.nn.Parameter(torch.ones(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.momentum, self.near_zero = 0.01, 0

    def forward(self, x: Any) -> Any:
        mean = self.running_mean
        if self.training:
            mean = x.mean(0)
            self.running_mean += self.momentum * (mean.detach() - self.running_mean)
        small = mean.abs() < 1e-3
        if self.training:
            self.near_zero += int(small.sum())
        mean = torch.where(small, torch.where(mean < 0, -1e-3, 1e-3), mean)
        return self.weight * x / mean - self.bias


def dense(n: int = 200) -> lsh.Dataset:
    random = np.random.default_rng(3)
    x = random.normal(size=(n, 6)).astype(np.float32) + 3
    return lsh.Dataset.from_arrays(x, (x[:, 0] * x[:, 1] > x[:, 2] * 3).astype(int))


def chain(norm: Any) -> Graph:
    return Graph(Input(6) >> Dense(16) >> norm >> ReLU() >> Dense(1))


STEPS, BATCH, SEED = 50, 16, 5


@pytest.mark.parametrize("kind", ["batch", "data"])
@pytest.mark.parametrize("rule", ["SGD", "Adagrad"])
def test_50_steps_and_evaluation_follow_pytorch(kind: str, rule: str) -> None:
    graph = chain(BatchNorm() if kind == "batch" else DataNorm())
    norm = torch.nn.BatchNorm1d(16, momentum=0.01) if kind == "batch" else OwnDataNorm(16)
    data, judge = dense(), Normed(graph, norm)
    settings = {} if rule == "SGD" else {"eps": 1e-4}
    optimizer = getattr(torch.optim, rule)(judge.parameters(), lr=0.01, **settings)
    x, y = torch.tensor(data.x, dtype=torch.float64), torch.tensor(data.y, dtype=torch.float64)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    for k in range(STEPS):
        rows = torch.tensor(_core.batch_rows(SEED, len(data), BATCH, k))
        optimizer.zero_grad()
        bce(judge(x[rows]), y[rows]).backward()
        optimizer.step()
    result = lsh.train(
        graph,
        data,
        until=lsh.until(updates=STEPS),
        discipline=lsh.Sequential(),
        rule=getattr(lsh, rule)(0.01, **settings),
        batch_size=BATCH,
        seed=SEED,
        init=graph.init(7, "he"),
    )
    np.testing.assert_allclose(result.parameters, judge.flat(), atol=2e-4)
    # PyTorch's averages begin with 0 and 1, these with the first batch.
    begun = 0.99**STEPS
    means = judge.norm.running_mean.numpy() / (1 - begun)
    expected = [means]
    if kind == "batch":
        expected.append((judge.norm.running_var.numpy() - begun) / (1 - begun))
    statistics = np.concatenate(expected)
    np.testing.assert_allclose(result.statistics, statistics, rtol=1e-3, atol=1e-4)
    assert result.config["statistics"]["batches"] == STEPS
    near = 0 if kind == "batch" else judge.norm.near_zero
    assert result.config["statistics"]["near_zero"] == near

    judge.eval()
    judge.norm.running_mean.copy_(torch.tensor(result.statistics[:16]))
    if kind == "batch":
        judge.norm.running_var.copy_(torch.tensor(result.statistics[16:]))
    with torch.no_grad():
        logits = judge(x)
    predicted = graph.predict(result.parameters, data.x, statistics=result.statistics)
    np.testing.assert_allclose(predicted[:, 0], torch.sigmoid(logits).numpy(), atol=1e-3)
    found = graph.evaluate(result.parameters, data, statistics=result.statistics)
    assert found.loss == pytest.approx(bce(logits, y).item(), abs=1e-3)
    assert found.loss == result.final_loss


def trained(graph: Graph, data: Any, updates: int, **settings: Any) -> lsh.TrainResult:
    return lsh.train(
        graph,
        data,
        until=lsh.until(updates=updates),
        rule=lsh.Adagrad(0.05),
        batch_size=16,
        **{"threads": 1, **settings},
    )


def test_one_thread_gives_the_same_bits_under_every_discipline() -> None:
    graph, data = chain(BatchNorm()), dense()
    expected = trained(graph, data, 30, discipline=lsh.Sequential())
    for discipline in (lsh.Leashed(), lsh.Hogwild(), lsh.Locked(), lsh.Synchronous()):
        got = trained(graph, data, 30, discipline=discipline)
        np.testing.assert_array_equal(got.parameters, expected.parameters)
        np.testing.assert_array_equal(got.statistics, expected.statistics)
        assert got.final_loss == expected.final_loss


@pytest.mark.parametrize("discipline", [lsh.Leashed(), lsh.Hogwild(), lsh.Locked()])
def test_several_threads_average_all_their_batches(discipline: Any) -> None:
    result = trained(chain(DataNorm()), dense(), 60, threads=3, discipline=discipline)
    assert result.config["statistics"]["batches"] == result.gradients
    assert np.isfinite(result.statistics).all()
    assert np.isfinite(result.loss).all()


def test_lockstep_is_reproducible() -> None:
    one, two = (
        trained(chain(BatchNorm()), dense(), 20, threads=3, discipline=lsh.Synchronous())
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.statistics, two.statistics)
    assert one.final_loss == two.final_loss


@pytest.mark.parametrize("tabled", [False, True])
def test_a_run_goes_on_to_the_same_bits(tabled: bool, tmp_path: Path) -> None:
    graph = batch_norms() if tabled else chain(DataNorm())
    data: Any = clicks(graph, 200) if tabled else dense()
    whole = trained(graph, data, 40)
    trained(graph, data, 25, checkpoint=tmp_path / "run")
    rest = trained(graph, data, 40, resume=tmp_path / "run")
    np.testing.assert_array_equal(rest.parameters, whole.parameters)
    np.testing.assert_array_equal(rest.statistics, whole.statistics)
    assert rest.config["statistics"] == whole.config["statistics"]
    assert rest.final_loss == whole.final_loss
    assert len(lsh.load(tmp_path / "run").statistics) == graph.statistics


class Every(resuming.Kept):
    """Every checkpoint of a run: of how many batches its statistics are, and its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int]] = []

    def __call__(self, reached: _core.Resumption) -> None:
        super().__call__(reached)
        self.batches.append((reached.running[1], reached.batches))


def with_checkpoints(**settings: Any) -> tuple[Every, lsh.TrainResult]:
    """A run with at least two checkpoints before its last: a longer one where the machine has no time
    for them.
    """
    for updates in (8_000, 80_000, 800_000):
        kept = Every()
        result = trained(
            chain(DataNorm()),
            dense(),
            updates,
            checkpoint=lsh.Checkpoint(kept, every=1e-3),
            **settings,
        )
        if len(kept.batches) > 2:
            return kept, result
    pytest.fail(f"{len(kept.batches)} checkpoints in {updates} updates")


@pytest.mark.parametrize("discipline", [lsh.Leashed(), lsh.Hogwild(), lsh.Locked()])
@pytest.mark.parametrize("policy", [lsh.staleness.none(), lsh.staleness.fleet()])
def test_one_worker_s_checkpoints_are_of_one_moment(discipline: Any, policy: Any) -> None:
    kept, _ = with_checkpoints(discipline=discipline, staleness=policy)
    assert all(averaged == used for averaged, used in kept.batches)


def test_several_workers_checkpoints_have_averaged_all_that_they_have_applied() -> None:
    kept, result = with_checkpoints(threads=3)
    assert all(averaged >= used for averaged, used in kept.batches)
    assert kept.batches[-1] == (result.gradients, result.gradients)


def test_files_hold_them(tmp_path: Path) -> None:
    graph, data = chain(BatchNorm(eps=1e-3)), dense()
    result = trained(graph, data, 10)
    lsh.save(tmp_path / "model", graph, result.parameters, statistics=result.statistics)
    loaded = lsh.load(tmp_path / "model")
    (found, theta), statistics = loaded, loaded.statistics
    assert isinstance(found, Graph)
    assert statistics is not None
    np.testing.assert_array_equal(
        found.predict(theta, data.x, statistics=statistics),
        graph.predict(result.parameters, data.x, statistics=result.statistics),
    )
    again = lsh.TrainResult.from_json(result.to_json(parameters=True))
    np.testing.assert_array_equal(again.statistics, result.statistics)
    lsh.save(tmp_path / "bare", graph, result.parameters)
    with pytest.raises(ValueError, match="statistics must have length 32"):
        lsh.save(tmp_path / "bare", graph, result.parameters, statistics=[1.0])
    assert lsh.load(tmp_path / "bare").statistics is None
    plain = Graph(Input(6) >> Dense(1))
    with pytest.raises(ValueError, match="statistics must be left out"):
        lsh.save(tmp_path / "bare", plain, plain.init(), statistics=[1.0])


def test_modes_and_virtual_time_average_too() -> None:
    graph, data = chain(DataNorm()), dense()
    by_mode = trained(graph, data, 30, threads=2, mode=lsh.modes.ASP())
    assert by_mode.config["statistics"]["batches"] == by_mode.gradients
    played = lsh.simulate(
        graph,
        data,
        cluster=lsh.simulation.exponential(3000, 1.0),
        until=lsh.until(updates=200),
        batch_size=16,
        discipline=lsh.Leashed(),
    ).result
    assert played.config["statistics"]["batches"] == played.gradients
    assert np.isfinite(played.final_loss)


def test_a_recorded_run_is_made_again(tmp_path: Path) -> None:
    graph, data = chain(BatchNorm()), dense()
    result = trained(graph, data, 30, threads=2, observe=lsh.Observe(record=tmp_path / "run"))
    made = lsh.replay(tmp_path / "run", graph, data)
    np.testing.assert_array_equal(made.parameters, result.parameters)


def test_what_does_not_fit_is_refused() -> None:
    graph, data = chain(BatchNorm()), dense()
    theta = graph.init()
    assert graph.statistics == 32
    assert [block.name for block in graph.native.statistics] == ["2.mean", "2.variance"]
    for ask in (graph.evaluate, graph.predict):
        given = data if ask == graph.evaluate else data.x
        with pytest.raises(ValueError, match="statistics must be given, since model graph"):
            ask(theta, given)
        with pytest.raises(ValueError, match="statistics must have length 32"):
            ask(theta, given, statistics=np.ones(3))
    with pytest.raises(ValueError, match="batch_size must be at least 2 for model graph"):
        lsh.train(graph, data, until=lsh.until(updates=1), batch_size=1)
    with pytest.raises(TypeError, match="a layer of graphs; write the model as one"):
        models.Model((6, 1, 1), (Dense(2), BatchNorm(), Dense(1)))
    with pytest.raises(ValueError, match="eps must be"):
        BatchNorm(eps=0)
    plain = Graph(Input(6) >> Dense(1))
    result = trained(plain, data, 3)
    assert result.statistics.size == 0
    assert plain.predict(plain.init(), data.x, statistics=result.statistics).shape == (200, 1)


def test_first_values_are_those_of_the_paper() -> None:
    for scheme in models.INITIALISATIONS:
        for norm, shift in ((BatchNorm(), 0), (DataNorm(), 1)):
            parts = chain(norm).unflatten(chain(norm).init(1, scheme))
            assert (parts["2.scale"] == 1).all()
            assert (parts["2.shift"] == shift).all()


def test_recommenders_normalise_between_dense_layers_and_relus() -> None:
    graphs = [
        models.dlrm(9, 4, 3, (4,), (5,), categories=2, norm=DataNorm()),
        models.deepfm(9, 4, 3, (5,), categories=2, norm=BatchNorm()),
        models.wide_deep(9, 4, 3, (5,), categories=2, norm=DataNorm()),
        models.dcn(9, 4, 3, 1, (5,), categories=2, norm=BatchNorm()),
        models.youtube_dnn(9, 4, (5,), norm=BatchNorm()),
    ]
    assert [graph.statistics for graph in graphs] == [9, 10, 5, 10, 18]


def test_a_column_without_variance_is_no_danger() -> None:
    data = lsh.Dataset.from_arrays(np.ones((64, 6), np.float32), np.arange(64) % 2)
    for norm in (BatchNorm(), DataNorm()):
        result = trained(Graph(Input(6) >> norm >> Dense(1)), data, 20)
        assert np.isfinite(result.parameters).all()
        assert np.isfinite(result.loss).all()
