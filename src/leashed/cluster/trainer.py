"""The role ``trainer``: trains as a plan describes it, in sync with the plan's other trainers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leashed.cluster import checkpoints, fingerprint
from leashed.cluster.member import master_address
from leashed.cluster.remote_batches import sent
from leashed.cluster.session import Cluster
from leashed.files import resuming
from leashed.training.options import Checkpoint, Observe
from leashed.training.problems.clicks import table_settings
from leashed.training.train import train

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan

__all__ = ["run"]


def run(plan: Plan, index: int) -> str | None:
    """The role, until the run has ended.

    Returns:
        Why that was before its batches and this training; None: it was not.

    Raises:
        OSError: the data cannot be read, or the master not be reached, or not any more. Started again
            it goes on from what it has kept.
        ValueError: the plan asks for what does not go together, or for a training that crashes: the loss
            or the parameters are no longer finite.
    """
    cluster, words = plan.cluster, plan.train
    kept = cluster.run / f"trainer-{index}.kept"
    led = cluster.policy_ps > 0  # by whom has what is trained
    keeps = math.isfinite(cluster.keep) and not led
    problem = plan.problem()
    rows, data = plan.index(problem), problem.train
    if rows is not None:
        data = sent(problem.train, rows, cluster.readers)
    begins = None
    if cluster.resume is not None and not led and not kept.exists():
        begins = checkpoints.Checkpoint(cluster.resume).trainer(index)
    result = train(
        problem.model,
        data,
        validation=problem.test,
        until=words.until(None),
        **words.how(problem, rows),
        observe=Observe(**words.evaluations()),
        checkpoint=Checkpoint(kept, every=cluster.keep) if keeps else None,
        resume=begins or (None if led else resuming.Left(kept)),
        cluster=Cluster(
            index=index,
            trainers=cluster.trainers,
            servers=cluster.sync_ps,
            embedding_servers=cluster.embedding_ps,
            policy_servers=cluster.policy_ps,
            shards=cluster.shards,
            readers=cluster.readers,
            look_ahead=cluster.look_ahead,
            pooling=cluster.pooling,
            patience=cluster.patience,
            master=master_address(cluster.run, cluster.known_master),
            key=cluster.read_key(),
            host=cluster.host,
            port=cluster.port("trainer", index),
            transport=cluster.transport,
            backend=cluster.backend,
            job=cluster.name,
            timeout=cluster.timeout,
            grace=cluster.grace,
            sync=plan.sync.synchroniser(),
            folder=cluster.run,
            cuts=cluster.cuts,
            begins=cluster.resume,
            words=fingerprint.of_tables(table_settings(words)) if words.of_clicks else {},
        ),
    )
    if result.outcome == "crashed":
        raise ValueError(
            f"its training crashed after {result.total_updates:,} updates: a loss, a gradient or a "
            "parameter is no longer finite; try a smaller train.lr"
        )
    if result.config.get("cluster_lost"):
        raise ConnectionError(result.config["cluster_ended"])
    why: str | None = result.config.get("cluster_ended")
    # (Else it may be all that is left of this training, or be wanted when this trainer is back.)
    done = why is None and result.reason != "interrupted"
    if done and result.config["cluster"]["handed_in"]:
        kept.unlink(missing_ok=True)
    return why
