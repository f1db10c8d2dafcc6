"""Sandboxes over HTTP, as clients of openreward 0.1.167 ask for them.

A sandbox is a session of one environment: it expires, counts against limits, and belongs to an API key as
every session does. Commands are calls: their results are kept for clients that come back with the task id.
"""

import asyncio
import base64
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from ors._json import dumps
from ors._protocol import encode_event
from ors.environment import Environment
from ors.errors import BadRequest, Gone, ORSError, SandboxDead, SandboxLimit
from ors.openreward.hosting import (
    CHUNK_BYTES,
    Hosting,
    SandboxNetworkPolicy,
    SandboxSettings,
    ask_file,
    run_command,
    sizes,
)
from ors.sandbox import Sandbox
from ors.server import Server
from ors.server.app import App
from ors.server.episodes.environments import ServedEnvironment
from ors.server.episodes.result import Result, failed
from ors.server.http.answers import STREAM, Answer, Headers, answer
from ors.server.http.requests import Request
from ors.server.http.routing import Route
from ors.server.http.streams import CallStream, Outcome
from ors.server.sessions.calls import UNKNOWN
from ors.server.sessions.session import ServerSession
from ors.toolsets import Bash

ALWAYS_SENT = {"api_key", "OPENREWARD_API_KEY"}
"""Secrets that clients send unasked."""


class Sandboxes(Environment):
    hosting: ClassVar[Hosting]
    tasks: ClassVar[Any] = {"sandboxes": []}
    private_fields = ["env"]  # it may hold keys of models
    toolsets = [Bash]

    def get_prompt(self) -> str:
        return ""

    async def setup(self) -> None:
        self.box = await self.hosting.open(SandboxSettings.model_validate(self.task_spec))

    async def teardown(self) -> None:
        if hasattr(self, "box"):
            await self.box.close()


class Command(BaseModel):
    """The body of `/run`."""

    cmd: str
    timeout_s: float | None = Field(default=None, ge=0)
    max_bytes: int | None = Field(default=None, ge=1)
    shell: str = "/bin/bash"
    task_id: str | None = None


class SandboxEndpoints:
    """The handlers. What a program inside has done is never a 5xx: clients would ask again."""

    def __init__(self, hosting: Hosting, app: App, environments: dict[str, ServedEnvironment]) -> None:
        self._hosting = hosting
        self._sessions, self._shared, self._timers = app.sessions, app.shared, app.timers
        (self._environment,) = environments.values()

    def create_sandbox(self, request: Request) -> Outcome:
        settings, sid = request.model(SandboxSettings), request.json_object().get("task_id")
        if sid is not None:  # the stream was cut; its task id is the id of the sandbox
            known = self._sessions.find(str(sid), self._shared.now(), request.key)
            return self._joined(known, str(sid))
        if names := sorted(request.secrets().keys() - ALWAYS_SENT):
            raise BadRequest(f"secrets {', '.join(names)}: not offered; use env for what programs may read")
        self._hosting.spec(settings)
        self._shared.check_open()
        name, limits = self._environment.name, self._environment.limits
        sid = self._sessions.identity.new_session_id()
        session = self._sessions.reserve(sid, name, self._shared.now(), limits, request.key)
        session.start(self._environment.episode(settings.model_dump(), {}), request.trace())
        call = session.calls.start(partial(self._opened, session), "create_sandbox", {}, sid)
        return CallStream(call, self._timers)

    async def _opened(self, session: ServerSession, *_: object) -> Result:
        try:
            await session.ready()
        except ORSError as error:
            # Nobody else deletes it. Later, so that the client gets this result.
            asyncio.get_running_loop().call_soon(self._delete, session.sid, session.key)
            return failed(str(error), error.reason or "")
        session.needs_pings = True  # from now on: its client cannot ping before it knows the id
        return Result(dumps({"sid": session.sid}))

    def run(self, request: Request) -> Outcome:
        session, asked = self._session(request), request.model(Command)
        if asked.task_id is not None:
            return self._joined(session, asked.task_id)
        session.check_room()
        work = partial(self._run, session, asked)
        return CallStream(session.calls.start(work, "run", {}, next(self._shared.task_ids)), self._timers)

    def _joined(self, session: ServerSession, task_id: str) -> Outcome:
        call = session.calls.by_id(task_id)
        if call is None:
            return Answer(200, encode_event("task_id", task_id) + UNKNOWN, STREAM)
        return CallStream(call, self._timers)

    async def _run(self, session: ServerSession, asked: Command, *_: object) -> Result:
        try:
            box = (await session.ready()).sandbox
            ran = await run_command(box, asked.cmd, asked.timeout_s, asked.max_bytes, asked.shell)
        except (ORSError, ValueError) as error:  # ValueError: a zero byte
            return failed(str(error), getattr(error, "reason", None) or "")
        output = base64.b64encode(ran.output).decode()
        return Result(dumps({**ran._asdict(), "output": output}))

    async def stat_file(self, request: Request) -> Answer:
        return answer(sizes(await self._file(request, "stat", request.asked("sha256"))))

    async def read_file(self, request: Request) -> Answer:
        length = min(request.number("length", CHUNK_BYTES), CHUNK_BYTES)
        data, size = await self._file(request, "read", request.number("offset", 0), length)
        kind = (b"content-type", b"application/octet-stream")
        return Answer(200, data, Headers(kind, (b"x-file-size", size.strip())))

    async def write_file(self, request: Request) -> Answer:
        if not request.asked("commit"):
            await self._file(request, "write", request.number("offset", 0), request.asked("mkdirs"))
            return answer({})
        digest, _ = await self._file(request, "commit", request.number("size", 0))
        return answer({"sha256": digest.decode().strip()})

    async def _file(self, request: Request, what: str, *words: object) -> tuple[bytes, bytes]:
        box = (await self._session(request).ready()).sandbox
        try:
            return await ask_file(box, what, request.asked("path"), *words, data=request.body)
        except SandboxDead as error:
            raise Gone(str(error)) from None
        except SandboxLimit as error:
            raise BadRequest(str(error), reason=error.reason) from None

    async def set_network(self, request: Request) -> Answer:
        box = (await self._session(request).ready()).sandbox
        self._hosting.set_network(box, request.model(SandboxNetworkPolicy))
        return answer({})

    async def delete_session(self, request: Request) -> Answer:
        sid = request.session_id()
        if (ending := self._delete(sid, request.key)) is not None:
            await asyncio.wait({ending})
        return answer({"sid": sid})

    def _delete(self, sid: str, key: str) -> asyncio.Task[None] | None:
        return self._sessions.delete(sid, self._shared.now(), key)

    def _session(self, request: Request) -> ServerSession:
        session = self._sessions.find(request.session_id(), self._shared.now(), request.key)
        session.check()
        box: Sandbox | None = getattr(session.episode, "sandbox", None)
        if box is not None and box.cell.gone.done():
            raise Gone("A program has ended the sandbox", reason="limit")
        return session


NAMES = ("create_sandbox", "run", "stat_file", "read_file", "write_file", "set_network", "delete_session")


def sandbox_server(hosting: Hosting, **options: Any) -> Server:
    """A server of sandboxes; `options` are those of Server."""
    server = Server([type("Sandboxes", (Sandboxes,), {"hosting": hosting})], **options)
    rows = [
        Route("POST", f"/{name}", getattr(SandboxEndpoints, name), has_raw_body=name == "write_file")
        for name in NAMES
    ]
    server.extend(partial(SandboxEndpoints, hosting), rows)
    return server
