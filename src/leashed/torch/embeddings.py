"""PyTorch modules over tables of rows, and the optimizer that moves those (extra ``torch``); users
have them from ``leashed.torch``.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from leashed.base import checks
from leashed.base.warning import warn
from leashed.models.row_table import RowTable, RowUpdate
from leashed.models.tables import Table, zeros

__all__ = ["Embedding", "EmbeddingBag", "RowOptimizer"]

# What PyTorch's modules take and these do not.
_REFUSED = {
    "max_norm": "rows are not renormalised; leave it out",
    "norm_type": "rows are not renormalised; leave it out",
    "scale_grad_by_freq": "gradients are not scaled; leave it out",
    "sparse": "gradients are always of the rows that were looked up; leave it out",
    "device": "a table lies in the CPU's memory; leave it out",
    "dtype": "rows are float32; leave it out",
    "_weight": "what rows begin with is init's, or from_pretrained's",
}
_MOST_WAITING = 64  # batches without a step, and then a warning; parts of a gradient
_MOST_FLOATS = 2**20  # of gradients that are not added up by id
_SERVED = b"leashed: rows of embedding servers, table "
_jit: Any = torch.jit
_order = itertools.count()  # of look-ups, over all modules


class _Part(NamedTuple):
    """The gradient of one look-up: ids [n], what tells when that was, and float32 [n, dim]."""

    number: int
    ids: NDArray[np.int64]
    versions: NDArray[np.uint32]
    gradient: Any


class _LookUp(torch.autograd.Function):
    """Values that hand their gradient to ``receive``; ``anchor`` only makes PyTorch ask for it."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Any,  # noqa: ARG004
        values: NDArray[np.float32],
        receive: Callable[[Any], None],
    ) -> Any:
        ctx.receive = receive
        return torch.from_numpy(values)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[None, None, None]:
        ctx.receive(gradient)
        return None, None, None


_looked_up: Any = _LookUp.apply


