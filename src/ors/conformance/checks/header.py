"""Checks of the X-Session-ID header."""

import string
from collections.abc import Mapping
from typing import Any

from ors.conformance import expect
from ors.conformance.checks import Check, Run, check
from ors.conformance.faults import Violation
from ors.conformance.subject import ServerUnderTest

PRINTABLE = "".join(c for c in string.ascii_letters + string.digits + string.punctuation)


def _path(server: ServerUnderTest, name: str) -> str:
    return f"/{server.environment}/{name}" if name in ("prompt", "task_tools", "call") else f"/{name}"


def _required(id: str, method: str, name: str, body: Mapping[str, Any] | None = None) -> Check:
    async def run(server: ServerUnderTest) -> None:
        given = server.task() if name == "create" else body
        expect.status(await server.ask(method, _path(server, name), given), 400)

    checked: Run = run
    return check(id)(checked)


REQUIRED = (
    _required("sid.create", "POST", "create"),
    _required("sid.ping", "POST", "ping"),
    _required("sid.delete", "POST", "delete"),
    _required("sid.delete-session", "POST", "delete_session"),
    _required("sid.prompt", "GET", "prompt"),
    _required("sid.task-tools", "GET", "task_tools"),
    _required("sid.call", "POST", "call", {"name": "echo", "input": {}}),
)


@check("sid.not-needed")
async def not_needed(server: ServerUnderTest) -> None:
    """Sends discovery requests without a session."""
    name, split = server.environment, {"split": await server.split()}
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
    """Sends a header of spaces."""
    expect.status(await server.ask("POST", "/ping", headers={"X-Session-ID": " "}), 400)
    answer = await server.ask("POST", "/create", server.task(), headers={"X-Session-ID": " "})
    expect.status(answer, 400)


@check("sid.before-body")
async def before_body(server: ServerUnderTest) -> None:
    """Sends no header and a bad body; the message must be about the header."""
    answer = expect.status(await server.ask("POST", "/create", b"{"), 400)
    if "session" not in expect.detail(answer).lower():
        raise Violation("the error is not about the session", answer.seen)


@check("sid.any")
async def any_id(server: ServerUnderTest) -> None:
    """Sends all printable ASCII characters, and 256 characters."""
    for sid in (f"{PRINTABLE}{server.run}", (server.run * 8)[:256]):
        answer = await server.ask("POST", "/create", server.task(), sid=sid)
        alive = await server.ask("POST", "/ping", sid=sid)
        await server.ask("POST", "/delete", sid=sid)
        expect.value(answer, {"sid": sid})
        expect.status(alive, 200)
