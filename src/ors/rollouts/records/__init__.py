"""Runs on disk: written, read, summed up, compared and exported."""

from ors.rollouts.records.analysis.comparison import Comparison, TaskChange, compare
from ors.rollouts.records.analysis.picture import draw
from ors.rollouts.records.analysis.statistics import (
    Estimate,
    Row,
    Summary,
    clustered_mean,
    summarize,
    task_rows,
)
from ors.rollouts.records.errors import RunError
from ors.rollouts.records.exports import FORMATS, OUTCOMES, Exported, ExportFormat, export_run
from ors.rollouts.records.index import Entry
from ors.rollouts.records.info import RunInfo
from ors.rollouts.records.line import record_json
from ors.rollouts.records.reader import BrokenLine, Run, find_runs, read_run
from ors.rollouts.records.schema import line_schema
from ors.rollouts.records.writer import RunWriter

__all__ = [
    "FORMATS",
    "OUTCOMES",
    "BrokenLine",
    "Comparison",
    "Entry",
    "Estimate",
    "ExportFormat",
    "Exported",
    "Row",
    "Run",
    "RunError",
    "RunInfo",
    "RunWriter",
    "Summary",
    "TaskChange",
    "clustered_mean",
    "compare",
    "draw",
    "export_run",
    "find_runs",
    "line_schema",
    "read_run",
    "record_json",
    "summarize",
    "task_rows",
]
