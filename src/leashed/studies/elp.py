"""Example level parallelism: how many examples a training works on at one time (shadowsync,
Definition 2 and Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from leashed.base import checks

__all__ = ["TABLE_1", "Parallelism"]


@dataclass(frozen=True)
class Parallelism:
    """How a training runs in parallel.

    Args:
        algorithm: its name.
        batch_size: examples of a batch; None where its publication does not tell.
        threads: that share one replica of the parameters in the manner of Hogwild.
        replicas: of the parameters.
        source: where the numbers are from.

    Raises:
        TypeError, ValueError: a number is no whole number from 1; the message names it.
    """

    algorithm: str
    batch_size: int | None
    threads: int
    replicas: int
    source: str = ""

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size)
        checks.whole("threads", self.threads)
        checks.whole("replicas", self.replicas)

    @property
    def elp(self) -> int | None:
        """Batch size × threads × replicas; None without a batch size."""
        return None if self.batch_size is None else self.batch_size * self.batches

    @property
    def batches(self) -> int:
        """Worked on at one time: threads × replicas."""
        return self.threads * self.replicas


_SHADOWSYNC = "shadowsync, Table 1"

TABLE_1 = (
    Parallelism("ShadowSync", 200, 24, 20, f"{_SHADOWSYNC}; its section 4"),
    Parallelism("EASGD", 128, 1, 16, f"{_SHADOWSYNC}, of Zhang, Choromanska, LeCun (2015)"),
    Parallelism("DC-ASGD", 128, 16, 1, f"{_SHADOWSYNC}, of Zheng et al. (2017)"),
    Parallelism("BMUF", None, 1, 64, f"{_SHADOWSYNC}, of Chen, Huo (2016)"),
    Parallelism("DownpourSGD", None, 1, 200, f"{_SHADOWSYNC}, of Dean et al. (2012)"),
    Parallelism("ADPSGD", 128, 1, 128, f"{_SHADOWSYNC}, of Lian et al. (2017)"),
    Parallelism("LARS", 32_000, 1, 1, f"{_SHADOWSYNC}, of You, Gitman, Ginsburg (2017)"),
    Parallelism("SGP", 256, 1, 256, f"{_SHADOWSYNC}, of Assran et al. (2018)"),
)
"""The paper's rows, as it has them."""
