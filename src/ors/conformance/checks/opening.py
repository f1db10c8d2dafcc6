"""Checks of opening sessions: ids, /create, setup, secrets, task tools, prompts."""

import asyncio
import base64
import json
import uuid
from typing import Any

from ors.conformance import expect
from ors.conformance.checks import Check, check, in_session
from ors.conformance.requirements import Violation
from ors.conformance.subject import EVENTS, CheckedSession, ServerUnderTest

SETUP_SECONDS = 1.5
SECRET = "s3cr3t-v4lu3"


@check("create-session.sid")
async def sid(server: ServerUnderTest) -> None:
    answer = await server.ask("POST", "/create_session")
    expect.uuid_format(expect.mapping(answer, "sid")["sid"], answer.seen)


@check("create-session.fresh")
async def fresh(server: ServerUnderTest) -> None:
    ids = [await server.new_sid() for _ in range(10)]
    if len(set(ids)) != 10:
        raise Violation("an id was given out twice", " ".join(ids).encode())


@check("create-session.only-an-id")
async def only_an_id(server: ServerUnderTest) -> None:
    new = await server.new_sid()
    expect.status(await server.ask("POST", "/ping", sid=new), 404)
    expect.status(await server.ask("GET", f"/{server.environment}/prompt", sid=new), 404)


@check("create-session.stream")
async def stream(server: ServerUnderTest) -> None:
    answer = expect.status(await server.ask("POST", "/create_session", headers=EVENTS), 200)
    events = answer.events
    if [event.name for event in events] != ["task_id", "end"]:
        raise Violation("the events are not task_id and end", answer.seen)
    given, end = events
    expect.uuid_format(given.data, answer.seen)
    answer.fault_if(json.loads(end.data) != {"sid": given.data}, 'the end event is not {"sid": <the same>}')


@check("create.task-spec")
async def task_spec(server: ServerUnderTest) -> None:
    async with server.created(server.task()) as (sid, answer):
        expect.value(answer, {"sid": sid})


@check("create.split-index")
async def split_index(server: ServerUnderTest) -> None:
    """The probe shows which task it got; other environments only have to open."""
    body = {"env_name": server.environment, "split": server.split, "index": 0}
    if server.on_probe:
        body["index"] = 3
    async with server.created(body) as (sid, answer):
        expect.value(answer, {"sid": sid})
        prompt = expect.status(await server.ask("GET", f"/{server.environment}/prompt", sid=sid), 200)
    prompt.fault_if(server.on_probe and b"-3" not in prompt.body, "this is not the task at that index")


@check("create.default-environment")
async def default_environment(server: ServerUnderTest) -> None:
    splits = expect.array(await server.ask("GET", f"/{server.first}/splits"))
    async with server.created({"split": splits[0]["name"], "index": 0}) as (sid, answer):
        expect.status(answer, 200)
        tools = await server.ask("GET", f"/{server.first}/task_tools", sid=sid)
    shared = expect.tool_names(await server.ask("GET", f"/{server.first}/tools"))
    tools.fault_if(not shared <= expect.tool_names(tools), "the session has another environment")


def _refuses(id: str, status: int, **body: Any) -> Check:
    async def run(server: ServerUnderTest) -> None:
        known = {"split": server.split, "index": 0, **server.task()}
        given = {key: known.get(key) if value is ... else value for key, value in body.items()}
        async with server.created({"env_name": server.environment, **given}) as (_, answer):
            expect.status(answer, status)

    return check(id)(run)


REFUSED = (
    _refuses("create.both", 400, task_spec=..., split=..., index=...),
    _refuses("create.neither", 400),
    _refuses("create.split-alone", 400, split=...),
    _refuses("create.index-alone", 400, index=...),
    _refuses("create.bad-split", 400, split="no-such-split", index=0),
    _refuses("create.bad-index", 400, split=..., index=10**12),
    _refuses("create.unknown-environment", 404, env_name="no-such-environment", task_spec=...),
)


