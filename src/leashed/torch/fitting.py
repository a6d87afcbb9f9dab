"""Training by threads of a module of PyTorch's, with validation and checkpoints between passes over
the data (extra ``torch``); users have it from ``leashed.torch``.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leashed.base import checks
from leashed.base.machine import cores
from leashed.disciplines import Discipline, Hogwild, Sequential
from leashed.engine.engine import Engine, check_discipline, check_rule
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.sync import Cluster, Synchroniser
from leashed.torch.batches import Batch, Batches, _Batches, batches_of
from leashed.torch.embeddings import RowOptimizer, embedded
from leashed.torch.optimizer import _attach, _ends, _flat, _parameters, _place

__all__ = ["FitProgress", "FitResult", "fit"]

MAX_THREADS = 1024
_FORMAT = 1  # of checkpoints


@dataclass(frozen=True)
class FitProgress:
    """What ``fit`` tells after a pass over the data.

    Attributes:
        epoch: the passes that are over, of the runs that this one goes on from too.
        loss: the mean loss of the pass's batches, as their gradients found them.
        validation_loss: the mean loss over the validation set after it; NaN without one.
        updates: applied so far.
        seconds: since training began, without validation.
    """

    epoch: int
    loss: float
    validation_loss: float
    updates: int
    seconds: float

    def __str__(self) -> str:
        beside = (
            "" if math.isnan(self.validation_loss) else f", validation {self.validation_loss:.4g}"
        )
        return (
            f"epoch {self.epoch}: loss {self.loss:.4g}{beside}, {self.updates:,} updates, "
            f"{self.seconds:.3g} s"
        )


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
        validation_losses: the mean loss over the validation set after each pass over the data,
            float32; empty without one.
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
    validation_losses: NDArray[np.float32] = dataclasses.field(
        default_factory=lambda: np.empty(0, np.float32)
    )
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
    seed: int | None = None,
    target: str | None = None,
    validation: Any = None,
    progress: bool | Callable[[FitProgress], object] = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    sync: Synchroniser | str | None = None,
    cluster: Cluster | None = None,
) -> FitResult:
    """Train a PyTorch module with threads that share its parameters.

        lsh.torch.fit(model, loss_fn, DataLoader(...), until=lsh.until(epochs=5), rule=lsh.Adam(1e-3))

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
        dataset: a pair of tensors (x, y), a ``TensorDataset``, any map-style dataset of pairs, or a
            ``DataLoader``, whose batches threads take in turn, in its own order. Of a batch (x₁, x₂,
            …, y) the module gets ``module(x₁, x₂, …)``, of ({"a": x₁, …}, y) ``module(a=x₁, …)``; of
            a dict that with all but ``target``.
        until: ``leashed.until(...)`` with ``epochs``, ``updates`` or ``seconds``. Threads finish the
            batch they have begun, so a few more updates may be made than asked for.
        rule: from ``leashed.rules``. Default: ``SGD(lr=0.05)``.
        discipline: default ``Hogwild(copy=False)``. Not ``Synchronous``.
        staleness: from ``leashed.staleness``. Default: ``none()``.
        threads: default: the processors this process may use (1 with ``Sequential``).
        batch_size: examples per gradient; not with a ``DataLoader``, which has its own. Default: 64,
            or all where they are fewer.
        seed: of the batches' order, likewise. Default: 0.
        target: where batches are dicts, the name of y.
        validation: data of the same kinds, whose mean loss is found after each pass over the data,
            with ``module.eval()``.
        progress: True: a line on standard error after each pass, where that is a terminal; or what
            is called with a ``FitProgress``, whose exception ends training.
        checkpoint: a file that takes, after each pass and at the end, parameters, buffers, tables,
            the rule's state, that of PyTorch's random numbers and how far training is.
        resume: such a file to go on from, with the same arguments, but that the rule's rate may be
            another: ``until.epochs`` and
            ``until.updates`` count from the beginning, and PyTorch's random numbers go on too. With one
            thread and data in memory the end has the bits of a run that was not broken off after a
            pass.
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
        OSError: the cluster's master cannot be reached, or ``checkpoint`` not be written.
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
    batches = batches_of(dataset, batch_size, seed, until, target)
    extras = {
        "validation": validation,
        "progress": progress or None,
        "checkpoint": checkpoint,
        "resume": resume,
    }
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress must be True, False or callable, got {progress!r}")
    if cluster is not None:
        if not isinstance(batches, _Batches):
            raise ValueError(
                "a cluster's master hands out numbers of batches, which a DataLoader has not; give "
                "fit its dataset"
            )
        for name, value in extras.items():
            if value is not None:
                raise ValueError(f"{name} is of one trainer alone; leave it out with cluster")
    held = None
    if validation is not None:
        try:
            held = batches_of(validation, None, None, Until(epochs=1), target)
        except (TypeError, ValueError) as error:
            raise type(error)(f"validation: {error}") from None
    if checkpoint is not None:
        if not isinstance(checkpoint, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be a path, got {checkpoint!r}")
        checks.writable(Path(checkpoint))
    kept = None if resume is None else _load(resume)
    parameters = _parameters("module.parameters()", _trained(module))
    begun = ([], 0) if kept is None else _go_on(resume, kept, module, rule, batches)
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
        batch_size=batches.size or 1,
        begun=begun,
    )
    run = _Run(engine, loss_fn, batches, leased=cluster is not None)
    passes = _Passes(run, held, progress, checkpoint, kept)
    inner = torch.get_num_threads()
    batches.start = time.perf_counter()
    try:
        with engine:
            if threads > 1:
                torch.set_num_threads(1)
            seconds = (
                passes.go(replicas)
                if any(value is not None for value in extras.values())
                else run.go(replicas)
            )
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
        examples=run.examples,
        validation_losses=np.array(passes.validation_losses, np.float32),
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


