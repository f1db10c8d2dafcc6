"""Rows of a Parquet file, written once as JSON lines: a Parquet file can only be read in large groups."""

import os
from functools import partial
from pathlib import Path
from typing import IO, Any

from ors._json import dumps, misfits
from ors.task_files.cache import cached
from ors.task_files.rows import JSONLRows

BATCH = 256
"""Rows in memory at a time."""
READ = 1 << 20
"""Bytes that are read at a time, instead of a whole column."""


def parquet_rows(path: Path) -> JSONLRows:
    """Rows of a Parquet file.

    Raises:
        ImportError: pyarrow is not installed. ValueError: the file is not valid, or a column is not JSON.
    """
    return JSONLRows(path, cached(str(path), os.stat(path), ".jsonl", partial(_write, path)))


def _write(path: Path, file: IO[bytes]) -> None:
    try:
        # Late: it takes 45 MB, and not at all once the lines are written.
        from pyarrow import ArrowInvalid, default_memory_pool
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ImportError(f"{path} needs pyarrow: pip install 'ors-kit[parquet]'") from None
    try:
        with ParquetFile(path, pre_buffer=False, buffer_size=READ) as source:
            for batch in source.iter_batches(BATCH):
                file.writelines(_line(path, row) for row in batch.to_pylist())
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a valid Parquet file: {error}") from None
    default_memory_pool().release_unused()


def _line(path: Path, row: dict[str, Any]) -> bytes:
    try:
        return dumps(row) + b"\n"
    except (TypeError, ValueError):
        wrong = ", ".join(map(repr, misfits(row)))
        raise ValueError(
            f"{path}: JSON cannot express the values of {wrong}; leave such columns out"
        ) from None