@in_session("create.exists")
async def exists(episode: CheckedSession) -> None:
    answer = await episode.server.ask("POST", "/create", episode.server.task(), sid=episode.sid)
    expect.status(answer, 400)


@check("create.race")
async def race(server: ServerUnderTest) -> None:
    sid = await server.new_sid()
    asked = (server.ask("POST", "/create", server.task(), sid=sid) for _ in range(8))
    answers = await asyncio.gather(*asked)
    await server.ask("POST", "/delete", sid=sid)
    if sorted(answer.status for answer in answers) != [200] + [400] * 7:
        raise Violation(f"answered {sorted(answer.status for answer in answers)}", answers[0].seen)


@check("create.answers-first", "probe")
async def answers_first(server: ServerUnderTest) -> None:
    clock = asyncio.get_running_loop()
    began = clock.time()
    async with server.session(setup_seconds=SETUP_SECONDS):
        if clock.time() - began > SETUP_SECONDS * 0.8:
            raise Violation("/create was answered only after setup")


def _waits(id: str, name: str) -> Check:
    async def run(server: ServerUnderTest) -> None:
        async with server.session(setup_seconds=SETUP_SECONDS / 3) as episode:
            expect.status(await episode.get(name), 200)

    return check(id, "probe")(run)


WAITING = (_waits("create.prompt-waits", "prompt"), _waits("create.task-tools-waits", "task_tools"))


@in_session("create.call-waits", "probe", setup_seconds=SETUP_SECONDS / 3)
async def call_waits(episode: CheckedSession) -> None:
    (await episode.call("add")).output()


@in_session("create.call-opens", "probe", setup_seconds=SETUP_SECONDS)
async def call_opens(episode: CheckedSession) -> None:
    clock = asyncio.get_running_loop()
    began = clock.time()
    async with episode.opened("add") as live:
        await live.first()
        late = clock.time() - began > SETUP_SECONDS * 0.8
        (await live.rest()).output()
    if late:
        raise Violation("the stream opened only after setup")


@in_session("setup-failed.status", "probe", setup_fails=True)
async def setup_failed(episode: CheckedSession) -> None:
    expect.status(await episode.get("prompt"), 500)


@in_session("setup-failed.reason", "probe", setup_fails=True)
async def setup_failed_reason(episode: CheckedSession) -> None:
    for answer in (
        await episode.get("prompt"),
        await episode.get("task_tools"),
        await episode.post("/ping"),
    ):
        if "told to fail" not in expect.detail(expect.status(answer, 500)):
            raise Violation("the answer does not have the reason", answer.seen)


@in_session("setup-failed.call", "probe", setup_fails=True)
async def setup_failed_call(episode: CheckedSession) -> None:
    """Expects a stream, because a client may be waiting in it."""
    stream = await episode.call("add")
    stream.fault_if(stream.status != 200, f"answered {stream.status} instead of a stream")
    stream.error()


@check("setup-failed.teardown", "probe")
async def setup_failed_teardown(server: ServerUnderTest) -> None:
    run = uuid.uuid4().hex
    async with server.session(setup_fails=True, run=run) as episode:
        await episode.get("prompt")
    await expect_notes(server, run, ["setup", "teardown"])


async def expect_notes(server: ServerUnderTest, run: str, wanted: list[str]) -> None:
    async with server.session() as reader:
        stream = await reader.call("notes", {"name": run})
        await reader.call("forget", {"name": run})
    stream.fault_if(stream.text().split() != wanted, f"expected {wanted}, but {stream.text().split()} ran")


@check("secrets.body", "probe")
async def secrets_body(server: ServerUnderTest) -> None:
    body = {**server.task(), "secrets": {"key": SECRET}}
    async with server.session(body, must_open=True) as episode:
        expect.text(await episode.call("secret", {"name": "key"}), SECRET)


def _header(secrets: dict[str, str]) -> dict[str, str]:
    given = json.dumps({name: {"value": value} for name, value in secrets.items()})
    return {"X-Secrets": base64.b64encode(given.encode()).decode()}


