"""What all episodes of a process share: `startup` and `shutdown`."""

import asyncio
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ors.testing
from ors import Limits, Server, ToolOutput, tool
from ors.client import ASGITransport, AsyncORS, Options, Task
from ors.errors import StartupFailed, TransportError
from tests.support.commands import run, running
from tests.support.environments import Lab, said
from tests.support.live_server import app_of, hosted, serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until


class Shared(Lab):
    seen: ClassVar[list[str]] = []
    loop: ClassVar[Any] = None

    @classmethod
    async def startup(cls) -> None:
        cls.loop = asyncio.get_running_loop()
        cls.seen.append(f"{cls.__name__} starts")

    @classmethod
    async def shutdown(cls) -> None:
        cls.seen.append(f"{cls.__name__} ends")

    def teardown(self) -> None:
        self.seen.append("teardown")

    @tool
    async def same_loop(self) -> ToolOutput:
        """Says whether the event loop is that of startup."""
        return said(str(asyncio.get_running_loop() is self.loop))


class Heir(Shared):
    """Inherits both."""


class InThreads(Lab):
    @classmethod
    def startup(cls) -> None:
        Shared.seen.append(f"starts in {threading.current_thread().name[:8]}")

    @classmethod
    def shutdown(cls) -> None:
        Shared.seen.append("breaks")
        raise RuntimeError("nothing to close")


class Broken(Lab):
    @classmethod
    def startup(cls) -> None:
        _load("weights")


def _load(name: str) -> None:
    raise FileNotFoundError(f"no {name} here")


class Owner(Lab):
    """Has a method of this name for purposes of its own."""

    def shutdown(self) -> None:  # type: ignore[override]
        raise AssertionError("it is not a hook")


@pytest.fixture(autouse=True)
def seen() -> list[str]:
    Shared.seen.clear()
    return Shared.seen


def episode(url: str, env: str) -> str:
    raw = Raw(url)
    sid = raw.session(env)
    text = raw.call(sid, "same_loop", env=env).result()["output"]["blocks"][0]["text"]
    raw.post("/delete", sid=sid)
    return str(text)


@pytest.mark.parametrize("where", [serving, hosted])
def test_hooks_run_once_in_a_process_around_all_episodes(where: Any, seen: list[str]) -> None:
    with where(Server([Shared, InThreads, Heir])) as url:
        assert seen == ["Shared starts", "starts in ors-tool", "Heir starts"]
        assert [episode(url, "shared"), episode(url, "heir")] == ["True", "True"]
    assert seen[3:] == ["teardown", "teardown", "Heir ends", "breaks", "Shared ends"]


def test_methods_of_these_names_stay_the_authors_own() -> None:
    with serving(Server([Owner])) as url:
        raw = Raw(url)
        assert raw.call(raw.session("owner"), "nothing", env="owner").result()["ok"]


def test_a_startup_that_raises_ends_the_server_and_names_the_authors_line(seen: list[str]) -> None:
    runner = Server([Shared, Broken, Heir]).runner(port=0, on_start=lambda url: seen.append("listens"))
    with pytest.raises(StartupFailed) as caught:
        runner.run()
    line = _load.__code__.co_firstlineno + 1
    assert (
        str(caught.value) == f"Broken.startup failed: FileNotFoundError: no weights here ({__file__}:{line})"
    )
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert seen == ["Shared starts", "Shared ends"]


async def test_sessions_for_tests_run_the_hooks_too(seen: list[str]) -> None:
    async with ors.testing.session(Shared, {}) as session:
        assert seen == ["Shared starts"]
        await session.call_tool("same_loop", {})
    assert seen == ["Shared starts", "teardown", "Shared ends"]


async def test_sessions_for_tests_say_why_a_startup_failed() -> None:
    with pytest.raises(StartupFailed, match=r"Broken.startup failed: FileNotFoundError: no weights here"):
        async with ors.testing.session(Broken, {}):
            pass


async def test_without_lifespan_events_hooks_run_at_the_first_request(seen: list[str]) -> None:
    served = Server([Shared])

    async def mounted(scope: Any, receive: Any, send: Any) -> None:  # as a framework does with a mounted app
        if scope["type"] == "http":
            await served.app(scope, receive, send)

    async with AsyncORS("http://in-process", transport=ASGITransport(mounted)) as client:
        assert seen == []
        await asyncio.gather(*(client.list_environments() for _ in range(3)))
    assert seen == ["Shared starts"]


async def test_without_lifespan_events_a_failed_startup_tells_clients_nothing_of_the_source() -> None:
    served = Server([Broken])

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await served.app(scope, receive, send)

    options = Options(retries=0)
    async with AsyncORS("http://in-process", transport=ASGITransport(mounted), options=options) as client:
        with pytest.raises(TransportError, match="could not start; its log says why") as caught:
            await client.list_environments()
    assert "weights" not in str(caught.value)


