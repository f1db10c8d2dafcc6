"""Methods of authors that hold the event loop are found and named."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from queue import Queue

import pytest

from ors import Server, ToolOutput, Toolset, tool
from ors.server.observe.events import Event, LoopHeld
from tests.server.observe.test_metrics_and_log import samples
from tests.support.environments import Lab, said
from tests.support.live_server import serving
from tests.support.raw_http import Raw

SECONDS = 0.4


class Helpers(Toolset):
    @tool
    async def rest(self) -> ToolOutput:
        """Sleeps on the event loop."""
        time.sleep(SECONDS)
        return said("done")


class Holding(Lab):
    toolsets = (Helpers,)

    async def setup(self) -> None:  # type: ignore[override]
        if self.task_spec.get("slow"):
            time.sleep(SECONDS)

    @tool
    async def sleep(self) -> ToolOutput:
        """Sleeps on the event loop."""
        return self.asleep()

    def asleep(self) -> ToolOutput:
        time.sleep(SECONDS)
        return said("done")

    @tool
    async def compute(self) -> ToolOutput:
        """Computes in Python."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            sum(range(100))
        return said("done")

    @tool(concurrent=True)
    async def wait(self) -> ToolOutput:
        """Awaits, as it should."""
        await asyncio.sleep(2 * SECONDS)
        return said("done")

    @tool
    def sleep_in_a_thread(self) -> ToolOutput:
        """Sleeps where nobody is held up."""
        time.sleep(SECONDS)
        return said("done")


class Variant(Holding):
    """Inherits all of it."""


class Held:
    """Collects what the server tells."""

    def __init__(self) -> None:
        self.events: Queue[LoopHeld] = Queue()

    def observe(self, event: Event) -> None:
        if isinstance(event, LoopHeld):
            self.events.put(event)


class Ground:
    """A server with the environments above, and what it told."""

    def __init__(self, url: str, held: Held) -> None:
        self.raw, self.held = Raw(url), held

    def call(self, tool: str, env: str = "holding") -> None:
        assert self.raw.call(self.raw.session(env), tool, env=env).result()["ok"]

    def told(self) -> LoopHeld:
        return self.held.events.get(timeout=20)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    held = Held()
    with serving(Server([Holding, Variant], observers=[held], inspector=True)) as url:
        yield Ground(url, held)


@pytest.mark.parametrize("name", ["sleep", "compute"])
def test_a_tool_that_sleeps_or_computes_is_named_with_its_line(ground: Ground, name: str) -> None:
    ground.call(name)
    told = ground.told()
    assert (told.method, told.first) == (f"Holding.{name}", True)
    assert told.where.startswith("test_loop_watch.py:")
    assert told.seconds > 0.25


@pytest.mark.untraced
def test_the_method_whose_step_ran_is_named_and_no_call_that_was_open(ground: Ground) -> None:
    open_sid, sid = ground.raw.session("variant"), ground.raw.session("variant")
    waiting = threading.Thread(target=ground.raw.call, args=(open_sid, "wait", {}), kwargs={"env": "variant"})
    waiting.start()
    assert ground.raw.call(sid, "sleep", env="variant").result()["ok"]
    waiting.join()
    assert ground.told().method == "Holding.sleep"
    assert ground.held.events.empty()


def test_a_toolset_and_a_setup_are_named_too(ground: Ground) -> None:
    ground.call("rest", "variant")
    told = ground.told()
    assert told.method == "Helpers.rest"
    sid = ground.raw.session("holding", task={"slow": True})
    ground.raw.get("/holding/prompt", sid=sid)
    assert ground.told().method == "Holding.setup"


@pytest.mark.untraced
def test_threads_hold_nobody_up(ground: Ground) -> None:
    ground.call("sleep_in_a_thread")
    ground.call("rest")  # whose event would come after one of the thread
    assert ground.told().method == "Helpers.rest"


def test_it_is_logged_once_and_counted_every_time(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ors.server")
    held = Held()
    with serving(Server([Holding], observers=[held], inspector=True)) as url:
        again = Ground(url, held)
        again.call("sleep")
        again.call("sleep")
        assert [again.told().first, again.told().first] == [True, False]
        assert samples(again.raw)["ors_event_loop_held_total", "Holding.sleep"] == 2
    lines = [
        record.getMessage() for record in caplog.records if "blocked the event loop" in record.getMessage()
    ]
    assert len(lines) == 1
    assert lines[0].startswith("Holding.sleep blocked the event loop for 0.")
    assert "make it a plain def" in lines[0]