class _Run:
    def __init__(
        self,
        engine: Engine,
        loss_fn: Callable[[Any, Any], Any],
        batches: Batches,
        *,
        leased: bool,
    ):
        self.engine, self.loss_fn, self.batches = engine, loss_fn, batches
        self.leased = leased
        self.losses: list[tuple[int, float]] = []
        self.staleness: list[int] = []
        self.dropped = 0
        self.examples = 0
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
        self.stop.clear()
        start = time.perf_counter()
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
        dropped = examples = 0
        try:
            parameters = _trained(replica)
            ends = _ends(parameters)
            rows = RowOptimizer(replica) if embedded(replica) else None
            if self.memory is not None:
                _attach(parameters, self.memory, ends)
            for k, batch in self.given():
                if self.stop.is_set():
                    break
                loss, update = self.step(replica, parameters, ends, batch)
                examples += batch.examples
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
            self.examples += examples

    def given(self) -> Iterator[tuple[int, Batch]]:
        if self.leased:
            assert isinstance(self.batches, _Batches)
            return self.batches.leased(self.engine.batches(), self.stop)
        return self.batches.each()

    def backward(self, replica: Any, batch: Batch) -> float:
        loss = self.loss_fn(batch.outputs(replica), batch.target)
        loss.backward()
        return float(loss.item())

    def step(
        self, replica: Any, parameters: Sequence[Any], ends: Sequence[int], batch: Batch
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


class _Passes:
    """Training pass by pass, and what is done between two."""

    def __init__(
        self,
        run: _Run,
        held: Batches | None,
        progress: Any,
        checkpoint: Any,
        kept: dict[str, Any] | None,
    ) -> None:
        self.run, self.held = run, held
        self.progress, self.checkpoint = progress, checkpoint
        self.done = 0 if kept is None else kept["passes"]
        self.validation_losses: list[float] = [] if kept is None else kept["validation_losses"]

    def go(self, replicas: Sequence[Any]) -> float:
        """Seconds of training."""
        run, seconds = self.run, 0.0
        while not run.batches.over:
            before = len(run.losses)
            run.batches.open_pass(self.done)
            took = run.go(replicas)
            seconds += took
            if len(run.losses) == before:  # the last pass had ended with its last batch
                break
            self.done += 1
            begin = time.perf_counter()
            self.between(replicas[0], [loss for _, loss in run.losses[before:]], seconds)
            run.batches.start += time.perf_counter() - begin
        return seconds

    def between(self, module: Any, losses: Sequence[float], seconds: float) -> None:
        engine = self.run.engine
        parameters = _trained(module)
        _attach(parameters, torch.from_numpy(engine.parameters()), _ends(parameters))
        validation = math.nan
        if self.held is not None:
            validation = _evaluate(module, self.run.loss_fn, self.held)
            self.validation_losses.append(validation)
        if self.checkpoint is not None:
            _save(self.checkpoint, module, engine, self)
        if self.progress:
            told = FitProgress(self.done, float(np.mean(losses)), validation, engine.t, seconds)
            if callable(self.progress):
                self.progress(told)
            elif sys.stderr is not None and sys.stderr.isatty():
                print(told, file=sys.stderr, flush=True)


def _evaluate(module: Any, loss_fn: Callable[[Any, Any], Any], batches: Batches) -> float:
    """The mean loss over all examples."""
    modes = [(part, part.training) for part in module.modules()]
    total, examples = 0.0, 0
    module.eval()
    try:
        with torch.no_grad():
            for batch in batches.in_order():
                loss = float(loss_fn(batch.outputs(module), batch.target).item())
                total += loss * batch.examples
                examples += batch.examples
    finally:
        for part, mode in modes:
            part.training = mode
    if not examples:
        raise ValueError("validation has no examples")
    return total / examples


def _save(path: Any, module: Any, engine: Engine, passes: _Passes) -> None:
    """In place of what is there, whole or not at all."""
    content = {
        "leashed.torch.fit": _FORMAT,
        "module": module.state_dict(),
        "rule": engine.rule.config(),
        "states": [torch.from_numpy(state) for state in engine.state],
        "updates": engine.t,
        "batches": passes.run.batches.next,
        "passes": passes.done,
        "validation_losses": passes.validation_losses,
        "plan": passes.run.batches.plan(),
        "random": torch.get_rng_state(),
    }
    beside = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
    try:
        torch.save(content, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _load(path: Any) -> dict[str, Any]:
    try:
        content: Any = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"resume: there is no file {os.fspath(path)!r}") from None
    except Exception as error:  # noqa: BLE001  whatever PyTorch says of a damaged file
        raise ValueError(f"resume: {os.fspath(path)!r} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("leashed.torch.fit") != _FORMAT:
        raise ValueError(f"resume: {os.fspath(path)!r} is no checkpoint of leashed.torch.fit")
    return content


def _of_states(rule: dict[str, Any]) -> dict[str, Any]:
    """What a rule's states depend on: its settings without the rate."""
    return {name: value for name, value in rule.items() if name not in ("lr", "schedule")}


def _go_on(
    path: Any, kept: dict[str, Any], module: Any, rule: Rule | str | None, batches: Batches
) -> tuple[list[NDArray[np.float32]], int]:
    """The module and the batches as they were; the rule's state, and its updates."""
    now, then = check_rule(rule).config(), kept["rule"]
    if isinstance(then, str):  # files told no more of it before
        now, then = {"name": now["name"]}, {"name": then}
    wanted = {"rule": _of_states(now), **batches.plan()}
    found = {"rule": _of_states(then), **kept["plan"]}
    for name in {**wanted, **found}:
        if wanted.get(name) != found.get(name):
            raise ValueError(
                f"resume: {os.fspath(path)!r} is of a run with {name}={found.get(name)!r}, and this one "
                f"has {wanted.get(name)!r}; go on with the same"
            )
    before = [(own, own.detach().clone()) for own in (*module.parameters(), *module.buffers())]
    tables = [(one, one.get_extra_state()) for one in embedded(module)]
    try:
        module.load_state_dict(kept["module"])
    except (RuntimeError, ValueError) as error:
        # What fits is taken over before PyTorch says what does not.
        with torch.no_grad():
            for own, value in before:
                own.copy_(value)
        for one, state in tables:
            one.set_extra_state(state)
        raise ValueError(f"resume: {os.fspath(path)!r} is of another module: {error}") from None
    if "random" in kept:
        torch.set_rng_state(kept["random"])
    batches.go_on(kept["batches"], kept["passes"])
    return [state.numpy() for state in kept["states"]], kept["updates"]
