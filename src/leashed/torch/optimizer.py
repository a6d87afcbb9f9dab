"""PyTorch modules on the engine's memory: an optimizer that changes one line, training by threads,
and embeddings over tables (extra ``torch``).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import torch
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "leashed.torch needs PyTorch; install it with pip install 'leashed[torch]'"
    ) from error

from leashed import _core, schedules
from leashed.base import checks
from leashed.base.machine import cores
from leashed.disciplines import Discipline, Hogwild, Sequential
from leashed.engine.engine import Batches, Engine, check_discipline, check_rule
from leashed.rules import SGD, SWAP, Adagrad, Adam, AdamW, Momentum, Nesterov, RMSprop, Rule
from leashed.schedules import Schedule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.sync import Cluster, Synchroniser
from leashed.torch.embeddings import Embedding, EmbeddingBag, RowOptimizer, embedded

__all__ = ["Embedding", "EmbeddingBag", "FitResult", "Optimizer", "RowOptimizer", "fit"]

MAX_THREADS = 1024
MAX_SEED = 2**63 - 1
_BATCH_SIZE = 64  # by default
_LOOK = 0.02  # seconds of waiting for a batch between two looks at whether to stop


def _parameters(name: str, parameters: Iterable[Any]) -> list[Any]:
    """A list of float32 CPU parameters; an error that names what is none."""
    found = list(parameters)
    if not found:
        raise ValueError(f"{name} holds no parameters")
    for index, p in enumerate(found):
        if not isinstance(p, torch.Tensor):
            raise TypeError(f"{name}[{index}] must be a torch.Tensor, got {type(p).__name__}")
        if p.device.type != "cpu":
            raise ValueError(
                f"{name}[{index}] is on device {p.device}; leashed works on the CPU: module.cpu()"
            )
        if p.dtype != torch.float32:
            raise TypeError(
                f"{name}[{index}] has dtype {p.dtype}, but must be float32: module.float()"
            )
        if not p.numel():
            raise ValueError(f"{name}[{index}] is empty")
    return found


def _flat(parameters: Sequence[Any]) -> NDArray[np.float32]:
    flat = torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()
    theta: NDArray[np.float32] = checks.vector("parameters", flat)
    return theta


def _ends(parameters: Sequence[Any]) -> list[int]:
    return list(accumulate(p.numel() for p in parameters))


def _attach(parameters: Sequence[Any], memory: Any, ends: Sequence[int]) -> None:
    """Makes the parameters views of ``memory``."""
    begin = 0
    for p, end in zip(parameters, ends, strict=True):
        p.data = memory[begin:end].view(p.shape)
        begin = end


def _place(p: Any, begin: int, end: int, kept: list[Any]) -> tuple[int, int, int]:
    """Where the gradient of ``p`` lies; what must live until it was read is added to ``kept``."""
    g = p.grad
    if g.layout is not torch.strided:
        raise TypeError(f"a gradient has the layout {g.layout}; make it dense (sparse=False)")
    if g.dtype is not torch.float32:
        raise TypeError(f"a gradient has dtype {g.dtype}, but must be float32")
    if not g.is_contiguous():
        g = g.contiguous()
    kept.append(g)
    return g.data_ptr(), begin, end


# What torch.optim has in a param_group and these rules have not, or only as said.
_FIXED: dict[type[Rule], dict[str, Any]] = {
    SGD: {"momentum": 0.0, "dampening": 0.0, "nesterov": False},
    Momentum: {"nesterov": False},
    Nesterov: {"nesterov": True},
    Adagrad: {"lr_decay": 0.0},
    RMSprop: {"momentum": 0.0},
    Adam: {"decoupled_weight_decay": False},
    AdamW: {"decoupled_weight_decay": True},
}
# What only the rules have.
_OURS = ("clip_value", "clip_norm", "decoupled", "initial_accumulator")


def _base(rule: Rule) -> Any:
    return rule.rule if isinstance(rule, SWAP) else rule


def _settings(rule: Rule) -> dict[str, Any]:
    """The rule's settings as a param_group of ``torch.optim`` has them."""
    base = _base(rule)
    names = [item.name for item in dataclasses.fields(base) if item.name not in _OURS]
    found = {name: getattr(base, name) for name in names}
    found["lr"] = schedules.of(base.lr).base
    if "beta1" in found:
        found["betas"] = (found.pop("beta1"), found.pop("beta2"))
    return {**_FIXED.get(type(base), {}), **found}


