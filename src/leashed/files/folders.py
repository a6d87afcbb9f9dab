"""Folders that hold a model and its tables, generation by generation.

``manifest.json`` names the files of one generation, with their sizes and checksums. It is written
last and renamed into place: what it names is always there and whole. Only then goes what it does not
name. Of a table it names a file of all rows, and files of what has changed since, which may be of
generations before. docs/checkpoints.md has the format.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from leashed import staleness
from leashed.base import atomic, checks, choice
from leashed.base.warning import warn
from leashed.models.tables import Initial, Part, Table, rule_of

__all__ = [
    "CLUSTER",
    "MANIFEST",
    "RESULTS",
    "Opened",
    "Rows",
    "digest_of",
    "is_one",
    "join_rows",
    "link",
    "link_rows",
    "load_rows",
    "manifest_of",
    "mark_exact",
    "opened",
    "prepare",
    "put_manifest",
    "read",
    "require_whole",
    "write",
    "write_rows",
]

T = TypeVar("T")

MANIFEST = "manifest.json"
CLUSTER = "leashed.cluster"
"""The format of a cluster's checkpoint (``cluster.checkpoints``)."""
RESULTS = "leashed.results"
"""Of what trainers have handed in (``cluster.results``)."""

_FORMAT = "leashed.tables"
_ROWS = "leashed.rows"  # of what write_rows writes
_VERSION, _WITH_CHANGES = 1, 2
_ROWS_VERSION = 3  # of rows, with examples of clients' pushes; before they had the two above
# Files of changes that may follow one of all rows, and their bytes of that one's.
_MOST_CHANGES, _MOST_OF_BASE = 64, 0.5
_BLOCK = 2**20
_TRIES = 100  # to read a generation before the next one has taken its place
# Files of a generation, and what is left of one that was not written to the end.
# (atomic.py and partial_name.h have these names.)
_OURS = re.compile(
    r"(\d+)\.(?:model\.safetensors|(?:table|changes)\d+(?:\.partial-\d+-\d+)?)"
    r"|\.(\d+)\.model\.safetensors\.\d+\.\d+"
)
_KIND = {
    _FORMAT: "a model with tables",
    CLUSTER: "a cluster's run",
    _ROWS: "the rows of a server, and of no model with tables; load the run's output",
    RESULTS: "what trainers have come to, each by itself; load the run's output",
}
_UNFINISHED = re.compile(r"\.manifest\.json\.\d+\.\d+")


def is_one(path: str | os.PathLike[str]) -> bool:
    """Whether it is a folder with a manifest."""
    return (Path(path) / MANIFEST).is_file()


def is_joint(folder: Path) -> bool:
    """Whether one with a manifest is a checkpoint of a cluster's run, of several processes."""
    return bool(manifest_of(folder, _FORMAT, CLUSTER)["format"] == CLUSTER)


def check(folder: Path) -> None:
    """OSError where the folder cannot be made or written to, is a file, or has something else in it."""
    checks.writable_folder(folder, "is a file, and a model with tables takes a folder")
    there = folder.iterdir() if folder.exists() else ()
    others = [p.name for p in there if not _number(p) and not _unfinished(p)]
    if others and not is_one(folder):
        raise FileExistsError(
            errno.EEXIST, f"has {others[0]} in it and is no checkpoint; name a new one", str(folder)
        )


def prepare(folder: Path) -> None:
    """Make the folder, where it is not there. OSError as of ``check``."""
    check(folder)
    folder.mkdir(exist_ok=True)


def write(
    folder: Path,
    tables: Mapping[str, Table],
    put_model: Callable[[Path], None],
    *,
    exact: bool,
    incremental: bool = False,
) -> None:
    """Write a generation, while other threads use the tables unless it is ``exact``; ``put_model``
    writes the model's file. Where it fails, the one before stays.

    ``incremental``: of tables whose rows the folder has, changed since by this process, only the
    changes, until these are too many; all rows of tables that cannot tell which have changed.
    """

    def rest(number: int) -> dict[str, Any]:
        # Last of the files: writing it flushes the folder.
        model = _saved(folder / f"{number}.model.safetensors", put_model)
        return {"format": _FORMAT, "exact": exact, "model": model}

    _write(folder, tables, rest, _at_once, exact=exact, incremental=incremental)