def _whole(name: str, value: Any) -> NDArray[Any]:
    """A tensor of whole numbers as an array; TypeError or ValueError where it is none."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor of whole numbers, got {type(value).__name__}"
        )
    if value.device.type != "cpu":
        raise ValueError(
            f"{name} is on device {value.device}; leashed works on the CPU: {name}.cpu()"
        )
    if value.is_floating_point() or value.is_complex() or value.dtype is torch.bool:
        raise TypeError(
            f"{name} must hold whole numbers, got dtype {value.dtype}; convert with {name}.long()"
        )
    array: NDArray[Any] = value.detach().numpy()
    return array


def _table(
    rows: int | None, dim: int | None, table: RowTable | None, settings: dict[str, Any]
) -> RowTable:
    for name in settings:
        if name in _REFUSED:
            raise TypeError(f"{name} is PyTorch's alone: {_REFUSED[name]}")
    if table is None:
        if dim is None:
            raise ValueError("embedding_dim is needed where table is not given")
        return Table(rows=rows, dim=checks.whole("embedding_dim", dim), **settings)
    if not isinstance(table, RowTable):
        raise TypeError(f"table must be a leashed.Table, or a leashed.cluster.table, got {table!r}")
    given = {"num_embeddings": rows, "embedding_dim": dim, **settings}
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is settled by table; leave it out, or leave table out")
    return table


class _Rows(torch.nn.Module):
    """What modules over a table have in common; no parameter of PyTorch's is among it."""

    def __init__(self, table: RowTable, padding_idx: int | None) -> None:
        super().__init__()
        self.table = table
        self.frozen = False
        self.padding_idx = padding_idx
        self._gathered: list[_Part] = []
        self._added_up = 0  # floats, when gradients were last added up by id
        self._looked_up = False  # since the last backward
        self._batches = 0  # since the last step
        self._warned = False

    def _look_up(self, ids: Any) -> Any:
        if _jit.is_tracing():
            raise RuntimeError("a look-up cannot be traced: its rows would stay those of the trace")
        wanted = _whole("ids", ids)
        if self.frozen or not (self.training and torch.is_grad_enabled()):
            values = self.table.lookup(wanted)
            if self.padding_idx is not None:
                values[self.table.check_ids(wanted) == self.padding_idx] = 0
            return torch.from_numpy(values)
        self._warn_of_waiting()
        self._looked_up = True
        number, mask = next(_order), None
        if self.padding_idx is None:
            values, told = self.table.lookup(wanted, versions=True)
            kept, told = wanted.astype(np.int64).ravel(), told.ravel()
        else:  # which gets no gradient, and so is no part of what is to be updated
            has_row = self.table.check_ids(wanted) != self.padding_idx
            kept = wanted[has_row].astype(np.int64)
            values = np.zeros((*wanted.shape, self.table.dim), np.float32)
            values[has_row], told = self.table.lookup(kept, versions=True)
            mask = torch.from_numpy(has_row.ravel())

        def receive(gradient: Any) -> None:
            of_rows = gradient.detach().reshape(-1, self.table.dim)
            if mask is not None:
                of_rows = of_rows[mask]
            self._batches += self._looked_up  # one for all look-ups of a batch
            self._looked_up = False
            if len(of_rows):
                self._gathered.append(_Part(number, kept, told, of_rows))
                self._add_up()

        return _looked_up(torch.empty(0, requires_grad=True), values, receive)

    def _warn_of_waiting(self) -> None:
        if self._batches < _MOST_WAITING or self._warned:
            return
        self._warned = True
        warn(
            f"rows of {self.table.name} have not moved for {self._batches} batches, whose gradients "
            "wait: call step() of a leashed.torch.RowOptimizer(model), or of this "
            f"{type(self).__name__}, after backward; where rows are to stay as they are, eval()"
        )

    def _add_up(self) -> None:
        """Keep what waits to a few times the memory of the gradients of distinct ids."""
        floats = sum(part.gradient.numel() for part in self._gathered)
        if len(self._gathered) < 2:
            return
        if len(self._gathered) <= _MOST_WAITING and floats <= 2 * self._added_up + _MOST_FLOATS:
            return
        added_up = _combined(_joined(_parts([self])))
        self._gathered = [added_up]
        self._added_up = added_up.gradient.numel()

    def _forget(self) -> None:
        self._gathered.clear()
        self._added_up = 0

    def _stepped(self) -> None:
        self._forget()
        self._batches = 0

    def step(self) -> RowUpdate | None:
        """One update of the table from the gradients of all look-ups since the last one.

        Returns:
            What became of them; None where there were none: then no step is counted.

        Raises:
            ValueError: a gradient is not finite. Nothing has changed.
        """
        return _step(self.table, [self])

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002  PyTorch's signature
        """Drop the gradients that were gathered since the last step."""
        self._forget()

    def twin(self) -> Any:
        """Another such module over the same table, with gradients of its own: for another thread."""
        other = self._another()
        other.frozen = self.frozen
        return other.train(self.training)

    @property
    def num_embeddings(self) -> int | None:
        """Rows of a fixed table; None: it grows."""
        return self.table.rows

    @property
    def embedding_dim(self) -> int:
        """Floats of a row."""
        return self.table.dim

    @property
    def weight(self) -> Any:
        """The rows of a fixed table where they lie, a tensor float32 [num_embeddings, embedding_dim]:
        what is written to it, as ``torch.nn.init`` does, changes them. It is no parameter, gets no
        gradient, and what is written is no update: ``save_changes`` does not know of it.

        Raises:
            AttributeError: the table grows, or its rows are not of this process.
        """
        if self.table.rows is None or not isinstance(self.table, Table):
            raise AttributeError("weight")
        return torch.from_numpy(self.table.native.in_place())

    def __getattr__(self, name: str) -> Any:
        if name == "weight" and not isinstance(self.table, Table):
            raise AttributeError(
                "a table of embedding servers has no weight here; table.lookup(ids) gives rows"
            )
        if name == "weight":
            raise AttributeError(
                "a table that grows has no weight; table.lookup(table.ids()) gives its rows"
            )
        return super().__getattr__(name)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **settings: Any) -> Any:
        """A module over a new fixed table that begins with these rows.

        Args:
            embeddings: a tensor [num_embeddings, embedding_dim], which is copied.
            freeze: whether rows stay as they are: nothing is gathered. ``frozen`` is it, and may be
                changed later.
            settings: as the class takes them, but for what ``embeddings`` settle. Rows of a
                ``padding_idx`` read 0.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
        """
        if not isinstance(embeddings, torch.Tensor):
            raise TypeError(f"embeddings must be a torch.Tensor, got {type(embeddings).__name__}")
        if embeddings.dim() != 2 or not embeddings.numel():
            raise ValueError(
                "embeddings must be [num_embeddings, embedding_dim], not empty, got shape "
                f"{tuple(embeddings.shape)}"
            )
        if not isinstance(freeze, bool):
            raise TypeError(f"freeze must be True or False, got {freeze!r}")
        for name in ("table", "init", "max_bytes", "admit_after", "evict"):
            if settings.get(name) is not None:
                raise ValueError(
                    f"{name} is none of a table that begins with embeddings; leave it out"
                )
        rows = embeddings.detach().to("cpu", torch.float32)
        if not torch.isfinite(rows).all():
            raise ValueError("embeddings are not all finite numbers of float32")
        kind: Any = cls
        made = kind(*rows.shape, **settings, init=zeros())
        made.weight.copy_(rows)
        made.frozen = freeze
        return made

    def _another(self) -> Any:
        raise NotImplementedError

    def get_extra_state(self) -> Any:
        """The bytes of ``Table.save``, uint8 [n], for ``state_dict``; of rows that embedding servers hold
        the table's name alone, since they save these.
        """
        if not isinstance(self.table, Table):
            return torch.from_numpy(np.frombuffer(bytearray(_served(self.table)), np.uint8))
        return torch.from_numpy(np.frombuffer(bytearray(self.table.to_bytes()), np.uint8))

    def set_extra_state(self, state: Any) -> None:
        """What ``get_extra_state`` gave, in place of the table's rows and states; gathered
        gradients are dropped. Of a table of another seed too, which this one has from then on.

        Raises:
            TypeError, ValueError: it is none, or of another table. The table has not changed.
        """
        if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8:
            raise TypeError(f"the state of a table must be a uint8 tensor, got {type(state)}")
        told = state.detach().cpu().contiguous().numpy().tobytes()
        if not isinstance(self.table, Table):
            if told != _served(self.table):
                raise ValueError(
                    f"the state is not of table {self.table.name} of embedding servers, which begin with rows "
                    "of their own; leave it out, or load it into a module over a leashed.Table"
                )
            self._forget()
            return
        if told.startswith(_SERVED):
            raise ValueError(
                "the state is of a table of embedding servers, which have its rows; read these with "
                "leashed.load of the run's output"
            )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table"
            path.write_bytes(told)
            try:
                self.table.load(path, any_seed=True)
            except ValueError as error:
                why = str(error).replace(f"'{path}'", "the state")
                raise ValueError(why) from None
        self._forget()

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: ARG002
        """``to``, ``double``, ``share_memory`` and the like come by here."""
        tried = fn(torch.empty(1))
        if tried.device.type != "cpu":
            raise ValueError(
                f"a table cannot be moved to device {tried.device}; leashed works on the CPU: move "
                "the other modules, and what this one gives"
            )
        if tried.dtype is not torch.float32:
            raise TypeError(
                f"a table's rows cannot become {tried.dtype}: they are float32; convert the other "
                "modules, or use torch.autocast"
            )
        if tried.is_shared():
            raise ValueError("a table is of one process; share it between threads instead")
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, of which a deep one has a table of its own; gradients that wait
        for a step stay here.
        """
        waiting = {"_gathered": [], "_added_up": 0, "_looked_up": False, "_batches": 0}
        return {**self.__dict__, **waiting}

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.table!r}{padding}{', frozen' if self.frozen else ''}"


class Embedding(_Rows):
    """``torch.nn.Embedding`` over a ``leashed.Table``, or a ``leashed.cluster.table``, which has its
    optimizer with it.

        embedding = lsh.torch.Embedding(100_000, 16, rule=lsh.Adagrad(0.05))
        embedding = lsh.torch.Embedding(None, 16, max_bytes=2**30)  # any 64-bit id; grows
        embedding = lsh.torch.Embedding(table=table)  # of this thread, over a table of all
        embedding = lsh.torch.Embedding(table=lsh.cluster.table("t"))  # whose rows servers hold

    It has no parameter of PyTorch's: ``backward`` gathers gradients of the rows that were looked up
    (those of several ``backward`` add up), and ``step()``, or ``RowOptimizer`` over a whole model,
    makes one update of them and forgets them. Rows move nowhere else: after 64 batches without a
    step a ``RuntimeWarning`` says so. What waits for one is added up by id. With ``eval()`` or under
    ``torch.no_grad()`` rows are only read, and nothing is gathered. One module is one thread's; the
    table under it is any number of threads'. ``state_dict`` has the table with the rule's states, and
    so have ``copy.deepcopy`` and pickles, whose table is another one (one for all modules that share
    it). Where embedding servers hold the rows, ``state_dict`` has the table's name, and there are no copies
    and pickles.

    Args:
        num_embeddings: rows of a fixed table; None: it grows, and needs ``max_bytes``.
        embedding_dim: floats of a row.
        padding_idx: an id that reads 0 and is never updated. Default: none.
        table: an existing table, a ``leashed.Table`` or one of embedding servers (``leashed.cluster.table``),
            whose the other arguments are then.
        settings: as for ``Table``: ``rule`` (default ``Adagrad(0.01)``), ``init`` (default
            ``normal(0.01)``, where PyTorch has ``normal(1)``), ``staleness``, ``admit_after``,
            ``evict``, ``max_bytes``, ``seed``, ``number``, ``name``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    def __init__(
        self,
        num_embeddings: int | None = None,
        embedding_dim: int | None = None,
        padding_idx: int | None = None,
        *,
        table: RowTable | None = None,
        **settings: Any,
    ) -> None:
        made = _table(num_embeddings, embedding_dim, table, settings)
        if padding_idx is not None:
            least, most = (-(2**63), 2**63 - 1) if made.rows is None else (0, made.rows - 1)
            padding_idx = checks.whole("padding_idx", padding_idx, least, most)
        super().__init__(made, padding_idx)

    def _another(self) -> Embedding:
        return Embedding(table=self.table, padding_idx=self.padding_idx)

    def forward(self, ids: Any) -> Any:
        """The rows of ``ids``.

        Args:
            ids: a tensor of whole numbers, of any shape, on the CPU.

        Returns:
            float32, shaped as ``ids`` with the table's ``dim`` more.

        Raises:
            TypeError, ValueError: ids are no whole numbers, or on another device.
            IndexError: they are no rows of a fixed table.
        """
        return self._look_up(ids)