def _changed(rule: Rule, wanted: dict[str, Any]) -> Rule:
    """The rule with the settings of a param_group."""
    base, now = _base(rule), _settings(rule)
    changes: dict[str, Any] = {}
    for name, value in wanted.items():
        if value == now[name]:
            continue
        if name == "lr" and isinstance(base.lr, Schedule):
            raise ValueError(
                "the param_group's lr was changed, but the rule has a schedule of its own; "
                "give the rule a number to use PyTorch's schedulers"
            )
        if name == "betas":
            changes["beta1"], changes["beta2"] = value
        elif hasattr(base, name):
            changes[name] = value.item() if isinstance(value, torch.Tensor) else value
        else:
            raise ValueError(
                f"the param_group has {name}={value!r}, but {type(base).__name__} has "
                f"{name}={now[name]!r}; make the optimizer with a rule that has it"
            )
    changed = dataclasses.replace(base, **changes)
    if changed.state_names != base.state_names:
        raise ValueError(
            f"the param_group makes of the rule {changed!r}, whose state is another one; make the "
            "optimizer with that rule"
        )
    return dataclasses.replace(rule, rule=changed) if isinstance(rule, SWAP) else changed


class _Group:
    """The parameters of one param_group: one vector with the rule's state, changed in place."""

    def __init__(self, parameters: list[Any], rule: Rule) -> None:
        self.rule = rule
        self.settings = _settings(rule)
        self.ends = _ends(parameters)
        self.native = _core.RuleState(rule.choice(), _flat(parameters))
        self.theta = torch.from_numpy(self.native.memory(0))
        _attach(parameters, self.theta, self.ends)
        begins = [0, *self.ends[:-1]]
        self.parts = [
            (p, begin, end, p.data_ptr())
            for p, begin, end in zip(parameters, begins, self.ends, strict=True)
        ]
        # Of each parameter, the steps in which it had a gradient: whole numbers, and as PyTorch
        # keeps them.
        self.updates = [0] * len(parameters)
        self.steps = np.zeros(len(parameters), np.float32)
        memories = {
            name: torch.from_numpy(self.native.memory(k + 1))
            for k, name in enumerate(rule.state_names)
        }
        self.state = [
            {
                "step": step,
                **{name: memory[begin:end].view(p.shape) for name, memory in memories.items()},
            }
            for (p, begin, end, _), step in zip(
                self.parts, torch.from_numpy(self.steps), strict=True
            )
        ]

    def step(self, settings: dict[str, Any]) -> None:
        self.adapt(settings)
        pieces: list[tuple[int, int, int, int]] = []
        kept: list[Any] = []
        stepped: list[int] = []
        for k, (p, begin, end, address) in enumerate(self.parts):
            if p.grad is None:
                continue
            if p.data_ptr() != address:
                raise RuntimeError(
                    "a parameter no longer lies in the optimizer's memory (module.to(), or "
                    "p.data = ...); make the optimizer after that"
                )
            pieces.append((*_place(p, begin, end, kept), self.updates[k]))
            stepped.append(k)
        if not pieces:
            return
        self.native.update_pieces(pieces)
        for k in stepped:
            self.updates[k] += 1
        self.steps[:] = self.updates
        settings["t"] = self.native.t

    def adapt(self, settings: dict[str, Any]) -> None:
        """Takes over what a scheduler has changed in the param_group."""
        wanted = {name: settings[name] for name in self.settings}
        if wanted != self.settings:
            self.rule = _changed(self.rule, wanted)
            self.settings = _settings(self.rule)
            self.native.set_rule(self.rule.choice())

    def check(self, states: Sequence[dict[str, Any]]) -> None:
        """ValueError where this is not the state of such parameters under such a rule."""
        for mine, loaded in zip(self.state, states, strict=True):
            known = {
                name: tuple(v.shape) for name, v in loaded.items() if isinstance(v, torch.Tensor)
            }
            wanted = {name: tuple(v.shape) for name, v in mine.items()}
            if any(value is not None for value in loaded.values()) and (
                known | {"step": ()} != wanted
            ):
                raise ValueError(
                    f"the state's shapes are {known}, and the rule's {wanted}; load the state of an "
                    "optimizer with the same rule and parameters"
                )

    def load(self, states: Sequence[dict[str, Any]], t: int | None) -> None:
        """Takes over loaded state. Of a parameter whose steps nobody has counted (as PyTorch's SGD
        does not) one is known of, where it has state.
        """
        for k, (mine, loaded) in enumerate(zip(self.state, states, strict=True)):
            known = {name: value for name, value in loaded.items() if value is not None}
            self.updates[k] = int(known.get("step", bool(known)))
            for name, value in mine.items():
                if name != "step":
                    value.copy_(known[name]) if name in known else value.zero_()
        self.steps[:] = self.updates
        self.native.t = max(self.updates) if t is None else t