def _at_once(save: Callable[[], None]) -> None:
    save()


def write_rows(
    folder: Path,
    tables: Mapping[str, Table],
    told: Callable[[], Mapping[str, Any]],
    quiet: Callable[[Callable[[], None]], None],
    beside: Callable[[], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a generation of rows alone, changes where it can be, else those that have been updated (all,
    where that is not known), and ``told()``, JSON's own types, of the same moment: both within what
    ``quiet`` calls, while nobody updates the tables; the disk is waited for afterwards. Where it
    fails, the one before stays. ``beside()`` is called behind that and before the generation counts: writes
    what else is of that moment, and tells more.

    Returns:
        What was told.
    """
    found: dict[str, Any] = {}

    def within(save: Callable[[], None]) -> None:
        def both() -> None:
            save()
            found.update(told())

        quiet(both)

    def rest(_: int) -> dict[str, Any]:
        if beside is not None:
            found.update(beside())
        atomic.flush(folder)
        return {"format": _ROWS, "version": _ROWS_VERSION, "exact": True, "told": found}

    _write(folder, tables, rest, within, exact=True, incremental=True)
    return found


def _write(
    folder: Path,
    tables: Mapping[str, Table],
    rest: Callable[[int], dict[str, Any]],
    within: Callable[[Callable[[], None]], None],
    *,
    exact: bool,
    incremental: bool,
) -> None:
    quiet = within is not _at_once
    before = _before(folder) if incremental else {}
    number = 1 + max((_number(path) for path in folder.iterdir()), default=0)
    numbers: dict[str, int] = {}  # of saves, as Table.save_tracked has them
    # By table its file of all rows, which may be of a generation before, and the new file of changes.
    put: dict[str, tuple[Path | dict[str, Any], Path | None]] = {}

    begun: dict[str, int] = {}  # of these all rows are written before

    def begin() -> None:
        """What may take long, while others use the tables; what they change meanwhile follows."""
        for i, (name, table) in enumerate(tables.items()):
            if table.tells_changes and followed(name, table) is None:
                path = folder / f"{number}.table{i}"
                begun[name] = table.save_tracked(path, flush=False, touched=True)

    def followed(name: str, table: Table) -> int | None:
        """The number of the save that changes would follow; None: all rows are to be written."""
        kept = before.get(name)
        if kept is None or _are_many(kept["changes"], kept):
            return None
        return table.follows(_digests(kept))

    def save(i: int, name: str, table: Table) -> tuple[Path | dict[str, Any], Path | None]:
        path = folder / f"{number}.table{i}"
        if not incremental or not table.tells_changes:
            table.save(path)
            return path, None
        last = begun[name] if name in begun else followed(name, table)
        if last is not None:
            changes = folder / f"{number}.changes{i}"
            numbers[name] = table.save_changes(changes, quiet=exact, flush=not quiet)
            if numbers[name] == last + 1:
                return path if name in begun else before[name], changes
            changes.unlink()  # of changes since a file that somebody else has saved
        numbers[name] = table.save_tracked(path, quiet=exact, flush=not quiet, touched=quiet)
        return path, None

    def save_all() -> None:
        for i, (name, table) in enumerate(tables.items()):
            put[name] = save(i, name, table)

    def files(name: str) -> dict[str, Any]:
        of, changes = put[name]
        told = _told_of(of) if isinstance(of, Path) else _only_files(of)
        if name not in numbers:
            return told
        earlier = [] if isinstance(of, Path) else of["changes"]
        return {**told, "changes": [*earlier, *([_told_of(changes)] if changes else [])]}

    try:
        if quiet:
            begin()
        within(save_all)
        for path in (
            each for of in put.values() for each in of if isinstance(each, Path) and quiet
        ):
            atomic.flush(path)
        told = {name: {**files(name), **_told(table)} for name, table in tables.items()}
        changed = any(one.get("changes") for one in told.values())
        manifest = {
            "version": _WITH_CHANGES if changed else _VERSION,
            "generation": number,
            "tables": told,
            **rest(number),
        }
        put_manifest(folder, manifest)
    except BaseException:
        if _named(folder) != number:
            _remove(folder, lambda path: _number(path) == number)
        raise
    for name, saved in numbers.items():
        tables[name].follow(_digests(told[name]), saved)
    named = {file["file"] for file in _files(manifest)}
    _remove(folder, lambda path: path.name not in named)


def mark_exact(folder: Path) -> None:
    """Say of the generation there is that nobody changed the tables while it was written."""
    manifest = manifest_of(folder)
    if not manifest["exact"]:
        put_manifest(folder, {**manifest, "exact": True})


def read(path: str | os.PathLike[str], take: Callable[[Opened], T]) -> T:
    """What ``take`` makes of a folder, all of it of one generation: where another one has come
    meanwhile and a file is gone, it is called again. Of the files only the model's has been checked.

    Raises:
        OSError: as ``opened``, or a new generation came each time before one was read.
        ValueError: as ``opened``, and what ``take`` raises.
    """
    for _ in range(_TRIES):
        folder = _unchecked(path)
        try:
            require_whole(folder.model, folder.manifest["model"])
            return take(folder)
        except (OSError, ValueError) as error:
            # (An alarm's handler raises TimeoutError.)
            if isinstance(error, TimeoutError) or manifest_of(Path(path)) == folder.manifest:
                raise
            failed = error
    raise OSError(
        errno.EBUSY,
        f"a new checkpoint took its place each of the {_TRIES} times that it was read; write them "
        "further apart, or read a copy",
        str(path),
    ) from failed


def opened(path: str | os.PathLike[str]) -> Opened:
    """A folder whose files are what its manifest says. It stays so while nobody writes there.

    Raises:
        FileNotFoundError: the manifest, or a file that it names, is missing.
        ValueError: one is damaged, or the manifest of a newer version.
    """
    folder = _unchecked(path)
    require_whole(folder.model, folder.manifest["model"])
    folder.check()
    return folder


def _unchecked(path: str | os.PathLike[str]) -> Opened:
    folder = Path(path)
    if folder.is_file():
        raise ValueError(f"cannot load {folder}: it is a file; name the folder with the tables")
    manifest = manifest_of(folder, _FORMAT, CLUSTER)
    return (Opened if manifest["format"] == _FORMAT else _Joint)(folder, manifest)


class Opened:
    """What ``opened`` and ``read`` give.

    Attributes:
        manifest: what it says.
        model: the file of the model and its parameters.
        exact: whether nobody changed the tables while it was written.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self._folder = folder
        self.manifest = manifest
        self._tables: dict[str, Any] = manifest["tables"]
        self.model: Path = folder / manifest["model"]["file"]
        self.exact: bool = manifest["exact"]

    def new_tables(self) -> dict[str, Table]:
        """Made as those that were written, but for a schedule and a staleness policy; without rows."""
        return {name: _made(name, told) for name, told in self._tables.items()}

    def fit(self, tables: Mapping[str, Table]) -> None:
        """Give new tables that are as large as a share of memory the size that they had. A
        ``RuntimeWarning`` where that share is not about as much here.
        """
        new = {
            name: table
            for name, table in tables.items()
            if table.share is not None and not table.has_been_trained
        }
        was = {name: self._tables.get(name, {}).get("rows", {}).get("max_bytes") for name in new}
        told = {name: size for name, size in was.items() if size is not None}
        here = sum(new[name].max_bytes or 0 for name in told)
        for name, size in told.items():
            if size != new[name].max_bytes:
                new[name].resize(size)
        if told and not 0.9 < (there := sum(told.values())) / here < 1.1:
            share = new[next(iter(told))].share
            warn(
                f"tables of {self._folder} may grow to {there / 2**30:.3g} GiB, as when it was begun; a "
                f"share of {share:g} of the memory here would be {here / 2**30:.3g} GiB. To have that, "
                "begin a new run"
            )

    def check(self) -> None:
        """FileNotFoundError or ValueError where a table's file is not what the manifest says."""
        for told in _table_files(self.manifest):
            require_whole(self._folder / told["file"], told)

    def require(self, tables: Mapping[str, Table], *, same_rule: bool = False) -> None:
        """ValueError where the folder's tables are not these: of the same names and sizes, with the
        same beginnings and kinds of rule; with ``same_rule`` all settings are the same.
        """
        if set(tables) != set(self._tables):
            raise ValueError(
                f"cannot load {self._folder}: its tables are {', '.join(self._tables)}, and not "
                f"{', '.join(tables)}"
            )
        for name, table in tables.items():
            was = _compared(self._tables[name], same_rule)
            now = _compared(_told(table), same_rule)
            for key in now:
                if was.get(key) != now[key]:
                    raise ValueError(
                        f"cannot load {self._folder}: {key} of table {name} was {was.get(key)} and "
                        f"is {now[key]}; give tables with the same"
                    )

    def load(self, tables: Mapping[str, Table], *, incremental: bool = False) -> None:
        """Put the folder's rows in place of those of tables that ``require`` has found to fit, where
        ``check`` has found the files whole; with
        ``incremental`` what ``write`` adds to the folder are changes of them.
        """
        for name, table in tables.items():
            told = self._tables[name]
            changes = [self._folder / change["file"] for change in told.get("changes", ())]
            table.load(self._folder / told["file"], changes)
            if incremental and table.tells_changes:
                table.follow(_digests(told), table.track())


class _Joint(Opened):
    """A checkpoint of a cluster: the model is a trainer's, or of policy servers, and the tables are those of
    all servers that have rows.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self._rows = [Rows(folder / name) for name in manifest["rows"]]
        tables = {name: _whole_of(of) for name, of in _by_table(self._rows).items()}
        super().__init__(folder, {**manifest, "tables": tables})

    def check(self) -> None:
        """Nothing: each server's files were checked before."""

    def load(self, tables: Mapping[str, Table], *, incremental: bool = False) -> None:
        """As of others."""
        del incremental  # (all rows are written anew)
        load_rows(self._rows, tables)


class Rows:
    """What ``write_rows`` has written, the newest generation.

    Attributes:
        folder: where.
        told: of the moment at which it was written.
        tables: the names of those of which it has rows.
        counts_examples: whether it was told of clients' pushes of how many examples they are, as since
            version 3.

    Args:
        folder: where.
        hashed: compare files with their SHA-256. Without, where they are this writer's own: with their
            size alone, since ``load`` checks each block's CRC-32C; of gigabytes it takes many seconds.

    Raises:
        FileNotFoundError: there is none, or a file of it is missing.
        ValueError: one is damaged, or the folder is of something else.
    """

    def __init__(self, folder: Path, *, hashed: bool = True) -> None:
        manifest = manifest_of(folder, _ROWS)
        for told in _table_files(manifest):
            require_whole(folder / told["file"], told, hashed=hashed)
        self.folder = folder
        self.told: dict[str, Any] = manifest["told"]
        self._of: dict[str, Any] = manifest["tables"]
        self.tables = tuple(self._of)
        self.counts_examples: bool = manifest["version"] >= _ROWS_VERSION

    def load(self, tables: Mapping[str, Table]) -> None:
        """Put the rows in place of those of the tables that have written them, or of their like; what
        ``write_rows`` adds are changes of them. ValueError where they are others.
        """
        if set(tables) != set(self._of):
            raise ValueError(
                f"cannot load {self.folder}: its tables are {', '.join(self._of) or 'none'}, and not "
                f"{', '.join(tables) or 'none'}"
            )
        for name, table in tables.items():
            told = self._of[name]
            part = self._part(name)
            if part.shards != table.shards:
                raise ValueError(
                    f"cannot load {self.folder}: it has other shards of table {name}; join the files "
                    "of all servers"
                )
            table.load(part.path, part.changes)
            if table.tells_changes:
                table.follow(_digests(told), table.track())

    def _part(self, name: str) -> Part:
        told = self._of[name]
        of = told.get("part", {})
        return Part(
            self.folder / told["file"],
            [self.folder / change["file"] for change in told.get("changes", ())],
            _from_text(of["shards"]) if of else None,
            of.get("capacity", 0),
        )


def join_rows(several: Iterable[Rows]) -> dict[str, Table]:
    """The tables whose rows these have together, new, with all shards; one that grows may have as many
    rows as all of its parts.

    Raises:
        ValueError: of a table a shard is missing, or there twice, or a file is damaged; or the parts
            are not of one table.
    """
    found: dict[str, Table] = {}
    for name, of in _by_table(several).items():
        found[name] = _made(name, _whole_of(of))
        found[name].load_parts([part for _, part in of])
    return found


def load_rows(several: Iterable[Rows], tables: Mapping[str, Table]) -> None:
    """Put what these have together in place of the rows of those tables: of one that has some shards,
    what is its own of them.

    Raises:
        ValueError: they have none of a table, or it is another one; else as ``join_rows``.
    """
    parts = _by_table(several)
    if missing := [name for name in tables if name not in parts]:
        raise ValueError(f"no server has saved table {', '.join(missing)}")
    for name, table in tables.items():
        table.load_parts([part for _, part in parts[name]])


def link_rows(folder: Path, to: Path) -> None:
    """What ``write_rows`` has written last, once more in another folder, in place of what is there: where
    the file system allows the same files, which stay when the next ones are written. OSError where
    it cannot.
    """
    manifest = manifest_of(folder, _ROWS)
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for told in _table_files(manifest):
        link(folder / told["file"], to / told["file"])
    put_manifest(to, manifest)


def link(path: Path, to: Path) -> None:
    """The same file, once more under another name, or where the file system allows none a copy of it, as of
    the same time. OSError where it cannot.
    """
    try:
        os.link(path, to)
    except OSError:
        shutil.copy2(path, to)
        atomic.flush(to)


def _by_table(several: Iterable[Rows]) -> dict[str, list[tuple[dict[str, Any], Part]]]:
    parts: dict[str, list[tuple[dict[str, Any], Part]]] = {}
    for one in several:
        for name, told in one._of.items():
            parts.setdefault(name, []).append((told, one._part(name)))
    return parts


def _whole_of(parts: Sequence[tuple[dict[str, Any], Part]]) -> dict[str, Any]:
    """What is told of the table that these are parts of."""
    told, _ = parts[0]
    rows = told["rows"]
    if rows.get("max_bytes"):
        rows = {**rows, "max_bytes": sum(of["rows"]["max_bytes"] for of, _ in parts)}
    return {"rows": rows, "run": told["run"]}


def _told(table: Table) -> dict[str, Any]:
    """What is written of a table, as JSON's own types: what its rows depend on, and what a run."""
    run = {
        "rule": table.rule.config(),
        "staleness": table.staleness.config(),
        **({"weight_decay": table.weight_decay} if table.weight_decay else {}),
    }
    part = {}
    if table.shards is not None:
        capacity = table.statistics()["capacity"]
        part = {"part": {"shards": _to_text(table.shards), "capacity": capacity}}
    return json.loads(json.dumps({"rows": table.description, "run": run, **part}))  # type: ignore[no-any-return]


def _made(name: str, told: Mapping[str, Any]) -> Table:
    rows, config = told["rows"], told["run"]["rule"]
    init, settings = choice.from_json(rows["init"])
    config = {key: value for key, value in config.items() if key != "schedule"}
    # All that a policy leaves in a file: whether rows keep the norm of their last update.
    keeps = rows.get("last_update", False)
    return Table(
        dim=rows["dim"],
        rows=rows.get("rows"),
        max_bytes=rows.get("max_bytes"),
        init=Initial(init, tuple((key, float(value)) for key, value in settings.items())),  # type: ignore[arg-type]
        rule=rule_of(config),
        staleness=staleness.stage_aware(staleness.inverse()) if keeps else None,
        evict=rows["evict"],
        admit_after=rows["admit_after"],
        seed=rows["seed"],
        number=rows["number"],
        name=name,
        weight_decay=told["run"].get("weight_decay", 0.0),
    )


def _to_text(shards: Sequence[bool]) -> str:
    """A hexadecimal digit for four."""
    return f"{int(''.join(str(int(each)) for each in shards), 2):0{len(shards) // 4}x}"


def _from_text(text: str) -> list[bool]:
    return [digit == "1" for digit in f"{int(text, 16):0{4 * len(text)}b}"]


def _compared(told: Mapping[str, Any], same_rule: bool) -> dict[str, Any]:
    # Nothing was told of weight decay where there was none.
    run = {"weight_decay": 0.0, **told["run"]} if same_rule else {}
    return {**told["rows"], **run}


def _saved(path: Path, save: Callable[[Path], None]) -> dict[str, Any]:
    save(path)
    return _told_of(path)


def _told_of(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest_of(path)}


def _only_files(told: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is told of a table, its file of all rows."""
    return {key: told[key] for key in ("file", "bytes", "sha256")}


def _digests(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Of all files of a table."""
    return (told["sha256"], *(change["sha256"] for change in told.get("changes", ())))


def _are_many(changes: list[Any], all_rows: Mapping[str, Any]) -> bool:
    """Whether all rows are to be written anew."""
    size = sum(change["bytes"] for change in changes)
    return len(changes) >= _MOST_CHANGES or size > _MOST_OF_BASE * all_rows["bytes"]


def _files(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is told of each file."""
    model = [manifest["model"]] if "model" in manifest else []
    return [*model, *_table_files(manifest)]


def _table_files(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """And of those of tables."""
    tables = manifest["tables"].values()
    return [*tables, *(c for table in tables for c in table.get("changes", ()))]


def _before(folder: Path) -> dict[str, Any]:
    """What the manifest tells of tables; nothing where there is none that can be read."""
    try:
        tables = _any_manifest(folder)["tables"]
    except (OSError, ValueError):
        return {}
    return {name: {"changes": [], **told} for name, told in tables.items()}


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415 (seldom asked for)

    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def require_whole(path: Path, told: Mapping[str, Any], *, hashed: bool = True) -> None:
    """That a file is what its manifest has told of it: ``bytes``, and where ``hashed`` ``sha256``.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: it is another.
    """
    if not path.exists():
        raise FileNotFoundError(
            errno.ENOENT,
            "the manifest beside it names it; use a whole copy of the folder",
            str(path),
        )
    if path.stat().st_size != told["bytes"] or (hashed and digest_of(path) != told["sha256"]):
        raise ValueError(
            f"cannot load {path}: it is not what the manifest beside it says; use an unaltered copy"
        )


def _checksum(manifest: Mapping[str, Any]) -> str:
    from hashlib import sha256  # noqa: PLC0415 (seldom asked for)

    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _any_manifest(folder: Path) -> dict[str, Any]:
    try:
        return manifest_of(folder)
    except ValueError:
        return manifest_of(folder, _ROWS)


def put_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write one, with ``format`` and ``version``, in place of what there is; it is on the disk then."""
    text = json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1)
    atomic.write(folder / MANIFEST, [text.encode()])


def manifest_of(folder: Path, *wanted: str) -> dict[str, Any]:
    """What the manifest of a folder of one of these formats says, by default of a model's.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, of a newer version, or of another format.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "no checkpoint is complete in this folder", str(path)
        ) from None
    try:
        found: dict[str, Any] = json.loads(text)
        if found["format"] not in (wanted or (_FORMAT,)):
            raise ValueError(f"it is of {_KIND.get(found['format'], 'something else')}")
        newest = _ROWS_VERSION if found["format"] == _ROWS else _WITH_CHANGES
        if found["version"] not in range(_VERSION, newest + 1):
            raise ValueError(
                f"its format version is {found['version']}, this release reads {_VERSION} to {newest}; "
                "upgrade leashed"
            )
        if found["checksum"] != _checksum(found):
            raise ValueError("its checksum is not that of its content; use an unaltered copy")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"cannot load {path}: {reason}") from error
    return found


def _named(folder: Path) -> int | None:
    """The generation that the manifest names; None: there is no manifest, or it is damaged."""
    try:
        return int(_any_manifest(folder)["generation"])
    except (FileNotFoundError, ValueError):
        return None


def _number(path: Path) -> int:
    """The generation that a file is of; 0: of none."""
    found = _OURS.fullmatch(path.name)
    return int(found[1] or found[2]) if found else 0


def _unfinished(path: Path) -> bool:
    """Whether it is a manifest that did not get its name."""
    return bool(_UNFINISHED.fullmatch(path.name))


def _remove(folder: Path, gone: Callable[[Path], bool]) -> None:
    for path in folder.iterdir():
        if (_number(path) and gone(path)) or _unfinished(path):
            path.unlink(missing_ok=True)
