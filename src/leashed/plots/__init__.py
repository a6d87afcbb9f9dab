"""Figures, drawn with matplotlib, which the extra ``plot`` installs."""

from leashed import _check

_check.plotting()