class Optimizer(torch.optim.Optimizer):
    """A ``torch.optim.Optimizer`` whose step is one fused native pass.

        optimizer = lsh.torch.Optimizer(module.parameters(), lsh.Adam(1e-3))

    in place of ``torch.optim.Adam(module.parameters(), 1e-3)``; the training loop stays as it is.
    The parameters become views of one vector, without a copy from then on: make the optimizer after
    ``module.to(...)``. The rule's settings stand in the param_groups by ``torch.optim``'s names, and
    its schedulers change them as usual (``lr`` not where the rule has a schedule of its own).
    ``state_dict`` and ``load_state_dict`` have ``torch.optim``'s structure and names, so the state
    of its optimizer of the same name can be loaded, and the other way round. What does not fit is
    refused, and nothing changed.

    A parameter without a gradient is left as it is, with its state, and no step is counted for it,
    as in PyTorch. A schedule of the rule's own and SWAP go by the steps of the param_group; at a
    period's end SWAP decays the accumulators of such a parameter too.

    Args:
        params: parameters or param_groups, whose settings may differ but for those that another
            state belongs to (``amsgrad``, ``centered``), float32, CPU.
        rule: from ``leashed.rules``. ``clip_norm`` is over each param_group.

    Raises:
        TypeError, ValueError: a parameter is on another device, of another dtype or empty, a
            param_group has what the rule has not, or ``rule`` is none.
    """

    def __init__(self, params: Any, rule: Rule | str | None = None) -> None:
        self._rule = check_rule(rule)
        self._groups: list[_Group] = []
        super().__init__(params, _settings(self._rule))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rule": self._rule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_rule" in state:  # a copy; PyTorch's load_state_dict comes by without
            self._groups = [_Group(group["params"], self._rule) for group in self.param_groups]
            self._load()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, which become views of a vector of their own."""
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        try:
            parameters = _parameters("params", self.param_groups[index]["params"])
            group = _Group(parameters, self._rule)
            group.adapt(self.param_groups[index])
        except BaseException:  # Ctrl-C too
            del self.param_groups[index]
            raise
        self._groups.append(group)
        self._link()

    def _link(self) -> None:
        for group in self._groups:
            for (p, *_), state in zip(group.parts, group.state, strict=True):
                self.state[p] = state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update from the parameters' gradients; ``closure`` as in PyTorch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, settings in zip(self._groups, self.param_groups, strict=True):
            group.step(settings)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state, of this class or of ``torch.optim``'s optimizer of the same name."""
        before = {"state": self.state, "param_groups": self.param_groups}
        try:
            super().load_state_dict(state_dict)
            for settings in self.param_groups:
                for name, value in self.defaults.items():
                    settings.setdefault(name, value)
            self._load()
        except BaseException:  # Ctrl-C too
            self.__dict__.update(before)
            raise

    def _load(self) -> None:
        """Makes what ``state`` and ``param_groups`` hold the groups' own."""
        loaded = [[dict(self.state.get(p, {})) for p, *_ in g.parts] for g in self._groups]
        for group, states, settings in zip(self._groups, loaded, self.param_groups, strict=True):
            group.check(states)
            group.adapt(settings)
        for group, states, settings in zip(self._groups, loaded, self.param_groups, strict=True):
            group.load(states, settings.get("t"))
        self._link()


