"""Warnings that name the line of whoever called this package."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]

_BETWEEN = ("leashed", "contextlib", "torch")  # a module of PyTorch's calls what is of this package


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning of the line outside that led here, however deep in the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
