"""Openings that are given up: no session stays on the server, whenever it happens."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from ors import Environment, Server, TextBlock, ToolOutput, tool
from ors.client import AsyncORS, Options, Task
from ors.types import Blocks, JSONObject
from tests.support.live_server import serving
from tests.support.raw_http import Raw

MOMENTS = 60


class Counted(Environment):
    """Counts its episodes. The task of the split "slow" is found when the test says so."""

    alive: ClassVar[set[int]] = set()
    begun: ClassVar[int] = 0
    asked: ClassVar[threading.Event] = threading.Event()
    gate: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "slow"]

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return 1

    @classmethod
    async def get_task(cls, split: str, index: int) -> JSONObject:
        if split == "slow":
            cls.asked.set()
            assert await asyncio.to_thread(cls.gate.wait, 20)
        return {}

    def setup(self) -> None:
        Counted.begun += 1
        Counted.alive.add(id(self))

    def teardown(self) -> None:
        Counted.alive.discard(id(self))

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="")]

    @tool
    def nothing(self) -> ToolOutput:
        """Does nothing."""
        return ToolOutput(blocks=[])


@pytest.fixture
def raw() -> Iterator[Raw]:
    Counted.begun = 0
    Counted.asked.clear()
    Counted.gate.clear()
    with serving(Server([Counted])) as url:
        yield Raw(url)
        Counted.gate.set()


def left(raw: Raw) -> int:
    total: int = raw.get("/-/sessions").json()["total"]
    return total


async def cancelled(work: "asyncio.Task[Any]") -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_start_cancelled_at_any_moment_leaves_no_session(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        environment = client.environment("counted")
        opened = 0
        for moment in range(MOMENTS):
            start = asyncio.create_task(environment.session(Task("counted", {})).start())
            for _ in range(moment):
                await asyncio.sleep(0)
            for _ in range(moment % 3):
                await asyncio.to_thread(raw.get, "/health")
            if start.done():
                opened += 1
                await (await start).close()
            else:
                await cancelled(start)
            assert left(raw) == 0
        assert opened < MOMENTS


async def test_a_hundred_starts_cancelled_together_leave_no_session(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        environment = client.environment("counted")
        for wave in range(8):
            starts = [
                asyncio.create_task(environment.session(Task("counted", {})).start()) for _ in range(100)
            ]
            wanted = Counted.begun + wave * 10
            async with asyncio.timeout(30):
                while Counted.begun < wanted:  # turn by turn: each wave is cut off later than the last
                    await asyncio.sleep(0)
            for start in starts:
                start.cancel()
            ended = await asyncio.gather(*starts, return_exceptions=True)
            await asyncio.gather(*(one.close() for one in ended if not isinstance(one, BaseException)))
            assert left(raw) == 0
    assert Counted.begun > 0


async def test_a_start_too_long_for_a_link_leaves_no_session_when_it_is_cancelled(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=Options(cleanup_seconds=20)) as client:
        environment, task = client.environment("counted"), Task("counted", {"values": [0] * 200_000})
        await (await environment.session(Task("counted", {})).start()).close()  # makes the link
        for moment in range(5):
            start = asyncio.create_task(environment.session(task).start())
            for _ in range(moment):
                await asyncio.sleep(0)
            await asyncio.to_thread(raw.get, "/health")
            if start.done():
                await (await start).close()
            else:
                await cancelled(start)
        await (await environment.session(task).start()).close()  # after all those before
        assert left(raw) == 0


async def test_a_start_that_runs_out_of_time_leaves_no_session(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=Options(cleanup_seconds=20)) as client:
        session = client.environment("counted").session(split="slow", index=0)
        start = asyncio.create_task(session.start())
        await asyncio.to_thread(Counted.asked.wait, 20)
        start.cancel()
        await asyncio.sleep(0)
        Counted.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await start
    assert left(raw) == 0
    assert session.sid is None


async def test_a_creation_that_is_never_answered_is_ended_within_a_bound(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=Options(cleanup_seconds=0.4)) as client:
        session = client.environment("counted").session(split="slow", index=0)
        start = asyncio.create_task(session.start())
        await asyncio.to_thread(Counted.asked.wait, 20)
        await cancelled(start)
        assert not Counted.gate.is_set()
        assert left(raw) == 0
        Counted.gate.set()
    assert left(raw) == 0


async def test_a_second_cancellation_does_not_stop_the_deletion(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=Options(cleanup_seconds=20)) as client:
        start = asyncio.create_task(client.environment("counted").session(split="slow", index=0).start())
        await asyncio.to_thread(Counted.asked.wait, 20)
        start.cancel()
        await asyncio.sleep(0)
        await cancelled(start)
        assert left(raw) == 1
        Counted.gate.set()
    assert left(raw) == 0


async def test_a_close_cancelled_before_it_was_sent_still_ends_the_session(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=Options(keepalive_seconds=0)) as client:
        session = await client.environment("counted").session(Task("counted", {})).start()
        close = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        await cancelled(close)
    assert left(raw) == 0


INTERRUPTED = """
import signal, sys
from ors.client import ORS, Task
signal.signal(signal.SIGALRM, signal.default_int_handler)
client = ORS(sys.argv[1])
environment = client.environment("counted")
environment.list_splits()
interrupted = 0
for moment in range(1, 101):
    session = environment.session(Task("counted", {}))
    try:
        signal.setitimer(signal.ITIMER_REAL, moment * 0.0001)
        with session:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted)
"""


def test_ctrl_c_at_any_moment_of_an_opening_leaves_no_session(raw: Raw) -> None:
    command = [sys.executable, "-c", INTERRUPTED, raw.url]
    done = subprocess.run(command, check=True, timeout=50, stdout=subprocess.PIPE)
    assert int(done.stdout) > 0
    assert left(raw) == 0
    assert Counted.begun > 0


HELD = """
import sys
from ors.client import ORS
with ORS(sys.argv[1]) as client:
    client.environment("counted").session(split="slow", index=0).start()
"""


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", HELD, "URL"],
        [sys.executable, "-m", "ors", "call", "URL", "nothing", "--split", "slow"],
        [sys.executable, "-m", "ors", "prompt", "URL", "--split", "slow"],
    ],
)
def test_ctrl_c_while_the_session_is_made_ends_it(raw: Raw, command: list[str]) -> None:
    process = subprocess.Popen(
        [raw.url if word == "URL" else word for word in command], stderr=subprocess.PIPE
    )
    assert Counted.asked.wait(20)
    process.send_signal(signal.SIGINT)
    Counted.gate.set()
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert b"never retrieved" not in err
    assert left(raw) == 0
