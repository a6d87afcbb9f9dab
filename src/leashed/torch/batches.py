"""Batches for ``leashed.torch.fit``, for any thread: of data in memory by number, of a
``DataLoader`` as it gives them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks
from leashed.engine.engine import Batches as Leased
from leashed.stopping import Until

__all__ = ["Batch", "batches_of"]

MAX_SEED = 2**63 - 1
_BATCH_SIZE = 64  # by default
_AT_ONCE = 1024  # examples that are evaluated
_LOOK = 0.02  # seconds of waiting for a batch between two looks at whether to stop


class Batch(NamedTuple):
    """What a module takes, what its loss takes beside, and how many examples that are."""

    inputs: Any
    target: Any
    examples: int

    def outputs(self, module: Any) -> Any:
        """What the module makes of the inputs: one, several, or some by name."""
        if isinstance(self.inputs, Mapping):
            return module(**self.inputs)
        if isinstance(self.inputs, (tuple, list)):
            return module(*self.inputs)
        return module(self.inputs)


def batch_of(given: Any, target: str | None) -> Batch:
    """What a dataset or a ``DataLoader`` gives, taken apart.

    Raises:
        TypeError, ValueError: it is neither (inputs, target) nor a dict with a target.
    """
    if isinstance(given, Mapping):
        if target is None or target not in given:
            raise ValueError(
                f"a batch is a dict of {', '.join(map(str, given))}, and target is {target!r}; "
                "target= names the one that loss_fn takes, and module gets the others by name"
            )
        inputs: Any = {name: value for name, value in given.items() if name != target}
        return Batch(inputs, given[target], _examples(given[target]))
    if target is not None:
        raise ValueError(f"target={target!r} is of batches that are dicts; leave it out")
    if not isinstance(given, (tuple, list)) or len(given) < 2:
        raise TypeError(
            f"a batch must be (inputs, target) or a dict, got {type(given).__name__}"
            f"{f' of {len(given)}' if isinstance(given, (tuple, list)) else ''}"
        )
    *inputs, last = given
    return Batch(inputs[0] if len(inputs) == 1 else inputs, last, _examples(last))


def _examples(value: Any) -> int:
    while isinstance(value, (Mapping, tuple, list)) and len(value):
        value = next(iter(value.values() if isinstance(value, Mapping) else value))
    return len(value) if isinstance(value, torch.Tensor) and value.dim() else 1


def batches_of(
    dataset: Any, batch_size: int | None, seed: int | None, until: Until, target: str | None
) -> Batches:
    """Those of a dataset, until the stop rules say so.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if not isinstance(until, Until):
        raise TypeError(f"until must be leashed.until(...), got {until!r}")
    if not (until.loss is until.loss_fraction is until.divergence is None):
        raise ValueError("until: fit evaluates no loss; use epochs, updates or seconds")
    if target is not None and not isinstance(target, str):
        raise TypeError(f"target must be a name in batches that are dicts, got {target!r}")
    if not isinstance(dataset, torch.utils.data.DataLoader):
        return _Batches(dataset, batch_size, seed, until, target)
    for name, value in (("batch_size", batch_size), ("seed", seed)):
        if value is not None:
            raise ValueError(f"{name} is settled by the DataLoader; leave it out")
    return Loaded(dataset, until, target)


class Batches:
    """What is given to threads one by one.

    Attributes:
        size: examples of a batch; of a ``DataLoader`` those that it was made with, if any.
        total: how many there are, if it is known.
        next: the number of the next one.
    """

    size: int | None
    total: int | None

    def __init__(self, until: Until) -> None:
        self.most = math.inf if until.updates is None else until.updates
        self.seconds = math.inf if until.seconds is None else until.seconds
        self.start = time.perf_counter()
        self.next = 0
        self.lock = threading.Lock()

    def late(self) -> bool:
        return time.perf_counter() - self.start >= self.seconds

    @property
    def over(self) -> bool:
        """Whether the stop rules say so."""
        return self.late() or self.next >= min(
            self.most, math.inf if self.total is None else self.total
        )

    def each(self) -> Iterator[tuple[int, Batch]]:
        """For the calling thread, its batches with their numbers: those of the passes that are open."""
        raise NotImplementedError

    def in_order(self) -> Iterator[Batch]:
        """All examples once, whatever the stop rules say."""
        raise NotImplementedError

    def open_pass(self, number: int) -> None:
        """What follows is of that pass over the data, from 0, and ends with it."""
        raise NotImplementedError

    def plan(self) -> dict[str, Any]:
        """What must be the same for a run that goes on, by name."""
        raise NotImplementedError

    def go_on(self, batches: int, passes: int) -> None:  # noqa: ARG002
        """After so many."""
        self.next = batches


def _arrays(tensors: Sequence[Any]) -> list[NDArray[Any]]:
    """The tensors as arrays, whose rows are copied without an operation of PyTorch's, after which
    a thread would have to get the GIL again; none where NumPy does not know them.
    """
    try:
        return [np.ascontiguousarray(tensor.detach().numpy()) for tensor in tensors]
    except (TypeError, RuntimeError):
        return []