class EmbeddingBag(_Rows):
    """``torch.nn.EmbeddingBag`` over a ``leashed.Table`` or a ``leashed.cluster.table``: of each bag of ids the sum, mean or
    largest of their rows. All else is as in ``Embedding``.

    Args:
        num_embeddings, embedding_dim, table, settings: as for ``Embedding``.
        mode: "sum", "mean" (default) or "max".
        include_last_offset: whether ``offsets`` end with the number of ids.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    def __init__(
        self,
        num_embeddings: int | None = None,
        embedding_dim: int | None = None,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        table: RowTable | None = None,
        **settings: Any,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f'mode must be "sum", "mean" or "max", got {mode!r}')
        if "padding_idx" in settings:
            raise TypeError("padding_idx is none of a bag; leave such ids out of it")
        super().__init__(_table(num_embeddings, embedding_dim, table, settings), None)
        self.mode = mode
        self.include_last_offset = bool(include_last_offset)

    def _another(self) -> EmbeddingBag:
        return EmbeddingBag(
            table=self.table, mode=self.mode, include_last_offset=self.include_last_offset
        )

    def forward(self, ids: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """One row for each bag; of an empty one 0.

        Args:
            ids: a tensor of whole numbers on the CPU: [bags, n], or [n] with ``offsets``.
            offsets: where each bag begins in ``ids``, whole numbers [bags], from 0 and never
                falling; with ``include_last_offset`` [bags + 1].
            per_sample_weights: float32 shaped as ``ids``, for "sum"; they get gradients.

        Returns:
            float32 [bags, dim].

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            IndexError: ids are no rows of a fixed table.
        """
        n = _whole("ids", ids).size
        if ids.dim() != (2 if offsets is None else 1):
            raise ValueError(
                "ids must be [bags, n], or [n] with offsets, got shape "
                f"{tuple(ids.shape)} {'without' if offsets is None else 'with'} offsets"
            )
        if offsets is not None:
            self._check_offsets(_whole("offsets", offsets).astype(np.int64), n)
            offsets = offsets.long()
        return torch.nn.functional.embedding_bag(
            torch.arange(n).view(ids.shape),
            self._look_up(ids).reshape(n, self.table.dim),
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )

    def _check_offsets(self, offsets: NDArray[Any], n: int) -> None:
        last = self.include_last_offset
        begun = offsets.ndim == 1 and offsets[:1].tolist() == [0]
        if not begun or (np.diff(offsets, append=n) < 0).any() or (last and offsets[-1] != n):
            raise ValueError(
                f"offsets must be one-dimensional, begin with 0, never fall and "
                f"{'end with' if last else 'stay within'} the {n} ids, got {offsets.tolist()}"
            )


def _parts(modules: Iterable[_Rows]) -> list[_Part]:
    """What they have gathered, in the order of the look-ups, so that of one row's versions the
    earliest counts.
    """
    return sorted(
        (part for module in modules for part in module._gathered), key=lambda part: part.number
    )


def _joined(parts: Sequence[_Part]) -> _Part:
    return _Part(
        parts[0].number,
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.versions for part in parts]),
        torch.cat([part.gradient for part in parts]),
    )


def _combined(part: _Part) -> _Part:
    """The same of distinct ids, in memory of its own."""
    ids, first, place = np.unique(part.ids, return_index=True, return_inverse=True)
    gradient = torch.zeros(len(ids), part.gradient.shape[1], dtype=part.gradient.dtype)
    gradient.index_add_(0, torch.from_numpy(place), part.gradient)
    return _Part(part.number, ids, part.versions[first], gradient)


def _served(table: RowTable) -> bytes:
    """What a state has of a table of embedding servers."""
    return _SERVED + table.name.encode()


def _step(table: RowTable, modules: Sequence[_Rows]) -> RowUpdate | None:
    parts = _parts(modules)
    if not parts:
        for module in modules:
            module._stepped()
        return None
    _, ids, versions, gradient = _joined(parts)
    told = table.update(ids, gradient.numpy(), versions)
    for module in modules:
        module._stepped()
    return told


class RowOptimizer:
    """Steps all ``Embedding`` and ``EmbeddingBag`` of a module, as an optimizer its parameters.

        rows = lsh.torch.RowOptimizer(model)
        dense = torch.optim.Adam(model.parameters())
        for x, y in batches:
            dense.zero_grad(), rows.zero_grad()
            loss_fn(model(x), y).backward()
            dense.step(), rows.step()

    Modules that share a table make one update of it together. The rule and its learning rate are
    each table's own. ``torch.amp.GradScaler`` takes this as it takes an optimizer (``unscale_``,
    ``step``); for PyTorch's clipping ``gathered()`` stands in for the parameters. It has no state:
    ``model.state_dict()`` has the tables.

    Args:
        module: a ``torch.nn.Module``; of its modules those that it has now.

    Raises:
        TypeError, ValueError: it is none, or has none of these.
    """

    def __init__(self, module: Any) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
        self._modules: dict[RowTable, list[_Rows]] = {}
        for one in embedded(module):
            self._modules.setdefault(one.table, []).append(one)
        if not self._modules:
            raise ValueError("module has no leashed.torch.Embedding or EmbeddingBag")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of each table that has gradients; ``closure`` as in PyTorch.

        Raises:
            ValueError: a gradient is not finite. Nothing has changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for table, modules in self._modules.items():
            if not all(torch.isfinite(part.gradient).all() for part in _parts(modules)):
                raise ValueError(
                    f"a gradient of {table.name} is not finite; try a smaller learning rate, or "
                    "zero_grad() to leave this step out"
                )
        for table, modules in self._modules.items():
            _step(table, modules)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients that were gathered since the last step."""
        for modules in self._modules.values():
            for module in modules:
                module.zero_grad(set_to_none)

    def gathered(self) -> list[Any]:
        """Of each table that has gradients a tensor [distinct ids, dim] without values of its own,
        whose ``grad`` are those that ``step`` will use, duplicates added up: what changes it in
        place, such as ``torch.nn.utils.clip_grad_norm_([*model.parameters(), *rows.gathered()], 1)``,
        changes the step.
        """
        found = []
        for modules in self._modules.values():
            parts = _parts(modules)
            if not parts:
                continue
            combined = _combined(_joined(parts))
            for module in modules:
                module._gathered.clear()
            modules[0]._gathered.append(combined)
            holder = torch.zeros(()).expand(combined.gradient.shape)
            holder.grad = combined.gradient
            found.append(holder)
        return found

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """``gathered()`` as ``torch.amp.GradScaler`` looks for it."""
        return [{"params": self.gathered()}]

    def __reduce__(self) -> Any:
        raise TypeError("RowOptimizer can be neither copied nor pickled; make one of the module")


def embedded(module: Any) -> list[_Rows]:
    """The modules over tables in a module."""
    return [one for one in module.modules() if isinstance(one, _Rows)]