@dataclass(frozen=True, repr=False)
class FitResult:
    """What ``fit`` did.

    Attributes:
        losses: mean loss of each batch at the time, float32, in the order of the batches.
        updates: updates applied.
        dropped: gradients that the persistence bound dropped or the staleness policy left out.
        staleness: of each update, in no order.
        seconds: from the first thread's start to the last one's end.
        examples: that gradients were computed of.
        cluster: what was counted of this trainer in a cluster, by name; empty without one.
        cut_short: why the cluster's run ended before its batches and this training did; None: it did
            not.
    """

    losses: NDArray[np.float32]
    updates: int
    dropped: int
    staleness: NDArray[np.int64]
    seconds: float
    examples: int
    cluster: Mapping[str, float] = dataclasses.field(default_factory=dict)
    cut_short: str | None = None

    @property
    def eps(self) -> float:
        """Examples per second."""
        return self.examples / self.seconds if self.seconds > 0 else float("nan")

    def __repr__(self) -> str:
        loss = (
            "" if not len(self.losses) else f"loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}, "
        )
        cut = "" if self.cut_short is None else f", cut short: {self.cut_short}"
        staleness = f"{self.staleness.mean():.3g}" if len(self.staleness) else "none"
        return (
            f"FitResult({loss}{self.updates:,} updates in {self.seconds:.3g} s, {self.eps:,.0f} examples/s, "
            f"mean staleness {staleness}, {self.dropped:,} dropped{cut})"
        )