class _Batches(Batches):
    """Batches of data in memory, whose examples have numbers."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        seed: int | None,
        until: Until,
        target: str | None,
    ) -> None:
        super().__init__(until)
        if isinstance(dataset, torch.utils.data.TensorDataset):
            dataset = dataset.tensors
        self.target = target
        self.names, self.tensors = _tensors_of(dataset)
        self.arrays = _arrays(self.tensors)
        if not self.tensors and not (
            hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        ):
            raise TypeError(
                "dataset must be a pair of tensors or a map-style dataset (with len() and []), or a "
                f"DataLoader, got {type(dataset).__name__}"
            )
        self.dataset = dataset
        self.rows = len(self.tensors[0] if self.tensors else dataset)
        size = min(_BATCH_SIZE if batch_size is None else batch_size, max(1, self.rows))
        self.size: int = size
        self.seed = checks.whole("seed", 0 if seed is None else seed, 0, MAX_SEED)
        rules = until.rules(self.rows, size)
        self.total = int(rules["batches"]) if "batches" in rules else None
        self.limit = math.inf

    def open_pass(self, number: int) -> None:
        self.limit = math.ceil((number + 1) * self.rows / self.size)

    def plan(self) -> dict[str, Any]:
        return {"examples": self.rows, "batch_size": self.size, "seed": self.seed}

    def each(self) -> Iterator[tuple[int, Batch]]:
        most = min(self.most, math.inf if self.total is None else self.total, self.limit)
        while not self.late() and (k := self._claim(most)) is not None:
            yield k, self.batch(k)

    def leased(self, numbers: Leased, stop: threading.Event) -> Iterator[tuple[int, Batch]]:
        """The same, of those that a cluster hands to this trainer."""
        while not self.late() and self._claim(self.most) is not None:
            k = None
            while k is None:
                try:
                    k = numbers.next_within(_LOOK)
                except StopIteration:
                    return
                if k is None and (stop.is_set() or self.late()):
                    return
            yield k, self.batch(k)
            numbers.used()

    def _claim(self, most: float) -> int | None:
        with self.lock:
            if self.next >= most:
                return None
            self.next += 1
            return self.next - 1

    def batch(self, k: int) -> Batch:
        """The batch of that number."""
        if self.arrays:
            parts = [
                torch.from_numpy(_core.batch(array, self.seed, self.size, k))
                for array in self.arrays
            ]
            return self._of(parts)
        rows = _core.batch_rows(self.seed, self.rows, self.size, k)
        if self.tensors:
            index = torch.tensor(rows)
            return self._of([tensor.index_select(0, index) for tensor in self.tensors])
        found = torch.utils.data.default_collate([self.dataset[row] for row in rows])
        return batch_of(found, self.target)

    def in_order(self) -> Iterator[Batch]:
        for begin in range(0, self.rows, _AT_ONCE):
            end = min(begin + _AT_ONCE, self.rows)
            if self.tensors:
                yield self._of([tensor[begin:end] for tensor in self.tensors])
                continue
            rows = [self.dataset[row] for row in range(begin, end)]
            yield batch_of(torch.utils.data.default_collate(rows), self.target)

    def _of(self, parts: list[Any]) -> Batch:
        if self.names is None:
            return batch_of(parts, self.target)
        named = dict(zip(self.names, parts, strict=False))
        if len(parts) > len(self.names):
            return batch_of((named, parts[-1]), self.target)
        return batch_of(named, self.target)


def _tensors_of(dataset: Any) -> tuple[list[str] | None, list[Any]]:
    """Names, where inputs have some, and tensors, the target last where it has no name; none where it
    is made of something else.
    """
    names: list[str] | None = None
    parts: list[Any] = []
    if isinstance(dataset, Mapping):
        names, parts = list(dataset), list(dataset.values())
    elif isinstance(dataset, (tuple, list)):
        parts = list(dataset)
        if len(parts) == 2 and isinstance(parts[0], Mapping):
            names, parts = list(parts[0]), [*parts[0].values(), parts[1]]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        return None, []
    few = names is None and len(parts) < 2
    if few or any(not part.dim() or len(part) != len(parts[0]) for part in parts):
        raise ValueError(
            "dataset must be a pair of tensors (x, y) of equal length, or several, or a dict of such"
        )
    return names, parts


class Loaded(Batches):
    """Batches of a ``DataLoader``, which threads take in turn."""

    def __init__(self, loader: Any, until: Until, target: str | None) -> None:
        super().__init__(until)
        self.loader, self.target = loader, target
        self.size = getattr(loader, "batch_size", None)
        self.total = None
        self.passes, self.most_passes = 0, math.inf
        try:
            length = len(loader)
        except TypeError:  # of an iterable dataset
            length = None
        if until.epochs is not None and length is not None:
            self.total = max(1, math.ceil(until.epochs * length))
        elif until.epochs is not None:
            if until.epochs != int(until.epochs):
                raise ValueError(
                    f"until: the DataLoader has no length, of which {until.epochs:g} epochs could be "
                    "taken; give a whole number of them, or updates"
                )
            self.most_passes = until.epochs
        self.one = False  # whether what is open ends with the pass
        self.iterator: Iterator[Any] | None = None
        self.ended = False

    @property
    def over(self) -> bool:
        return super().over or self.passes >= self.most_passes

    def open_pass(self, number: int) -> None:  # noqa: ARG002
        self.one, self.ended = True, False

    def go_on(self, batches: int, passes: int) -> None:
        self.next, self.passes = batches, passes

    def plan(self) -> dict[str, Any]:
        return {}

    def each(self) -> Iterator[tuple[int, Batch]]:
        while True:
            with self.lock:
                if self.ended or self.over:
                    return
                given = self._next()
                if given is None:
                    return
                k, self.next = self.next, self.next + 1
            yield k, batch_of(given, self.target)

    def in_order(self) -> Iterator[Batch]:
        return (batch_of(given, self.target) for given in self.loader)

    def _next(self) -> Any:
        for fresh in (self.iterator is None, True):
            if self.iterator is None:
                self.iterator = iter(self.loader)
            try:
                return next(self.iterator)
            except StopIteration:
                self.iterator = None
                if fresh:
                    raise ValueError("the DataLoader gives no batches") from None
                self.passes += 1
                self.ended = self.one or self.over
                if self.ended:
                    return None
        raise AssertionError
