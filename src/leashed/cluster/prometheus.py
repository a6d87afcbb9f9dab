"""A run's figures for Prometheus, which asks for them over HTTP (extra ``prometheus``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leashed.base.closing import Closing
from leashed.cluster.history import present
from leashed.cluster.measures import Counters, Measures, Pulse, counted
from leashed.cluster.mode_table import FATES, behind
from leashed.cluster.opening import format_address
from leashed.cluster.roles import ROLES

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "metrics for Prometheus need prometheus-client: pip install leashed[prometheus]"
    ) from error

__all__ = ["Exporter"]


class Exporter(Closing, Collector):
    """Answers ``http://HOST:PORT/metrics`` with the newest of the reports it is called with, whoever
    asks.

    A context manager, at whose end it answers no more.

    Args:
        host: the address to listen on.
        port: 0: any that is free.

    Raises:
        OSError: the port is taken, or there is no such address here.
    """

    def __init__(self, host: str, port: int) -> None:
        self._pulse = Pulse()
        # The newest report and its rates; replaced as one, for the server's threads.
        self._newest: tuple[Mapping[str, Any], Mapping[int, Measures]] | None = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot offer metrics at {format_address(host, port)}: {error.strerror}; give another: "
                "--prometheus of leashed cluster up, prometheus in a plan's [cluster]",
            ) from None

    def close(self) -> None:
        """Answers no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """On which it answers."""
        return int(self._server.server_port)

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Take a report, in the layout of run.json."""
        seconds = report["seconds"]
        if self._newest is None or seconds > self._newest[0]["seconds"]:
            rates = self._pulse(counted(report, "trainer"), seconds, report["terms"]["batch_size"])
            self._newest = report, rates

    def collect(self) -> Iterable[Metric]:
        """The figures, as prometheus-client asks for them."""
        if self._newest is None:
            return
        report, rates = self._newest
        members = GaugeMetricFamily("leashed_members", "Members of the run now.", labels=["role"])
        for name in ROLES:
            members.add_metric([name], present(report)[name])
        yield members
        processes = {name: counted(report, name) for name in ROLES}
        for name, help_text, counter in (
            ("examples", "Examples trained.", "examples"),
            ("iterations", "Batches trained.", "batches_used"),
            ("syncs", "Synchronisations.", "syncs"),
            ("sync_failures", "Synchronisations that failed.", "sync_failed"),
            ("sync_partials", "Synchronisations without some fragments.", "sync_partial"),
            ("sync_seconds", "Seconds spent in synchronisation.", "sync_seconds"),
            ("row_seconds", "Seconds in which workers waited for rows.", "row_seconds"),
            (
                "row_settling_seconds",
                "Seconds in which workers waited for their pushes to be applied.",
                "row_settling",
            ),
            ("row_bytes_out", "Bytes sent to embedding servers.", "row_bytes_out"),
            ("row_bytes_in", "Bytes that came from embedding servers.", "row_bytes_in"),
            ("row_pushes", "Pushes of rows' gradients.", "row_pushes"),
            (
                "row_settled",
                "Pushes of which an embedding server has said what became.",
                "row_settled",
            ),
            ("row_lost", "Pushes that restarts of embedding servers have lost.", "row_lost"),
        ):
            yield _counted(f"leashed_{name}", help_text, counter, processes["trainer"], "trainer")
        for direction, counter in (("out", "bytes_out"), ("in", "bytes_in")):
            for role in ROLES.values():
                yield _counted(
                    f"leashed_{role.metric}_bytes_{direction}",
                    f"Bytes that {role.words}s have moved, {direction}; of trainers none of rows.",
                    counter,
                    processes[role.name],
                    role.metric,
                )
        yield _counted(
            "leashed_exchanges",
            "Fragments that sync servers have interpolated.",
            "exchanges",
            processes["sync-ps"],
            ROLES["sync-ps"].metric,
        )
        of_rows = processes.get("embedding-ps", {})
        for name, help_text, counter in (
            ("lookups", "Look-ups of batches.", "lookups"),
            ("looked_up", "Rows looked up.", "looked_up"),
            ("updates", "Updates of rows.", "row_updates"),
            ("staleness", "Sum of the staleness of updates of rows.", "row_staleness"),
            ("stalled_seconds", "Seconds in which snapshots kept pushes waiting.", "stalled"),
            ("lost", "Pushes that were applied and lost by restarts.", "lost"),
        ):
            yield _counted(
                f"leashed_embedding_{name}", help_text, counter, of_rows, "embedding_server"
            )
        rows = GaugeMetricFamily(
            "leashed_embedding_rows", "Rows held now.", labels=["embedding_server"]
        )
        for index, counters in of_rows.items():
            if "rows" in counters:
                rows.add_metric([str(index)], counters["rows"])
        yield rows
        yield from _of_modes(processes["policy-ps"])
        eps = GaugeMetricFamily("leashed_eps", "Examples per second now.", labels=["trainer"])
        gap = GaugeMetricFamily(
            "leashed_sync_gap", "Iterations per synchronisation now.", labels=["trainer"]
        )
        for index, measures in rates.items():
            eps.add_metric([str(index)], measures.eps)
            gap.add_metric([str(index)], measures.gap)
        yield eps
        yield gap
        ledger = report["ledger"]
        yield GaugeMetricFamily(
            "leashed_batches_complete", "Batches of the run that are trained.", ledger["complete"]
        )


def _of_modes(servers: Mapping[int, Counters]) -> Iterable[Metric]:
    """Of policy servers, of which there are none in a run without a mode."""
    label = ROLES["policy-ps"].metric
    for name, help_text, counter in (
        ("grants", "Leases of a batch with the parameters.", "grants"),
        ("pushes", "Gradients or models that came.", "pushes"),
        ("updates", "Updates of the parameters.", "mode_updates"),
        ("exchanges", "Exchanges of models.", "mode_exchanges"),
        ("published", "Gradients that updates were made of.", "published"),
        ("staleness", "Sum of the staleness of these, in updates.", "staleness"),
        ("departures", "Workers that left or died.", "departures"),
        ("lost", "Examples of the leases of these, which others were given.", "lost"),
        ("commands", "Commands that the mode was told.", "mode_commands"),
        ("serving_seconds", "Processor time of serving.", "serving_seconds"),
    ):
        yield _counted(f"leashed_policy_{name}", help_text, counter, servers, label)
    yield from _of_their_rows(servers, label)
    examples = CounterMetricFamily(
        "leashed_policy_examples",
        "Examples that were pushed: in updates, or why they are in none.",
        labels=[label, "fate"],
    )
    steps = CounterMetricFamily(
        "leashed_policy_behind",
        "Gradients in updates, by the steps behind the token of their data: from so many to twice as many.",
        labels=[label, "steps"],
    )
    workers = GaugeMetricFamily("leashed_policy_workers", "Workers that have come.", labels=[label])
    for index, counters in servers.items():
        for fate in FATES:
            if (of := f"mode_{fate}") in counters:
                examples.add_metric([str(index), fate], counters[of])
        for first, count in behind(counters).items():
            steps.add_metric([str(index), str(first)], count)
        if "lanes" in counters:
            workers.add_metric([str(index)], counters["lanes"])
    yield from (examples, steps, workers)


def _of_their_rows(servers: Mapping[int, Counters], label: str) -> Iterable[Metric]:
    """Of tables whose rows policy servers have."""
    rows = {index: each for index, each in servers.items() if "row_bytes" in each}
    for name, help_text, counter in (
        ("lookups", "Look-ups of batches.", "lookups"),
        ("looked_up", "Rows looked up.", "looked_up"),
        ("row_updates", "Updates of rows.", "row_updates"),
        ("row_staleness", "Sum of the staleness of updates of rows.", "row_staleness"),
        ("row_moved_bytes", "Bytes of ids, rows and their gradients, with frames.", "row_moved"),
        ("row_least_bytes", "The least of these: each id, and its floats both ways.", "row_least"),
    ):
        yield _counted(f"leashed_policy_{name}", help_text, counter, rows, label)
    held = GaugeMetricFamily("leashed_policy_rows", "Rows held now.", labels=[label])
    for index, counters in rows.items():
        held.add_metric([str(index)], counters["rows"])
    yield held


def _counted(
    name: str, help_text: str, counter: str, processes: Mapping[int, Counters], label: str
) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for index, counters in processes.items():
        if counter in counters:
            family.add_metric([str(index)], counters[counter])
    return family
