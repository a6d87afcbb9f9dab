"""What the columns of data are called and hold, beside their values: models keep it of what they were
trained on, and are given no other data by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from leashed.datasets.fields import Column, Number, Schema
from leashed.datasets.moments import Moments

__all__ = [
    "UNKNOWN",
    "Columns",
    "arrange",
    "check_names",
    "frame_names",
    "heads_at",
    "image_shape",
    "places",
    "same_image",
]

Image = tuple[int, int, int]
_FAR_BEYOND = 10.0  # of images whose values are within 1
_SHOWN = 16  # names at most in a message
_NOT_THERE = "\0"  # in place of a name, where there is no such column


@dataclass(frozen=True)
class Columns:
    """What is known of the columns of data.

    Attributes:
        numbers: names of the dense features, in order; None: they have none.
        ids: names of the features that are ids, in order; None: they have none, or one that is not
            read.
        bags: the numbers of those of which a row may have any number of ids.
        weighed: and of those whose ids have weights.
        image: (channels, height, width) of a row; None: rows are no images.
        peak: the largest value of images; None: it is not known.
        divided: whether they are known to be bytes that were divided by 255.
        schema: what columns of a file or a table became; None: they came as arrays.
        moments: what the numbers came to by which they are standardised; None: they are not.
        heads: names of the labels that a row is to give, where these are several.
    """

    numbers: tuple[str, ...] | None = None
    ids: tuple[str | None, ...] | None = None
    bags: tuple[int, ...] = ()
    weighed: tuple[int, ...] = ()
    image: Image | None = None
    peak: float | None = None
    divided: bool = False
    schema: Schema | None = None
    moments: Moments | None = None
    heads: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: object) -> Columns:
        """Of a data set or a stream, which have ``columns``; of a data frame its names; of anything
        else nothing is known but the shape of images.
        """
        known = getattr(data, "columns", None)
        if isinstance(known, Columns):
            return known
        return cls(numbers=frame_names(data), image=image_shape(getattr(data, "shape", ())))

    def read(self, features: Collection[int]) -> Columns:
        """Of a model that reads these of the features that are ids."""
        ids = self.ids
        if ids is not None:
            known = ids[: max(features, default=-1) + 1]
            ids = tuple(name if f in features else None for f, name in enumerate(known))
        return replace(
            self,
            ids=None if ids is None or not any(ids) else ids,
            bags=tuple(f for f in self.bags if f in features),
            weighed=tuple(f for f in self.weighed if f in features),
        )

    def agreed(self, now: Columns, name: str, of: str) -> Columns:
        """What is known here or there.

        Args:
            now: of other data.
            name: what a message calls these.
            of: and whose columns the ones here are.

        Raises:
            ValueError: both are known, and are not the same, in the same order.
        """
        _check_same(self.numbers, now.numbers, name, of, "number")
        _check_same(self.ids, now.ids, name, of, "id feature")
        if not same_image(self.image, now.image):
            raise ValueError(
                f"{name}'s images are {now.image}, (channels, height, width), not {self.image} as "
                f"those {of}; x.transpose(0, 3, 1, 2) brings channels to the front"
            )
        divided = now.divided and _far_beyond(now.peak, self.peak)
        if divided or _far_beyond(self.peak, now.peak):
            raise ValueError(
                f"{name} has values up to {now.peak:g}, and the images {of} up to {self.peak:g}; scale "
                "both alike: images of dtype uint8 are divided by 255, others taken as they are"
            )
        if self.heads and now.heads and self.heads != now.heads:
            raise ValueError(
                f"{name}'s labels are {', '.join(now.heads)}, and {', '.join(self.heads)} in those {of}; give "
                "the same ones"
            )
        if self.schema is not None and now.schema is not None:
            _check_made_alike(self.schema, now.schema, name, of, self.ids)
        return Columns(
            now.numbers if self.numbers is None else self.numbers,
            now.ids if self.ids is None else self.ids,
            tuple(sorted({*self.bags, *now.bags})),
            tuple(sorted({*self.weighed, *now.weighed})),
            now.image if self.image is None else self.image,
            max((peak for peak in (self.peak, now.peak) if peak is not None), default=None),
            schema=now.schema if self.schema is None else self.schema,
            moments=self.moments if now.moments is None else now.moments,
            heads=self.heads or now.heads,
        )

    def to_json(self) -> dict[str, Any]:
        """What is known, as JSON's own types."""
        told = {
            name: v
            for name, v in vars(self).items()
            if v is not None and v is not False and v != ()
        }
        if self.schema is not None:
            told["schema"] = self.schema.to_json()
        if self.moments is not None:
            told["moments"] = self.moments.to_json()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in told.items()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Columns:
        """Of what ``to_json`` gave."""
        known: dict[str, Any] = {name: told[name] for name in told if name in cls.__annotations__}
        lists = {name: tuple(v) for name, v in known.items() if isinstance(v, list)}
        if "schema" in known:
            known["schema"] = Schema.from_json(known["schema"])
        if "moments" in known:
            known["moments"] = Moments.from_json(known["moments"])
        return cls(**{**known, **lists})


