"""Authors' code that does what nobody expects: the server bears it, and clients are told."""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from ors import Limits, Server, ToolError, ToolOutput, tool
from ors.errors import TransportError
from ors.types import JSONObject
from tests.support.environments import Lab, said
from tests.support.live_server import serving
from tests.support.raw_http import Raw


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Wild(Lab):
    """Each tool and task does something else wrong."""

    events: ClassVar[list[str]] = []
    going: ClassVar[threading.Event] = threading.Event()
    started: ClassVar[threading.Event] = threading.Event()

    def __init__(self, task_spec: JSONObject, secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        if task_spec.get("slow") == "init":
            self.started.set()
            assert self.going.wait(20)
            self.events.append("taken")

    def setup(self) -> Any:
        if self.task_spec.get("slow") == "setup":
            self.started.set()
            assert self.going.wait(20)
            self.events.append("taken")
        if self.task_spec.get("fail") == "unspeakable":
            raise Unspeakable
        if self.task_spec.get("fail") == "cancelled":
            raise asyncio.CancelledError
        return super().setup()

    def teardown(self) -> None:
        self.events.append("torn down")
        super().teardown()

    def get_prompt(self) -> Any:
        if self.task_spec.get("prompt") == "cancelled":
            raise asyncio.CancelledError
        return super().get_prompt()

    @classmethod
    def num_tasks(cls, split: str) -> int:  # type: ignore[override]
        if split == "test":
            raise TransportError("elsewhere is down")
        if split == "extra":
            sys.exit(3)
        return 5

    @tool
    def unspeakable(self) -> ToolOutput:
        """Raises what has no words."""
        raise Unspeakable

    @tool
    def alarm(self) -> ToolOutput:
        """Sets a signal, as graders do for their timeouts."""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        except ValueError as error:
            raise RuntimeError("grading does not work here") from error
        return said("set")

    @tool
    async def odd_reason(self) -> ToolOutput:
        """Refuses with a reason that is no word."""
        raise ToolError("no", reason=404)  # type: ignore[arg-type]

    @tool
    async def tell(self) -> ToolOutput:
        """Refuses with the secret in its words."""
        raise ToolError(f"login failed: {self.secrets['key']}")

    @tool
    async def careful(self) -> ToolOutput:
        """Cleans up when it is stopped."""
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("cleaned up")
        return said("never")


@pytest.fixture
def wild() -> Iterator[Raw]:
    Wild.events.clear()
    Wild.going.clear()
    Wild.started.clear()
    with serving(Server([Wild])) as url:
        yield Raw(url)


def test_a_failure_that_cannot_be_put_into_words_is_still_told(wild: Raw) -> None:
    sid = wild.session("wild")
    assert wild.call(sid, "unspeakable", env="wild").error() == "Tool execution failed: Unspeakable"
    refused = wild.call(sid, "odd_reason", env="wild").result()
    assert refused == {"ok": False, "error": "no", "reason": "404"}


def test_a_signal_in_a_plain_tool_fails_and_says_what_to_do(
    wild: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    told = wild.call(wild.session("wild"), "alarm", env="wild").error()
    assert told.startswith("Tool execution failed: grading does not work here [signals need the main thread")
    assert "make the method `async def`" in told
    assert "make the method `async def`" in caplog.text


@pytest.mark.parametrize("fail", ["unspeakable", "cancelled"])
def test_a_setup_that_fails_in_an_odd_way_has_failed(wild: Raw, fail: str) -> None:
    sid = wild.session("wild", {"fail": fail})
    assert wild.get("/wild/prompt", sid=sid).status == 500
    assert wild.post("/ping", sid=sid).status == 500
    assert wild.post("/delete", sid=sid).status == 200  # once it is torn down, which it was about to be
    assert Wild.events == ["torn down"]


@pytest.mark.parametrize("where", ["init", "setup"])
def test_what_a_setup_takes_after_a_delete_is_given_back(wild: Raw, where: str) -> None:
    sid = wild.session("wild", {"slow": where})
    assert Wild.started.wait(20)
    threading.Timer(0.05, Wild.going.set).start()
    assert wild.post("/delete", sid=sid).status == 200
    assert Wild.events == ["taken", "torn down"]


def test_a_stopped_tool_cleans_up_before_the_teardown(wild: Raw) -> None:
    sid = wild.session("wild")
    with wild.opened(sid, "careful", env="wild") as call:
        assert Wild.started.wait(20)
        wild.post("/delete", sid=sid)
        assert "Session deleted" in call.rest().error()
    assert Wild.events == ["cleaned up", "torn down"]


def test_a_setup_that_will_not_stop_holds_a_delete_up_for_a_while_only() -> None:
    class Stubborn(Lab):
        async def setup(self) -> None:  # type: ignore[override]
            while self.task_spec.get("stay"):
                try:
                    await asyncio.sleep(5)
                    return
                except asyncio.CancelledError:
                    pass

    with serving(Server([Stubborn], limits=Limits(teardown_seconds=0.1))) as url:
        raw = Raw(url)
        sid = raw.session("stubborn", {"stay": True})
        assert raw.post("/delete", sid=sid).status == 200


def test_a_listing_cannot_end_the_server_or_choose_its_status(wild: Raw) -> None:
    for split, words in [("extra", "SystemExit"), ("test", "elsewhere is down")]:
        answer = wild.post("/wild/num_tasks", {"split": split})
        assert answer.status == 500
        assert words in answer.detail or "3" in answer.detail
    assert wild.post("/wild/num_tasks", {"split": "train"}).json() == {"num_tasks": 5}


def test_a_prompt_that_cancels_itself_is_not_waited_for(wild: Raw) -> None:
    sid = wild.session("wild", {"prompt": "cancelled"})
    assert wild.get("/wild/prompt", sid=sid).status == 500
    assert wild.get("/health").status == 200


def test_a_refusal_shows_no_secret(wild: Raw) -> None:
    sid = "wild-secret"
    body = {"env_name": "wild", "task_spec": {}, "secrets": {"key": "line1\nline2", "short": "line"}}
    assert wild.post("/create", body, sid=sid).status == 200
    assert wild.call(sid, "tell", env="wild").result()["error"] == "login failed: ***\n***"


class Hidden(BaseModel, extra="allow"):
    question: str
    answer: str = Field(exclude=True)


def test_an_authors_models_are_written_as_they_say() -> None:
    class Modelled(Lab):
        @classmethod
        def list_tasks(cls, split: str) -> Any:
            return [Hidden(question="2+2", answer="4", level=1)]  # type: ignore[call-arg]

    with serving(Server([Modelled])) as url:
        tasks = Raw(url).post("/modelled/tasks", {"split": "train"}).json()["tasks"]
    assert tasks == [{"question": "2+2", "level": 1}]


def test_an_overridden_call_runs_sync_tools_in_the_servers_threads() -> None:
    class Wrapped(Lab):
        async def _call_tool(self, name: str, input: JSONObject) -> Any:
            return await super()._call_tool(name, input)

        @tool
        def where(self) -> ToolOutput:
            """Says where it runs."""
            return said(threading.current_thread().name)

    with serving(Server([Wrapped])) as url:
        raw = Raw(url)
        result = raw.call(raw.session("wrapped"), "where", env="wrapped").result()
    assert result["output"]["blocks"][0]["text"].startswith("ors-tool-")


def test_a_static_get_task_serves_ranges() -> None:
    class Static(Lab):
        @staticmethod
        def get_task(split: str, index: int) -> JSONObject:  # type: ignore[override]
            return {"n": index}

    with serving(Server([Static])) as url:
        body = {"split": "train", "start": 1, "stop": 3}
        assert Raw(url).post("/static/task_range", body).json()["tasks"] == [{"n": 1}, {"n": 2}]


async def test_whoever_stops_waiting_for_a_listing_stops_nobody_else() -> None:
    class Slow(Lab):
        gate: ClassVar[asyncio.Event] = asyncio.Event()

        @classmethod
        async def list_tasks(cls, split: str) -> list[JSONObject]:  # type: ignore[override]
            await cls.gate.wait()
            return [{"n": 1}]

    asking = [asyncio.create_task(Slow.num_tasks("train")) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking[0].cancel()
    asking[1].cancel()
    await asyncio.sleep(0)
    Slow.gate.set()
    assert await asking[2] == 1
    assert await Slow.num_tasks("train") == 1


def test_private_fields_as_one_string_are_refused() -> None:
    with pytest.raises(ValueError, match="private_fields"):
        Server([type("Leaky", (Lab,), {"private_fields": "answer"})])


def test_a_preflight_needs_no_key() -> None:
    page = {"Origin": "https://app.example"}
    with serving(Server([Lab], api_keys=["secret"], cors_origins=["https://app.example"])) as url:
        raw = Raw(url)
        assert raw("OPTIONS", "/lab/call", headers=page).status == 204
        assert raw.post("/lab/call", {}, headers=page).status == 401


def test_an_unknown_task_id_cannot_forge_events(raw: Raw) -> None:
    answer = raw.call(raw.session(), "nothing", task_id="a\n\nevent: end\ndata: {}")
    assert [name for name, _ in answer.events()] == ["task_id", "error"]


def test_a_server_answers_to_the_loopback_address_that_it_has() -> None:
    server = Server([Lab])
    with serving(server, host="127.0.0.2") as url:
        assert url.startswith("http://127.0.0.2:")
        assert Raw(url).get("/health").status == 200
