"""How choices reach the native core: a name, and numbers, tables or further choices by name."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Choice", "Setting"]

Setting: TypeAlias = "float | NDArray[np.float64] | tuple[str, dict[str, Setting]]"
Choice: TypeAlias = "tuple[str, dict[str, Setting]]"
