"""leashed.torch's modules over tables: PyTorch's own step by step, and what is refused."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed.models import tables

torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
torch.set_num_threads(1)  # its own threads would only wait for each other here

ROWS, DIM, STEPS = 20, 6, 50
IDS = torch.tensor([1, 2, 3])
TOLERANCE = 2e-5
RULES: dict[str, tuple[lsh.Rule, str, dict[str, float]]] = {
    "SGD": (lsh.SGD(0.1), "SGD", {"lr": 0.1}),
    "Adagrad": (lsh.Adagrad(0.1), "Adagrad", {"lr": 0.1}),
    "SparseAdam": (lsh.Adam(0.01, eps=1e-8), "SparseAdam", {"lr": 0.01, "eps": 1e-8}),
}


@pytest.fixture(autouse=True)
def _checked_sparse_gradients() -> Iterator[None]:
    """PyTorch's own optimizers warn where nobody has said whether they are to be checked."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def embedding(rule: lsh.Rule | None = None, **changes: Any) -> Any:
    settings = {"num_embeddings": ROWS, "init": tables.normal(1.0), "rule": rule or lsh.SGD(0.1)}
    return lsh.torch.Embedding(**{**settings, "embedding_dim": DIM, **changes})


def values(module: Any) -> Any:
    return torch.from_numpy(module.table.lookup(np.arange(ROWS)))


def reference(module: Any) -> Any:
    return torch.nn.Embedding.from_pretrained(values(module), freeze=False, sparse=True)