class Stubborn(Lab):
    """Does not let itself be cancelled."""

    release: ClassVar[asyncio.Event]

    @classmethod
    async def hang(cls) -> None:
        while not cls.release.is_set():
            with suppress(asyncio.CancelledError):
                await cls.release.wait()

    @classmethod
    async def shutdown(cls) -> None:
        await cls.hang()

    async def teardown(self) -> None:  # type: ignore[override]
        await self.hang()


async def test_a_server_ends_though_shutdown_and_teardown_refuse_to_be_cancelled(
    seen: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stubborn, "release", asyncio.Event(), raising=False)
    served = Server([Shared, Stubborn], limits=Limits(teardown_seconds=0.05))

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await served.app(scope, receive, send)

    async with AsyncORS("http://in-process", transport=ASGITransport(mounted)) as client:
        session = client.environment("stubborn").session(task=Task("stubborn", {}))
        await session.start()
        await session.get_prompt()
    ending = asyncio.create_task(app_of(served).stop())
    ended, _ = await asyncio.wait({ending}, timeout=20)
    Stubborn.release.set()
    await ending
    assert ended
    for what in ("teardown", "shutdown"):
        assert f"{what} did not end within 0.05 s" in caplog.text
    assert seen == ["Shared starts", "Shared ends"]


# ── As a command ─────────────────────────────────────────────────────────────────────────────────

ENVIRONMENT = """
import os, pathlib, time
import ors

class Room(ors.Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{{}}]

    @classmethod
    def startup(cls):
        {startup}

    @classmethod
    def shutdown(cls):
        pathlib.Path(__file__).with_name(f"ended-{{os.getpid()}}").touch()

    def get_prompt(self):
        return []

    @ors.tool
    def look(self) -> ors.ToolOutput:
        "Looks."
        return ors.ToolOutput(blocks=[])
"""


def room(folder: Path, startup: str) -> str:
    file = folder / "room.py"
    file.write_text(ENVIRONMENT.format(startup=startup))
    return str(file)


def test_a_command_ends_with_one_line_and_an_exit_code(tmp_path: Path) -> None:
    done = run("serve", room(tmp_path, "raise RuntimeError('no GPU')"), "--port", "0")
    assert done.code == 3
    assert done.err.strip() == f"Error: Room.startup failed: RuntimeError: no GPU ({tmp_path}/room.py:16)"


@pytest.mark.long
def test_a_worker_whose_startup_fails_ends_the_command_and_is_not_started_again(tmp_path: Path) -> None:
    only_one = "pathlib.Path(__file__).with_name('taken').touch(exist_ok=False)"
    words = ["serve", room(tmp_path, only_one), "--port", "0", "--workers", "2"]
    done = run(*words)
    assert done.code == 3
    assert done.err.count("Room.startup failed: FileExistsError") == 1
    assert "restarting in" not in done.err


@pytest.mark.long
def test_every_worker_has_its_own_and_shuts_it_down(tmp_path: Path) -> None:
    each = "pathlib.Path(__file__).with_name(f'began-{os.getpid()}').touch()"
    with running("serve", room(tmp_path, each), "--port", "0", "--workers", "2") as command:
        command.line(r"Serving on (http://\S+)")
        began = {path.name.partition("-")[2] for path in tmp_path.glob("began-*")}
        assert len(began) == 2
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(30) == 0
    assert {path.name.partition("-")[2] for path in tmp_path.glob("ended-*")} == began


WAITING = "pathlib.Path(__file__).with_name('waits').touch()"
HANGING = {
    "in a thread": f"def startup(cls):\n        {WAITING}\n        time.sleep(60)",
    "on the loop": f"async def startup(cls):\n        {WAITING}\n        await asyncio.sleep(60)",
    "against its will": f"""async def startup(cls):
        {WAITING}
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass""",
    "at import": f"def startup(cls):\n        pass\n    {WAITING}\n    time.sleep(60)",
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "number"),
    [
        ((), signal.SIGTERM),
        ((), signal.SIGINT),
        (("--workers", "2"), signal.SIGTERM),
        (("--reload",), signal.SIGINT),
    ],
)
@pytest.mark.parametrize("hanging", HANGING)
def test_a_signal_ends_a_server_that_still_starts_with_exit_code_0(
    tmp_path: Path, hanging: str, how: tuple[str, ...], number: signal.Signals
) -> None:
    file = tmp_path / "room.py"
    source = ENVIRONMENT.format(startup="pass").replace("import os", "import asyncio, os")
    file.write_text(source.replace("def startup(cls):\n        pass", HANGING[hanging]))
    limits = ("--grace-seconds", "0.1", "--teardown-seconds", "0.2")
    with running("serve", str(file), "--port", "0", *limits, *how) as command:
        wait_until((tmp_path / "waits").exists, "the startup hangs")
        assert command.stop(number).code == 0
