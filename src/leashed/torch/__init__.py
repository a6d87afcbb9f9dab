"""PyTorch modules on the engine's memory: an optimizer that changes one line, training by threads,
and embeddings over tables (extra ``torch``).
"""

from leashed.base.room import offer
from leashed.torch.optimizer import (
    Embedding,
    EmbeddingBag,
    FitResult,
    Optimizer,
    RowOptimizer,
    fit,
)

__all__ = ["Embedding", "EmbeddingBag", "FitResult", "Optimizer", "RowOptimizer", "fit"]

offer(__name__, {}, every=("optimizer",))
