"""Figures, drawn with matplotlib, which the extra ``plot`` installs."""

try:
    import matplotlib as mpl  # noqa: F401
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install leashed[plot]") from error
