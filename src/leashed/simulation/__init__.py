"""Trainings in virtual time: what a cluster would do, by a clock that is computed."""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.simulation.play_record import *
    from leashed.simulation.virtual_time import *

offer(
    __name__,
    {
        "embedding": "EmbeddingServers",
        "network": "Network",
        "play_record": "recorded",
        "sharding": "Sharding layerwise memorywise packed",
        "virtual_time": "Cluster Costs ModeCounts Shard Simulation TrainerCounts Trainers constant day "
        "exponential heavy_tail measure normal rates simulate trace",
    },
    every=("virtual_time",),
)
