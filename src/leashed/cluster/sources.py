"""What a reader is told of a stream whose files it reads, as JSON's own types, so that one can be started for
a stream that is an object of somebody's program.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leashed.cluster.remote_batches import SentSparse, SentStream
from leashed.cluster.row_groups import ParquetRows
from leashed.cluster.row_parts import RowFiles
from leashed.cluster.row_text import TextRows
from leashed.datasets.fields import Schema
from leashed.datasets.text import SparseText, Text
from leashed.stream import SparseStream, Stream
from leashed.stream.parquet import ParquetStream
from leashed.stream.stream import Options
from leashed.stream.text import PART_BYTES, _Text

__all__ = ["from_json", "stream_of", "to_json"]


def to_json(sent: SentStream | SentSparse) -> dict[str, Any]:
    """How the files of a stream are read that readers send, which is opened."""
    stream: Any = sent.source
    told = {
        "files": [str(each.absolute()) for each in stream.files],
        "bad": stream.bad,
        "distinct": sent.layout.distinct,
    }
    if isinstance(stream, ParquetStream):
        return {**told, "parquet": Schema(stream.schema).to_json()}
    text = stream.text
    if isinstance(text, SparseText):
        fields = None if text.fields is None else text.fields.tolist()
        return {**told, "sparse": [text.first, text.features, fields, text.classes]}
    return {**told, "text": text.told}


def from_json(told: Mapping[str, Any]) -> RowFiles:
    """That which ``to_json`` told."""
    if (schema := told.get("parquet")) is not None:
        files = [Path(each) for each in told["files"]]
        columns = Schema.from_json(schema).columns
        return ParquetRows(ParquetStream(files, columns, Options(told["bad"], None, 0, 0)))
    return TextRows(_text(told), told["bad"], distinct=told["distinct"])


def stream_of(told: Mapping[str, Any]) -> Stream | SparseStream:
    """Of text that comes once, what ``to_json`` told."""
    files, text, options = told["files"], _text(told), Options(told["bad"], None, 0, 0)
    if isinstance(text, SparseText):
        return SparseStream(
            files, text.features, text.first, text.fields, text.classes, options, PART_BYTES
        )
    return _Text(files, text, options, PART_BYTES)


def _text(told: Mapping[str, Any]) -> Text | SparseText:
    if (sparse := told.get("sparse")) is not None:
        first, features, fields, classes = sparse
        known = None if fields is None else np.asarray(fields, np.int32)
        return SparseText(first, features, known, classes)
    schema, *others = told["text"]
    return Text(Schema.from_json(schema), *others)
