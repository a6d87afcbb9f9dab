"""The figures of studies, drawn with matplotlib, which the extra ``plot`` installs."""

from leashed.base import checks

checks.plotting()
