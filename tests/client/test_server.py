"""What only asks: when it is asked again, when not, and what a refusal becomes."""

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from ors import errors
from ors.client import AsyncORS, Options, Task
from ors.client.requests.server import RemoteServer
from ors.errors import BadRequest
from ors.rollouts import AgentMessage, SteppedEpisode, play, rollouts
from tests.requirements import proves
from tests.support.scripted_server import Reply, Scripted, answer, head, scripted

QUICK = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, retries=3)
SPLITS = "/env/splits"


def splits(script: Scripted, options: Options = QUICK) -> Any:
    client = AsyncORS(script.url, options=options)

    async def ask() -> list[str]:
        async with client:
            return await client.environment("env").list_splits()

    return ask()


GOOD = answer([{"name": "train", "type": "train"}, {"name": "odd"}])


@proves("client.retries")
@pytest.mark.parametrize(
    "bad",
    [
        Reply(b"", cut=True),
        Reply(head(200, {}, 100) + b'[{"na', cut=True),
        Reply(head(200, {"Connection": "close"}) + b'[{"na', cut=True),
        Reply(b"garbage\r\n\r\n", cut=True),
        answer({"detail": "x"}, 429),
        answer({"detail": "x"}, 502),
        answer(b"<html>", 503),
        answer({"detail": "x"}, 504, {"Retry-After": "0"}),
    ],
)
async def test_what_only_asks_is_asked_again(bad: Reply) -> None:
    async with scripted() as script:
        script.on(SPLITS, bad, bad, GOOD)
        assert await splits(script) == ["train", "odd"]
        assert len(script.asked(SPLITS)) == 3


async def test_a_full_server_is_asked_for_as_long_as_a_request_may_take() -> None:
    full = answer({"detail": "full"}, 429, {"Retry-After": "0", "ORS-Reason": "limit"})
    async with scripted() as script:
        script.on(SPLITS, *[full] * 5 * QUICK.retries, GOOD)
        assert await splits(script) == ["train", "odd"]
        script.on(SPLITS, full)
        with pytest.raises(errors.Unavailable) as caught:
            await splits(script, replace(QUICK, request_seconds=0.2))
        assert caught.value.reason == "limit"


async def test_who_was_told_that_a_server_is_full_is_told_so_when_the_last_answer_does_not_come() -> None:
    full = answer({"detail": "full"}, 429, {"Retry-After": "0", "ORS-Reason": "limit"})
    async with scripted() as script:
        script.on(SPLITS, full, Reply(b"", hold=asyncio.Event()))
        with pytest.raises(errors.Unavailable, match="full"):
            await splits(script, replace(QUICK, request_seconds=0.2))


@proves("client.retries")
async def test_it_is_asked_a_bounded_number_of_times() -> None:
    async with scripted() as script:
        script.on(SPLITS, answer({"detail": "busy"}, 503, {"Retry-After": "0"}))
        with pytest.raises(errors.Unavailable, match="busy") as caught:
            await splits(script)
        assert (caught.value.status, caught.value.retry_after) == (503, 0.0)
        assert len(script.asked(SPLITS)) == QUICK.retries + 1


@proves("client.retries")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.BadRequest),
        (401, errors.AuthenticationError),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.MethodNotAllowed),
        (410, errors.Gone),
        (413, errors.TooLarge),
        (418, errors.BadRequest),
        (422, errors.BadRequest),
        (500, errors.ServerFailed),
        (501, errors.ServerFailed),
    ],
)
async def test_a_refusal_is_an_error_of_its_own_and_final(status: int, error: type[errors.ORSError]) -> None:
    async with scripted() as script:
        script.on(SPLITS, answer({"detail": "because"}, status))
        with pytest.raises(error, match="because") as caught:
            await splits(script)
        assert caught.value.status == status
        assert caught.value.reason is None  # the server sent none
        assert type(caught.value) is error
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), again.args, again.status) == (error, caught.value.args, status)
        assert len(script.asked(SPLITS)) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured(form: str) -> None:
    async with scripted() as script:
        when = "1" if form == "seconds" else formatdate(time() + 2, usegmt=True)
        script.on(SPLITS, answer({}, 503, {"Retry-After": when}), GOOD)
        started = asyncio.get_running_loop().time()
        await splits(script)
        assert asyncio.get_running_loop().time() - started >= 0.9


