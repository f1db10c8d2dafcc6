"""Reads runs: an index of all episodes, and each episode when it is asked for."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from ors._json import loads
from ors.providers.messages import Usage
from ors.rollouts.episodes.episode import EpisodeRecord, TaskKey, TaskRef, task_key
from ors.rollouts.episodes.outcome import Failed, Outcome, Party
from ors.rollouts.episodes.scoring import BY_DEFAULT, Scoring
from ors.rollouts.records.files import Blobs, NewerSchema, RunError, open_file
from ors.rollouts.records.info import FILE, read_info
from ors.rollouts.records.line import (
    Actions,
    Line,
    LineTimes,
    actions,
    check_schema,
    checked,
    decode,
    times,
    validated,
)
from ors.types import RewardSpec

_BUFFER = 1024 * 1024
_MESSAGES = b',"messages":['
_BEGIN = b'{"schema":'
_UNKNOWN = Actions()


@dataclass(frozen=True, slots=True)
class Entry:
    """One episode in the index."""

    id: str
    task: TaskKey
    sample: int
    agent: str
    outcome: Outcome
    reward: float | None
    usage: Usage
    started: float
    seconds: float
    attempts: int
    model_seconds: tuple[float, ...]
    """Seconds of each model request."""
    call_seconds: tuple[float, ...]
    """Seconds of each call."""
    part: str = ""
    """The name of its file."""
    offset: int = 0
    size: int = 0
    scoring: Scoring = BY_DEFAULT
    components: Mapping[str, float] = field(default_factory=dict)
    """The named rewards."""
    rewards: tuple[float | None, ...] = ()
    """The reward of each step."""
    actions: Actions = _UNKNOWN
    range: tuple[float, float] | None = None
    """The least and the highest reward that its environment declares."""

    @property
    def score(self) -> float | None:
        """What it counts as in means: its reward, or the value chosen for its outcome; None if it failed."""
        return self.scoring.score(self.outcome, self.reward)

    @property
    def turns(self) -> int:
        """How many messages the agent sent."""
        return len(self.model_seconds)

    @property
    def calls(self) -> int:
        """How many tools it called."""
        return len(self.call_seconds)

    @property
    def key(self) -> tuple[TaskKey, int, str]:
        """Which episode of the run this is: task, sample, agent."""
        return self.task, self.sample, self.agent

    @property
    def failed_by(self) -> Party | None:
        """Who failed, if it did: such an episode may be played again."""
        return self.outcome.who if isinstance(self.outcome, Failed) else None


def entry(line: bytes, part: str, offset: int, scoring: Scoring, rewards: Mapping[str, RewardSpec]) -> Entry:
    head = _head(line)
    if head is None:
        _, read = checked(line)
        read = replace(read, times=times(read.messages), actions=actions(read.messages))
    else:
        read = validated({**head, "messages": (), "earlier": ()}, Line)
    declared = rewards.get(read.environment)
    return _entry(
        read,
        task_key(TaskRef(read.environment, read.split, read.index, read.task)),
        read.tokens,
        read.times,
        actions=read.actions or _UNKNOWN,
        part=part,
        offset=offset,
        size=len(line),
        scoring=scoring,
        range=None if declared is None else declared.range,
    )


def entry_of(record: EpisodeRecord) -> Entry:
    """The entry of an episode that is in no run. It counts as its record says."""
    told = times(record.messages)
    did = actions(record.messages)
    return _entry(record, task_key(record.task), record.usage, told, actions=did, scoring=Scoring(None, None))


def _entry(of: Line | EpisodeRecord, task: TaskKey, usage: Usage, seconds: LineTimes, **more: Any) -> Entry:
    return Entry(
        of.id,
        task,
        of.sample,
        sys.intern(of.agent),
        of.outcome,
        of.reward,
        usage,
        of.started,
        of.seconds,
        of.attempts,
        seconds.model,
        seconds.calls,
        components={sys.intern(name): value for name, value in of.components.items()},
        rewards=of.rewards,
        **more,
    )


def _head(line: bytes) -> dict[str, Any] | None:
    """The keys before the messages, read without the messages; None if the line is not as we write it.

    The mark is outside of every string, because quotes in strings are escaped. In a nested object it would
    leave the outer one open, which is not valid JSON.
    """
    end = line.find(_MESSAGES)
    # A second beginning may be another line, after one that was torn.
    if end < 0 or not line.endswith(b"]}\n") or line.find(_BEGIN, 1) >= 0:
        return None
    try:
        found = loads(line[:end] + b"}")
    except ValueError:
        return None
    check_schema(found.get("schema"))
    return found if "times" in found else None


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that is not an episode."""

    file: str
    number: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.why}"


