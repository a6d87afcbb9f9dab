"""What the system lets a process of a run have."""

from __future__ import annotations

import contextlib
import resource

__all__ = ["raise_descriptors"]


def raise_descriptors() -> None:
    """Lets this process have as many descriptors as it may: shells give 1,024, and a sync server needs
    one for each thread of each trainer.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # more than the system has by now
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
