"""Sampled softmax, BPR and in-batch negatives against PyTorch with the same negatives, and retrieval
from all items.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_reference import Batch, Column, pooled
from reference_philox import philox

import leashed as lsh
from leashed import _core, models, retrieval
from leashed.datasets import Bags, ClickDataset, next_items
from leashed.models import (
    Concat,
    Dense,
    Embedding,
    Graph,
    InBatchSoftmax,
    Input,
    ReLU,
    SampledLogits,
    TableSpec,
    tables,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

ITEMS, NEGATIVES = 30, 20  # few, so that what is drawn is what was chosen now and then


def drawn(seed: int, place: int, node: SampledLogits) -> np.ndarray[Any, Any]:
    """The negatives of the batch that begins at that place of the stream of examples."""
    rows = node.table.rows
    assert rows is not None
    ids = []
    for i in range(node.negatives):
        words = philox(seed, int.from_bytes(b"negative", "big") ^ place, i)
        bits = words[0] << 32 | words[1]
        if node.sampling == "uniform":
            ids.append(bits * rows >> 64)
        else:
            ids.append(min(int(math.exp((bits >> 11) * 2.0**-53 * math.log1p(rows)) - 1), rows - 1))
    return np.array(ids, np.uint64)


def expected_log(node: SampledLogits, ids: Any) -> Any:
    rows = float(node.table.rows or 0)
    if node.sampling == "uniform":
        return torch.full((len(ids),), math.log(node.negatives / rows), dtype=torch.float64)
    c = torch.tensor(ids.astype(np.float64))
    return torch.log(node.negatives * torch.log1p(1 / (c + 1)) / math.log1p(rows))


def loss_of(graph: Graph, theta: Any, rows: list[Any], batch: Batch, negatives: Any) -> Any:
    """Of a graph of youtube_dnn's form, in double; ``negatives``: what was drawn, if anything is."""
    node = graph.output
    assert isinstance(node, (SampledLogits, InBatchSoftmax))
    columns = dict(zip(graph.readers, batch.columns, strict=True))
    table_of = dict(zip(graph.tables, rows, strict=True))
    parts = {
        block.name: theta[block.offset : block.offset + int(np.prod(block.shape))].reshape(
            block.shape
        )
        for block in graph.native.parameters
    }
    found: dict[Any, Any] = {}
    for i, each in enumerate(graph.nodes[:-1]):
        if isinstance(each, Input):
            found[each] = torch.tensor(batch.x, dtype=torch.float64)
        elif isinstance(each, Embedding):
            found[each] = pooled(each, table_of[each.table], columns[each], len(batch.y))
        elif isinstance(each, Concat):
            found[each] = torch.cat([found[n] for n in each.inputs], 1)
        elif f"{i}.weight" in parts:
            found[each] = found[each.inputs[0]] @ parts[f"{i}.weight"] + parts[f"{i}.bias"]
        else:
            found[each] = torch.relu(found[each.inputs[0]])
    u, table = found[node.user], table_of[node.table]
    chosen = columns[node].ids
    if isinstance(node, InBatchSoftmax):
        return in_batch(u, table[chosen.astype(int)], chosen, node)
    own = (u * table[chosen.astype(int)]).sum(1)
    others = u @ table[negatives.astype(int)].T
    if graph.loss == "bpr":
        there = torch.tensor(chosen[:, None] != negatives[None])
        return (-torch.nn.functional.logsigmoid(own[:, None] - others) * there).mean()
    others = others - expected_log(node, negatives)
    others = others.masked_fill(torch.tensor(chosen[:, None] == negatives[None]), -math.inf)
    logits = torch.cat([others, own[:, None]], 1)
    return torch.nn.functional.cross_entropy(
        logits, torch.full((len(u),), logits.shape[1] - 1, dtype=torch.long)
    )


