"""Checks of HTTP messages (bodies, errors, methods, paths) and of the X-Session-ID header."""

import string
import uuid
from dataclasses import replace

from ors.conformance import expect
from ors.conformance.checks import answers, check, in_session
from ors.conformance.http import Answer
from ors.conformance.requirements import NotTried, Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest

MANY_BYTES = 64 * 2**30
UNKNOWN = "no-such-environment"
NUM_TASKS = "/{0.first}/num_tasks"
VALUE = "s3cr3t-v4lu3"


@check("http.well-formed")
async def well_formed(server: ServerUnderTest) -> None:
    """Sends several requests; the strict reader raises at invalid HTTP."""
    await server.ask("GET", "/health")
    await server.ask("GET", "/list_environments")
    await server.ask("POST", "/ping", sid="no-such-session")
    await server.ask("POST", "/create_session")


@check("http.json-type")
async def json_type(server: ServerUnderTest) -> None:
    for method, path in (("GET", "/health"), ("GET", "/list_environments"), ("POST", "/ping")):
        answer = await server.ask(method, path)
        expect.content_type(answer, "application/json")


@check("http.error-format")
async def error_format(server: ServerUnderTest) -> None:
    for answer in (
        await server.ask("POST", "/ping"),
        await server.ask("POST", "/ping", sid="no-such-session"),
        await server.ask("POST", f"/{server.first}/num_tasks", {"split": "no-such-split"}),
        await server.ask("POST", f"/{server.first}/num_tasks", {}),
    ):
        answer.fault_if(answer.status < 400, "an error was expected")
        expect.detail(answer)


async def _num_tasks(server: ServerUnderTest, body: object) -> Answer:
    return await server.ask("POST", f"/{server.first}/num_tasks", body)


BAD_BODIES = (
    answers("http.bad-json", 400, "POST", NUM_TASKS, b'{"split": "tr'),
    answers("http.missing-field", 400, "POST", NUM_TASKS, {}),
    answers("http.empty-body", 400, "POST", NUM_TASKS, b""),
    answers("http.not-an-object", 400, "POST", NUM_TASKS, b'["train"]', b'"train"', b"null"),
)


@check("http.wrong-type")
async def wrong_type(server: ServerUnderTest) -> None:
    expect.status(await _num_tasks(server, {"split": 7}), 400)
    expect.status(await server.of_split("task", index="first"), 400)


@check("http.detail-names-field")
async def detail_names_field(server: ServerUnderTest) -> None:
    answer = await server.of_split("task", index=VALUE)
    answer.fault_if(VALUE.encode() in answer.body, "the error repeats the value")
    answer.fault_if("index" not in expect.detail(answer), "the error does not name the field")


@check("http.unknown-keys")
async def unknown_keys(server: ServerUnderTest) -> None:
    expect.status(await server.of_split("num_tasks", no_such_key=1), 200)
    async with server.created({**server.task(), "no_such_key": 1}) as (_, answer):
        expect.status(answer, 200)


@check("http.content-type")
async def content_type(server: ServerUnderTest) -> None:
    path, body = f"/{server.environment}/num_tasks", {"split": server.split}
    for kind in ("application/x-www-form-urlencoded", ""):
        expect.status(await server.ask("POST", path, body, headers={"Content-Type": kind}), 200)


@check("http.body-limit")
async def body_limit(server: ServerUnderTest) -> None:
    """Announces 64 GiB; the answer must not wait for them."""
    hasty = replace(server.http, patience=min(5, server.http.patience))
    headers = {"Content-Length": str(MANY_BYTES)}
    path = f"/{server.first}/num_tasks"
    async with hasty.opened("POST", path, b"x" * 2**17, headers=headers) as answer:
        if answer.status != 413:
            raise Violation(f"answered {answer.status} instead of 413", answer.raw)


@check("http.deep-json")
async def deep_json(server: ServerUnderTest) -> None:
    body = b'{"split": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    expect.status(await _num_tasks(server, body), 400)
    expect.status(await server.ask("GET", "/health"), 200)


@check("http.wrong-method")
async def wrong_method(server: ServerUnderTest) -> None:
    for path, allowed in (("/health", "GET"), ("/create_session", "POST"), (f"/{server.first}/tools", "GET")):
        answer = expect.status(await server.ask("DELETE", path), 405)
        if allowed not in (answer.header("allow") or ""):
            raise Violation(f"Allow does not name {allowed}", answer.raw)


@check("http.head-health")
async def head_health(server: ServerUnderTest) -> None:
    """A body would be read as the next answer."""
    expect.status(await server.ask("HEAD", "/health"), 200)


@check("http.single-redirect", "single")
async def single_redirect(server: ServerUnderTest) -> None:
    answer = expect.status(await server.ask("GET", "/tools"), 301, 302, 303, 307, 308)
    expect.redirect(answer, f"/{server.first}/tools")