def fit(
    module: Any,
    loss_fn: Callable[[Any, Any], Any],
    dataset: Any,
    *,
    until: Until,
    rule: Rule | str | None = None,
    discipline: Discipline | str | None = None,
    staleness: Policy | str | None = None,
    threads: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    sync: Synchroniser | str | None = None,
    cluster: Cluster | None = None,
) -> FitResult:
    """Train a PyTorch module with threads that share its parameters.

    Each thread has a replica of the module whose parameters are views of the engine's memory: of
    the shared vector itself under ``Hogwild(copy=False)`` and ``Sequential``, of a pinned published
    vector under ``Leashed``, of a copy under ``Hogwild()`` and ``Locked``. Gradients are read where
    ``backward`` leaves them. Buffers (batch normalisation's) are each replica's own; the module
    keeps those of the first thread. Tables under its ``Embedding`` are shared by all threads; rows
    make a step after each push, also where that was dropped. Afterwards the module's parameters,
    where they were before, hold the result.

    With more than one thread PyTorch's own threads within an operation are switched off meanwhile.

    Args:
        module: a ``torch.nn.Module`` on the CPU, float32.
        loss_fn: ``loss_fn(module(x), y)`` gives the mean loss of a batch.
        dataset: a pair of tensors (x, y), a ``TensorDataset`` or any map-style dataset of pairs.
        until: ``leashed.until(...)`` with ``epochs``, ``updates`` or ``seconds``. Threads finish the
            batch they have begun, so a few more updates may be made than asked for.
        rule: from ``leashed.rules``. Default: ``SGD(lr=0.05)``.
        discipline: default ``Hogwild(copy=False)``. Not ``Synchronous``.
        staleness: from ``leashed.staleness``. Default: ``none()``.
        threads: default: the processors this process may use (1 with ``Sequential``).
        batch_size: examples per gradient. Default: 64, or all where they are fewer.
        seed: of the batches.
        sync: how this trainer's parameters are kept in sync with those of others, from
            ``leashed.sync``. Default: that of ``cluster``. Buffers are not.
        cluster: the run in which this process is one of several trainers, from
            ``leashed.cluster.join()``. Its master hands out the batches of ``until.epochs``, each to
            one trainer; the other stop rules are this trainer's own. The module, the data,
            ``until.epochs``, ``batch_size`` and ``seed`` must be the same for all.

    Returns:
        A ``FitResult``; in a cluster, of this trainer.

    Raises:
        TypeError, ValueError: an argument is wrong; no thread has started.
        OSError: the cluster's master cannot be reached.
        FloatingPointError: a loss was NaN or infinite.
        ValueError: a gradient was, and the loss not; what it is of is as before it.
        Exception: whatever ``module``, ``loss_fn`` or a synchroniser of your own raised first, on any
            thread.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if not callable(loss_fn):
        raise TypeError(f"loss_fn must be callable, got {loss_fn!r}")
    discipline = check_discipline(Hogwild(copy=False) if discipline is None else discipline)
    if threads is None:
        threads = 1 if isinstance(discipline, Sequential) else cores()
    threads = checks.whole("threads", threads, maximum=MAX_THREADS)
    if embedded(module) and (sync is not None or cluster is not None):
        raise ValueError("sync and cluster: rows of tables are not synchronised; leave them out")
    if batch_size is not None:
        batch_size = checks.whole("batch_size", batch_size)
    batches = _Batches(dataset, batch_size, seed, until)
    batch_size = batches.size
    parameters = _parameters("module.parameters()", _trained(module))
    replicas = [module, *(_replica(module) for _ in range(threads - 1))]
    originals = [p.data for p in parameters]
    engine = Engine(
        _flat(parameters),
        rule=rule,
        discipline=discipline,
        staleness=staleness,
        workers=threads,
        variables=[p.numel() for p in parameters],
        sync=sync,
        cluster=cluster,
        batches=batches.total,
        batch_size=batch_size,
    )
    run = _Run(engine, loss_fn, batches, leased=cluster is not None)
    inner = torch.get_num_threads()
    try:
        with engine:
            if threads > 1:
                torch.set_num_threads(1)
            seconds = run.go(replicas)
    finally:
        torch.set_num_threads(inner)
        final = torch.from_numpy(engine.parameters())
        for p, data, end in zip(parameters, originals, _ends(parameters), strict=True):
            data.copy_(final[end - p.numel() : end].view(data.shape))
            p.data = data
            p.grad = None
        for one in embedded(module):
            one.zero_grad()
    losses = [loss for _, loss in sorted(run.losses)]
    return FitResult(
        losses=np.array(losses, np.float32),
        updates=engine.t,
        dropped=run.dropped,
        staleness=np.array(run.staleness, np.int64),
        seconds=seconds,
        examples=len(losses) * batch_size,
        cluster=engine.cluster,
        cut_short=engine.cut_short,
    )


def _replica(module: Any) -> Any:
    with torch.no_grad():  # a ScriptModule's copied parameters are no leaves otherwise
        replica = copy.deepcopy(module, {id(one): one.twin() for one in embedded(module)})
    for mine, original in zip(replica.parameters(), module.parameters(), strict=True):
        mine.requires_grad_(original.requires_grad)
    return replica


def _trained(module: Any) -> list[Any]:
    return [p for p in module.parameters() if p.requires_grad]


def _arrays(tensors: Sequence[Any]) -> list[NDArray[Any]]:
    """The tensors as arrays, whose rows are copied without an operation of PyTorch's, after which
    a thread would have to get the GIL again; none where NumPy does not know them.
    """
    try:
        return [np.ascontiguousarray(tensor.detach().numpy()) for tensor in tensors]
    except (TypeError, RuntimeError):
        return []


class _Batches:
    """Batches of a dataset by number, for any thread, until the stop rules say so.

    Attributes:
        total: how many there are, if the rules say so.
    """

    def __init__(self, dataset: Any, batch_size: int | None, seed: int, until: Until) -> None:
        if not isinstance(until, Until):
            raise TypeError(f"until must be leashed.until(...), got {until!r}")
        if not (until.loss is until.loss_fraction is until.divergence is None):
            raise ValueError("until: fit evaluates no loss; use epochs, updates or seconds")
        if isinstance(dataset, torch.utils.data.TensorDataset):
            dataset = dataset.tensors
        self.tensors: tuple[Any, ...] | None = None
        self.arrays: list[NDArray[Any]] = []
        if isinstance(dataset, (tuple, list)) and all(
            isinstance(part, torch.Tensor) for part in dataset
        ):
            if len(dataset) != 2 or len(dataset[0]) != len(dataset[1]):
                raise ValueError("dataset must be a pair of tensors (x, y) of equal length")
            self.tensors = tuple(dataset)
            self.arrays = _arrays(self.tensors)
        elif not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                "dataset must be a pair of tensors or a map-style dataset (with len() and []), "
                f"got {type(dataset).__name__}"
            )
        self.dataset = dataset
        self.rows = len(self.tensors[0] if self.tensors else dataset)
        self.size = min(_BATCH_SIZE if batch_size is None else batch_size, max(1, self.rows))
        self.seed = checks.whole("seed", seed, 0, MAX_SEED)
        rules = until.rules(self.rows, self.size)
        self.total = int(rules["batches"]) if "batches" in rules else None
        self.most = rules.get("updates", np.inf)
        self.seconds = rules.get("seconds", np.inf)
        self.start = time.perf_counter()
        self.next = 0
        self.lock = threading.Lock()

    def numbers(self) -> Iterator[int]:
        """Of the batches that are the calling thread's."""
        while not self.late() and (k := self.claim()) is not None:
            if self.total is not None and k >= self.total:
                return
            yield k

    def leased(self, numbers: Batches, stop: threading.Event) -> Iterator[int]:
        """The same, from those that a cluster hands to this trainer."""
        while not self.late() and self.claim() is not None:
            k = None
            while k is None:
                try:
                    k = numbers.next_within(_LOOK)
                except StopIteration:
                    return
                if k is None and (stop.is_set() or self.late()):
                    return
            yield k
            numbers.used()

    def late(self) -> bool:
        return time.perf_counter() - self.start >= self.seconds

    def claim(self) -> int | None:
        """Claims one update, which is given a number from 0; None: no more."""
        with self.lock:
            if self.next >= self.most:
                return None
            self.next += 1
            return self.next - 1

    def batch(self, k: int) -> tuple[Any, Any]:
        if self.arrays:
            x, y = (
                torch.from_numpy(_core.batch(array, self.seed, self.size, k))
                for array in self.arrays
            )
            return x, y
        rows = _core.batch_rows(self.seed, self.rows, self.size, k)
        if self.tensors:
            index = torch.tensor(rows)
            return self.tensors[0].index_select(0, index), self.tensors[1].index_select(0, index)
        x, y = torch.utils.data.default_collate([self.dataset[row] for row in rows])
        return x, y