def assert_equal(ours: Any, theirs: Any, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(
        values(ours).numpy(), theirs.weight.detach().numpy(), atol=tolerance, rtol=0
    )


class Model(torch.nn.Module):
    """Means of two sequences over one embedding, and a dense layer."""

    def __init__(self, module: Any, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = module
        self.dense = torch.nn.Linear(DIM, 1)

    def forward(self, ids: Any) -> Any:
        pooled = self.embedding(ids[:, :3]).mean(1) + self.embedding(ids[:, 3:]).mean(1)
        return self.dense(torch.tanh(pooled)).squeeze(1)


def batch(seed: int) -> tuple[Any, Any]:
    """Ids [8, 5] with duplicates, and labels."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, ROWS // 2 + seed % (ROWS // 2), (8, 5), generator=generator)
    return ids, (ids.float().mean(1) % 2 > 1).float()


def backward(model: Any, seed: int, scale: Any = lambda loss: loss) -> float:
    ids, y = batch(seed)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(ids), y)
    scale(loss).backward()
    return float(loss.detach())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("grows", [False, True])
def test_a_model_changes_by_one_line(name: str, accumulated: int, grows: bool) -> None:
    rule, optimizer, settings = RULES[name]
    size = {"num_embeddings": None, "max_bytes": 2**20} if grows else {}
    ours = Model(embedding(rule, **size))
    theirs = Model(reference(ours.embedding))
    rows, dense = lsh.torch.RowOptimizer(ours), torch.optim.SGD(ours.dense.parameters(), 0.1)
    steppers = [
        getattr(torch.optim, optimizer)(theirs.embedding.parameters(), **settings),
        torch.optim.SGD(theirs.dense.parameters(), 0.1),
    ]
    for step in range(STEPS):
        for one in (rows, dense, *steppers):
            one.zero_grad()
        for part in range(accumulated):
            seed = step * accumulated + part
            assert backward(ours, seed) == pytest.approx(backward(theirs, seed), abs=1e-4)
        for one in (rows, dense, *steppers):
            one.step()
        assert_equal(ours.embedding, theirs.embedding)
    assert ours.embedding.table.statistics()["steps"] == STEPS


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_bags_equal_pytorchs(mode: str, last: bool) -> None:
    settings: dict[str, Any] = {"mode": mode, "include_last_offset": last}
    ours = lsh.torch.EmbeddingBag(
        ROWS, DIM, rule=lsh.Adagrad(0.1), init=tables.normal(1.0), **settings
    )
    theirs = torch.nn.EmbeddingBag.from_pretrained(
        values(ours), freeze=False, sparse=mode != "max", **settings
    )
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        ids = torch.randint(0, ROWS, (12,), generator=generator)
        offsets = torch.tensor([0, 3, 3, 7, 12] if last else [0, 3, 3, 7, 12][:-1])
        weights = None
        if mode == "sum":
            weights = torch.rand(12, generator=generator, requires_grad=True)
        optimizer.zero_grad()
        told = []
        for module in (ours, theirs):
            given = module(ids, offsets, per_sample_weights=weights)
            (given * torch.arange(4.0)[:, None]).square().sum().backward()
            told.append(given.detach())
            if weights is not None:
                told.append(weights.grad)
                weights.grad = None
        for mine, other in zip(told[: len(told) // 2], told[len(told) // 2 :], strict=True):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)
        ours.step()
        optimizer.step()
        assert_equal(ours, theirs)
    square = ids.view(3, 4)
    assert torch.equal(ours(square), ours.twin()(square))
    if not last:
        np.testing.assert_allclose(
            ours(square).detach().numpy(), theirs(square).detach().numpy(), atol=1e-4
        )
    nothing = torch.tensor([], dtype=torch.int64)
    assert not ours(nothing, torch.tensor([0, 0])).any()


def test_modules_that_share_a_table_make_one_update_of_it() -> None:
    table = lsh.Table(rows=ROWS, dim=DIM, rule=lsh.Adam(0.01, eps=1e-8))
    first, second = (lsh.torch.Embedding(table=table) for _ in range(2))
    theirs = reference(first)
    rows = lsh.torch.RowOptimizer(torch.nn.ModuleList([first, second]))
    optimizer = torch.optim.SparseAdam(list(theirs.parameters()), lr=0.01, eps=1e-8)
    for step in range(STEPS):
        ids, _ = batch(step)
        optimizer.zero_grad()
        for a, b in ((first, second), (theirs, theirs)):
            (a(ids[:, :2]).prod(1) - b(ids[:, 2:]).mean(1)).square().sum().backward()
        rows.step()
        optimizer.step()
        assert_equal(first, theirs)
    assert table.statistics()["steps"] == STEPS


def test_rows_move_in_step_alone_and_once() -> None:
    module = embedding()
    before = values(module)
    module(torch.tensor([1, 1, 2])).sum().backward()
    torch.testing.assert_close(values(module), before, rtol=0, atol=0)
    assert module.step().applied == 2
    after = values(module)
    torch.testing.assert_close(after[1], before[1] - 0.2)
    torch.testing.assert_close(after[2], before[2] - 0.1)
    assert module.step() is None
    module(torch.tensor([3])).sum().backward()
    module.zero_grad()
    assert module.step() is None
    assert module.table.statistics()["steps"] == 1
    torch.testing.assert_close(values(module), after, rtol=0, atol=0)


def test_ids_that_are_changed_between_forward_and_step_are_those_of_forward() -> None:
    module = embedding()
    ids = torch.tensor([1, 2])
    before = values(module)
    found = module(ids)
    ids.fill_(5)
    found.sum().backward()
    module.step()
    changed = (values(module) != before).any(1)
    assert changed.nonzero().ravel().tolist() == [1, 2]


def test_what_a_look_up_gives_may_be_changed_in_place() -> None:
    module = embedding()
    before = values(module)
    module(torch.tensor([4])).mul_(2).sum().backward()
    module.step()
    torch.testing.assert_close(values(module)[4], before[4] - 0.2)


def test_under_autocast_rows_and_their_gradients_stay_float32() -> None:
    model = Model(embedding())
    before = values(model.embedding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.embedding(IDS).dtype is torch.float32
        loss = model(batch(0)[0])
        assert loss.dtype is torch.bfloat16
        loss.float().sum().backward()
    (gathered,) = lsh.torch.RowOptimizer(model).gathered()
    assert gathered.grad.dtype is torch.float32
    model.embedding.step()
    assert (values(model.embedding) != before).any()


def test_a_backward_that_keeps_its_graph_counts_each_time() -> None:
    module = embedding()
    before = values(module)
    loss = module(torch.tensor([4])).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    module.step()
    torch.testing.assert_close(values(module)[4], before[4] * (1 - 0.1 * 2 * 2))


def test_gathered_gradients_are_no_memory_of_others() -> None:
    module = embedding()
    found = module(IDS)
    moved = found + 1
    moved.retain_grad()
    moved.sum().backward()
    lsh.torch.RowOptimizer(module).gathered()[0].grad.mul_(2)
    assert (moved.grad == 1).all()


def test_a_penalty_on_gradients_is_followed() -> None:
    module = embedding()
    theirs = reference(module)
    theirs.sparse = False
    for one in (module, theirs):
        found = one(IDS)
        (slope,) = torch.autograd.grad(found.pow(3).sum(), found, create_graph=True)
        slope.square().sum().mul(0.01).backward()
    module.step()
    torch.optim.SGD(theirs.parameters(), 0.1).step()
    assert_equal(module, theirs)


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_gradients_that_have_a_graph_of_their_own_are_applied() -> None:
    module = embedding()
    (module(IDS) * torch.ones(1, requires_grad=True)).sum().backward(create_graph=True)
    assert module.step().applied == 3


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_ids_are_of_any_shape_and_kind(dtype: Any) -> None:
    module = embedding()
    for shape in ((), (0,), (3,), (2, 0, 3), (2, 3, 4)):
        ids = torch.full(shape, 7, dtype=dtype)
        found = module(ids)
        assert found.shape == (*shape, DIM)
        assert found.requires_grad
        found.sum().backward()
    module.step()
    strided = torch.arange(12, dtype=dtype).view(3, 4).t()
    torch.testing.assert_close(module(strided).detach(), values(module)[strided.long()])


def test_a_growing_table_takes_unsigned_and_negative_ids() -> None:
    module = embedding(num_embeddings=None, max_bytes=2**20)
    module(torch.tensor([-1])).sum().backward()
    module(torch.tensor([2**64 - 1], dtype=torch.uint64)).sum().backward()
    assert module.step().applied == 1


def test_evaluation_gathers_and_admits_nothing() -> None:
    module = embedding(num_embeddings=None, max_bytes=2**20)
    ids = torch.arange(5)
    trained = module(ids)
    with torch.no_grad():
        assert not module(ids).requires_grad
    with torch.inference_mode():
        assert not module(ids).requires_grad
    module.eval()
    read = module(ids)
    assert not read.requires_grad
    assert torch.equal(read, trained.detach())
    assert module.step() is None
    told = module.table.statistics()
    assert (told["admitted"], told["asked"], told["steps"]) == (0, 0, 0)


def test_padding_reads_0_and_never_moves() -> None:
    module = embedding(padding_idx=2)
    theirs = torch.nn.Embedding(ROWS, DIM, padding_idx=2, sparse=True)
    with torch.no_grad():
        theirs.weight.copy_(values(module))
        theirs.weight[2] = 0
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    before = values(module)
    for seed in range(5):
        ids, _ = batch(seed)
        optimizer.zero_grad()
        for one in (module, theirs):
            (one(ids) + 1).square().sum().mul(0.1).backward()
        module.step()
        optimizer.step()
        everything = torch.arange(ROWS)
        torch.testing.assert_close(module(everything), theirs(everything))
    torch.testing.assert_close(values(module)[2], before[2], rtol=0, atol=0)
    assert not module.eval()(torch.tensor([2, 2])).any()
    module.train()(torch.tensor([2])).sum().backward()
    assert module.step() is None


def test_clipping_sees_the_gradients_of_distinct_ids() -> None:
    ours = Model(embedding())
    theirs = Model(reference(ours.embedding))
    theirs.embedding.sparse = False
    rows = lsh.torch.RowOptimizer(ours)
    optimizer = torch.optim.SGD(theirs.embedding.parameters(), 0.1)
    for seed in range(5):
        for model in (ours, theirs):
            model.zero_grad()
            backward(model, seed)
        told = [
            torch.nn.utils.clip_grad_norm_([*ours.parameters(), *rows.gathered()], 0.01),
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.01),
        ]
        torch.testing.assert_close(*told)
        rows.step()
        optimizer.step()
        assert_equal(ours.embedding, theirs.embedding)
    assert rows.gathered() == []


def test_a_grad_scaler_unscales_and_leaves_out_what_is_infinite() -> None:
    ours, plain = (Model(embedding(lsh.Adagrad(0.1))) for _ in range(2))
    rows, others = lsh.torch.RowOptimizer(ours), lsh.torch.RowOptimizer(plain)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for seed in range(10):
        rows.zero_grad()
        backward(ours, seed, scaler.scale)
        if seed % 2:
            scaler.unscale_(rows)
        scaler.step(rows)
        scaler.update()
        backward(plain, seed)
        others.step()
        torch.testing.assert_close(values(ours.embedding), values(plain.embedding))
    before = values(ours.embedding)
    (ours(batch(0)[0]).sum() * float("inf")).backward()
    scaler.step(rows)
    scaler.update()
    assert scaler.get_scale() == 512
    torch.testing.assert_close(values(ours.embedding), before, rtol=0, atol=0)


def test_a_gradient_that_is_not_finite_moves_no_table() -> None:
    modules = torch.nn.ModuleList([embedding(name="first"), embedding(name="second")])
    before = [values(module) for module in modules]
    rows = lsh.torch.RowOptimizer(modules)
    modules[0](torch.tensor([1])).sum().backward()
    (modules[1](torch.tensor([1])) * float("nan")).sum().backward()
    with pytest.raises(ValueError, match="gradient of second is not finite"):
        rows.step()
    with pytest.raises(ValueError, match="finite"):
        modules[1].step()
    for module, value in zip(modules, before, strict=True):
        torch.testing.assert_close(values(module), value, rtol=0, atol=0)
    modules[1].zero_grad()
    rows.step()
    assert [module.table.statistics()["steps"] for module in modules] == [1, 0]


def test_staleness_is_told_from_the_earliest_look_up() -> None:
    table = lsh.Table(rows=ROWS, dim=DIM, rule=lsh.SGD(0.1))
    mine, other = (lsh.torch.Embedding(table=table) for _ in range(2))
    first = mine(torch.tensor([1]))
    other(torch.tensor([1])).sum().backward()
    other.step()
    second = mine(torch.tensor([1]))
    second.sum().backward()
    first.sum().backward()
    mine.step()
    assert table.statistics()["staleness"] == 1
    first = mine(torch.tensor([1, 1]))
    other(torch.tensor([1])).sum().backward()
    other.step()
    first.sum().backward()
    lsh.torch.RowOptimizer(mine).gathered()
    mine.step()
    assert table.statistics()["staleness"] == 2


def test_each_of_the_distinct_ids_keeps_its_own_staleness() -> None:
    module = embedding()
    module(torch.tensor([3])).sum().backward()
    module.step()
    module(torch.tensor([3, 3, 1])).sum().backward()
    lsh.torch.RowOptimizer(module).gathered()
    module.step()
    told = module.table.statistics()
    assert (told["applied"], told["staleness"]) == (3, 0)


@pytest.mark.parametrize("name", RULES)
def test_state_dict_goes_on_to_the_same_bits(name: str) -> None:
    rule, *_ = RULES[name]
    ours, other = (Model(embedding(rule), seed) for seed in range(2))
    rows, others = lsh.torch.RowOptimizer(ours), lsh.torch.RowOptimizer(other)
    for seed in range(5):
        backward(ours, seed)
        rows.step()
    backward(other, 99)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    assert not other.load_state_dict(torch.load(file, weights_only=True)).missing_keys
    for gathered in (ours, other):
        gathered.zero_grad()
    assert other.embedding.step() is None
    for seed in range(5, 10):
        for model, optimizer in ((ours, rows), (other, others)):
            backward(model, seed)
            optimizer.step()
        torch.testing.assert_close(values(ours.embedding), values(other.embedding), rtol=0, atol=0)


@pytest.mark.parametrize("grows", [False, True])
def test_a_state_of_another_seed_is_taken_with_it(grows: bool) -> None:
    size = {"num_embeddings": None, "max_bytes": 2**20} if grows else {}
    ours, other = (
        embedding(lsh.Adagrad(0.1), seed=seed, number=9 - seed, **size) for seed in range(2)
    )
    for module, ids in ((ours, IDS), (other, IDS + 2)):
        module(ids).sum().backward()
        module.step()
    state = other.state_dict()
    ours.load_state_dict(state)
    assert torch.equal(values(ours), values(other))  # rows of ids that have none among them
    assert (ours.table.seed, ours.table.number) == (1, 8)
    assert torch.equal(ours.state_dict()["_extra_state"], state["_extra_state"])
    for module in (ours, other):
        module(torch.tensor([1, 9])).sum().backward()
        module.step()
    assert torch.equal(values(ours), values(other))


def test_a_state_of_another_table_changes_nothing() -> None:
    module = embedding()
    before = values(module)
    state = embedding(lsh.Adam(0.01)).state_dict()
    with pytest.raises(ValueError, match="the state is of another table"):
        module.load_state_dict(state)
    damaged = module.state_dict()
    damaged["_extra_state"][-30] ^= 4
    with pytest.raises(ValueError, match="damaged"):
        module.load_state_dict(damaged)
    with pytest.raises(TypeError, match="uint8"):
        module.load_state_dict({"_extra_state": before})
    with pytest.raises(RuntimeError, match="weight"):
        module.load_state_dict(reference(module).state_dict())
    torch.testing.assert_close(values(module), before, rtol=0, atol=0)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("grows", [False, True])
def test_copies_have_a_table_of_their_own_and_go_on_to_the_same_bits(
    way: str, name: str, grows: bool
) -> None:
    def copied(model: Any) -> Any:
        if way == "deepcopy":
            return copy.deepcopy(model)
        if way == "pickle":
            return pickle.loads(pickle.dumps(model))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    size = {"num_embeddings": None, "max_bytes": 2**20} if grows else {}
    one = Model(embedding(RULES[name][0], **size))
    ours = torch.nn.ModuleList([one, one.embedding.twin()])
    for seed in range(3):
        backward(one, seed)
        lsh.torch.RowOptimizer(ours).step()
    backward(one, 3)  # which waits, and is not copied
    other = copied(ours)
    assert other[0].embedding.table is other[1].table is not one.embedding.table
    assert other[0].embedding.step() is None
    one.zero_grad(), ours[0].embedding.zero_grad()
    for seed in range(4, 8):
        for model in (one, other[0]):
            backward(model, seed)
            model.embedding.step()
    assert torch.equal(values(one.embedding), values(other[0].embedding))
    assert torch.equal(values(one.embedding), values(other[1]))


def test_copies_have_all_of_a_tables_settings() -> None:
    table = lsh.Table(dim=2, rows=3, weight_decay=0.25, versions=False, name="prices", seed=4)
    settings = table.__reduce__()[1][0]
    assert set(settings) == set(inspect.signature(lsh.Table).parameters)
    other = copy.deepcopy(table)
    assert other.description == table.description
    assert {name: getattr(other, name) for name in settings} == settings


def test_a_shallow_copy_is_over_the_same_table() -> None:
    module = embedding()
    module(IDS).sum().backward()
    other = copy.copy(module)
    assert other.table is module.table
    assert other.step() is None
    assert module.step() is not None


def test_weight_is_the_rows_where_they_lie() -> None:
    module = embedding(lsh.Adam(0.01))
    assert (module.num_embeddings, module.embedding_dim) == (ROWS, DIM)
    assert module.weight.shape == (ROWS, DIM)
    assert torch.equal(module.weight, values(module))
    torch.nn.init.constant_(module.weight, 2.0)
    module.weight[3] = torch.arange(DIM)
    assert torch.equal(
        module(torch.tensor([3, 4])),
        torch.stack([torch.arange(DIM), torch.full((DIM,), 2)]).float(),
    )
    weight = module.weight
    module(IDS).sum().backward()
    module.step()
    assert torch.equal(weight, values(module))
    assert (weight[1] < 2).all()
    assert (weight[4] == 2).all()
    del module
    assert weight.sum() != 0  # the memory is there as long as somebody looks at it
    grown = embedding(num_embeddings=None, max_bytes=2**20)
    assert grown.num_embeddings is None
    assert not hasattr(grown, "weight")
    with pytest.raises(AttributeError, match="a table that grows has no weight"):
        grown.weight  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        grown.nothing  # noqa: B018


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_rows_begin_with_what_was_trained_elsewhere(kind: str, freeze: bool) -> None:
    rows = torch.randn(ROWS, DIM, dtype=torch.float64).float()
    options: dict[str, Any] = {} if kind == "Embedding" else {"mode": "sum"}
    theirs = getattr(torch.nn, kind).from_pretrained(rows.clone(), freeze=freeze, **options)
    ours = getattr(lsh.torch, kind).from_pretrained(
        rows, freeze=freeze, rule=lsh.Adagrad(0.1), **options
    )
    dense = torch.nn.Linear(DIM, 1)
    optimizer = torch.optim.Adagrad(theirs.parameters(), 0.1) if not freeze else None
    for seed in range(5):
        ids = batch(seed)[0]
        for module in (ours, theirs):
            dense(module(ids)).pow(2).sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        assert (ours.step() is None) == freeze
        assert_equal(ours, theirs)
    assert torch.equal(values(ours), rows) == freeze
    assert ours.twin().frozen == freeze
    if freeze:
        ours.frozen = False
        ours(ids).sum().backward()
        assert ours.step() is not None


def test_rows_that_none_can_begin_with_are_refused() -> None:
    make = lsh.torch.Embedding.from_pretrained
    for given, options, error, message in (
        (np.ones((3, 2)), {}, TypeError, "embeddings must be a torch.Tensor"),
        (torch.ones(3), {}, ValueError, r"must be \[num_embeddings, embedding_dim\]"),
        (torch.full((3, 2), torch.nan), {}, ValueError, "not all finite"),
        (torch.ones(3, 2), {"init": tables.zeros()}, ValueError, "init is none of a table"),
        (torch.ones(3, 2), {"table": TABLE}, ValueError, "table is none of a table"),
        (torch.ones(3, 2), {"freeze": 1}, TypeError, "freeze must be True or False"),
        (torch.ones(3, 2), {"max_norm": 1.0}, TypeError, "max_norm is PyTorch's alone"),
    ):
        with pytest.raises(error, match=message):
            make(given, **options)


def test_gradients_that_wait_are_added_up_by_id() -> None:
    dim, batches, size = 2**10, 100, 32
    module = embedding(embedding_dim=dim, init=tables.zeros())
    plain = lsh.Table(rows=ROWS, dim=dim, init=tables.zeros(), rule=lsh.SGD(0.1))
    generator = torch.Generator().manual_seed(1)
    told, gradients, most = [], [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(batches):
            ids = torch.randint(0, ROWS, (size,), generator=generator)
            gradient = torch.randn(size, dim, generator=generator)
            module(ids).backward(gradient)
            told.append(ids)
            gradients.append(gradient)
            most = max(most, sum(part.gradient.numel() for part in module._gathered))
    assert most <= 2 * ROWS * dim + 2**20 + size * dim < batches * size * dim / 2
    assert module.step().applied == ROWS
    plain.update(torch.cat(told).numpy(), torch.cat(gradients).numpy())
    np.testing.assert_array_equal(values(module).numpy(), plain.lookup(range(ROWS)))


def test_small_gradients_that_wait_are_added_up_too() -> None:
    module = embedding()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(200):
            module(torch.tensor([k % 3])).sum().backward()
            assert len(module._gathered) <= 64
    assert module.step().applied == 3


def test_rows_that_never_move_are_told_once() -> None:
    model = Model(embedding(name="words"))  # which looks twice up in a batch
    for _ in range(64):
        backward(model, 0)
        model.zero_grad()
    with once("rows of words have not moved for 64 batches") as told:
        for _ in range(100):
            backward(model, 0)
    assert re.search(r"RowOptimizer.*eval\(\)", str(told[0].message))


def test_rows_that_move_or_are_to_stay_are_not_told_of() -> None:
    model = Model(embedding())
    rows = lsh.torch.RowOptimizer(model)
    for k in range(200):
        backward(model, k)
        if k % 50 == 0:
            rows.step()
    model.eval()
    for _ in range(100):
        backward(model, 0)


def test_threads_share_a_table() -> None:
    table = lsh.Table(rows=ROWS, dim=DIM, init=tables.zeros(), rule=lsh.SGD(1.0))
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            model = torch.nn.Sequential(lsh.torch.Embedding(table=table))
            rows = lsh.torch.RowOptimizer(model)
            for _ in range(100):
                model(torch.tensor([0, 1 + thread])).sum().neg().backward()
                rows.step()
        except BaseException as error:  # noqa: BLE001  raised in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    told = table.statistics()
    assert (told["steps"], told["applied"]) == (400, 800)
    np.testing.assert_array_equal(table.lookup(range(1, 5)), np.full((4, DIM), 100))


@pytest.mark.parametrize("threads", [1, 3])
def test_fit_steps_the_rows_of_every_thread(threads: int) -> None:
    ids = torch.cat([batch(seed)[0] for seed in range(10)])
    y = torch.cat([batch(seed)[1] for seed in range(10)])
    model = Model(embedding())
    before = values(model.embedding)
    table = model.embedding.table
    result = lsh.torch.fit(
        model,
        torch.nn.functional.binary_cross_entropy_with_logits,
        (ids, y),
        until=lsh.until(epochs=5),
        rule=lsh.SGD(0.1),
        threads=threads,
        batch_size=8,
    )
    assert model.embedding.table is table
    assert table.statistics()["steps"] == result.updates == 50
    assert (values(model.embedding) != before).any()
    assert np.isfinite(result.losses).all()
    assert model.embedding.step() is None


def test_fit_leaves_rows_that_are_evaluated_as_they_are() -> None:
    model = Model(embedding().eval())
    before = values(model.embedding)
    lsh.torch.fit(
        model,
        torch.nn.functional.binary_cross_entropy_with_logits,
        batch(0),
        until=lsh.until(updates=20),
        threads=3,
        batch_size=4,
    )
    torch.testing.assert_close(values(model.embedding), before, rtol=0, atol=0)


def test_fit_with_one_thread_is_the_loop() -> None:
    ours, theirs = (Model(embedding(lsh.Adagrad(0.1))) for _ in range(2))
    ids, y = batch(3)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    lsh.torch.fit(
        ours,
        loss,
        (ids, y),
        until=lsh.until(updates=20),
        rule=lsh.SGD(0.1),
        discipline=lsh.Sequential(),
        batch_size=8,
    )
    rows, dense = lsh.torch.RowOptimizer(theirs), torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(20):
        dense.zero_grad()
        loss(theirs(ids), y).backward()
        dense.step()
        rows.step()
    torch.testing.assert_close(values(ours.embedding), values(theirs.embedding))
    torch.testing.assert_close(ours.dense.weight, theirs.dense.weight)


TABLE = lsh.Table(rows=ROWS, dim=DIM)
MADE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no size": (lambda: lsh.torch.Embedding(None, DIM), ValueError, "max_bytes is needed"),
    "no dim": (lambda: lsh.torch.Embedding(ROWS), ValueError, "embedding_dim is needed"),
    "dim": (lambda: lsh.torch.Embedding(ROWS, 0), ValueError, "embedding_dim must be"),
    "table": (lambda: lsh.torch.Embedding(table=5), TypeError, "table must be a leashed.Table"),
    "both": (lambda: lsh.torch.Embedding(ROWS, table=TABLE), ValueError, "num_embeddings is set"),
    "rule twice": (
        lambda: lsh.torch.Embedding(table=TABLE, rule=lsh.SGD(0.1)),
        ValueError,
        "rule is settled by table",
    ),
    "rule": (lambda: embedding(lsh.Momentum(0.1)), TypeError, "Momentum would have to move"),
    "padding": (lambda: embedding(padding_idx=ROWS), ValueError, "padding_idx must be at most"),
    "bag's padding": (
        lambda: lsh.torch.EmbeddingBag(ROWS, DIM, padding_idx=0),
        TypeError,
        "padding_idx is none of a bag",
    ),
    "mode": (lambda: lsh.torch.EmbeddingBag(ROWS, DIM, mode="min"), ValueError, "mode must be"),
    "no module": (lambda: lsh.torch.RowOptimizer(5), TypeError, "module must be"),
    "no rows": (
        lambda: lsh.torch.RowOptimizer(torch.nn.Linear(2, 2)),
        ValueError,
        "module has no leashed.torch.Embedding",
    ),
    **{
        name: (lambda name=name: embedding(**{name: 1}), TypeError, f"{name} is PyTorch's alone")
        for name in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse", "device", "dtype")
    },
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_no_module_is_refused(name: str) -> None:
    call, error, message = MADE[name]
    with pytest.raises(error, match=message):
        call()


FLOAT, SHARED = torch.ones(2), "of one process"
BAD: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "negative": (lambda m: m(torch.tensor([0, -1])), IndexError, r"ids\[1\] is -1, outside"),
    "too large": (lambda m: m(torch.tensor([[ROWS]])), IndexError, r"ids\[0, 0\] is 20"),
    "fractional": (lambda m: m(FLOAT), TypeError, r"convert with ids.long\(\)"),
    "truth": (lambda m: m(FLOAT > 0), TypeError, "ids must hold whole numbers"),
    "list": (lambda m: m([1]), TypeError, "ids must be a torch.Tensor"),
    "device": (lambda m: m(torch.ones(1, device="meta").long()), ValueError, r"ids.cpu\(\)"),
    "to": (lambda m: m.to("meta"), ValueError, "cannot be moved to device meta"),
    "parent": (lambda m: torch.nn.Sequential(m).to("meta"), ValueError, "cannot be moved"),
    "double": (lambda m: m.double(), TypeError, "cannot become torch.float64"),
    "half": (lambda m: m.half(), TypeError, "use torch.autocast"),
    "processes": (lambda m: m.share_memory(), ValueError, SHARED),
    "optimizer": (
        lambda m: copy.deepcopy(lsh.torch.RowOptimizer(m)),
        TypeError,
        "RowOptimizer can be neither copied",
    ),
    "cluster": (
        lambda m: lsh.torch.fit(
            Model(m), FLOAT.__mul__, batch(0), until=lsh.until(epochs=1), sync=lsh.sync.MA()
        ),
        ValueError,
        "rows of tables are not synchronised",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_and_changes_nothing(name: str) -> None:
    call, error, message = BAD[name]
    module = embedding()
    before = values(module)
    with pytest.raises(error, match=message):
        call(module)
    torch.testing.assert_close(values(module), before, rtol=0, atol=0)
    assert module.step() is None


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_trace_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot be traced"):
        torch.jit.trace(embedding(), torch.tensor([1]), check_trace=False)


BAGS: dict[str, tuple[tuple[Any, ...], bool, str]] = {
    "no offsets": ((IDS,), False, "without offsets"),
    "too many": ((IDS.view(1, 3), torch.tensor([0])), False, "with offsets"),
    "none": ((IDS, torch.tensor([], dtype=torch.int64)), False, "begin with 0"),
    "begin": ((IDS, torch.tensor([1, 2])), False, "begin with 0"),
    "fall": ((IDS, torch.tensor([0, 2, 1])), False, "never fall"),
    "beyond": ((IDS, torch.tensor([0, 4])), False, "stay within the 3 ids"),
    "end": ((IDS, torch.tensor([0, 2])), True, "end with the 3 ids"),
    "shape": ((IDS, torch.tensor([[0]])), False, "one-dimensional"),
    "kind": ((IDS, torch.tensor([0.0])), False, r"offsets.long\(\)"),
}


@pytest.mark.parametrize("name", BAGS)
def test_bags_that_are_none_are_refused(name: str) -> None:
    given, last, message = BAGS[name]
    bag = lsh.torch.EmbeddingBag(ROWS, DIM, include_last_offset=last)
    with pytest.raises((TypeError, ValueError), match=message):
        bag(*given)


def test_what_can_be_done_with_any_module_leaves_it_as_it_is() -> None:
    model = Model(embedding())
    table = model.embedding.table
    model.float().cpu().to("cpu", torch.float32).requires_grad_(True).train()
    assert model.embedding.table is table
    assert "Table('table', rows=20" in repr(model)
    assert list(model.embedding.parameters()) == []