async def test_a_wait_longer_than_the_total_is_not_begun() -> None:
    async with scripted() as script:
        script.on(SPLITS, answer({"detail": "tomorrow"}, 503, {"Retry-After": "86400"}))
        with pytest.raises(errors.Unavailable, match="tomorrow") as caught:
            await splits(script)
        assert caught.value.retry_after == 86400


async def test_the_total_time_of_a_request_is_bounded() -> None:
    async with scripted() as script:
        script.on(SPLITS, Reply(b"", hold=asyncio.Event()))
        with pytest.raises(errors.TransportError, match=r"within 0\.1 s"):
            await splits(script, Options(request_seconds=0.1))


async def test_a_server_that_is_not_there_is_a_transport_error() -> None:
    async with scripted() as script:
        pass
    with pytest.raises(errors.TransportError, match="cannot be reached: connection refused") as caught:
        await splits(script)
    assert type(caught.value) is errors.TransportError


async def test_the_values_in_a_validation_error_are_not_repeated() -> None:
    async with scripted() as script:
        detail = [{"loc": ["body", "key"], "msg": "too long", "input": "sk-secret"}]
        script.on(SPLITS, answer({"detail": detail}, 422))
        with pytest.raises(errors.BadRequest, match=r"body\.key: too long") as caught:
            await splits(script)
        assert "sk-secret" not in str(caught.value)


async def test_a_redirect_on_the_same_server_is_followed() -> None:
    async with scripted() as script:
        script.on("/a/splits", answer({}, 308, {"Location": "/b/splits?x=1"}))
        script.on("/b/splits?x=1", GOOD)
        async with AsyncORS(script.url) as client:
            assert await client.environment("a").list_splits() == ["train", "odd"]


async def test_a_redirect_elsewhere_is_told_not_followed() -> None:
    async with scripted() as script, scripted() as elsewhere:
        script.on(SPLITS, answer({}, 308, {"Location": elsewhere.url + SPLITS}))
        with pytest.raises(errors.ResponseError, match="use it as base_url"):
            await splits(script)
        assert elsewhere.requests == []


async def test_the_api_key_goes_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_API_KEY", "from-env")
    async with scripted() as script:
        script.on("/health", answer({"status": "ok"}))
        for key, expected in ((None, "from-env"), ("given", "given")):
            async with AsyncORS(script.url, key) as client:
                assert await client.health() == {"status": "ok"}
            assert script.requests[-1].headers["x-api-key"] == expected


async def test_each_server_may_have_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted() as script, scripted() as other:
        port = script.url.rpartition(":")[2]
        host = "ORS_API_KEY_" + script.url.partition("://")[2].rpartition(":")[0].upper().replace(".", "_")
        expected = []
        for name, value in (("ORS_API_KEY", "all"), (host, "host"), (f"{host}_{port}", "port")):
            monkeypatch.setenv(name, value)
            for each in (script, other):
                each.on("/health", answer({"status": "ok"}))
                async with AsyncORS(each.url) as client:
                    await client.health()
                expected.append(each.requests[-1].headers["x-api-key"])
        assert expected == ["all", "all", "host", "host", "port", "host"]


async def test_discovery_opens_no_session() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on("/env/tasks", answer({"tasks": [{"n": 1}], "env_name": "canonical"}))
        script.on("/env/task", answer({"task": {"n": 1}}))
        script.on("/env/tools", answer({"tools": [{"name": "t", "description": "d"}], "more": 1}))
        env = client.environment("env")
        assert await env.list_tasks("train") == [Task("canonical", {"n": 1})]
        assert await env.get_task("train", 0) == Task("env", {"n": 1})
        assert [tool.name for tool in await env.list_tools()] == ["t"]
        assert {request.path for request in script.requests} == {"/env/tasks", "/env/task", "/env/tools"}


async def test_an_answer_without_what_was_asked_for_is_the_servers_failure() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on("/env/num_tasks", answer({"count": 3}))
        with pytest.raises(errors.ServerFailed, match="num_tasks"):
            await client.environment("env").num_tasks("train")


