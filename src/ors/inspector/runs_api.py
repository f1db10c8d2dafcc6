"""The inspector's interface to recorded runs, below `/-/api/runs`. It only reads."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ors.errors import BadRequest, NotFound
from ors.inspector.run_queries import (
    Selection,
    Side,
    TaskPair,
    detail,
    histogram,
    pairs,
    rewards,
    selected_pairs,
    tokens,
    verdict,
)
from ors.inspector.shown_runs import ShownRuns
from ors.rollouts.records import Comparison, Entry, compare
from ors.server.admin.inspector_api import RUNS
from ors.server.http.answers import Answer, Headers, answer
from ors.server.http.requests import Request

PAGE = 100
MAX_PAGE = 500
MOST_MESSAGES = 400
"""Messages of an episode in one answer; the results of a message's calls come with it."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
# A browser must not take a recorded value for a page.
_BLOB = Headers(
    (b"content-type", b"application/octet-stream"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)


class RunsApi:
    """Answers questions about the runs below a folder, for `Server.show_runs` and `ors view`."""

    def __init__(self, folder: Path) -> None:
        self._runs = ShownRuns(folder)
        self._turn = asyncio.Lock()
        self._answers: dict[str, Callable[[Request], Answer]] = {
            RUNS: lambda request: answer({"runs": self._runs.list()}),
            f"{RUNS}/episodes": self._episodes,
            f"{RUNS}/episode": self._episode,
            f"{RUNS}/compare": self._compare,
            f"{RUNS}/blob": self._blob,
        }

    async def get(self, request: Request) -> Answer:
        """Answers a GET request.

        Raises:
            NotFound: there is no such path, run, episode or blob.
            BadRequest: the query is not valid.
        """
        found = self._answers.get(request.path.rstrip("/"))
        if found is None:
            raise NotFound("There is nothing at this path")
        async with self._turn:  # only one thread at a time may have the indexes
            return await asyncio.to_thread(found, request)

    def _episodes(self, request: Request) -> Answer:
        run, selection = self._runs.get(request.asked("run")), Selection.asked(request)
        if request.asked("known") == run.version:
            return answer({"version": run.version, "unchanged": True})
        found = selection.apply(run.entries)
        spread = selection.with_any_reward(run.entries)
        known = rewards(spread)
        return answer(
            {
                "version": run.version,
                "run": run.summary(),
                "found": len(found),
                "rows": [_row(entry) for entry in _page(request, found)],
                "histogram": {"bars": histogram(known), "without": len(spread) - len(known)},
            }
        )

    def _episode(self, request: Request) -> Answer:
        run, wanted = self._runs.get(request.asked("run")), request.asked("id")
        entries = run.entries
        entry = next((each for each in entries if each.id == wanted), None)
        if entry is None:
            raise NotFound("There is no such episode in this run")
        samples = [each for each in entries if each.task == entry.task]
        line = run.line(entry)
        return answer(
            {
                "episode": {**line, "messages": _part(line["messages"], request.number("from", 0))},
                "messages": len(line["messages"]),
                "task": entry.task.label,
                "detail": detail(entry),
                "samples": [_row(each) for each in samples[:MAX_PAGE]],
                **_neighbours(wanted, Selection.asked(request).apply(entries)),
            }
        )

    def _compare(self, request: Request) -> Answer:
        a, b = self._runs.get(request.asked("a")), self._runs.get(request.asked("b"))
        version = f"{a.version}+{b.version}"
        if request.asked("known") == version:
            return answer({"version": version, "unchanged": True})
        every = pairs(a.entries, b.entries)
        found = selected_pairs(request, every)
        return answer(
            {
                "version": version,
                "a": a.summary(),
                "b": b.summary(),
                "found": len(found),
                "rows": [_pair(each) for each in _page(request, found)],
                "histogram": {"bars": histogram(rewards(a.entries), rewards(b.entries))},
                **_difference(every, compare(a.entries, b.entries)),
            }
        )

    def _blob(self, request: Request) -> Answer:
        run, name = self._runs.get(request.asked("run")), request.asked("blob")
        if not _SHA256.fullmatch(name):
            raise BadRequest("blob: 64 hexadecimal digits are expected")
        return Answer(200, run.blob(name), _BLOB)


def _page(request: Request, found: Sequence[Any]) -> Sequence[Any]:
    start, count = request.number("offset", 0), min(request.number("limit", PAGE), MAX_PAGE)
    return found[start : start + count]


def _part(messages: Sequence[Any], start: int) -> Sequence[Any]:
    end = start + MOST_MESSAGES
    while end < len(messages) and messages[end].get("role") == "tool":
        end += 1
    return messages[start:end]


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "task": entry.task.label,
        "environment": entry.task.environment,
        "sample": entry.sample,
        "outcome": entry.outcome.type,
        "detail": detail(entry),
        "reward": entry.score,
        "calls": entry.calls,
        "tokens": tokens(entry),
        "seconds": entry.seconds,
        "started": entry.started,
    }


def _neighbours(wanted: str, found: Sequence[Entry]) -> dict[str, Any]:
    ids = [each.id for each in found]
    at = ids.index(wanted) if wanted in ids else None
    return {
        "position": at,
        "found": len(ids),
        "previous": ids[at - 1] if at else None,
        "next": ids[at + 1] if at is not None and at + 1 < len(ids) else None,
    }


def _pair(pair: TaskPair) -> dict[str, Any]:
    def side(given: Side) -> dict[str, Any]:
        first = given.entries[0].id if given.entries else None
        return {"id": first, "count": len(given.entries), "mean": given.mean}

    task = {"task": pair.task.label, "environment": pair.task.environment}
    return {**task, "a": side(pair.a), "b": side(pair.b), "difference": pair.difference}


def _difference(every: Sequence[TaskPair], compared: Comparison | None) -> dict[str, Any]:
    verdicts = Counter(map(verdict, every))
    return {
        "tasks": len(every),
        "better": verdicts["better"],
        "worse": verdicts["worse"],
        "same": verdicts["same"],
        "widest": max((abs(pair.difference) for pair in every if pair.difference is not None), default=0.0),
        "difference": compared and compared.difference.mean,
        "error": compared and compared.difference.error,
        "p": compared and compared.p,
    }
