"""Pages far down the list of many servers' sessions."""

import asyncio
import random
from typing import Any

import pytest

from ors import Server
from ors._json import loads
from ors.cluster.aggregate.deep_pages import MARGIN, deep_page, newest_first
from ors.server.admin.inspector_api import BEFORE
from ors.server.admin.live_sessions import MOST_MARKS
from ors.server.app import App
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from tests.support.environments import Lab


class Crowd:
    """Servers of this process, with sessions that were created now and then, many of them at once."""

    def __init__(self, dice: random.Random, servers: int, most: int) -> None:
        self._apps = [_app(slot) for slot in range(servers)]
        self.longest = 0
        now = asyncio.get_running_loop().time() - 3600
        for app in self._apps:
            at = now
            for _ in range(dice.randrange(most)):
                at += dice.choice((0, 0, 0, 0.001, 0.01, 0.1))
                sid = app.runtime.identity.new_session_id()
                app.sessions.reserve(sid, dice.choice(("lab", "lab", "lab", "other")), at, app.limits)

    async def ask_all(self, request: Request) -> list[tuple[str, Answer]]:
        answers = [(app.runtime.identity.new_session_id()[:13], _answer(app, request)) for app in self._apps]
        if request.path == BEFORE:
            self.longest = max(len(loads(answer.body)["sessions"]) for _, answer in answers)
        return answers

    def all(self) -> list[Any]:
        """Every session of the environment."""
        told = []
        for app in self._apps:
            query = b"until=%d&limit=4000&environment=lab" % 10**15
            told.append(loads(_answer(app, Request("GET", BEFORE, query, {}, b"")).body)["sessions"])
        return newest_first(told)

    def close(self) -> None:
        for app in self._apps:
            app.metrics.lag.stop()
            assert app._reaping is not None
            app._reaping.cancel()


def _app(slot: int) -> App:
    app = Server([Lab], slot=slot, inspector=True)._app
    app.start()
    return app


def _answer(app: App, request: Request) -> Answer:
    answer = app.take(request, forwarded=True)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("seed", range(3))
async def test_every_page_is_the_same_part_of_one_order(seed: int) -> None:
    dice = random.Random(seed)
    servers = dice.choice((2, 9, 20))
    crowd = Crowd(dice, servers, 4000)
    every = crowd.all()
    request = Request("GET", "/-/api/live", b"environment=lab&state=creating", {}, b"")
    for _ in range(10):
        first, count = dice.randrange(len(every) + 100), dice.choice((1, 50, 2000))
        page = await deep_page(request, first, count, crowd.ask_all)
        assert page == {"total": len(every), "offset": first, "sessions": every[first : first + count]}
        gaps = servers * -(-4000 // MOST_MARKS)
        assert crowd.longest <= count + 2 * MARGIN + gaps + 4
    crowd.close()


async def test_a_page_of_no_servers_is_empty() -> None:
    async def nobody(request: Request) -> list[tuple[str, Answer]]:
        return []

    request = Request("GET", "/-/api/live", b"", {}, b"")
    assert await deep_page(request, 5000, 50, nobody) == {"total": 0, "offset": 5000, "sessions": []}
