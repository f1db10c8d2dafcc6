"""The recorded runs below a folder, read once and continued as they grow."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ors.errors import BadRequest, NotFound, TooLarge
from ors.rollouts.records import Entry, Finding, Run, RunError, check, find_runs, read_run, summarize
from ors.rollouts.records.files import Blobs, open_file
from ors.rollouts.records.line import checked
from ors.rollouts.records.statistics import declared_range

GROWING_SECONDS = 10.0
READING_SECONDS = 1.0
"""Time for reading runs before the list is answered; the others are read for the next answer."""
HEAD_BYTES = 80
MOST_BLOB_BYTES = 64 * 2**20
MOST_TASK_BYTES = 2**20


class ShownRun:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._run: Run | None = None
        self._size = 0
        self._heads: dict[str, bytes] = {}
        self._changed = 0.0
        self._figures: dict[str, Any] = {}
        self._version = ""
        self._findings: tuple[str, list[Finding]] = ("", [])

    @property
    def is_read(self) -> bool:
        return self._run is not None

    @property
    def is_growing(self) -> bool:
        return time.time() - self._changed < GROWING_SECONDS

    @property
    def version(self) -> str:
        """Changes when the run does, and when it no longer grows."""
        return f"{self._version}{'+' if self.is_growing else ''}"

    @property
    def entries(self) -> list[Entry]:
        return [] if self._run is None else list(self._run.entries)

    def findings(self) -> list[Finding]:
        """What is wrong with it, as of the last refresh."""
        if self._findings[0] != self._version:
            self._findings = self._version, check(self.entries)
        return self._findings[1]

    def refresh(self) -> None:
        """Reads what was added; all of it if the files were replaced by others."""
        try:
            self._read()
        except (RunError, OSError, OverflowError) as error:
            why = "its rewards are too large to be summed up" if isinstance(error, OverflowError) else error
            self._run, self._version = None, ""
            raise NotFound(f"The run {self.name} cannot be shown: {why}") from None

    def _read(self) -> None:
        files = sorted(self._folder.glob("episodes*.jsonl"))
        found = [path.lstat() for path in files]
        size, self._changed = (
            sum(each.st_size for each in found),
            max((each.st_mtime for each in found), default=0.0),
        )
        version = f"{size}-{self._changed}"
        if self._run is not None and version == self._version:
            return
        heads = {path.name: _head(path) for path in files}
        continued = all(heads.get(name, b"").startswith(head) for name, head in self._heads.items())
        if self._run is None or size < self._size or not continued:
            self._run = read_run(self._folder)
        else:
            self._run.refresh()
        self._size, self._heads, self._version = size, heads, version
        self._figures = figures(self._run)

    def summary(self) -> dict[str, Any]:
        return {"name": self.name, "changed": self._changed, "growing": self.is_growing, **self._figures}

    def line(self, entry: Entry) -> dict[str, Any]:
        """An episode as it is in the file, with references to its blobs."""
        try:
            with open_file(self._folder / entry.part) as file:
                file.seek(entry.offset)
                found, read = checked(file.read(entry.size))
        except RunError as error:  # the index has read only the beginning of the line
            raise NotFound(f"The line of this episode is broken: {error}") from None
        if read.id != entry.id:
            raise NotFound("The line of this episode has changed")
        if read.task_blob is not None:
            found["task"] = self._task(read.task_blob)
        return found

    def _task(self, blob: str) -> Any:
        try:
            if len(self.blob(blob)) > MOST_TASK_BYTES:
                return {"too large to show": f"blobs/{blob}"}
            return Blobs(self._folder).json(blob)
        except (ValueError, NotFound, TooLarge) as error:
            return {"cannot be read": str(error)}

    def blob(self, name: str) -> bytes:
        try:
            with Blobs(self._folder).open(name) as file:
                content = file.read(MOST_BLOB_BYTES + 1)
        except RunError as error:
            raise NotFound(f"No such blob in this run: {error}") from None
        if len(content) > MOST_BLOB_BYTES:
            raise TooLarge(f"The blob is larger than {MOST_BLOB_BYTES // 2**20} MiB: open its file instead")
        return content


def _head(path: Path) -> bytes:
    """The first bytes of a file, which contain the id of an episode."""
    with open_file(path) as file:
        return file.read(HEAD_BYTES)


def figures(run: Run) -> dict[str, Any]:
    entries = run.entries
    summary = summarize(entries)
    usage = summary.usage
    return {
        "episodes": summary.episodes,
        "tasks": summary.tasks,
        "agents": sorted({entry.agent for entry in entries if entry.agent}),
        "environments": sorted({entry.task.environment for entry in entries}),
        "outcomes": summary.outcomes,
        "unrewarded": summary.unrewarded,
        "mean": summary.reward and summary.reward.mean,
        "error": summary.reward and summary.reward.error,
        "components": [
            {"name": name, "mean": each.mean, "error": each.error}
            for name, each in summary.components.items()
        ],
        "range": declared_range(entries),
        "passes": [{"k": each.k, "any": each.any, "all": each.all} for each in summary.passes],
        "tokens": usage.input_tokens + usage.output_tokens,
        "cost": usage.cost,
        "unknown": usage.unknown,
        "seconds": sum(entry.seconds for entry in entries),
        "unreadable": len(run.broken),
    }


class ShownRuns:
    """All runs at and below a folder, by their path in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[str, ShownRun] = {}

    def list(self) -> list[Mapping[str, Any]]:
        """A row for each run. Runs that are read for the first time may come later, and are marked."""
        self._find()
        until = time.monotonic() + READING_SECONDS
        return [self._row(run, time.monotonic() < until) for run in self._runs.values()]

    def _row(self, run: ShownRun, reading: bool) -> Mapping[str, Any]:
        if not run.is_read and not reading:
            return {"name": run.name, "waiting": True}
        try:
            run.refresh()
        except NotFound as error:
            return {"name": run.name, "problem": str(error)}
        return run.summary()

    def get(self, name: str) -> ShownRun:
        if not name:
            raise BadRequest("run: give the name of a run")
        if name not in self._runs:
            self._find()
        if name not in self._runs:
            raise NotFound(f"No run is named {name}")
        self._runs[name].refresh()
        return self._runs[name]

    def _find(self) -> None:
        try:
            folders = {_name(self._folder, path): path for path in find_runs(self._folder)}
        except OSError as error:
            raise NotFound(f"The folder of the runs cannot be read: {error.strerror}") from None
        self._runs = {name: self._runs.get(name) or ShownRun(name, path) for name, path in folders.items()}


def _name(root: Path, folder: Path) -> str:
    # The folder itself may be the run.
    return folder.relative_to(root).as_posix() if folder != root else folder.resolve().name
