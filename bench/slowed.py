"""Workers as processes that are slowed by sleeps, for trials of modes over sockets.

A gradient is computed by the native model; before it its worker sleeps, for as long as virtual time's
``trace`` draws for that worker and that gradient: so a run over sockets and one in virtual time are
slowed alike, gradient by gradient. All workers begin together, when each has its first batch.

Workers join by ``lsh.cluster.join``, since ``leashed cluster up`` takes no gradients from outside. Their
processes are started once (``Crew``) and train one run after the other, as they are told over their
standard input, a job a line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from leashed.base.closing import Closing
from leashed.datasets import Dataset
from leashed.models.external import External

WORKERS = 8
NEVER = 1e6  # seconds
_OF_GRADIENTS = 0x9E3779B97F4A7C15  # of a seed: what gradients take
_PATIENCE = 120.0  # seconds in which all workers come to their first batch

Floats = NDArray[np.float32]


def _philox(key: int, high: int, low: int) -> tuple[int, int]:
    """Two words of Philox4x32-10 (Salmon et al., 2011), as cpp/leashed/base/philox.h has it."""
    mask = 2**32 - 1
    c = [low & mask, low >> 32, high & mask, high >> 32]
    k0, k1 = key & mask, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & mask, (p0 >> 32) ^ c[3] ^ k1, p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c[0], c[1]


def first_of(seed: int, worker: int, length: int) -> int:
    """Where a worker of virtual time begins in a trace of so many durations, as
    cpp/leashed/simulation/durations.cc has it.
    """
    high, low = _philox(seed ^ _OF_GRADIENTS, worker, 2**64 - 1)
    return int((((high << 20) | (low >> 12)) + 0.5) * 2.0**-52 * length)


class Slowed:
    """A gradient before which its worker sleeps; when each began and ended.

    Args:
        gradient: of ``lsh.models.external``, what is computed.
        sleeps: seconds, one after the other and again from the beginning; none: it does not sleep.
        begin: returns when all workers are at their first gradient.
    """

    def __init__(
        self,
        gradient: Callable[..., float],
        sleeps: Sequence[float] = (),
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self.gradient = gradient
        self.calls: list[tuple[float, float, float, float]] = []  # begun, to sleep, awake, over
        self.begun = 0.0
        self._cpu = 0.0
        self._sleeps = sleeps
        self._begin = begin

    def __call__(self, *given: Any) -> float:
        """The mean loss, after the sleep."""
        if not self.calls:
            self._begin()
            self.begun = time.monotonic()
            self._cpu = time.process_time()
        at = time.monotonic()
        asleep = self._sleeps[len(self.calls) % len(self._sleeps)] if self._sleeps else 0.0
        time.sleep(asleep)
        awake = time.monotonic()
        loss = self.gradient(*given)
        self.calls.append((at, asleep, awake, time.monotonic()))
        return loss

    def told(self) -> dict[str, float | list[float]]:
        """What a worker says of its run: when it began, when its gradients ended, the processor's seconds
        since then, and in sum the seconds that gradients took, those that sleeps lasted beyond what they
        were to, and those between a gradient and the next.
        """
        return {
            "begun": self.begun,
            "ends": [over for *_, over in self.calls],
            "cpu": time.process_time() - self._cpu,
            "gradient": sum(over - awake for *_, awake, over in self.calls),
            "overslept": sum(awake - at - asleep for at, asleep, awake, _ in self.calls),
            "between": sum(b[0] - a[-1] for a, b in itertools.pairwise(self.calls)),
        }


def no_loss(*_: Any) -> float:
    """For evaluations while a run goes on, which nobody looks at."""
    return 0.0


class Begun(External):
    """A model that begins with the parameters that its gradient has as ``theta``."""

    def init(self, seed: int = 0, scheme: str = "he") -> Floats:  # noqa: ARG002
        """They."""
        return np.array(getattr(self.gradient, "gradient", self.gradient).theta)


class Clicks:
    """A small DeepFM, without its linear model's rows, that goes on from rows of an earlier training.

    A policy server's tables begin anew in each run. So what a table has of an id is what has been
    added to its row since then, 0 at first, and the gradient adds the row that was there before. It
    finds that by the ids, which the data have once more among their numbers.

    Args:
        theta: parameters to begin with.
        rows: of each table, float32 [ids, DIM].
    """

    NUMBERS, IDS, CARDINALITY, DIM = 13, 26, 1000, 4

    def __init__(self, theta: Floats, rows: Sequence[Floats]) -> None:
        self.theta = theta
        self.rows = rows
        self._graph = self.graph()

    @classmethod
    def graph(cls) -> lsh.models.Graph:
        """What is trained."""
        models = lsh.models
        rows = [
            models.Embedding(models.TableSpec(f"c{k}", cls.DIM, cls.CARDINALITY))
            for k in range(cls.IDS)
        ]
        x = models.Input(cls.NUMBERS)
        deep = models.Concat(x, *rows) >> models.Dense(16) >> models.ReLU() >> models.Dense(1)
        return models.Graph(
            models.Sum(x >> models.Dense(1), models.FM(*rows), deep), loss="log_loss"
        )

    @classmethod
    def new(cls, seed: int) -> Clicks:
        """One that has not been trained."""
        drawn = np.random.default_rng(seed)
        shape = (cls.CARDINALITY, cls.DIM)
        rows = [drawn.normal(0.0, 0.05, shape).astype(np.float32) for _ in range(cls.IDS)]
        return cls(cls.graph().init(seed), rows)

    def __call__(self, theta: Floats, x: Floats, y: Any, rows: Any, out: Floats) -> float:
        ids = x[:, self.NUMBERS :].astype(np.int64)
        values = [np.array(one) for one in rows.values]
        for k, places in enumerate(rows.places):
            before = np.empty_like(values[k])
            before[places] = self.rows[k][ids[:, k]]
            values[k] += before
        columns = [(places.astype(np.uint64), None, None) for places in rows.places]
        numbers = np.ascontiguousarray(x[:, : self.NUMBERS])
        loss, dense, found = self._graph.native.gradient(theta, numbers, y, columns, values)
        out[:] = dense
        for to, one in zip(rows.gradients, found, strict=True):
            np.add(to, one.reshape(to.shape), out=to)
        return float(loss)

    def model(self, gradient: Callable[..., float]) -> External:
        """It, with that gradient."""
        return Begun(
            gradient,
            len(self.theta),
            self.NUMBERS + self.IDS,
            loss=no_loss,
            ids=self._graph.tables,
            name="slowed",
        )

    def after(self, result: lsh.TrainResult) -> Clicks:
        """What a training of it has come to."""
        every = np.arange(self.CARDINALITY)
        rows = [
            rows + result.tables[spec.name].lookup(every)
            for rows, spec in zip(self.rows, self._graph.tables, strict=True)
        ]
        return Clicks(result.parameters, rows)

    def auc(self, data: lsh.datasets.ClickDataset) -> float:
        """Of data that have their ids among their numbers."""
        columns = [(np.ascontiguousarray(one), None, None) for one in data.ids.T]
        numbers = np.ascontiguousarray(data.x[:, : self.NUMBERS])
        scores = self._graph.native.predict(self.theta, numbers, columns, self.rows)
        return lsh.metrics.auc(np.ravel(scores), data.y)

    @staticmethod
    def days(rows: int, count: int) -> tuple[list[Any], Any]:
        """So many days of clicks, between which a tenth of what makes people click drifts, and test
        clicks of the last; with their ids among their numbers.
        """
        made = lsh.datasets.synthetic_clicks(
            rows, seed=0, days=count, drift=0.1, cardinalities=Clicks.CARDINALITY, threads=1
        )

        def numbered(data: Any) -> Any:
            x = np.concatenate([data.x, data.ids.astype(np.float32)], axis=1)
            return lsh.datasets.ClickDataset(x, data.ids, data.y, data.names)

        days = [numbered(made.train[day * rows : (day + 1) * rows]) for day in range(count)]
        return days, numbered(made.test)

    def save(self, path: Path) -> None:
        """For ``load``."""
        np.savez(path, theta=self.theta, rows=np.stack(self.rows))

    @classmethod
    def load(cls, path: str | Path) -> Clicks:
        """What was saved."""
        with np.load(path) as found:
            return cls(found["theta"], list(found["rows"]))


class Net:
    """An MLP, by its widths, on points around ten centres."""

    FEATURES, CLASSES = 32, 10

    def __init__(self, hidden: Sequence[int], seed: int) -> None:
        self.hidden = list(hidden)
        self._model = lsh.models.mlp(self.FEATURES, self.hidden, self.CLASSES)
        self.theta = self._model.init(seed)

    def __call__(self, theta: Floats, x: Floats, y: Any, out: Floats) -> float:
        loss, out[:] = self._model.native.gradient(theta, x, y)
        return float(loss)

    def model(self, gradient: Callable[..., float]) -> External:
        """It, with that gradient."""
        widths = [self.FEATURES, *self.hidden, self.CLASSES]
        layers = [(a + 1) * b for a, b in itertools.pairwise(widths)]
        return Begun(
            gradient,
            len(self.theta),
            self.FEATURES,
            loss=no_loss,
            variables=tuple(layers),
            name="slowed",
        )

    def accuracy(self, parameters: Floats, data: Dataset) -> float:
        """On a data set."""
        return float(np.mean(self._model.native.predict(parameters, data.x).argmax(1) == data.y))

    @classmethod
    def points(cls, rows: int) -> tuple[Dataset, Dataset]:
        """Training and test points."""
        drawn = np.random.default_rng(0)
        centres = drawn.normal(0.0, 1.0, (cls.CLASSES, cls.FEATURES))

        def around(count: int) -> Dataset:
            y = drawn.integers(cls.CLASSES, size=count).astype(np.int32)
            x = (centres[y] + drawn.normal(0.0, 1.0, (count, cls.FEATURES))).astype(np.float32)
            return Dataset(x, y, classes=cls.CLASSES, name="points")

        return around(rows), around(10_000)


def _data(job: Mapping[str, Any]) -> tuple[Any, Any]:
    """Model and data of a job."""
    if "hidden" in job:
        return Net(job["hidden"], job["seed"]), Net.points(job["rows"])[0]
    return Clicks.load(job["base"]), Clicks.days(job["rows"], job["day"] + 1)[0][job["day"]]


_connected = socket.create_connection


def _through(links: Mapping[str, int]) -> Callable[..., socket.socket]:
    """``socket.create_connection``, but that servers are reached over their links."""

    def connect(address: tuple[str, int], *given: Any, **more: Any) -> socket.socket:
        host, port = address
        return _connected((host, links.get(str(port), port)), *given, **more)

    return connect


def _begin(folder: Path, rank: int, workers: int) -> None:
    """Waits until all workers are here."""
    (folder / f"begin-{rank}").touch()
    last = time.monotonic() + _PATIENCE
    while sum(1 for _ in folder.glob("begin-*")) < workers:
        if time.monotonic() > last:
            raise TimeoutError(f"not all {workers} workers have come to their first batch")
        time.sleep(0.002)


def _train(job: Mapping[str, Any], rank: int) -> dict[str, float | list[float]]:
    """One worker's part of a run."""
    folder = Path(job["folder"])
    of, data = _data(job)
    trace = np.load(job["trace"])
    slowed = Slowed(
        of,
        np.roll(trace, -first_of(job["seed"], rank, len(trace))).tolist(),
        lambda: _begin(folder, rank, job["workers"]),
    )
    with_tables = (
        {} if "hidden" in job else {"collect": True, "tables": {"init": lsh.tables.zeros()}}
    )
    result = lsh.train(
        of.model(slowed),
        data,
        mode=job["mode"],
        rule=job["rule"],
        until=lsh.until(epochs=1),
        threads=1,
        batch_size=job["batch"],
        seed=job["seed"],
        observe=lsh.Observe(every=NEVER, rows=job["batch"]),
        cluster=lsh.cluster.join(
            policy_servers=job["servers"],
            shards=job["shards"],
            rendezvous="127.0.0.1",
            rank=rank,
            size=job["workers"],
            folder=folder / "run",
            ports=job["ports"],
            min_trainers=job["workers"],
            grace=_PATIENCE,
            transport="tcp",
            **with_tables,
        ),
    )
    if rank == 0 and "hidden" in job:
        np.save(job["save"], result.parameters)
    elif rank == 0:
        of.after(result).save(job["save"])
    return slowed.told()