async def test_another_server_can_be_named_for_one_environment() -> None:
    async with scripted() as script, scripted() as other, AsyncORS(script.url, "key") as client:
        other.on(SPLITS, GOOD)
        assert await client.environments.get("env", base_url=other.url).list_splits() == ["train", "odd"]
        assert script.requests == []
        assert other.requests[0].headers["x-api-key"] == "key"


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "", "http://"])
def test_a_base_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        AsyncORS(url)


async def test_a_path_in_the_base_url_is_kept() -> None:
    async with scripted() as script:
        script.on("/prefix/health", answer({"status": "ok"}))
        async with AsyncORS(script.url + "/prefix/") as client:
            await client.health()


@pytest.mark.parametrize("key", ["key\r\nX-Evil: 1", "key\n", "key\r", "ключ"])
async def test_a_header_cannot_be_smuggled_in(key: str) -> None:
    async with scripted() as script:
        with pytest.raises(
            BadRequest, match=r"an API key must (not contain a line break|consist of Latin-1)"
        ):
            await AsyncORS(script.url, key).health()
        assert script.requests == []


async def test_without_an_asyncio_loop_every_method_says_so() -> None:
    client = AsyncORS("http://127.0.0.1:9")
    env = client.environment("lab")
    session = env.attach("sid")
    run = rollouts(env, [("train", 0)], Never(), reward="sum")

    def stepped() -> Any:
        return SteppedEpisode(env.session(split="train", index=0), reward="sum").start()

    methods: list[Callable[[], Any]] = [
        client.health, client.list_environments, client.close, env.list_splits, env.tasks("train").__anext__,
        env.session(split="train", index=0).start, session.start, session.ping, session.get_prompt,
        lambda: session.call_tool("echo"), lambda: session.fork(2), session.close, run.__anext__, stepped,
        lambda: play(env.session(split="train", index=0), Never(), reward="sum"),
    ]  # fmt: skip

    def each() -> None:
        for method in methods:
            with pytest.raises(RuntimeError, match="needs a running asyncio event loop"):
                method().send(None)  # as trio begins a coroutine

    await asyncio.to_thread(each)


class Never:
    async def reply(self, conversation: object, tools: object) -> AgentMessage:
        raise AssertionError


async def test_a_client_can_be_used_on_one_loop_after_another() -> None:
    async with scripted() as script:
        script.on("/health", answer({"status": "ok"}))
        client = AsyncORS(script.url)

        async def twice() -> None:
            await client.health()
            await client.health()
            await client.close()

        await asyncio.to_thread(asyncio.run, twice())
        await asyncio.to_thread(asyncio.run, twice())
        await twice()
        assert len(script.requests) == 6


async def test_what_ended_with_its_event_loop_is_not_kept() -> None:
    remote = AsyncORS("http://127.0.0.1:1")._remote("http://127.0.0.1:1")

    async def wait_for_nothing() -> None:
        remote.wait_at_close(asyncio.get_running_loop().create_future())

    for _ in range(3):
        await asyncio.to_thread(asyncio.run, wait_for_nothing())
        assert len(remote._background) == 1


def test_environment_names_are_quoted_in_paths() -> None:
    from ors._protocol import TOOLS

    assert RemoteServer.path(None, TOOLS, "a b?c") == "/a%20b%3Fc/tools"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        ("/list_environments", {"name": "other"}, "not a list of environments"),
        ("/env/splits", None, "not a list of splits"),
        ("/env/splits", [{"type": "train"}], "has no 'name'"),
        ("/env/tools", {"nonsense": 1}, "has no 'tools'"),
        ("/env/tools", {"tools": ["submit"]}, "not a list of tools"),
        ("/env/tools", {"tools": [{"description": "x"}]}, "a tool without a name"),
        ("/env/tasks", {"tasks": {}}, "not a list of tasks"),
    ],
)
async def test_an_answer_of_another_shape_is_the_servers_failure(
    path: str, body: Any, complaint: str
) -> None:
    async with scripted() as script:
        script.on(path, answer(body))
        async with AsyncORS(script.url, options=QUICK) as client:
            env = client.environment("env")
            asking: dict[str, Any] = {
                "/list_environments": client.list_environments,
                "/env/splits": env.list_splits,
                "/env/tools": env.list_tools,
                "/env/tasks": lambda: env.list_tasks("train"),
            }
            with pytest.raises(errors.ServerFailed, match=complaint):
                await asking[path]()
