"""`tasks_from`: tasks from files and data sets, read one at a time."""

import csv
import hashlib
import os
import tempfile
import weakref
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, Any, overload

from ors._json import dumps, loads, unencodable
from ors._version import __version__
from ors.types import JSONObject

__all__ = ["tasks_from"]

SEALED_BYTES = 8 * 2**20
"""Bytes at either end of a cached file that are checked when it is opened."""

Write = Callable[[IO[bytes]], None]


def folder() -> Path:
    """Folder of cached files: `$XDG_CACHE_HOME/ors/tasks`, or `~/.cache/ors/tasks`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ors" / "tasks"


def stamped(path: str, info: os.stat_result) -> tuple[str, str]:
    """Two beginnings of names for what is made of a file: of its path, and of its content."""
    first = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:24]
    content = f"{__version__} {info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns}"
    return f"{first}-", f"{first}-{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def cached(path: str, info: os.stat_result, ending: str, write: Write) -> int:
    """Descriptor of the cached file made of `path`, which `write` fills if it is missing or damaged.

    Processes that do this at the same time each write a file of their own, and the last one stays. Where the
    cache folder cannot be written, or is full, the file is private.
    """
    prefix, name = stamped(path, info)
    home = folder()
    for known in home.glob(f"{name}-*{ending}"):
        with suppress(OSError):
            reading = os.open(known, os.O_RDONLY)
            if known.name == f"{name}-{_seal(reading)}{ending}":
                return reading
            os.close(reading)
    try:
        home.mkdir(parents=True, exist_ok=True)
        return _made(home, prefix, name, ending, write)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return private(write)


def _made(home: Path, prefix: str, name: str, ending: str, write: Write) -> int:
    with tempfile.NamedTemporaryFile(dir=home, prefix=prefix, delete=False) as made:
        try:
            write(made.file)
            made.flush()
            os.fsync(made.fileno())
            reading = os.open(made.name, os.O_RDONLY)
            kept = home / f"{name}-{_seal(reading)}{ending}"
            os.replace(made.name, kept)
        except BaseException:
            with suppress(OSError):
                os.unlink(made.name)
            raise
    for older in set(home.glob(f"{prefix}*{ending}")) - {kept}:  # processes that still use one hold it open
        with suppress(OSError):
            older.unlink()
    return reading


def _seal(file: int) -> str:
    """Tells whether a file is as it was written: its size, and a checksum of its first and last bytes."""
    size = os.fstat(file).st_size
    first = os.pread(file, SEALED_BYTES, 0)
    last = os.pread(file, SEALED_BYTES, max(SEALED_BYTES, size - SEALED_BYTES))
    return f"{size:x}-{zlib.crc32(last, zlib.crc32(first)):08x}"


def private(write: Write) -> int:
    """Descriptor of a new file without a name, filled by `write`; in memory if no disk can be written."""
    try:
        return _filled(tempfile.TemporaryFile(), write)
    except OSError:
        return _filled(os.fdopen(os.memfd_create("ors-tasks"), "w+b"), write)


def _filled(file: IO[bytes], write: Write) -> int:
    with file:
        write(file)
        file.flush()
        return os.dup(file.fileno())


OFFSET = 8
"""Bytes of an offset in an index."""
FIELD_CHARS = 64 * 2**20
"""Longest field of a CSV file: a quote that is never closed makes one field of the rest."""
PARQUET_ROWS = 256
"""Rows in memory at a time."""
PARQUET_BYTES = 1 << 20
"""Bytes that are read at a time, instead of a whole column."""
NOT_UTF8 = "the text is not UTF-8; convert the file, for example with iconv -f latin1 -t utf-8"
BOM = b"\xef\xbb\xbf"


class Rows(Sequence[JSONObject]):
    """Tasks that are made when they are asked for."""

    def __init__(self, source: "RowsOfFile | RowsOfDataset") -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: int) -> JSONObject: ...
    @overload
    def __getitem__(self, index: slice) -> list[JSONObject]: ...
    def __getitem__(self, index: int | slice) -> JSONObject | list[JSONObject]:
        if isinstance(index, slice):
            return [self._source.row(number) for number in range(len(self))[index]]
        return self._source.row(range(len(self))[index])


class RowsOfFile(ABC):
    """Rows of a file. The file stays open: one that is replaced meanwhile still has its old rows here."""

    sha256: str | None = None

    def __init__(self, path: str | Path, descriptor: int | None = None) -> None:
        self._path = str(path)
        self._file = os.open(path, os.O_RDONLY) if descriptor is None else descriptor
        weakref.finalize(self, os.close, self._file)
        info = os.fstat(self._file)
        self._index = cached(self._path, info, ".index", self._write_index)
        weakref.finalize(self, os.close, self._index)
        self._count = os.fstat(self._index).st_size // OFFSET - 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens the file again.
        return partial(_opened, sha256=self.sha256), (Path(self._path),)

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def starts(self, lines: Iterable[bytes]) -> Iterator[int]:
        """Offsets at which rows begin."""

    @abstractmethod
    def parsed(self, content: bytes) -> JSONObject:
        """One row from its bytes. Raises ValueError if it is not valid; the text says why."""

    def row(self, index: int) -> JSONObject:
        start, end = self._span(index)
        try:
            return self.parsed(os.pread(self._file, end - start, start))
        except (ValueError, csv.Error) as error:
            line = os.pread(self._file, start, 0).count(b"\n") + 1
            text = NOT_UTF8 if isinstance(error, UnicodeDecodeError) else error
            raise ValueError(f"{self._path}, line {line}: {text}") from None

    def _span(self, index: int) -> tuple[int, int]:
        start, end = array("Q", os.pread(self._index, 2 * OFFSET, OFFSET * index))
        return start, end

    def _write_index(self, file: IO[bytes]) -> None:
        with open(os.dup(self._file), "rb") as source:
            source.seek(0)
            offsets = array("Q", self.starts(source))
            offsets.append(source.tell())
        file.write(offsets)


class JSONLRows(RowsOfFile):
    """One JSON object per line. Blank lines do not count."""

    def starts(self, lines: Iterable[bytes]) -> Iterator[int]:
        offset = 0
        for line in lines:
            if not line.isspace():
                yield offset
            offset += len(line)

    def parsed(self, content: bytes) -> JSONObject:
        try:
            found = loads(content.removeprefix(BOM).strip())
        except ValueError:
            content.decode()  # what is not UTF-8 is told as such
            raise ValueError("this is not valid JSON") from None
        if not isinstance(found, dict):
            raise ValueError(f"a task is a JSON object, not {type(found).__name__}")
        return found


class CSVRows(RowsOfFile):
    """Records of a CSV file; the first one has the names. All values are strings."""

    def __init__(self, path: str | Path, delimiter: str) -> None:
        self._delimiter = delimiter
        self._names: list[str] = []
        super().__init__(path)
        header = os.pread(self._file, self._span(0)[0], 0) if self._count else b""
        self._names = self._record(header.removeprefix(BOM)) if header else []
        if len(set(self._names)) < len(self._names):
            raise ValueError(f"{path}: two columns of the first line have the same name")

    def starts(self, lines: Iterable[bytes]) -> Iterator[int]:
        """Offsets of the records after the first, each of which may have several lines."""
        offset = 0

        def counted() -> Iterator[str]:
            nonlocal offset
            for line in lines:
                text = line if offset else line.removeprefix(BOM)
                offset += len(line)
                yield text.decode(errors="replace")

        start = 0
        records = self._reader(counted())
        try:
            for number, record in enumerate(records):
                if number and record:
                    yield start
                start = offset
        except csv.Error as error:
            raise ValueError(f"{self._path}, line {records.line_num}: {error}") from None

    def parsed(self, content: bytes) -> JSONObject:
        values = self._record(content)
        if len(values) != len(self._names):
            names = len(self._names)
            raise ValueError(f"the row has {len(values)} values, but the first line has {names} names")
        return dict(zip(self._names, values, strict=True))

    def _record(self, content: bytes) -> list[str]:
        return next(filter(None, self._reader(StringIO(content.decode(), newline=""))), [])

    def _reader(self, lines: Iterable[str]) -> Any:
        if csv.field_size_limit() < FIELD_CHARS:  # of the whole process; 131,072 by default
            csv.field_size_limit(FIELD_CHARS)
        return csv.reader(lines, delimiter=self._delimiter, strict=True)


class RowsOfDataset:
    """Rows of a data set with a length, which gives a dictionary for an index."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, Mapping):
            parts = ", ".join(map(str, source))
            raise TypeError(
                f"this data set has the parts {parts}: pass one of them, such as dataset['train']"
            )
        if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
            raise TypeError(
                f"tasks come from a path or a data set with a length, not {type(source).__name__}; "
                "load a streamed data set without streaming=True"
            )
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def row(self, index: int) -> JSONObject:
        found: Any = self._source[index]
        if not isinstance(found, Mapping):
            kind = type(self._source).__name__
            raise TypeError(f"row {index} of {kind} is {type(found).__name__}, not a dictionary")
        return found