def in_batch(u: Any, rows: Any, chosen: Any, node: InBatchSoftmax) -> Any:
    """Yi et al., 2019, eqs. 4 and 5, an item that others chose too counting once."""
    below = float(node.table.rows or 0)
    c = torch.tensor(chosen.astype(np.float64))
    q = torch.log1p(1 / (c + 1)) / math.log1p(below)
    if node.frequencies == "uniform":
        q = torch.full_like(q, 1 / below)
    logits = u @ rows.T - torch.log(q)
    twice = (chosen[:, None] == chosen[None]) & ~np.eye(len(chosen), dtype=bool)
    logits = logits.masked_fill(torch.tensor(twice), -math.inf)
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(chosen)))


LOSSES = ("sampled_softmax", "bpr", "in_batch")


def tower(shared: bool, sampling: str, dense: int = 2, loss: Any = "sampled_softmax") -> Graph:
    return models.youtube_dnn(
        ITEMS, 6, (9,), dense, negatives=NEGATIVES, sampling=sampling, shared=shared, loss=loss
    )


def batch_of(graph: Graph, size: int, random: np.random.Generator) -> Batch:
    lengths = random.integers(0, 5, size)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.uint32)
    history = Column(random.integers(0, ITEMS, offsets[-1]).astype(np.uint64), offsets, None)
    chosen = Column(random.integers(0, ITEMS, size).astype(np.uint64), None, None)
    x = random.normal(size=(size, graph.features)).astype(np.float32)
    return Batch(x, np.ones(size, np.int32), [history, chosen])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sampling", ["uniform", "log_uniform"])
@pytest.mark.parametrize("size", [1, 17, 130])
@pytest.mark.parametrize("kind", LOSSES)
def test_loss_and_gradients_are_those_of_autograd(
    shared: bool, sampling: str, size: int, kind: str
) -> None:
    graph = tower(shared, sampling, loss=kind)
    random = np.random.default_rng(size)
    theta = graph.init(1) + random.normal(0, 0.1, graph.dimension).astype(np.float32)
    rows = [random.normal(0, 0.4, (ITEMS, t.dim)).astype(np.float32) for t in graph.tables]
    batch = batch_of(graph, size, random)
    sampled = isinstance(graph.output, SampledLogits)
    negatives = drawn(3, 40, graph.output) if isinstance(graph.output, SampledLogits) else None
    judged = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (theta, *rows)]
    loss = loss_of(graph, judged[0], judged[1:], batch, negatives)
    expected = torch.autograd.grad(loss, judged)
    offsets = np.full(size + 1, NEGATIVES, np.uint32)
    offsets[0] = 0
    columns: list[Any] = [column.native for column in batch.columns]
    if sampled:
        columns.append((negatives, offsets, None))
    for isa in _core.available_isas():
        own = graph.native_at(isa).gradient(theta, batch.x, batch.y, columns, rows)
        np.testing.assert_allclose(own[0], loss.item(), rtol=2e-5)
        for got, judge in zip([own[1], *own[2]], expected, strict=True):
            np.testing.assert_allclose(got, judge.numpy(), atol=2e-5)


def data_of(n: int = 60, seed: int = 0, dense: int = 2) -> ClickDataset:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 6, n)
    ids = random.integers(0, ITEMS, lengths.sum())
    chosen = (np.arange(n) * 7) % ITEMS
    return ClickDataset.from_arrays(
        random.normal(size=(n, dense)),
        {"history": Bags(ids, np.append(0, np.cumsum(lengths))), "chosen": chosen},
        np.ones(n, int),
    )


def picked(data: ClickDataset, rows: Any) -> list[Column]:
    history, chosen = data.ids
    assert isinstance(history, Bags)
    assert isinstance(chosen, np.ndarray)
    bags = history.take(np.asarray(rows))
    return [Column(bags.ids, bags.offsets, None), Column(chosen[rows], None, None)]


