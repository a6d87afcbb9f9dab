"""Parameters that threads and processes of your own read and update."""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.engine.engine import *

offer(
    __name__,
    {
        "engine": "Batches Engine",
    },
    every=("engine",),
)