UNKNOWN = Columns()


def arrange(known: Columns, data: Any, name: str = "data") -> Any:
    """Data with its columns in the order in which a model knows them, where both have names: of what has
    others besides, such as a data frame, these are left out. What has no names stays as it is.

    Args:
        known: of what the model was trained on.
        data: a data set, a stream, a data frame, several of them in a tuple, or anything else.
        name: what a message calls it.

    Raises:
        ValueError: a column is not there, or is a number where it was an id, or the other way round; the
            message names it.
    """
    if known == UNKNOWN:
        return data
    if isinstance(data, tuple):
        first: Any = arrange(known, data[0], name) if data else None
        if hasattr(data, "_fields"):  # a training set and a test set
            made: Any = type(data)
            return made(first, *(arrange(known, part, name) for part in data[1:]))
        return (first, *data[1:])
    if callable(getattr(type(data), "arranged", None)):
        return data.arranged(known, name)
    told, names = _told(data), frame_names(data)
    if known.numbers is not None and told and names is None:
        twice = next(one for one in told if told.count(one) > 1)
        raise ValueError(f"{name} has column {twice!r} more than once; rename one")
    if names is not None and known.schema is not None:
        raise ValueError(
            f"{name} is a table as it is, and the parameters were trained on what a schema made of one; "
            "leashed.stream.table(table, result.model.columns.schema.columns).read() makes it"
        )
    if places(known.numbers, names, name) is None:
        return data
    taken = list(known.numbers or ())
    return data.select(taken) if hasattr(type(data), "column_names") else data[taken]


def places(
    was: Sequence[str | None] | None,
    now: Sequence[str] | None,
    name: str,
    others: Collection[str] = (),
) -> list[int] | None:
    """Where the columns that a model knows are among those of data; −1: it does not read that one. None:
    they are as they were, or either have no names.

    Args:
        was: those that it knows.
        now: of the data.
        name: what a message calls the data.
        others: the data's columns of another kind, numbers or ids.

    Raises:
        ValueError: one is not there.
    """
    if was is None or now is None or tuple(was) == tuple(now):
        return None
    at = {column: place for place, column in enumerate(now)}
    missing = [column for column in was if column is not None and column not in at]
    if other := [column for column in missing if column in others]:
        raise ValueError(
            f"{name}'s column {other[0]!r} is of another kind than it was where the parameters were trained: "
            "a number or an id; give it as it was then"
        )
    if missing:
        raise ValueError(
            f"{name} lacks {_listed(missing)}, which the parameters were trained on; give each column under "
            f"the name that it had then (there are {_listed(now)})"
        )
    return [-1 if column is None else at[column] for column in was]


def heads_at(was: Sequence[str], now: Sequence[str], name: str) -> list[int] | None:
    """Where the labels that a model knows are among those of data, which may have more; None: they are as
    they were, or either have none. ValueError where one is not there.
    """
    if not was or not now or tuple(was) == tuple(now):
        return None
    if missing := [head for head in was if head not in now]:
        raise ValueError(
            f"{name} has the labels {_listed(now)}, without {_listed(missing)}, which the parameters were "
            "trained on; give each label under the name that it had then"
        )
    return [list(now).index(head) for head in was]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