STEPS, BATCH, SEED = 50, 8, 5


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rule", ["SGD", "Adagrad"])
@pytest.mark.parametrize("kind", LOSSES)
def test_50_steps_follow_pytorch_with_the_same_negatives(
    shared: bool, rule: str, kind: str
) -> None:
    graph, data = tower(shared, "log_uniform", loss=kind), data_of()
    settings = {} if rule == "SGD" else {"eps": 1e-4}
    ours = getattr(lsh, rule)(0.05, **settings)

    def new() -> dict[str, lsh.Table]:
        return tables.of(graph.tables, rule=ours, init=tables.normal(0.4), seed=SEED)

    start = new()
    judged = [torch.tensor(graph.init(SEED), dtype=torch.float64, requires_grad=True)]
    for table in graph.tables:
        rows = start[table.name].lookup(np.arange(ITEMS))
        judged.append(torch.tensor(rows, dtype=torch.float64, requires_grad=True))
    optimizer = getattr(torch.optim, rule)(judged, lr=0.05, **settings)
    node = graph.output
    for k in range(STEPS):
        rows = _core.batch_rows(SEED, len(data), BATCH, k)
        batch = Batch(data.x[rows], data.y[rows], picked(data, rows))
        negatives = drawn(SEED, k * BATCH, node) if isinstance(node, SampledLogits) else None
        optimizer.zero_grad()
        loss_of(graph, judged[0], judged[1:], batch, negatives).backward()
        optimizer.step()
    result = lsh.train(
        graph,
        data,
        until=lsh.until(updates=STEPS),
        discipline=lsh.Sequential(),
        rule=ours,
        batch_size=BATCH,
        seed=SEED,
        init=lsh.Init(graph.init(SEED), tables=new()),
        observe=lsh.Observe(every=60.0),
    )
    np.testing.assert_allclose(result.parameters, judged[0].detach().numpy(), atol=3e-4)
    for table, judge in zip(graph.tables, judged[1:], strict=True):
        got = result.tables[table.name].lookup(np.arange(ITEMS))
        np.testing.assert_allclose(got, judge.detach().numpy(), atol=3e-4)


def test_with_many_negatives_it_is_the_softmax_over_all() -> None:
    """Which it would not be without the correction, under either sampling."""
    random = np.random.default_rng(2)
    for sampling in ("uniform", "log_uniform"):
        users = Embedding(TableSpec("users", 4, ITEMS), feature=0)
        items = TableSpec("items", 4, ITEMS)
        output = SampledLogits(users, items, 40_000, sampling, feature=1)
        graph = Graph(Concat(output), loss="sampled_softmax")
        rows = [random.normal(0, 0.5, (ITEMS, 4)).astype(np.float32) for _ in range(2)]
        ids = np.arange(ITEMS, dtype=np.uint64)
        negatives = drawn(1, 0, output)
        offsets = np.append(0, np.full(ITEMS, len(negatives))).astype(np.uint32)
        columns = [(ids, None, None), (ids[::-1].copy(), None, None), (negatives, offsets, None)]
        y = np.ones(ITEMS, np.int32)
        theta = np.zeros(0, np.float32)
        loss, _, (got, _) = graph.native.gradient(theta, None, y, columns, rows)
        u = torch.tensor(rows[0], dtype=torch.float64, requires_grad=True)
        logits = u @ torch.tensor(rows[1], dtype=torch.float64).T
        target = torch.tensor(ids[::-1].astype(np.int64))
        judge = torch.nn.functional.cross_entropy(logits, target)
        assert abs(loss - judge.item()) < 0.05
        np.testing.assert_allclose(got, torch.autograd.grad(judge, u)[0].numpy(), atol=2e-3)


def chains() -> ClickDataset:
    """What is chosen next is told by the last that was."""
    sequences = [(np.arange(9) * 3 + start) % ITEMS for start in range(ITEMS)]
    bags = Bags(np.concatenate(sequences), np.arange(ITEMS + 1) * 9)
    return next_items(bags, length=1).train


