"""Runs in the formats of other programs, and the difficulty of their tasks."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Literal, get_args

from ors._json import dumps
from ors._version import __version__
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.rollouts.episodes.outcome import OUTCOMES as KINDS
from ors.rollouts.episodes.outcome import name_of
from ors.rollouts.episodes.task import task_hash
from ors.rollouts.records.exports.atif import atif_trajectory
from ors.rollouts.records.exports.openai import openai_example
from ors.rollouts.records.files import write_whole
from ors.rollouts.records.reader import Entry, Run

ExportFormat = Literal["openai", "atif", "difficulty"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
OUTCOMES = tuple(map(name_of, KINDS))
IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Exported:
    """How many episodes were exported, and how many were not, because of the filter or without messages."""

    episodes: int
    """With the format "difficulty": those that count in its tasks."""
    left_out: int
    skipped: Sequence[str]
    """Why others were not: they cannot be read, or cannot be expressed in the format."""


def export_run(
    run: Run,
    format: ExportFormat,
    out: Path,
    *,
    min_reward: float | None = None,
    outcomes: Collection[str] = ("scored",),
) -> Exported:
    """Exports episodes with these outcomes and at least this reward, if one is given.

    openai: `out` is a file with one line of JSON for each episode. atif: `out` is a folder with one file for
    each episode, and its images. difficulty: `out` is a file with one line of JSON for each task, over all
    its episodes that count, whatever is chosen; `TaskSampler.from_file` reads it.

    Raises:
        OSError: `out` cannot be written.
    """
    chosen = [entry for entry in run.entries if _is_wanted(entry, min_reward, outcomes)]
    skipped: list[str] = []
    if format == "difficulty":
        rows = list(_difficulty_rows(run, skipped))
        _write_lines((dumps(row) + b"\n" for row in rows), out)
        played = sum(row["attempts"] for row in rows)
        return Exported(played, len(run.entries) - played, skipped)
    found = run.episodes(chosen, on_broken=lambda _, error: skipped.append(str(error)))
    records = (record for record in found if record.messages)
    openai = format == "openai"
    written = _write_lines(_lines(records, skipped), out) if openai else _write_atif(records, out, run)
    return Exported(written, len(run.entries) - written - len(skipped), skipped)


def _is_wanted(entry: Entry, min_reward: float | None, outcomes: Collection[str]) -> bool:
    if entry.outcome.type not in outcomes:
        return False
    return min_reward is None or (entry.reward is not None and entry.reward >= min_reward)


def _write_lines(lines: Iterable[bytes], out: Path) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    count = 0
    try:
        with partial.open("wb") as file:
            for line in lines:
                file.write(line)
                count += 1
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _lines(records: Iterable[EpisodeRecord], skipped: list[str]) -> Iterator[bytes]:
    for record in records:
        try:
            line = dumps(openai_example(record)) + b"\n"
        except ValueError as error:
            skipped.append(f"Episode {record.id}: {error}")
        else:
            yield line


def _write_atif(records: Iterable[EpisodeRecord], out: Path, run: Run) -> int:
    out.mkdir(parents=True, exist_ok=True)
    version = run.info.versions.get("ors", __version__)
    count = 0

    def save(content: bytes, ending: str) -> str:
        (out / IMAGES).mkdir(exist_ok=True)
        path = f"{IMAGES}/{hashlib.sha256(content).hexdigest()}{ending}"
        if not (out / path).exists():
            write_whole(out / path, content)
        return path

    for record in records:
        name = re.sub(r"[^\w-]", "_", record.id, flags=re.ASCII)
        if name != record.id:  # two ids must not share a file
            name += f"-{hashlib.sha256(record.id.encode(errors='surrogatepass')).hexdigest()[:8]}"
        write_whole(out / f"{name}.json", dumps(atif_trajectory(record, version=version, save=save)))
        count += 1
    return count


def _difficulty_rows(run: Run, skipped: list[str]) -> Iterator[dict[str, Any]]:
    """One row for each task with an episode that counts; reasons go to `skipped`.

    `length` is the mean number of the agent's messages, or of calls where those are not known.
    """
    tasks: dict[Any, list[Entry]] = {}
    for entry in run.entries:
        if entry.score is not None:
            tasks.setdefault(entry.task, []).append(entry)
    for task, entries in tasks.items():
        records = run.episodes(entries, on_broken=lambda *_: None)  # one that can be read is enough
        spec = next((record.task.spec for record in records if record.task.spec is not None), None)
        if spec is None:
            skipped.append(f"{task.label}: the run does not have the content of this task")
            continue
        scores = [entry.score or 0.0 for entry in entries]
        where = {"environment": task.environment, "split": task.split, "index": task.index}
        rewards = {"attempts": len(scores), "mean": fmean(scores), "variance": pvariance(scores)}
        length = fmean(entry.turns or entry.calls for entry in entries)
        yield {"task": task_hash(spec), **where, **rewards, "length": length}
