"""What goes with what: one table, of which checks, their messages and docs/combinations.md are made.

    python -m leashed.training.abilities > docs/combinations.md

Whatever is not in it goes with everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from leashed.disciplines import Sequential, Synchronous
from leashed.models.external import External
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.modes import (
    ADPSGD,
    DPSGD,
    SHAT,
    AllReduce,
    Automatic,
    Ensemble,
    GoSGD,
    HopBW,
    LocalSGD,
    Mode,
    Prague,
    SHATRoot,
    Swarm,
    Switching,
    Sync,
)

__all__ = [
    "ALL_REDUCE",
    "DENSE",
    "NEEDS",
    "REFUSED",
    "check",
    "evict_or_wait",
    "of_dense",
    "of_discipline",
    "of_end",
    "of_mode",
    "of_model",
]

ALL_REDUCE = "all-reduce"
DENSE = ("server", ALL_REDUCE)
"""Who sums the gradients of a mode in a cluster: its policy server, or, in Sync, its workers."""


class Refused(NamedTuple):
    """What cannot be asked for together.

    Attributes:
        asked: of it, what is to be left out.
        beside: all of these, as ``TOLD`` calls them.
        why: behind "since".
        instead: what to do.
    """

    asked: str
    beside: tuple[str, ...]
    why: str
    instead: str

    def __str__(self) -> str:
        told = " ".join(TOLD[one] for one in self.beside)
        return f"{NAMED.get(self.asked, self.asked)} is not for {told}, since {self.why}; {self.instead}"


class Needs(NamedTuple):
    """What is asked for in vain without something else."""

    asked: str
    needs: str
    instead: str

    def __str__(self) -> str:
        return f"{NAMED.get(self.asked, self.asked)} is for {TOLD[self.needs]}; {self.instead}"


TOLD = {
    "mode": "runs with a mode",
    "models": "modes whose workers send models",
    "mixing": "modes whose workers mix what they pull with what they have",
    "resume": "that go on from a checkpoint",
    "sync": "runs with sync",
    "cluster": "runs with cluster",
    "cluster without a policy server": "runs with cluster and no policy server",
    "policy servers": "runs with policy servers",
    "sparse rows": "models of sparse rows",
    "several policy servers": "runs with several policy servers",
    "servers by themselves": "by modes whose servers decide by themselves",
    "modes that switch": "by Switching and Automatic",
    "evict or wait": "with tables that evict rows, or wait before they admit them",
    "all-reduce": 'runs with dense="all-reduce"',
    "checkpoint.every": "checkpoints by seconds",
    "checkpoint.updates": "checkpoints by updates",
    "virtual time": "virtual time",
    "stream": "streams",
    "stream here": "streams",
    "rows that come once": "streams of a pipe",
    "embedding servers": "runs with embedding servers",
    "readers": "runs with readers",
    "init.tables": "given tables",
    "lockstep": "disciplines in lockstep",
    "tables": "models that read tables",
    "unordered": "under Locked, Hogwild and Leashed",
    "trained rows": "tables whose rows have been trained",
    "evict": "tables that evict rows",
}
NAMED = {
    "tables": "a model that reads tables",
    "embedding servers": "a run with embedding servers",
    "readers": "a run with readers",
    "policy servers": "a run with policy servers",
    "modes without a server": "a mode without a server",
    "modes without rounds": "a mode but Sync, Switching and Automatic",
    "a staleness policy": "a staleness policy",
    "checkpoints of the run": "a checkpoint of the whole run",
    "all-reduce": 'dense="all-reduce"',
    "several policy servers": "several policy servers",
}
_ALONE = "train alone, or leave it out"
_HERE = "train on one machine, or leave it out"
_SERVERLESS = (AllReduce, Swarm, GoSGD, ADPSGD, DPSGD, Prague, Ensemble)
_WITH_ROUNDS = (Sync, Switching, Automatic)
_ALIKE = (*_WITH_ROUNDS, HopBW, LocalSGD)
_GONE = "their rows are gone when they have been used"
_END = "give epochs, updates or seconds, or stream.read() into memory"

REFUSED = (
    Refused(
        "discipline", ("mode",), "that says who waits for whom in its place", "give one of the two"
    ),
    Refused(
        "sync", ("mode",), "its server, or its meetings, are what keeps workers in sync", _ALONE
    ),
    Refused(
        "cluster without a policy server",
        ("mode",),
        "nobody leads the workers of its processes",
        "start a policy server (lsh.cluster.join(policy_servers=1), leashed cluster up --policy-servers 1), or "
        "train on one machine",
    ),
    Refused(
        "modes without a server",
        ("policy servers",),
        "workers meet each other there, or sum among themselves, and no server has what comes of it",
        "take sync, or local_sgd, or train on one machine",
    ),
    Refused(
        "embedding servers",
        ("policy servers",),
        "these have the rows of the model's tables with its parameters",
        "leave embedding_servers out, or take a synchroniser in place of mode",
    ),
    Refused(
        "init.tables",
        ("policy servers",),
        "these make the tables",
        "leave init.tables out, and give lsh.cluster.join(tables=) what is to be said of them",
    ),
    Refused(
        "record",
        ("several policy servers", "servers by themselves"),
        "each hears what the others do not",
        "take sync, hop_bw, local_sgd, switching or automatic, or one policy server, or leave it out",
    ),
    Refused(
        "record",
        ("tables", "several policy servers", "modes that switch"),
        "in GBA rows are those of each server's own look-ups, whose order it has not",
        "take sync or hop_bw, or one policy server, or leave it out",
    ),
    Refused(
        "record",
        ("several policy servers", "evict or wait"),
        "which rows those are is up to each server's own look-ups, whose order it has not",
        "leave evict and admit_after out, or take one policy server, or leave it out",
    ),
    Refused(
        "modes without rounds",
        ("all-reduce",),
        "only in Sync all workers wait for the sum of the same gradients",
        "take Sync(), Switching() or Automatic(), or leave dense out",
    ),
    Refused(
        "a staleness policy",
        ("all-reduce",),
        "what workers sum is not stale, and each is to make the update that its server makes",
        "leave one of the two out",
    ),
    Refused(
        "record",
        ("all-reduce", "modes that switch"),
        "what it is granted anew after a switch, with parameters of then, is in no record",
        "take sync, or leave one of the two out",
    ),
    Refused(
        "record",
        ("all-reduce", "several policy servers"),
        "what these are told of sums, and of where parameters are, is in no record",
        "take one policy server, or leave one of the two out",
    ),
    Refused(
        "record",
        ("tables", "all-reduce"),
        "rows are looked up once more for a sum that is begun anew, which is in no record",
        "leave one of the two out",
    ),
    Refused(
        "several policy servers",
        ("sparse rows",),
        "their parameters are trained in another order than the model's, which nobody cuts in parts",
        "take one policy server",
    ),
    Refused(
        "record",
        ("sparse rows", "policy servers"),
        "what a policy server hears of has its parameters in the order of a training",
        "leave it out, or train on one machine",
    ),
    Refused(
        "checkpoints of the run",
        ("sparse rows", "policy servers"),
        "a policy server has its parameters in the order of a training",
        "leave one of the two out, or take a synchroniser",
    ),
    Refused(
        "policy servers",
        ("rows that come once",),
        "a batch may go from one process to another, which would read it again",
        "write the rows into a file, or train on one machine",
    ),
    Refused(
        "until.updates",
        ("all-reduce",),
        "workers make them among themselves, and their server counts them when it has heard",
        "give epochs, or seconds",
    ),
    Refused(
        "resume",
        ("policy servers",),
        "what a trainer has kept is not what its server holds",
        "go on from a checkpoint of the whole run (lsh.cluster.join(checkpoint_every=60)), or begin with "
        "init=result.parameters",
    ),
    Refused(
        "checkpoint",
        ("policy servers",),
        "the server holds what would be saved",
        "take checkpoints of the whole run (lsh.cluster.join(checkpoint_every=60)); lsh.save keeps the result",
    ),
    Refused(
        'threads="auto"',
        ("mode",),
        "how many workers there are is part of what it decides by",
        "give a number",
    ),
    Refused(
        "record",
        ("mode", "resume"),
        "a record has all that its server was told from the beginning",
        "leave one of the two out",
    ),
    Refused(
        "record",
        ("virtual time",),
        "its seed makes it again, bit for bit",
        "leave it out",
    ),
    Refused(
        "metrics",
        ("virtual time",),
        "what they save, evaluations, take no time there",
        "give validation, and observe.every",
    ),
    Refused(
        "staleness by stages",
        ("models",),
        "it damps gradients",
        "choose another policy, or a mode whose workers push gradients",
    ),
    Refused(
        "staleness by stages",
        ("mixing",),
        "by their staleness they mix already",
        "choose another policy",
    ),
    Refused(
        "tables",
        ("models",),
        "all workers share their rows",
        "take a mode whose workers push gradients, such as ASP(), GBA() or SHAT()",
    ),
    Refused("until.loss", ("stream",), _GONE, _END),
    Refused("until.loss_fraction", ("stream",), _GONE, _END),
    Refused("until.divergence", ("stream",), _GONE, _END),
    Refused(
        "until.patience",
        ("cluster",),
        "a pass over the data is the work of all trainers, none of whom waits for the others",
        "give epochs, or train on one machine",
    ),
    Refused(
        "until.patience",
        ("virtual time",),
        "nobody waits there for a pass to be judged",
        "give epochs, or lsh.train it",
    ),
    Refused(
        "until.patience",
        ("checkpoint.every",),
        "a state in the middle has neither the best one nor the passes since",
        "leave every out: the checkpoint is the best state, written whenever there is a better one",
    ),
    Refused(
        "until.patience",
        ("checkpoint.updates",),
        "a state in the middle has neither the best one nor the passes since",
        "leave updates out: the checkpoint is the best state, written whenever there is a better one",
    ),
    Refused(
        "cluster",
        ("stream here",),
        "their rows come once, to one process",
        "start readers (lsh.cluster.join(readers=1), leashed cluster up --readers 1), or train on one machine",
    ),
    Refused(
        "cluster without embedding servers",
        ("tables",),
        "their rows are one process's",
        "start embedding servers (lsh.cluster.join(embedding_servers=2), leashed cluster up --embedding-servers 2), or train on one machine",
    ),
    Refused(
        "embedding servers",
        ("init.tables",),
        "they make the tables, and each its own part",
        "leave init.tables out, and give lsh.cluster.join(tables=) what is to be said of them",
    ),
    Refused(
        "embedding servers",
        ("lockstep",),
        "these fold the gradients of all workers, and not those of other trainers",
        "take another discipline, or mode=Sync() on one machine",
    ),
    Refused(
        "resume",
        ("embedding servers",),
        "a trainer's checkpoint has no rows, and servers begin with new ones",
        "go on from one of the whole run (lsh.cluster.join(checkpoint_every=60)), or in one process from "
        "the run's output, which lsh.load reads",
    ),
    Refused(
        'threads="auto"',
        ("embedding servers",),
        "how many are fastest is tried with rows in this process",
        "give a number",
    ),
    Refused(
        'threads="auto"',
        ("readers",),
        "how many are fastest is tried before any rows have come",
        "give a number",
    ),
    Refused("cluster of trainers", ("mode",), "its workers are one server's", "leave trainers out"),
    Refused(
        "checkpoint.updates",
        ("checkpoint.every",),
        "both say when",
        "give one of the two",
    ),
    Refused(
        "checkpoint.updates",
        ("cluster",),
        "no trainer makes the others wait",
        "give checkpoint.every",
    ),
    Refused(
        "record", ("sync",), "what comes from other trainers is in no record of this one", _ALONE
    ),
    Refused(
        "record",
        ("cluster without a policy server",),
        "what comes from other trainers is in no record of this one",
        _HERE,
    ),
    Refused(
        "record",
        ("tables", "resume"),
        "it holds no rows to begin with",
        "begin with new tables, or leave one of the two out",
    ),
    Refused(
        "record",
        ("trained rows",),
        "it holds no rows to begin with",
        "begin with new tables, as leashed.tables.of(...) makes them, or leave it out",
    ),
    Refused(
        "record",
        ("evict",),
        "which rows go depends on who looks at them at the moment, evaluations among others",
        "take tables without evict, whose max_bytes hold all ids, or leave it out",
    ),
    Refused(
        "record",
        ("tables", "unordered"),
        "threads update their rows without an order that it could have",
        "take Sequential(), Synchronous() or a mode, or leave it out",
    ),
)
NEEDS = (
    Needs("detection", "mode", "give mode as well"),
    Needs("network", "mode", "give mode as well"),
    Needs("failing", "mode", "give mode as well"),
    Needs("members", "mode", "give mode as well"),
    Needs("shards", "mode", "give mode as well"),
    Needs(
        "embedding servers",
        "tables",
        "of others there are no rows that they could hold: leave embedding_servers out",
    ),
    Needs(
        "policy servers",
        "mode",
        "others synchronise: give mode as well, or leave policy_servers out",
    ),
    Needs(
        "all-reduce",
        "policy servers",
        "there a policy server says whose gradients are summed: start one (lsh.cluster.join(policy_servers=1), "
        "leashed cluster up --mode sync), or leave dense out",
    ),
    Needs(
        "readers",
        "stream",
        "other data each trainer has: give the path of files or leashed.stream.csv(...), or leave readers out",
    ),
    Needs("checkpoint.incremental", "tables", "of others all parameters change: leave it out"),
)


def check(asked: Mapping[str, object]) -> None:
    """By name what is asked for, and what there is; None and False: not.

    Raises:
        ValueError: it does not go together; the message says why, and what does.
    """
    given = {name for name, value in asked.items() if value is not None and value is not False}
    for refused in REFUSED:
        if given.issuperset((refused.asked, *refused.beside)):
            raise ValueError(str(refused))
    for needs in NEEDS:
        if needs.asked in given and needs.needs not in given:
            raise ValueError(str(needs))


def of_mode(mode: Mode | None, policy: str = "none") -> dict[str, object]:
    """What there is with a mode, and a native staleness policy."""
    return {
        "mode": mode,
        "models": mode is not None and not mode.PUSHES_GRADIENTS,
        "mixing": isinstance(mode, (SHAT, SHATRoot, Ensemble)),
        "modes without a server": isinstance(mode, _SERVERLESS),
        "servers by themselves": mode is not None and not isinstance(mode, _ALIKE),
        "modes that switch": isinstance(mode, (Switching, Automatic)),
        "staleness by stages": policy.startswith("stage_aware"),
    }


def of_dense(dense: str, mode: Mode | None, policy: str) -> dict[str, object]:
    """What there is where dense parameters' gradients are summed so, by a mode and a staleness policy.

    Raises:
        ValueError: ``dense`` is none of ``DENSE``.
    """
    if dense not in DENSE:
        raise ValueError(f"dense must be one of {', '.join(DENSE)}, got {dense!r}")
    return {
        "all-reduce": dense == ALL_REDUCE,
        "modes without rounds": mode is not None and not isinstance(mode, _WITH_ROUNDS),
        "a staleness policy": policy != "none",
    }


def of_discipline(discipline: object, mode: Mode | None) -> dict[str, object]:
    """What there is with a discipline, where there is no mode; None: the default."""
    ordered = isinstance(discipline, (Sequential, Synchronous))
    return {
        "discipline": discipline,
        "unordered": mode is None and not ordered,
        "lockstep": isinstance(discipline, Synchronous),
    }


def of_cluster(cluster: object) -> dict[str, object]:
    """What there is with a cluster, or None."""
    servers = getattr(cluster, "embedding_servers", 0)
    policy = getattr(cluster, "policy_servers", 0)
    return {
        "embedding servers": servers > 0,
        "cluster without embedding servers": cluster is not None and not servers and not policy,
        "policy servers": policy > 0,
        "several policy servers": policy > 1,
        "evict or wait": getattr(cluster, "evict_or_wait", False),
        "cluster without a policy server": cluster is not None and not policy,
        "readers": getattr(cluster, "readers", 0) > 0,
    }


def of_end(until: object) -> dict[str, object]:
    """What there is with stop rules; with none of these, where it is something else."""
    rules = ("loss", "loss_fraction", "divergence", "patience", "updates")
    return {f"until.{rule}": getattr(until, rule, None) for rule in rules}


def of_model(model: object, tables: object = None) -> dict[str, object]:
    """What there is with a model, and tables to begin with."""
    given = tables.values() if isinstance(tables, Mapping) else ()
    found = [table for table in given if isinstance(table, Table)]
    return {
        "tables": isinstance(model, (Graph, External)) and bool(model.tables),
        "trained rows": any(table.has_been_trained for table in found),
        "evict": any(table.evict for table in found),
    }


def evict_or_wait(settings: Mapping[str, Any]) -> bool:
    """Whether tables with these settings of ``tables.of`` evict rows, or wait before they admit them."""
    return settings.get("evict") is not None or (settings.get("admit_after") or 1) > 1


_OPENING = (
    "Disciplines, modes, rules, staleness policies, models, data, executors and synchronisers are "
    "chosen independently. What does not go together is here, with the reason, and is refused by name "
    "before a thread starts; whatever is not here goes with everything. (This page is made of "
    "`training/abilities.py`, which checks by it; `tests/matrix.py` tries 771 combinations and knows "
    "nothing of it.)"
)


def page() -> str:
    """docs/combinations.md."""
    lines = [
        "# What goes with what",
        "",
        _OPENING,
        "",
        "| what | is not for | since | instead |",
        "| --- | --- | --- | --- |",
    ]
    for refused in REFUSED:
        told = " ".join(TOLD[one] for one in refused.beside)
        asked = NAMED.get(refused.asked, refused.asked)
        lines.append(f"| {asked} | {told} | {refused.why} | {refused.instead} |")
    lines += [
        "",
        "What means nothing by itself:",
        "",
        "| what | is for | so |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {NAMED.get(needs.asked, needs.asked)} | {TOLD[needs.needs]} | {needs.instead} |"
        for needs in NEEDS
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