class Run:
    """A run being read. It may still be written to: `refresh` reads what was added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = read_info(folder)
        self._scoring = Scoring.of(self.info.config)
        self._blobs = Blobs(folder)
        self._entries: list[Entry] = []
        self._broken: list[BrokenLine] = []
        self._by_id: dict[str, int] = {}
        self._by_key: dict[tuple[TaskKey, int, str], int] = {}
        self._read: dict[str, tuple[int, int]] = {}
        """Of each file, how many bytes and lines were read."""
        self.refresh()

    @property
    def entries(self) -> Sequence[Entry]:
        """All episodes in the order of their lines. One that was played again keeps its place."""
        return self._entries

    @property
    def broken(self) -> Sequence[BrokenLine]:
        """Lines that were skipped. A torn last line is not among them: it may still be written."""
        return self._broken

    def refresh(self) -> None:
        """Adds what was written since the last time to the index.

        Raises:
            RunError: a file cannot be read, or a line has a newer schema than this version of ors can read.
        """
        for path in sorted(self.folder.glob("episodes*.jsonl")):
            with open_file(path, _BUFFER) as file:
                self._add_lines(file, path.name)

    def _add_lines(self, file: BinaryIO, part: str) -> None:
        offset, number = self._read.get(part, (0, 0))
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                self._add(entry(line, part, offset, self._scoring, self.info.rewards))
            except NewerSchema as error:
                raise NewerSchema(f"{self.folder / part}:{number + 1}: {error}") from None
            except RunError as error:
                self._broken.append(BrokenLine(part, number + 1, str(error)))
            offset, number = offset + len(line), number + 1
            self._read[part] = offset, number

    def _add(self, new: Entry) -> None:
        """Adds an episode, or puts it in the place of the one that it replaces.

        The driver plays a sample of a task once, or again: then the later one counts, unless only it failed.
        """
        place = self._by_id.get(new.id)
        if place is None and self.info.kind == "rollouts":
            place = self._by_key.get(new.key)
        if place is None:
            place = len(self._entries)
            self._entries.append(new)
        elif (old := self._entries[place]).id == new.id or old.failed_by or not new.failed_by:
            del self._by_id[old.id]
            self._entries[place] = new
        else:
            return
        self._by_id[new.id] = self._by_key[new.key] = place

    def number(self, which: str) -> int:
        """The place of an episode in `entries`, by its id, the first characters of its id, or its number.

        Raises:
            RunError: there is no such episode, or more than one.
        """
        if which in self._by_id:
            return self._by_id[which]
        if re.fullmatch("0|[1-9][0-9]*", which) and int(which) < len(self._entries):
            return int(which)
        found = [number for id, number in self._by_id.items() if which and id.startswith(which)]
        if not found:
            raise RunError(f"{self.folder} has no episode {which!r} among its {len(self._entries)}")
        if len(found) > 1:
            raise RunError(f"{len(found)} episodes of {self.folder} have an id that begins with {which!r}")
        return found[0]

    def episode(self, number: int) -> EpisodeRecord:
        """Reads one episode by its place in `entries`.

        Raises:
            RunError: its line is broken, or a blob cannot be read.
        """
        return next(self.episodes([self._entries[number]]))

    def episodes(
        self,
        entries: Iterable[Entry] | None = None,
        *,
        on_broken: Callable[[Entry, RunError], None] | None = None,
    ) -> Iterator[EpisodeRecord]:
        """Reads episodes one after the other: all of them, or those of `entries`.

        Raises:
            RunError: a line is broken, or a blob cannot be read. With `on_broken`, such episodes are skipped.
        """
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            for each in self._entries if entries is None else entries:
                try:
                    if each.part not in files:
                        files[each.part] = stack.enter_context(open_file(self.folder / each.part))
                    record = self._decoded(files[each.part], each)
                except RunError as error:
                    if on_broken is None:
                        raise
                    on_broken(each, error)
                else:
                    yield record

    def _decoded(self, file: BinaryIO, where: Entry) -> EpisodeRecord:
        file.seek(where.offset)
        try:
            return decode(file.read(where.size), self._blobs)
        except RunError as error:
            raise RunError(f"Episode {where.id} in {self.folder / where.part}: {error}") from None


def read_run(folder: str | Path) -> Run:
    """Reads the index of a run.

    Raises:
        RunError: the folder is not a run, or of a newer schema, or a file of it cannot be read.
    """
    return Run(Path(folder))


def find_runs(folder: str | Path) -> Iterator[Path]:
    """Folders of runs: the folder itself, or those below it. Hidden folders are skipped."""
    for path, folders, files in os.walk(folder):
        if FILE in files:
            yield Path(path)
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
