"""Streams of columns, from whatever speaks the Arrow C stream interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leashed import _core
from leashed.datasets.fields import Column, Schema
from leashed.datasets.text import PLACES
from leashed.stream.batches import with_lists, with_parts
from leashed.stream.stream import Options, Stream

__all__ = ["arrow"]


def arrow(
    source: Any,
    columns: Mapping[str, Column],
    *,
    name: str = "arrow",
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
) -> Stream:
    """Columns that come by ``__arrow_c_stream__``: Parquet and other files through pyarrow, tables of
    polars and pandas, what DuckDB answers. None of them is needed to install leashed.

        rows = pyarrow.dataset.dataset("clicks/").scanner().to_reader
        lsh.stream.arrow(rows, {"clicked": lsh.stream.Label(), ...})

    Whole numbers, booleans, real numbers, text, lists, those of a fixed size and views of them too
    (for features with any number of ids: ``Id``, ``Hashed`` or ``Vocabulary`` with ``between``,
    whatever it is), decimals, dictionaries of them and columns of nulls are read, and by pyarrow parts
    of dates and timestamps; cast what is something else. A real number that is whole can be an id, and
    where ``missing`` stands for it NaN is missing, as in columns of pandas.
    A whole number that is hashed, or looked up among words, is its decimal digits, as it would be in
    a text file. What is null is missing: of ids that are hashed or looked up it is the empty word. A
    row is bad that is null as a whole, or that lies outside of what there is: at a place that its
    dictionary does not have, beyond its text's or its list's memory.

    Args:
        source: what has ``__arrow_c_stream__``, or a function of no arguments that makes it, which is
            called at the beginning of each pass.
        columns: what each column that is read becomes, by its name, as of :func:`csv`.
        name: what results and messages call it.
        bad, threads, shuffle, seed: as of :func:`criteo`; a bad line is a row, counted from 1.

    Raises:
        TypeError, ValueError: an argument is wrong. While it is read: a column is missing, or of a
            type that cannot become what it is to; and as of :func:`criteo`.
    """
    if not hasattr(source, "__arrow_c_stream__") and not callable(source):
        raise TypeError(
            "source must have __arrow_c_stream__, as tables of pyarrow, polars and pandas do, or be "
            f"a function that makes such, got {type(source).__name__}"
        )
    return _Arrow(source, Schema(columns), Options(bad, threads, shuffle, seed), name)


class _Arrow(Stream):
    """Of what has ``__arrow_c_stream__``, or of a function that makes it."""

    def __init__(self, source: Any, schema: Schema, options: Options, name: str) -> None:
        super().__init__(name, schema, options)
        self._source = source

    @property
    def repeatable(self) -> bool:
        # A reader of batches, as pyarrow has it, gives each once.
        return not hasattr(self._source, "read_next_batch")

    def _open(self, threads: int, passes: int) -> _core.RowStream:
        options = self._options
        return _core.open_arrow(
            columns=self._schema.native(labelled=self.labelled),
            classes=self.classes,
            name=self.name,
            open=self._capsule(),
            again=self.repeatable,
            threads=threads,
            places=threads + PLACES,
            passes=passes,
            skip_bad=options.bad == "skip",
            window=options.shuffle,
            seed=options.seed,
        )

    def _capsule(self) -> Callable[[], Any]:
        made, parts = self._made(), self._schema.parts
        apart = {n: c.between for n, c in self._schema.ids.items() if c.between is not None}

        def capsule() -> Any:
            given = with_lists(made(), apart) if apart else made()
            return (with_parts(given, parts) if parts else given).__arrow_c_stream__()

        return capsule

    def _made(self) -> Callable[[], Any]:
        """What makes it, for each pass."""
        source = self._source
        return source if not hasattr(source, "__arrow_c_stream__") else lambda: source