@check("secrets.header", "probe")
async def secrets_header(server: ServerUnderTest) -> None:
    body = {**server.task(), "secrets": {"key": "of the body", "second": "2"}}
    async with server.session(body, _header({"key": SECRET}), must_open=True) as episode:
        for name, wanted in (("key", SECRET), ("second", "2")):
            expect.text(await episode.call("secret", {"name": name}), wanted)


@check("secrets.bad-header")
async def secrets_bad_header(server: ServerUnderTest) -> None:
    for value in ("%%%", base64.b64encode(b'["key"]').decode()):
        async with server.created(server.task(), headers={"X-Secrets": value}) as (_, answer):
            expect.status(answer, 400)


@check("secrets.hidden", "probe")
async def secrets_hidden(server: ServerUnderTest) -> None:
    body = {**server.task(), "secrets": {"key": SECRET}}
    async with server.created(body) as (_, taken):
        pass
    given = (body, None) if taken.status == 200 else (server.task(), _header({"key": SECRET}))
    async with server.session(*given) as episode:
        stream = await episode.call("fail_with_secret", {"name": "key"})
        stream.error()
        stream.fault_if(SECRET.encode() in stream.body, "the secret is in the error")


@in_session("task-tools.shape")
async def task_tools_shape(episode: CheckedSession) -> None:
    expect.tools(await episode.get("task_tools"))


@check("task-tools.shared-too")
async def shared_too(server: ServerUnderTest) -> None:
    shared = expect.tool_names(await server.ask("GET", f"/{server.environment}/tools"))
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        missing = shared - expect.tool_names(answer)
        answer.fault_if(missing, f"{', '.join(sorted(missing))} not listed")


@in_session("task-tools.specific", "probe")
async def specific(episode: CheckedSession) -> None:
    answer = await episode.get("task_tools")
    answer.fault_if("hint" not in expect.tool_names(answer), "a tool with shared=False is not listed")


def _indexed(index: int) -> dict[str, Any]:
    return {"env_name": "probe_indexed", "split": "train", "index": index}


@check("task-tools.listed", "probe_indexed")
async def listed(server: ServerUnderTest) -> None:
    async with server.session(_indexed(0)) as episode:
        answer = await episode.get("task_tools")
        if "pick" not in expect.tool_names(answer):
            raise Violation("a tool that list_task_tools returned is not listed", answer.seen)


@check("task-tools.override-stands", "probe_indexed")
async def override_stands(server: ServerUnderTest) -> None:
    async with server.session(_indexed(1)) as episode:
        answer = await episode.get("task_tools")
        answer.fault_if(expect.tool_names(answer) != {"always", "skip"}, "the tools are not always and skip")
        (await episode.call("skip")).output()
        refused = await episode.call("pick")
        if refused.has_result and refused.value().get("ok") is True:
            raise Violation("a tool that this task does not have was run", refused.seen)


@in_session("prompt.blocks")
async def prompt_blocks(episode: CheckedSession) -> None:
    answer = await episode.get("prompt")
    expect.blocks(expect.array(answer), answer.seen)


@in_session("prompt.keys")
async def prompt_keys(episode: CheckedSession) -> None:
    answer = await episode.get("prompt")
    expect.block_keys(expect.blocks(expect.array(answer), answer.seen), answer.seen)


@in_session("prompt.image", "probe", image=True)
async def prompt_image(episode: CheckedSession) -> None:
    answer = await episode.get("prompt")
    found = expect.blocks(expect.array(answer), answer.seen)
    expect.kinds(found, ["text", "image"], answer.seen)
    expect.block_keys(found, answer.seen)


@in_session("prompt.any-environment", "several")
async def any_environment(episode: CheckedSession) -> None:
    answer = await episode.server.ask("GET", f"/{episode.server.other}/prompt", sid=episode.sid)
    own = await episode.get("prompt")
    answer.fault_if(expect.array(answer) != expect.array(own), "this is not the prompt of the session")
