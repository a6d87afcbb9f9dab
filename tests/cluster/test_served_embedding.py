"""``leashed.torch.Embedding`` over tables of embedding servers, beside tables of this process."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
from cluster.served import Servers

import leashed as lsh
from leashed.models import TableSpec, tables

torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
torch.set_num_threads(1)  # its own threads would only wait for each other here

DIM, ROWS = 6, 50


def specs(rows: int | None = ROWS) -> list[TableSpec]:
    return [TableSpec("users", DIM, rows), TableSpec("items", DIM, rows)]


class Model(torch.nn.Module):  # type: ignore[misc]
    """A user, and a bag of items, of which some are padding."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.user = lsh.torch.Embedding(table=of["users"], padding_idx=3)
        self.items = lsh.torch.EmbeddingBag(table=of["items"], mode="mean")
        self.last = lsh.torch.Embedding(table=of["items"])
        torch.manual_seed(1)
        self.head = torch.nn.Linear(3 * DIM, 1)

    def forward(self, user: Any, items: Any) -> Any:
        parts = [self.user(user), self.items(items), self.last(items[:, -1])]
        return self.head(torch.cat(parts, 1)).squeeze(1)


def train(of: Any, steps: int = 8, *, clips: bool = False) -> list[float]:
    model = Model(of)
    dense = torch.optim.SGD(model.parameters(), 0.1)
    rows = lsh.torch.RowOptimizer(model)
    random, losses = np.random.default_rng(2), []
    for _ in range(steps):
        user, items = (
            torch.from_numpy(random.integers(0, ROWS, size)) for size in ((12,), (12, 4))
        )
        dense.zero_grad()
        rows.zero_grad()
        loss = torch.nn.functional.mse_loss(model(user, items), (user % 2).float())
        loss.backward()
        if clips:
            torch.nn.utils.clip_grad_norm_([*model.parameters(), *rows.gathered()], 0.1)
        dense.step()
        rows.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("rows", [ROWS, None], ids=["fixed", "growing"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_model_has_the_bits_of_tables_of_its_process(
    count: int, rows: int | None, clips: bool
) -> None:
    made: dict[str, Any] = {"rule": lsh.Adam(0.01), "seed": 3}
    if rows is None:
        made["max_bytes"] = 1 << 20
    servers, local = Servers(specs(rows), count, **made), tables.of(specs(rows), **made)
    with servers.open() as served:
        assert train(served, clips=clips) == train(local, clips=clips)
        served.settle()
        for name, table in local.items():
            ids = table.ids()
            np.testing.assert_array_equal(np.array(servers.values(name, ids)), table.lookup(ids))
    # (A table that one embedding reads is found and updated by one look-up for each step.)
    assert served.counters["pushes"] == 16


def test_an_embedding_of_one_look_up_is_not_looked_up_again() -> None:
    servers = Servers(specs(), 1)
    with servers.open() as served:
        embedding = lsh.torch.Embedding(table=served["users"], padding_idx=0)
        for _ in range(5):
            embedding(torch.tensor([[0, 1], [2, 0]])).sum().backward()
            embedding.step()
        told = served.counters
        assert (told["lookups"], told["reads"], told["pushes"]) == (5, 0, 5)


def test_who_only_reads_gives_no_id_a_row() -> None:
    servers = Servers(specs(None), 2, max_bytes=1 << 20)
    with servers.open() as served:
        embedding = lsh.torch.Embedding(table=served["users"])
        embedding.eval()
        values = embedding(torch.tensor([5, 6]))
        with torch.no_grad():
            np.testing.assert_array_equal(embedding.train()(torch.tensor([5, 6])), values)
        frozen = lsh.torch.Embedding(table=served["users"])
        frozen.frozen = True
        assert not frozen(torch.tensor([7])).requires_grad
        assert all(set(each["users"].ids()) <= {0, -1} for each in servers.tables)
        embedding(torch.tensor([5, 6])).sum().backward()
        embedding.step()
        served.settle()
        assert {5, 6} <= set().union(*(each["users"].ids().tolist() for each in servers.tables))


@pytest.mark.parametrize("trains", [False, True])
def test_padding_is_the_id_of_its_bits(trains: bool) -> None:
    ids = torch.from_numpy(np.array([2**64 - 1, 5], np.uint64))
    servers = Servers(specs(None), 1, max_bytes=1 << 20)
    with servers.open() as served:
        for table in (served["users"], lsh.Table(dim=DIM, max_bytes=1 << 20)):
            embedding = lsh.torch.Embedding(table=table, padding_idx=-1).train(trains)
            assert embedding(ids).ne(0).any(1).tolist() == [False, True]


def test_threads_have_twins() -> None:
    servers = Servers(specs(), 2)
    with servers.open(threads=2) as served:
        first = lsh.torch.Embedding(table=served["users"])
        wrong: list[BaseException] = []

        def steps(module: Any) -> None:
            try:
                for k in range(20):
                    module(torch.tensor([k % 7, 8])).sum().backward()
                    assert sum(module.step()) >= 0
                served["users"].settle()
            except BaseException as error:  # noqa: BLE001 (asserted below)
                wrong.append(error)

        pool = [threading.Thread(target=steps, args=(one,)) for one in (first, first.twin())]
        for each in pool:
            each.start()
        for each in pool:
            each.join()
        assert wrong == []
        assert served.counters["settled"] == 80


def test_what_is_of_tables_of_a_process_alone_is_refused_by_name() -> None:
    servers = Servers(specs(), 1)
    with servers.open() as served:
        embedding = lsh.torch.Embedding(table=served["users"])
        assert (embedding.num_embeddings, embedding.embedding_dim) == (ROWS, DIM)
        assert "ServedTable('users', rows=50, dim=6" in repr(embedding)
        with pytest.raises(AttributeError, match="a table of embedding servers has no weight here"):
            _ = embedding.weight
        with pytest.raises(TypeError, match="table users is of embedding servers and this process"):
            copy.deepcopy(embedding)
        with pytest.raises(ValueError, match="embedding_dim is settled by table"):
            lsh.torch.Embedding(None, DIM, table=served["users"])
        with pytest.raises(TypeError, match=r"must be a leashed.Table, or a leashed.cluster.table"):
            lsh.torch.Embedding(table="users")
        with pytest.raises(IndexError, match=r"ids\[0\] is 50, outside 0 to 49 of users"):
            embedding(torch.tensor([50]))


def test_a_state_has_the_name_of_the_table_alone() -> None:
    servers = Servers(specs(), 1)
    with servers.open() as served:
        embedding, other = (lsh.torch.Embedding(table=served[name]) for name in served)
        state = embedding.state_dict()
        assert bytes(state["_extra_state"].numpy()).endswith(b"table users")
        embedding.load_state_dict(state)
        with pytest.raises(
            ValueError, match="the state is not of table items of embedding servers"
        ):
            other.load_state_dict(state)
        here = lsh.torch.Embedding(table=lsh.Table(rows=ROWS, dim=DIM))
        with pytest.raises(ValueError, match="which have its rows; read these with"):
            here.load_state_dict(state)
        with pytest.raises(ValueError, match="the state is not of table users"):
            embedding.load_state_dict(here.state_dict())
