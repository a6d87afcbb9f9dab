"""Data that is read while it is trained on: files larger than memory, compressed ones, pipes.

    days = leashed.stream.criteo("day-*.tsv.gz", bad="skip")
    result = leashed.train(model, days, until=leashed.until(epochs=1))
    result.config["reading"]                     # rows, bad lines with their numbers and reasons

    rows = leashed.stream.csv("clicks.csv", {"clicked": leashed.stream.Label(), ...})
    rows = leashed.stream.parquet("logs/*.parquet", label="clicked")
    for part in rows.parts(10_000): ...          # ClickDatasets, in order
    data = rows.read()                           # in memory

Threads of their own parse, in C++, into a bounded number of rows; batch k is the same whatever their
number.
"""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.datasets.fields import Hashed as Hashed
    from leashed.datasets.fields import Id as Id
    from leashed.datasets.fields import Label as Label
    from leashed.datasets.fields import Number as Number
    from leashed.datasets.fields import Target as Target
    from leashed.datasets.fields import Vocabulary as Vocabulary
    from leashed.datasets.fields import Weight as Weight
    from leashed.stream.arrow import arrow as arrow
    from leashed.stream.infer import *
    from leashed.stream.parquet import parquet as parquet
    from leashed.stream.parquet import table as table
    from leashed.stream.schema import *
    from leashed.stream.sparse import *
    from leashed.stream.stream import BadLine as BadLine
    from leashed.stream.stream import ReadCounts as ReadCounts
    from leashed.stream.stream import Stream as Stream
    from leashed.stream.text import criteo as criteo
    from leashed.stream.text import csv as csv

offer(
    __name__,
    {
        "arrow": "arrow",
        "infer": "ID_WORDS Inferred infer",
        "parquet": "parquet table",
        "columns": "Hashed Id Label Number Target Vocabulary Weight",
        "schema": "schema",
        "sparse": "Scanned SparseStream libffm libsvm scan_libffm scan_libsvm",
        "stream": "BadLine ReadCounts Stream",
        "text": "criteo csv",
    },
)
