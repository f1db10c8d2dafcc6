"""Recorded runs for the inspector, below `/-/api/runs`, read from a folder."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ors.errors import BadRequest, MethodNotAllowed, NotFound
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
from ors.rollouts.records import Comparison, Entry, Finding, compare
from ors.rollouts.records.statistics import declared_range
from ors.server.http.answers import Answer, Headers, answer
from ors.server.http.requests import Request
from ors.server.http.routing import Coming, Route, RouteTable

PAGE = 100
MAX_PAGE = 500
MOST_LINKS = 10
"""Episodes of a finding in an answer."""
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

    @property
    def routes(self) -> Sequence["Route[RunsApi]"]:
        return [Route(*row) for row in ROUTES]

    async def read(self, question: Callable[["RunsApi", Request], Answer], request: Request) -> Answer:
        async with self._turn:  # only one thread at a time may have the indexes
            return await asyncio.to_thread(question, self, request)

    async def respond(self, request: Request) -> Answer:
        """Answers for a page without a server."""
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed("Runs are read-only here; use GET", allow="GET")
        found = _TABLE.find(request.method, request.path)
        if found is None:
            raise NotFound("There is no server here, only recorded runs")
        return await found[0](self, request)

    def list(self, request: Request) -> Answer:
        return answer({"runs": self._runs.list()})

    def episodes(self, request: Request) -> Answer:
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
                "findings": [_finding(each) for each in run.findings()],
                "found": len(found),
                "rows": [_row(entry) for entry in _page(request, found)],
                "histogram": {
                    "bars": histogram(known, declared=declared_range(run.entries)),
                    "without": len(spread) - len(known),
                },
            }
        )

    def episode(self, request: Request) -> Answer:
        run, wanted = self._runs.get(request.asked("run")), request.asked("id")
        entries = run.entries
        entry = next((each for each in entries if each.id == wanted), None)
        if entry is None:
            raise NotFound("No such episode in this run")
        samples = [each for each in entries if each.task == entry.task]
        line = run.line(entry)
        return answer(
            {
                "episode": {**line, "messages": _part(line["messages"], request.number("from", 0))},
                "messages": len(line["messages"]),
                "task": entry.task.label,
                "detail": detail(entry),
                "range": entry.range,
                "samples": [_row(each) for each in samples[:MAX_PAGE]],
                **_neighbours(wanted, Selection.asked(request).apply(entries)),
            }
        )

    def compare(self, request: Request) -> Answer:
        a, b = self._runs.get(request.asked("a")), self._runs.get(request.asked("b"))
        version = f"{a.version}+{b.version}"
        if request.asked("known") == version:
            return answer({"version": version, "unchanged": True})
        every = pairs(a.entries, b.entries)
        found = selected_pairs(request, every)
        declared = declared_range([*a.entries, *b.entries])
        return answer(
            {
                "version": version,
                "a": a.summary(),
                "b": b.summary(),
                "found": len(found),
                "rows": [_pair(each) for each in _page(request, found)],
                "histogram": {"bars": histogram(rewards(a.entries), rewards(b.entries), declared=declared)},
                **_difference(every, compare(a.entries, b.entries)),
            }
        )

    def blob(self, request: Request) -> Answer:
        run, name = self._runs.get(request.asked("run")), request.asked("blob")
        if not _SHA256.fullmatch(name):
            raise BadRequest("blob: expected 64 hexadecimal digits")
        return Answer(200, run.blob(name), _BLOB)


def _read(question: Callable[[RunsApi, Request], Answer]) -> Callable[[RunsApi, Request], Coming]:
    return lambda api, request: api.read(question, request)


ROUTES = tuple(
    ("GET", path, _read(question))
    for path, question in {
        "/-/api/runs": RunsApi.list,
        "/-/api/runs/episodes": RunsApi.episodes,
        "/-/api/runs/episode": RunsApi.episode,
        "/-/api/runs/compare": RunsApi.compare,
        "/-/api/runs/blob": RunsApi.blob,
    }.items()
)


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
        "components": entry.components,
        "calls": entry.calls,
        "tokens": tokens(entry),
        "seconds": entry.seconds,
        "started": entry.started,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "episodes": finding.episodes[:MOST_LINKS], "count": len(finding.episodes)}


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
        "components": [
            {"name": name, "difference": each.difference.mean, "error": each.difference.error}
            for name, each in (compared.components.items() if compared else ())
        ],
    }


async def _health(runs: RunsApi, request: Request) -> Answer:
    return answer({"status": "ok"})


_TABLE: RouteTable[Callable[[RunsApi, Request], Coming]] = RouteTable([("GET", "/health", _health), *ROUTES])