@pytest.mark.parametrize("loss", LOSSES)
def test_training_finds_what_is_chosen_next(loss: Any) -> None:
    graph = models.youtube_dnn(ITEMS, 16, (32,), negatives=NEGATIVES, sampling="uniform", loss=loss)
    data = chains()
    result = lsh.train(
        graph,
        data,
        until=lsh.until(epochs=40),
        rule=lsh.Adagrad(0.1),
        batch_size=16,
        threads=1,  # of 80 updates one that comes late may be a large part
        discipline=lsh.Leashed(),
    )
    found = retrieval.evaluate(graph, result.parameters, data, result.tables, k=1)
    assert found.hit_rate > 0.8
    best = retrieval.retrieve(graph, result.parameters, data, result.tables, k=3)
    chosen = np.asarray(data.ids[1], np.int64)
    assert np.mean(best[:, 0] == chosen) == pytest.approx(found.hit_rate)
    users = retrieval.user_vectors(graph, result.parameters, data, result.tables)
    logits = users @ result.tables["choices"].lookup(np.arange(ITEMS)).T
    log_sum = np.log(np.exp(logits.astype(np.float64)).sum(1))
    own = logits[np.arange(len(data)), chosen]
    assert found.loss == pytest.approx(float(np.mean(log_sum - own)), rel=1e-5)
    assert found.rank == pytest.approx(float(np.mean((logits > own[:, None]).sum(1))))
    top = np.sort(logits, axis=1)[:, ::-1][:, :3]
    np.testing.assert_allclose(np.take_along_axis(logits, best, 1), top)
    assert 0 < result.accuracy[-1] <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_one_thread_gives_the_same_bits_under_every_discipline_and_goes_on(
    loss: str, tmp_path: Path
) -> None:
    graph, data = tower(True, "uniform", loss=loss), data_of()

    def trained(updates: int, **settings: Any) -> lsh.TrainResult:
        return lsh.train(
            graph,
            data,
            until=lsh.until(updates=updates),
            rule=lsh.Adagrad(0.05),
            batch_size=8,
            seed=2,
            **{"threads": 1, **settings},
        )

    expected = trained(30)
    rows = expected.tables["items"].lookup(np.arange(ITEMS))
    others = [trained(30, discipline=each) for each in (lsh.Hogwild(), lsh.Synchronous())]
    trained(17, checkpoint=tmp_path / "run")
    others.append(trained(30, resume=tmp_path / "run"))
    for other in others:
        np.testing.assert_array_equal(other.parameters, expected.parameters)
        np.testing.assert_array_equal(other.tables["items"].lookup(np.arange(ITEMS)), rows)
    found = lsh.load(tmp_path / "run").model
    assert isinstance(found, Graph)
    assert (found.loss, type(found.output)) == (loss, type(graph.output))
    if isinstance(found.output, SampledLogits):
        assert found.output.correction == (loss != "bpr")
    played = lsh.simulate(
        graph,
        data,
        cluster=lsh.simulation.constant(1, 1.0),
        until=lsh.until(updates=30),
        rule=lsh.Adagrad(0.05),
        batch_size=8,
        seed=2,
    ).result
    np.testing.assert_array_equal(played.parameters, expected.parameters)


