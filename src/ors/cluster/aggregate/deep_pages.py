"""Pages far down the list of all servers' sessions, newest first.

No server has the whole list. Each first returns when a few of its sessions were created, from which follows
when the page begins; then each returns how many sessions are newer, and the next few that are not.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from ors._json import loads
from ors.server.admin.inspector_api import BEFORE, MARKS, MAX_BEFORE
from ors.server.http.answers import Answer
from ors.server.http.requests import Request

MARGIN = 200
"""How many sessions may start or end between the two questions, or be created in one millisecond."""

AskAll = Callable[[Request], Awaitable[list[tuple[str, Answer]]]]
"""Asks all servers; the order of the answers is the same everywhere."""


async def deep_page(request: Request, first: int, count: int, ask_all: AskAll) -> dict[str, Any] | None:
    """Returns the `count` sessions after the `first` newest; None if too much has changed meanwhile.

    Each server is asked for 1,000 creation times, then for up to 4,000 sessions. That is enough while `count`
    plus a thousandth of all sessions is below that.
    """
    wanted = {"environment": request.asked("environment"), "state": request.asked("state")}
    marks = await _answers(ask_all, request, MARKS, wanted)
    gaps = [each["every"] for each in marks]
    reach = min(count + 2 * MARGIN + sum(gaps) + max(gaps, default=0), MAX_BEFORE)
    until = _moment(marks, first - MARGIN)
    told = await _answers(ask_all, request, BEFORE, {**wanted, "until": until, "limit": reach})
    start = first - sum(each["newer"] for each in told)
    if start < 0:
        return None
    shown = newest_first([each["sessions"] for each in told])[:reach][start : start + count]
    return {"total": sum(each["total"] for each in told), "offset": first, "sessions": shown}


def newest_first(lists: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Merges the sessions of all servers, newest first.

    Those created at the same time keep the order of `lists`, so every page sees the same order.
    """
    return sorted((row for rows in lists for row in rows), key=lambda row: -row["created"])


async def _answers(ask_all: AskAll, request: Request, path: str, query: dict[str, Any]) -> list[Any]:
    asked = Request("GET", path, urlencode(query).encode(), request.headers, b"")
    return [loads(answer.body) for _, answer in await ask_all(asked) if answer.status == 200]


def _moment(marks: list[Any], rank: int) -> int:
    """Returns a time in milliseconds after which at most `rank` sessions were created, and not many fewer."""
    known = sorted(((created, each["every"]) for each in marks for created in each["created"]), reverse=True)
    newer = 0
    for created, gap in known:
        newer += gap
        if newer > rank:
            return int(created)
    return int(known[-1][0]) if known else 0
