"""Training on several machines: master, sync servers and trainers, each a process of its own (extra
``cluster``).
"""

from leashed.cluster.joining import join
from leashed.cluster.session import Cluster

__all__ = ["Cluster", "join"]