@check("http.single-redirect-308", "single")
async def single_redirect_308(server: ServerUnderTest) -> None:
    answer = expect.status(await server.ask("POST", "/tasks?a=1&b=2", {"split": "x"}), 308)
    expect.redirect(answer, f"/{server.first}/tasks?a=1&b=2")


@check("http.bare-discovery", "several")
async def bare_discovery(server: ServerUnderTest) -> None:
    for method, name in (("GET", "tools"), ("GET", "splits"), ("POST", "tasks"), ("POST", "num_tasks")):
        answer = expect.status(await server.ask(method, f"/{name}"), 308)
        expect.redirect(answer, f"/{server.first}/{name}")


@in_session("http.bare-session", "several")
async def bare_session(episode: CheckedSession) -> None:
    for name in ("prompt", "task_tools"):
        expect.status(await episode.server.ask("GET", f"/{name}", sid=episode.sid), 200)
    body = {"name": "no_such_tool", "input": {}}
    expect.status(await episode.server.ask("POST", "/call", body, sid=episode.sid), 200)


@check("http.environment-case")
async def environment_case(server: ServerUnderTest) -> None:
    name = server.environment
    if name != name.lower():
        raise Violation(f"the name {name!r} is listed with capitals", name.encode())
    if name.upper() == name:
        raise NotTried("the environment's name has no letters")
    expect.status(await server.ask("GET", f"/{name.upper()}/tools"), 200)
    answer = await server.ask("POST", f"/{name.upper()}/tasks", {"split": server.split})
    if answer.status == 200 and expect.mapping(answer, "env_name")["env_name"] != name:
        raise Violation("env_name is not in lower case", answer.seen)


@check("http.unknown-environment-at-once", "several")
async def unknown_environment_at_once(server: ServerUnderTest) -> None:
    expect.status(await server.ask("GET", f"/{UNKNOWN}/tools"), 404)
    expect.status(await server.ask("POST", f"/{UNKNOWN}/tasks", {"split": "train"}), 404)


@check("http.version")
async def version(server: ServerUnderTest) -> None:
    answer = await server.ask("GET", "/version")
    if not isinstance(expect.mapping(answer, "version")["version"], str):
        raise Violation("the version is not a string", answer.seen)


PRINTABLE = string.ascii_letters + string.digits + string.punctuation


@check("sid.create")
async def create_without_sid(server: ServerUnderTest) -> None:
    expect.status(await server.ask("POST", "/create", server.task()), 400)


REQUIRED = (
    answers("sid.ping", 400, "POST", "/ping"),
    answers("sid.delete", 400, "POST", "/delete"),
    answers("sid.delete-session", 400, "POST", "/delete_session"),
    answers("sid.prompt", 400, "GET", "/{0.environment}/prompt"),
    answers("sid.task-tools", 400, "GET", "/{0.environment}/task_tools"),
    answers("sid.call", 400, "POST", "/{0.environment}/call", {"name": "echo", "input": {}}),
)


@check("sid.not-needed")
async def not_needed(server: ServerUnderTest) -> None:
    name, split = server.environment, {"split": server.split}
    for method, path, body in (
        ("GET", "/health", None),
        ("GET", "/list_environments", None),
        ("POST", "/create_session", None),
        ("GET", f"/{name}/tools", None),
        ("GET", f"/{name}/splits", None),
        ("POST", f"/{name}/num_tasks", split),
        ("POST", f"/{name}/task", {**split, "index": 0}),
        ("POST", f"/{name}/task_range", {**split, "start": 0, "stop": 1}),
    ):
        expect.status(await server.ask(method, path, body), 200)


@check("sid.blank")
async def blank(server: ServerUnderTest) -> None:
    expect.status(await server.ask("POST", "/ping", headers={"X-Session-ID": " "}), 400)
    answer = await server.ask("POST", "/create", server.task(), headers={"X-Session-ID": " "})
    expect.status(answer, 400)


@check("sid.before-body")
async def before_body(server: ServerUnderTest) -> None:
    """Sends no header and a bad body; the message must be about the header."""
    answer = expect.status(await server.ask("POST", "/create", b"{"), 400)
    answer.fault_if("session" not in expect.detail(answer).lower(), "the error is not about the session")


@check("sid.any")
async def any_id(server: ServerUnderTest) -> None:
    for sid in (f"{PRINTABLE}{uuid.uuid4().hex}", (uuid.uuid4().hex * 8)[:256]):
        async with server.created(server.task(), sid=sid) as (_, answer):
            expect.value(answer, {"sid": sid})
            expect.status(await server.ask("POST", "/ping", sid=sid), 200)