def _check_same(
    was: Sequence[str | None] | None,
    now: Sequence[str | None] | None,
    name: str,
    of: str,
    kind: str,
) -> None:
    if was is None or now is None:
        return
    other = [
        (f, a, b)
        for f, (a, b) in enumerate(zip_longest(was, now, fillvalue=_NOT_THERE))
        if a is not None and b is not None and a != b
    ]
    if not other:
        return
    feature, first, found = other[0]
    more = f", the first of {len(other)} that differ" if len(other) > 1 else ""
    before = [name for name in was if name is not None]
    if sorted(before) == sorted(name for name in now if name is not None):
        remedy = f"give them in the order {', '.join(before[:_SHOWN])}"
        remedy += ", …" if len(before) > _SHOWN else ""
    else:
        remedy = "give the same columns in the same order, each under the name that it had"
    raise ValueError(
        f"{name}'s columns are not those {of}: {kind} {feature}, counted from 0, "
        f"was {_shown(first)} and is {_shown(found)}{more}; {remedy}"
    )


def _check_made_alike(
    was: Schema, now: Schema, name: str, of: str, read: Sequence[str | None] | None
) -> None:
    for column in (*was.numbers, *(one for one in read or () if one is not None)):
        before, here = was.columns.get(column), now.columns.get(column)
        if before is not None and here is not None and before != _scaled_as(before, here):
            raise ValueError(
                f"{name}'s column {column!r} is read as {here}, and as {before} in those {of}; read it "
                "as it was then"
            )


def _scaled_as(before: Column, here: Column) -> Column:
    """How numbers are scaled the model knows, whatever they are read for."""
    if isinstance(before, Number) and isinstance(here, Number):
        return replace(here, scale=before.scale)
    return here


def _far_beyond(unit: float | None, other: float | None) -> bool:
    """Whether images of the one are within 1, and those of the other far beyond. Only those that a
    model was trained on tell their scale by it: a few that come may be dark at any.
    """
    return unit is not None and other is not None and 0 < unit <= 1 and other > _FAR_BEYOND


def _shown(name: str) -> str:
    return "not there" if name is _NOT_THERE else repr(name)


def same_image(was: Image | None, now: Image | None) -> bool:
    """Whether rows lie alike in memory: axes of length 1 do not count. True where either is None."""
    if was is None or now is None:
        return True
    return [n for n in was if n != 1] == [n for n in now if n != 1]


def image_shape(shape: Sequence[int]) -> Image | None:
    """(channels, height, width) of x of that shape: images [n, height, width] or [n, channels, height,
    width]; None: they are none.
    """
    if len(shape) not in (3, 4):
        return None
    _, *own = shape
    channels, height, width = (1, *own)[-3:]
    return channels, height, width


def frame_names(x: object) -> tuple[str, ...] | None:
    """The names of a data frame's columns; None: it is none, or not each is a str of its own."""
    names = _told(x)
    return names if names and len(set(names)) == len(names) else None


def _told(x: object) -> tuple[str, ...]:
    """What a data frame, or a table of pyarrow's, calls its columns, each by a str; else nothing."""
    of_arrow = hasattr(type(x), "column_names")
    try:
        names = tuple(getattr(x, "column_names" if of_arrow else "columns", ()))
    except TypeError:
        return ()
    return names if all(isinstance(name, str) for name in names) else ()


def check_names(argument: str, names: object, count: int) -> tuple[str, ...] | None:
    """``names`` of so many columns, as a tuple; None: there are none. TypeError or ValueError where
    they are not one str for each, none twice.
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} must be a sequence of str, got {names!r}")
    names = tuple(names)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument} must be str, got {names!r}")
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"{argument} must be one for each of the {count} columns, none twice, got {len(names)}"
        )
    return names