def test_next_items_are_those_that_followed() -> None:
    bags = Bags([1, 2, 3, 4, 9, 7, 8], [0, 4, 5, 5, 7])
    train, test = next_items(bags, length=2)
    told = []
    for data in (train, test):
        history, chosen = data.ids
        assert isinstance(history, Bags)
        assert data.names == ("history", "chosen")
        for i, (begin, end) in enumerate(itertools.pairwise(history.offsets)):
            told.append((history.ids[begin:end].tolist(), int(chosen[i])))
    assert told == [([1], 2), ([1, 2], 3), ([7], 8), ([2, 3], 4)]
    with pytest.raises(TypeError, match="sequences must be Bags"):
        next_items([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a user with at least three items"):
        next_items(Bags([1, 2], [0, 2]))


def test_what_does_not_fit_is_refused() -> None:
    user = Embedding(TableSpec("a", 4, 9)) >> Dense(3) >> ReLU()
    with pytest.raises(ValueError, match="its input must have the width of a row of table b, 4"):
        Graph(SampledLogits(user, TableSpec("b", 4, 9)), loss="sampled_softmax")
    with pytest.raises(ValueError, match="table b must have rows, which its ids are below"):
        SampledLogits(user, TableSpec("b", 3))
    with pytest.raises(ValueError, match="its input must have the width of a row of table b, 4"):
        Graph(InBatchSoftmax(user, TableSpec("b", 4, 9)), loss="in_batch")
    with pytest.raises(ValueError, match="frequencies must be one of log_uniform, uniform"):
        InBatchSoftmax(user, TableSpec("b", 3, 9), "zipf")
    with pytest.raises(ValueError, match="sampling must be one of log_uniform, uniform"):
        SampledLogits(user, TableSpec("b", 3, 9), sampling="zipf")
    with pytest.raises(TypeError, match="correction must be True or False"):
        SampledLogits(user, TableSpec("b", 3, 9), correction="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss must be one of sampled_softmax, bpr, in_batch, got"):
        tower(True, "uniform", loss="hinge")
    with pytest.raises(ValueError, match="negatives must be"):
        SampledLogits(user, TableSpec("b", 3, 9), 0)
    with pytest.raises(TypeError, match="input 0 must be a node"):
        SampledLogits(3, TableSpec("b", 3, 9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss must be one of"):
        models.Model((3, 1, 1), (Dense(2),), loss="sampled_softmax")
    graph, data = tower(False, "uniform"), data_of()
    bags = ClickDataset.from_arrays(
        data.x, {"history": data.ids[0], "chosen": data.ids[0]}, np.ones(len(data), int)
    )
    with pytest.raises(ValueError, match="chosen must have one id a row, what was chosen"):
        lsh.train(graph, bags, until=lsh.until(updates=1))
    theta, rows = graph.init(), [np.zeros((ITEMS, 6), np.float32)] * 2
    batch = batch_of(graph, 3, np.random.default_rng(0))
    few = (np.arange(5, dtype=np.uint64), np.array([0, 5, 5, 5], np.uint32), None)
    columns = [*(column.native for column in batch.columns), few]
    with pytest.raises(ValueError, match=f"a batch must have {NEGATIVES} negatives"):
        graph.native.gradient(theta, batch.x, batch.y, columns, rows)
    new = tables.of(graph.tables, rule=lsh.SGD(0.1))
    with pytest.raises(TypeError, match="a graph whose output is SampledLogits or InBatchSoftmax"):
        retrieval.evaluate(models.dlrm(9), theta, data, new)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k must be"):
        retrieval.retrieve(graph, theta, data, new, k=ITEMS + 1)


def test_a_batch_of_one_has_nothing_to_choose_among() -> None:
    graph, data = tower(True, "uniform", loss="in_batch"), data_of()
    until = lsh.until(updates=1)
    with pytest.raises(
        ValueError, match=r"batch_size must be at least 2 .* chooses among what a b"
    ):
        lsh.train(graph, data, until=until, batch_size=1)
    with pytest.raises(
        ValueError, match=r"data has one example, and .* chooses among what a batch"
    ):
        lsh.train(graph, data[:1], until=until)
    lsh.train(tower(True, "uniform", loss="bpr"), data, until=until, batch_size=1)


def test_the_best_of_choices_within_a_batch_is_not_by_accuracy() -> None:
    graph, data = tower(True, "uniform", loss="in_batch"), data_of()
    until = lsh.until(patience=1, metric="accuracy", epochs=2)
    with pytest.raises(ValueError, match=r"metric accuracy is none of .*, which are loss; give"):
        lsh.train(graph, data, validation=data, until=until)


def test_a_model_that_tells_nothing_apart_hits_nothing() -> None:
    graph = models.youtube_dnn(ITEMS, 16, (32,), negatives=NEGATIVES)
    rows = tables.of(graph.tables, seed=1)
    found = retrieval.evaluate(graph, np.zeros(graph.dimension), chains(), rows, k=1)
    assert found.hit_rate == 0
    assert found.rank == ITEMS - 1
    assert found.loss == pytest.approx(np.log(ITEMS), rel=1e-5)