def _write_parquet_rows(path: Path, file: IO[bytes]) -> None:
    try:
        # Late: it takes 45 MB, and not at all once the lines are written.
        from pyarrow import ArrowInvalid, default_memory_pool
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ImportError(f"{path} needs pyarrow: pip install 'ors-kit[parquet]'") from None
    try:
        with ParquetFile(path, pre_buffer=False, buffer_size=PARQUET_BYTES) as source:
            for batch in source.iter_batches(PARQUET_ROWS):
                file.writelines(_line(path, row) for row in batch.to_pylist())
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a valid Parquet file: {error}") from None
    default_memory_pool().release_unused()


def _line(path: Path, row: dict[str, Any]) -> bytes:
    try:
        return dumps(row) + b"\n"
    except (TypeError, ValueError):
        wrong = ", ".join(map(repr, unencodable(row)))
        raise ValueError(f"{path}: JSON cannot express the values of {wrong}; leave them out") from None


def tasks_from(source: Any, *, sha256: str | None = None) -> Sequence[JSONObject]:
    """The tasks of a JSONL, CSV, TSV or Parquet file, or of a `datasets` data set, for `list_tasks`.

    Each row is a task, and is read when it is asked for: an index on disk says where it begins. The index is
    kept in the user's cache folder and made again when the file changes. CSV values are strings. With
    `sha256`, as `sha256sum` prints it, another file is refused.

    Raises:
        OSError: the file cannot be read. ValueError: it is of no known kind, not valid, or another one.
        ImportError: a Parquet file needs pyarrow. TypeError: `source` is something else.
    """
    if not isinstance(source, str | os.PathLike):
        if sha256 is not None:
            raise TypeError("sha256 is for files: data sets have revisions of their own")
        return Rows(RowsOfDataset(source))
    path = Path(os.fspath(source))
    if not path.is_file():
        relative = "" if path.is_absolute() else f"; relative paths start at {Path.cwd()}"
        raise FileNotFoundError(f"there is no file {path}{relative}")
    return Rows(_opened(path, sha256))


def _opened(path: Path, sha256: str | None) -> RowsOfFile:
    if sha256 is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256.lower():
            raise ValueError(f"{path} is another file: its SHA-256 is {found}, not {sha256}")
    rows = _rows(path)
    rows.sha256 = sha256
    return rows


def _rows(path: Path) -> RowsOfFile:
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return JSONLRows(path)
        case ".csv":
            return CSVRows(path, ",")
        case ".tsv":
            return CSVRows(path, "\t")
        case ".parquet":
            lines = cached(str(path), os.stat(path), ".jsonl", partial(_write_parquet_rows, path))
            return JSONLRows(path, lines)
        case ".json":
            raise ValueError(f"{path} is one JSON value; write one task per line and name it .jsonl")
        case _:
            raise ValueError(f"{path}: tasks come from .jsonl, .csv, .tsv or .parquet files")
