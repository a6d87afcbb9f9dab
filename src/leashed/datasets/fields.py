"""What the columns of a file become: labels, numbers, ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeAlias

from leashed.base import checks

__all__ = [
    "Column",
    "Hashed",
    "Id",
    "IdColumn",
    "Label",
    "Number",
    "Target",
    "Vocabulary",
    "Weight",
]

_LARGEST = 2**64 - 1
PARTS = {"years": None, "month": 12, "weekday": 7, "hour": 24}
"""Parts of a moment, and how many whole numbers each has."""
_MOST = (2 - 2**-23) * 2.0**127  # of float32


@dataclass(frozen=True)
class Label:
    """The class of a row: a whole number from 0 below ``classes``, of which 1.0 is one too. Several columns
    may be labels of 2 classes, as a click and a purchase: heads of one model. What is missing of one
    of them is not known, and left out of its head's loss.

    Args:
        classes: at least 2.

    Raises:
        TypeError, ValueError: ``classes`` is no such number.
    """

    classes: int = 2

    def __post_init__(self) -> None:
        checks.size("classes", self.classes, 2)


@dataclass(frozen=True)
class Target:
    """The number that a row is to give, for regression: finite."""


@dataclass(frozen=True)
class Weight:
    """How much a row counts in the loss: finite, not negative."""


@dataclass(frozen=True)
class Number:
    """A number of a row.

    Args:
        log: take ln(1 + max(x, 0)) of it, which brings counts into a range that networks learn from.
        missing: what an empty field is, after ``log``. Default: a bad line.
        of: the column of dates or timestamps that it is a part of, whatever it is itself called.
        part: ``"years"`` since 2020, with their fraction, or whole numbers from 0: ``"month"``,
            ``"weekday"``, from Monday, and ``"hour"``, in the column's time zone.
        zone: the time zone in which parts are taken of moments that have one. Default: theirs.
        scale: ``"standard"``: models that are graphs, as those of clicks are, read (x − mean) / σ, by
            running statistics that are part of what is trained (docs/normalisation.md); None: the
            number as it is.

    Raises:
        TypeError, ValueError: ``missing`` is no finite number, ``of`` and ``part`` are not such, or
            ``scale`` is another.
    """

    log: bool = False
    missing: float | None = None
    of: str | None = None
    part: str | None = None
    zone: str | None = None
    scale: str | None = "standard"

    def __post_init__(self) -> None:
        if self.scale not in ("standard", None):
            raise ValueError(f'scale must be "standard" or None, got {self.scale!r}')
        _check_part(self.of, self.part, self.zone, tuple(PARTS))
        if self.missing is not None and abs(checks.real("missing", self.missing)) > _MOST:
            raise ValueError(
                f"missing must be at most {_MOST:g}, as float32 is, got {self.missing:g}"
            )


@dataclass(frozen=True)
class Id:
    """A field that is a whole number of 64 bits already, and stands for itself.

    Args:
        base: 10, where −1 is 2⁶⁴ − 1, or 16.
        digits: with base 16, exactly so many. Default: 1 to 16.
        offset: is added, modulo 2⁶⁴: so that features can share a table, and differ.
        missing: the id of an empty field, as it is. Default: a bad line.
        between: what the ids of one field are apart by; a row then has any number of them, none
            where the field is empty. Default: a field has one.
        of, part, zone: as of ``Number``, but years. An empty field is then one id more by default.
        history_of: of what is ``between``: the column of what is shown, of which these ids are those
            that were chosen before, from the oldest on, told in the same way. Models of histories
            (``models.din``) attend to them, by rows of one table. Default: they are a bag.

    Raises:
        TypeError, ValueError: an argument is not as above.
    """

    base: int = 10
    digits: int | None = None
    offset: int = 0
    missing: int | None = None
    between: str | None = None
    of: str | None = None
    part: str | None = None
    zone: str | None = None
    history_of: str | None = None

    def __post_init__(self) -> None:
        whole = [part for part, count in PARTS.items() if count]
        _check_part(self.of, self.part, self.zone, whole)
        if self.part is not None:
            if (self.base, self.offset, self.between) != (10, 0, None):
                raise ValueError("base, offset and between are not for a part; leave them out")
            if self.missing is None:
                object.__setattr__(self, "missing", PARTS[self.part])
        if self.base not in (10, 16):
            raise ValueError(f"base must be 10 or 16, got {self.base!r}")
        if self.digits is not None:
            if self.base == 10:
                raise ValueError("digits are for base 16; leave them out")
            checks.whole("digits", self.digits, 1, 16)
        checks.whole("offset", self.offset, 0, _LARGEST)
        if self.missing is not None:
            checks.whole("missing", self.missing, 0, _LARGEST)
        _check_many(self.between, self.history_of)

    @property
    def bound(self) -> int | None:
        """Ids are below; None: there is no such bound."""
        if self.part is None or self.missing is None:
            return None
        return max(PARTS[self.part] or 0, self.missing + 1)

    def native(self) -> tuple[Any, ...]:
        """As the core takes it."""
        kind = "decimal" if self.base == 10 else "hexadecimal"
        return (kind, self.digits or 0, self.offset, 0, 0, self.missing, [])


@dataclass(frozen=True)
class Hashed:
    """A field whose bytes are hashed (FNV-1a from the seed, and MurmurHash3's finaliser); an empty
    one is a word too.

    Args:
        buckets: ids are below: the rows of a table. Default: all 64 bits, for a table that grows.
        seed: another hash for each: give features that share a table seeds that differ, unless the
            same words are to share a row.
        between, history_of: as of ``Id``.

    Raises:
        TypeError, ValueError: an argument is not as above.
    """

    buckets: int | None = None
    seed: int = 0
    between: str | None = None
    history_of: str | None = None

    def __post_init__(self) -> None:
        if self.buckets is not None:
            checks.whole("buckets", self.buckets, 1, _LARGEST)
        checks.whole("seed", self.seed, 0, _LARGEST)
        _check_many(self.between, self.history_of)

    @property
    def bound(self) -> int | None:
        """Ids are below; None: there is no such bound."""
        return self.buckets

    def native(self) -> tuple[Any, ...]:
        """As the core takes it."""
        return ("hash", 0, 0, self.seed, self.buckets or 0, None, [])


@dataclass(frozen=True)
class Vocabulary:
    """A field that is one of some words: its id is the word's place; every other text, an empty
    field too, is ``len(words)``.

    Args:
        words: each once.
        between, history_of: as of ``Id``.

    Raises:
        TypeError, ValueError: words are not str, or one is there twice.
    """

    words: Sequence[str]
    between: str | None = None
    history_of: str | None = None

    def __post_init__(self) -> None:
        words = tuple(self.words)
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in words):
            raise TypeError("words must be a sequence of str")
        if len(set(words)) != len(words):
            raise ValueError("words must be there once each; one is there twice")
        object.__setattr__(self, "words", words)
        _check_many(self.between, self.history_of)

    @property
    def bound(self) -> int | None:
        """Ids are below."""
        return len(self.words) + 1

    def native(self) -> tuple[Any, ...]:
        """As the core takes it."""
        return ("vocabulary", 0, 0, 0, 0, None, list(self.words))


IdColumn: TypeAlias = "Id | Hashed | Vocabulary"
Column: TypeAlias = "Label | Target | Weight | Number | Id | Hashed | Vocabulary"
_KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (Label, Target, Weight, Number, Id, Hashed, Vocabulary)
}


class Schema:
    """Columns by name, checked: one of them is a label or a target, or several are labels of 2 classes, and
    one is a number or an id. Two are the same that have the same columns in the same order.

    Attributes:
        heads: the names of the labels where these are several; else none.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not isinstance(columns, Mapping):
            raise TypeError(
                f"columns must be a mapping from names to Label(), Number(), …, got {columns!r}"
            )
        for name, column in columns.items():
            if not isinstance(name, str):
                raise TypeError(f"columns must be named by str, got {name!r}")
            if not isinstance(column, tuple(_KINDS.values())):
                raise TypeError(
                    f"columns[{name!r}] must be Label(), Number() or another of leashed.stream, "
                    f"got {column!r}"
                )
        self.columns = dict(columns)
        targets = {n: c for n, c in self.columns.items() if isinstance(c, (Label, Target))}
        if not targets:
            raise ValueError(
                "columns must have one Label() or Target(), or several Label(), got none"
            )
        self.heads = tuple(targets) if len(targets) > 1 else ()
        if other := [n for n in self.heads if targets[n] != Label()]:
            raise ValueError(
                f"columns must have one Label() or Target(), or several Label() of 2 classes, got "
                f"{len(targets)}, of which {other[0]!r} is {targets[other[0]]}"
            )
        weights = sum(isinstance(c, Weight) for c in self.columns.values())
        if weights > 1:
            raise ValueError(f"columns must have one Weight() at most, got {weights}")
        first = next(iter(targets.values()))
        self.classes = first.classes if isinstance(first, Label) and not self.heads else 0
        self.numbers = tuple(n for n, c in self.columns.items() if isinstance(c, Number))
        ids = {n: c for n, c in self.columns.items() if isinstance(c, (Id, Hashed, Vocabulary))}
        self.ids: dict[str, IdColumn] = ids
        _check_histories(ids)
        if not self.numbers and not ids:
            raise ValueError("columns must have a Number() or an id; got neither")

    @classmethod
    def from_json(cls, columns: Mapping[str, Any]) -> Schema:
        """Of what ``to_json`` gave, or somebody wrote. ValueError where it is no such thing; the message
        names the column.
        """
        return cls({name: _column(name, told) for name, told in columns.items()})

    def to_json(self) -> dict[str, dict[str, Any]]:
        """By name, as JSON's own types: each column's kind, and what differs from its defaults."""
        return {name: _told(column) for name, column in self.columns.items()}

    def __repr__(self) -> str:
        lines = [f"    {name!r}: {column}," for name, column in self.to_json().items()]
        return "\n".join(["Schema({", *lines, "})"])

    @property
    def standard(self) -> list[bool]:
        """Of each number, whether it is standardised."""
        made = [self.columns[name] for name in self.numbers]
        return [isinstance(one, Number) and one.scale == "standard" for one in made]

    @property
    def target(self) -> str | list[str]:
        """What rows are to give: the name of a column, or those of several."""
        one = (n for n, c in self.columns.items() if isinstance(c, (Label, Target)))
        return list(self.heads) or next(one)

    @property
    def parts(self) -> dict[str, Number | Id]:
        """Columns that are a part of another one."""
        return {n: c for n, c in self.columns.items() if getattr(c, "part", None) is not None}  # type: ignore[misc]

    def read(self, *, labelled: bool = True) -> dict[str, Column]:
        """The columns that are read; not ``labelled``: without what rows are to give and weigh."""
        told = (Label, Target, Weight)
        return {n: c for n, c in self.columns.items() if labelled or not isinstance(c, told)}

    def sources(self, *, labelled: bool = True) -> list[str]:
        """The columns of a file that those of ``read`` are made of."""
        read = self.read(labelled=labelled)
        return list(dict.fromkeys(getattr(c, "of", None) or n for n, c in read.items()))

    def native(self, *, labelled: bool = True) -> list[tuple[Any, ...]]:
        """Those of ``read``, as the core takes them."""
        kind = dict.fromkeys(self.heads, "head")
        return [
            _native(name, column, kind.get(name))
            for name, column in self.read(labelled=labelled).items()
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and list(self.columns.items()) == list(
            other.columns.items()
        )

    def __hash__(self) -> int:
        return hash(tuple(self.columns.items()))


def _column(name: str, told: object) -> Any:
    if not isinstance(told, Mapping) or told.get("kind") not in _KINDS:
        raise ValueError(f'column {name!r} must have a "kind", one of {", ".join(_KINDS)}')
    settings = {key: value for key, value in told.items() if key != "kind"}
    try:
        return _KINDS[told["kind"]](**settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r}: {error}") from error


def _told(column: Column) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": type(column).__name__.lower()}
    for one in fields(column):
        value = getattr(column, one.name)
        if one.default is MISSING or value != one.default:
            told[one.name] = list(value) if isinstance(value, tuple) else value
    return told


def _native(name: str, column: Column, kind: str | None) -> tuple[Any, ...]:
    if isinstance(column, Number):
        return (name, "number", column.log, column.missing, None, "")
    if isinstance(column, (Label, Target, Weight)):
        return (name, kind or type(column).__name__.lower(), False, None, None, "")
    kind = "id" if column.between is None else "ids"
    return (name, kind, False, None, column.native(), column.between or "")


def _check_part(of: object, part: object, zone: object, parts: Sequence[str]) -> None:
    if zone is not None and (part is None or not isinstance(zone, str)):
        raise ValueError(f"zone must be the name of a time zone, and goes with part, got {zone!r}")
    if (of is None) != (part is None):
        raise ValueError("of and part go together: of which column it is which part")
    if part is not None and (not isinstance(of, str) or part not in parts):
        raise ValueError(
            f"part must be one of {', '.join(parts)}, of a column, got {part!r} of {of!r}"
        )


def _check_many(between: object, history_of: object) -> None:
    if between is not None and not (
        isinstance(between, str) and len(between) == 1 and between.isascii()
    ):
        raise ValueError(f"between must be one ASCII character, got {between!r}")
    if history_of is not None and (between is None or not isinstance(history_of, str)):
        raise ValueError(
            f"history_of must be the name of a column, and goes with between, got {history_of!r}"
        )


def _check_histories(ids: Mapping[str, IdColumn]) -> None:
    """ValueError where what is said to be a history is none of what is said to be shown."""
    shown: dict[str, str] = {}
    for name, column in ids.items():
        if (of := column.history_of) is None:
            continue
        if of not in ids or ids[of].between is not None:
            raise ValueError(f"history_of of {name!r} must name a column of one id, got {of!r}")
        if (other := shown.setdefault(of, name)) != name:
            raise ValueError(f"{other!r} and {name!r} are both a history of {of!r}; leave one out")
        mine, its = column.native(), ids[of].native()
        if (*mine[:5], mine[6]) != (*its[:5], its[6]):  # but what an empty field is
            raise ValueError(
                f"{name!r} must be told as {of!r} is, of which it is the history, but for between: "
                f"{ids[of]}, got {column}"
            )