class _Run:
    def __init__(
        self,
        engine: Engine,
        loss_fn: Callable[[Any, Any], Any],
        batches: _Batches,
        *,
        leased: bool,
    ):
        self.engine, self.loss_fn, self.batches = engine, loss_fn, batches
        self.leased = leased
        self.losses: list[tuple[int, float]] = []
        self.staleness: list[int] = []
        self.dropped = 0
        self.failures: list[BaseException] = []
        self.stop = threading.Event()
        self.lock = threading.Lock()
        memory = engine._memory()
        live = memory is not None and engine.discipline in (Hogwild(copy=False), Sequential())
        self.memory = torch.from_numpy(memory) if live else None

    def go(self, replicas: Sequence[Any]) -> float:
        """Runs one thread per replica; raises what the first to fail raised: where a synchroniser did,
        whom the engine told why, and not who was told that another was. Seconds.
        """
        start = self.batches.start = time.perf_counter()
        if len(replicas) == 1:
            self.work(replicas[0])  # PyTorch's own threads serve the thread that made them best
        else:
            self.in_threads(replicas)
        if self.failures:
            raise min(self.failures, key=lambda error: type(error) is RuntimeError)
        return time.perf_counter() - start

    def in_threads(self, replicas: Sequence[Any]) -> None:
        threads = [
            threading.Thread(target=self.work, args=(replica,), daemon=True) for replica in replicas
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)  # Ctrl-C comes in between
        finally:
            self.stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def work(self, replica: Any) -> None:
        losses: list[tuple[int, float]] = []
        staleness: list[int] = []
        dropped = 0
        try:
            parameters = _trained(replica)
            ends = _ends(parameters)
            rows = RowOptimizer(replica) if embedded(replica) else None
            if self.memory is not None:
                _attach(parameters, self.memory, ends)
            for k in self.numbers():
                if self.stop.is_set():
                    break
                loss, update = self.step(replica, parameters, ends, self.batches.batch(k))
                if rows is not None:
                    rows.step()
                losses.append((k, loss))
                if update.published:
                    staleness.append(update.staleness)
                else:
                    dropped += 1
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread
            with self.lock:
                self.failures.append(error)
            self.stop.set()
        with self.lock:
            self.losses += losses
            self.staleness += staleness
            self.dropped += dropped

    def numbers(self) -> Iterator[int]:
        if self.leased:
            return self.batches.leased(self.engine.batches(), self.stop)
        return self.batches.numbers()

    def backward(self, replica: Any, batch: tuple[Any, Any]) -> float:
        loss = self.loss_fn(replica(batch[0]), batch[1])
        loss.backward()
        return float(loss.item())

    def step(
        self, replica: Any, parameters: Sequence[Any], ends: Sequence[int], batch: tuple[Any, Any]
    ) -> tuple[float, Any]:
        t = None
        if self.memory is not None:
            t = self.engine.t  # what a read would tell
            value = self.backward(replica, batch)
        else:
            with self.engine._read_for_torch() as theta:
                _attach(parameters, torch.from_numpy(theta), ends)
                value = self.backward(replica, batch)
                del theta
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss is {value}; try a smaller learning rate")
        kept: list[Any] = []
        places = [
            _place(p, end - p.numel(), end, kept)
            for p, end in zip(parameters, ends, strict=True)
            if p.grad is not None
        ]
        if not places:
            raise ValueError("no parameter of the module has a gradient; is loss_fn detached?")
        update = self.engine._push_pieces(places, t)
        for p in parameters:
            p.grad = None
        return value, update