class Crew(Closing):
    """The processes of so many workers, until ``close``."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.workers = workers
        self._started = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.slowed", str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(workers)
        ]

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """One run; its seconds and what it measured.

        Raises:
            RuntimeError: a worker has failed, which says why on standard error.
        """
        folder = Path(job["folder"])
        folder.mkdir()
        for one in self._started:
            assert one.stdin is not None
            print(json.dumps({**job, "workers": self.workers}), file=one.stdin, flush=True)
        told = []
        for one in self._started:
            assert one.stdout is not None
            if not (line := one.stdout.readline()):
                self.close()
                raise RuntimeError(f"a worker of {job['mode']} has failed")
            told.append(json.loads(line))
        servers = [
            member["counters"]
            for member in json.loads((folder / "run" / "run-0" / "run.json").read_text())["members"]
            if member["role"] == "policy-ps"
        ]
        return measured(told, servers)

    def close(self) -> None:
        """Ends them."""
        for one in self._started:
            assert one.stdin is not None
            one.stdin.close()
        for one in self._started:
            assert one.stdout is not None
            one.terminate()
            one.wait()
            one.stdout.close()


def measured(
    told: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """A run by what its workers and its servers said of it.

    Returns: ``seconds`` from the begin to the last gradient, ``ends`` of all gradients; in the mean
    ``gradient``, ``overslept`` (by what a sleep was too long), ``between`` (from a gradient's end to the next one's
    begin) and ``update`` (of a server, for a push); ``cores`` that the workers took;
    ``staleness`` of updates in the mean, and the share of examples that was ``dropped``.
    """
    begun = max(one["begun"] for one in told)
    ends = sorted(end - begun for one in told for end in one["ends"])
    first = servers[0]
    dropped = first["mode_stale"] + first["mode_straggler"] + first["mode_late"]
    return {
        "seconds": ends[-1],
        "ends": ends,
        "gradient": sum(one["gradient"] for one in told) / len(ends),
        "overslept": sum(one["overslept"] for one in told) / len(ends),
        "between": sum(one["between"] for one in told) / (len(ends) - len(told)),
        "update": sum(one["serving_seconds"] for one in servers) / first["pushes"],
        "cores": sum(one["cpu"] for one in told) / ends[-1],
        "staleness": first["staleness"] / max(1.0, first["mode_data_gradients"]),
        "dropped": dropped / (dropped + first["mode_applied"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A worker of bench.slowed's Crew.")
    parser.add_argument("rank", type=int)
    rank = parser.parse_args().rank
    for line in sys.stdin:
        job = json.loads(line)
        socket.create_connection = _through(job["links"])  # type: ignore[assignment]
        print(json.dumps(_train(job, rank)), flush=True)


if __name__ == "__main__":
    main()
