"""Tasks from files and data sets, read one at a time."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ors.task_files.rows import CSVRows, DatasetRows, JSONLRows, parquet_rows
from ors.types import JSONObject

__all__ = ["tasks_from"]


def tasks_from(source: Any) -> Sequence[JSONObject]:
    """The tasks of a JSONL, CSV, TSV or Parquet file, or of a `datasets` data set, for `list_tasks`.

    Each row is a task, and is read when it is asked for: an index on disk says where it begins. The index is
    kept in the user's cache folder and made again when the file changes. CSV values are strings.

    Raises:
        OSError: the file cannot be read. ValueError: it is of no known kind, or not valid.
        ImportError: a Parquet file needs pyarrow. TypeError: `source` is something else.
    """
    if not isinstance(source, str | os.PathLike):
        return DatasetRows(source)
    path = Path(os.fspath(source))
    if not path.is_file():
        relative = "" if path.is_absolute() else f"; relative paths begin in {Path.cwd()}"
        raise FileNotFoundError(f"there is no file {path}{relative}")
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return JSONLRows(path)
        case ".csv":
            return CSVRows(path, ",")
        case ".tsv":
            return CSVRows(path, "\t")
        case ".parquet":
            return parquet_rows(path)
        case ".json":
            raise ValueError(f"{path} is one JSON value; write one task per line and name it .jsonl")
        case _:
            raise ValueError(f"{path}: tasks come from .jsonl, .csv, .tsv or .parquet files")
