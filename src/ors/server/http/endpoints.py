"""Handlers of the protocol's endpoints."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ors import _protocol, types
from ors._json import dumps, unencodable
from ors._masking import hidden
from ors._protocol import encode_event
from ors._version import __version__
from ors.errors import NotFound, ServerFailed, Unavailable
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import EMPTY, STREAM, Answer, answer
from ors.server.http.requests import IDEMPOTENCY_KEY, TRACE, Request
from ors.server.http.routing import Coming, unknown_environment
from ors.server.http.streams import CallStream, CallTimers, Outcome
from ors.server.observe.events import EpisodeStarted
from ors.server.sessions.admission import Keys
from ors.server.sessions.calls import Call
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from ors.server.sessions.shared import SHUTDOWN

_OK = Answer(200, b'{"status":"ok"}')


class Creation(NamedTuple):
    """A session that a client wants."""

    request: Request
    sid: str
    given: types.CreateSession
    environment: ServedEnvironment
    secrets: dict[str, str]


class Endpoints:
    def __init__(
        self,
        environments: dict[str, ServedEnvironment],
        keys: Keys,
        sessions: Sessions,
        timers: CallTimers,
        new_session_id: Callable[[], str],
    ) -> None:
        self._environments = environments
        self._shared = sessions.shared
        self._keys = keys
        self._sessions = sessions
        self._timers = timers
        self._new_session_id = new_session_id
        self._first = next(iter(environments.values()))

    # ── Discovery ────────────────────────────────────────────────────────────────────────────────

    def health(self, request: Request) -> Answer:
        self._touch(request)
        return _OK

    def version(self, request: Request) -> Answer:
        self._touch(request)
        return answer({"version": __version__})

    def list_environments(self, request: Request) -> Answer:
        self._touch(request)
        return answer(list(self._environments))

    def log_rollout(self, request: Request) -> Answer:
        """Keeps nothing: scripts of openreward 0.1.167 that log go on."""
        self._touch(request)
        return Answer(200, b"", EMPTY)

    def tools(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        return _tools(environment.tools)

    def splits(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        return answer(environment.splits)

    async def tasks(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        tasks = await environment.tasks(request.model(types.ListTasks).split)
        return self._tasks_answer("tasks", self._shown(request, environment, tasks), environment)

    async def num_tasks(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        return answer({"num_tasks": await environment.num_tasks(request.model(types.NumTasks).split)})

    async def task(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        query = request.model(types.GetTask)
        task = await environment.task(query.split, query.index)
        # ors-sdk 0.1.0 and the specification have no env_name here; openreward 0.1.167 fails without it.
        return self._tasks_answer("task", self._shown(request, environment, [task])[0], environment)

    async def task_range(self, environment: ServedEnvironment, request: Request) -> Answer:
        self._touch(request)
        query = request.model(types.GetTaskRange)
        tasks = await environment.task_range(query.split, query.start, query.stop)
        return self._tasks_answer("tasks", self._shown(request, environment, tasks), environment)

    def _tasks_answer(self, key: str, value: Any, environment: ServedEnvironment) -> Answer:
        try:
            return answer({key: value, "env_name": environment.name})
        except (TypeError, ValueError, RecursionError) as error:
            tasks = value if key == "tasks" else [value]
            names = sorted({name for task in tasks for name in unencodable(dict(task))})
            text = f"{environment.cls.__name__}: tasks must be JSON, but {', '.join(names)} is not: {error}"
            raise ServerFailed(text, reason="environment") from None

    def _shown(self, request: Request, environment: ServedEnvironment, tasks: Sequence[Any]) -> Sequence[Any]:
        return tasks if self._keys.sees_private(request.key) else environment.without_private(tasks)

    # ── Sessions ─────────────────────────────────────────────────────────────────────────────────

    def create_session(self, request: Request) -> Answer:
        sid = self._new_session_id()
        # Sessions with ids given out before are still taken.
        if self._sessions.retiring and self._sessions.identity.made(sid):
            raise Unavailable(SHUTDOWN, retry_after=1, reason="shutdown")
        return new_session(request, sid)

    def create(self, request: Request) -> Answer | Coming:
        sid = request.new_session_id()
        given = request.model(types.CreateSession)
        secrets = {**(given.secrets or {}), **request.secrets()}
        environment = self._environment_named(given.env_name).with_toolset(given.toolset_name)
        environment.check_secrets(secrets)
        self._shared.check_open()
        limits = request.limits(environment.limits)
        session = self._sessions.reserve(sid, environment.name, self._shared.now(), limits, request.key)
        creation = Creation(request, sid, given, environment, secrets)
        task = given.task_spec
        if task is None:
            task = environment.task_at_hand(given.split or "", given.index or 0)  # the model has checked both
            if task is None:
                return self._create_by_index(session, creation)
        self._start(session, creation, task)
        return answer({"sid": sid})

    async def _create_by_index(self, session: ServerSession, creation: Creation) -> Answer:
        given = creation.given
        try:
            task = await session.task(creation.environment.task(given.split or "", given.index or 0))
            self._start(session, creation, task)
        except BaseException:
            self._sessions.release(session)
            self._shared.check_open()
            raise
        return answer({"sid": session.sid})

    def _start(self, session: ServerSession, creation: Creation, task: types.JSONObject) -> None:
        request, sid, given, environment, secrets = creation
        started = None
        if self._shared.observers.recorders:
            shown = environment.without_private([task])[0] if given.task_spec is None else task
            mask = partial(hidden, secrets=list(secrets.values())) if secrets else None
            about = (given.split, given.index, shown, environment.tools.tools, mask, task)
            started = EpisodeStarted(sid, environment.name, *about, lambda: environment.identity)
        if given.split is not None and given.index is not None:
            session.place = (given.split, given.index)
        session.start(environment.episode(task, secrets), request.trace(), started)

    def _environment_named(self, name: str | None) -> ServedEnvironment:
        if name is None:
            return self._first
        environment = self._environments.get(name.lower())
        if environment is None:
            raise unknown_environment(self._environments)
        return environment

    def delete(self, request: Request) -> Answer | Coming:
        sid = request.session_id()
        ending = self._sessions.delete(sid, self._shared.now(), request.key)
        return answer({"sid": sid}) if ending is None else self._deleted(sid, ending)

    async def _deleted(self, sid: str, ending: asyncio.Task[None]) -> Answer:
        await asyncio.wait({ending})
        return answer({"sid": sid})

    def delete_session(self, request: Request) -> Answer:
        # Deletes nothing: both clients in the field call it after every discovery call.
        sid = request.new_session_id()
        self._touch(request)
        return answer({"sid": sid})

    def ping(self, request: Request) -> Answer:
        self._session(request).check()
        return _OK

    # ── Episodes ─────────────────────────────────────────────────────────────────────────────────

    async def prompt(self, environment: ServedEnvironment, request: Request) -> Answer:
        return Answer(200, await self._session(request).prompt())

    async def task_tools(self, environment: ServedEnvironment, request: Request) -> Answer:
        return _tools(await self._session(request).tools())

    def call(self, environment: ServedEnvironment, request: Request) -> Outcome:
        loop = self._shared.loop or asyncio.get_running_loop()
        session = self._sessions.find(request.session_id(), loop.time(), request.key)
        if environment.name != session.environment:
            raise NotFound(f"This session belongs to the environment {session.environment!r}")
        headers = request.headers
        key = request.idempotency_key() if IDEMPOTENCY_KEY in headers else None
        trace = request.trace() if TRACE in headers else ""
        name, given, task_id = request.tool_call()
        body = request.body if request.parsed is None else None  # a large one is not kept
        call = session.submit(name, given, loop, task_id, key, trace, body)
        if isinstance(call, Call):
            return CallStream(call, self._timers)
        # The id is the client's, and may have line breaks.
        return Answer(200, encode_event("task_id", call.id) + call.events, STREAM)

    # ── Shared ───────────────────────────────────────────────────────────────────────────────────

    def _session(self, request: Request) -> ServerSession:
        return self._sessions.find(request.session_id(), self._shared.now(), request.key)

    def _touch(self, request: Request) -> None:
        sid = request.maybe_session_id()
        if sid:
            self._sessions.touch(sid, self._shared.now(), request.key)

    def environment_of(self, request: Request) -> ServedEnvironment:
        return self._environments[self._session(request).environment]


def new_session(request: Request, sid: str) -> Answer:
    body = dumps({"sid": sid})
    if not request.wants_events():
        return Answer(200, body)
    # ors-sdk 0.1.0 and openreward 0.1.167 understand only this form.
    return Answer(200, _protocol.task_id_event(sid) + _protocol.result_events(body), STREAM)


def _tools(listed: types.ListToolsOutput) -> Answer:
    # The specification has `tools` only; other fields are sent by environments that have them.
    return answer({key: value for key, value in listed if value is not None})
