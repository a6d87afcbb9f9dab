"""PyTorch modules on the engine's memory: an optimizer that changes one line, training by threads,
and embeddings over tables (extra ``torch``).
"""

try:
    import torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "leashed.torch needs PyTorch; install it with pip install 'leashed[torch]'"
    ) from error

from leashed.base.room import offer
from leashed.torch.fitting import FitProgress, FitResult, fit
from leashed.torch.optimizer import Embedding, EmbeddingBag, Optimizer, RowOptimizer

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "FitProgress",
    "FitResult",
    "Optimizer",
    "RowOptimizer",
    "fit",
]

offer(__name__, {}, every=("optimizer", "fitting", "batches"))
