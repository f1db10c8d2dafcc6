"""Runs on disk: written, read, summed up, compared and exported."""

from ors.rollouts.records.errors import RunError
from ors.rollouts.records.index import Entry, TaskKey, task_key
from ors.rollouts.records.info import RunInfo
from ors.rollouts.records.reader import BrokenLine, Run, find_runs, read_run
from ors.rollouts.records.schema import line_schema
from ors.rollouts.records.writer import RunWriter

__all__ = [
    "BrokenLine",
    "Entry",
    "Run",
    "RunError",
    "RunInfo",
    "RunWriter",
    "TaskKey",
    "find_runs",
    "line_schema",
    "read_run",
    "task_key",
]
