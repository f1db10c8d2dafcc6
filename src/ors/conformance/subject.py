"""The server under test, with its sessions and calls."""

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ors.conformance.http import EventReader, Head, Http, RawAnswer, RawConnection, RawStream, encoded, headed
from ors.conformance.requirements import NotTried, Violation
from ors.schemas import Inputs

PROBE_TOOLS = {"echo", "give", "slow", "strange_reward", "notes"}
EVENTS = {"Accept": "text/event-stream"}


@dataclass(frozen=True)
class Times:
    """Times of the specification in seconds. Tests use shorter ones with a server configured to match."""

    ping: float = 10.0
    kept: float = 60.0
    idle: float = 900.0
    teardown: float = 30.0
    slack: float = 30.0
    """Allowed delay of an expiry."""


@dataclass
class ServerUnderTest:
    http: Http
    times: Times = field(default_factory=Times)
    environments: list[str] = field(default_factory=list)
    wanted: str | None = None
    """Environment chosen by the caller."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _found: str | None = None
    _tasks: dict[str, Any] = field(default_factory=dict)
    _probes: set[str] = field(default_factory=set)

    async def discover(self) -> None:
        """Finds environments and the probe. Wrong answers are left to the checks."""
        health = await self.http.ask("GET", "/health")
        try:
            listed = (await self.http.ask("GET", "/list_environments")).json()
        except Violation as fault:
            if not _is_json(health):
                raise Violation("neither /health nor /list_environments is JSON", fault.seen) from None
            return
        if not isinstance(listed, list):
            return
        self.environments = [name for name in listed if isinstance(name, str)]
        for name in self.environments:
            if name.lower() in ("probe", "probe_indexed"):
                await self._recognise(name)
        self._found = await self._choose()

    async def _recognise(self, name: str) -> None:
        try:
            tools = (await self.http.ask("GET", f"/{name}/tools")).json()["tools"]
            names = {tool["name"] for tool in tools}
        except (Violation, KeyError, TypeError):
            return
        if names >= (PROBE_TOOLS if name.lower() == "probe" else {"always"}):
            self._probes.add(name.lower())

    async def _choose(self) -> str | None:
        candidates = [self.wanted] if self.wanted else ["probe"] if self.has_probe else self.environments
        for name in candidates:
            try:
                self._tasks[name] = await self._first_task(name)
                return name
            except Violation:
                continue
        return None

    async def _first_task(self, name: str) -> dict[str, Any]:
        """Part of a `/create` body for the first task of an environment."""
        splits = (await self.http.ask("GET", f"/{name}/splits")).json()
        if not isinstance(splits, list):
            raise Violation("no splits")
        for split in splits:
            given = {"split": split.get("name") if isinstance(split, dict) else split, "index": 0}
            task = (await self.http.ask("POST", f"/{name}/task", given)).json()
            if isinstance(task, dict) and isinstance(task.get("task"), dict):
                return {"task_spec": task["task"]}
            listed = (await self.http.ask("POST", f"/{name}/tasks", given)).json()
            if isinstance(listed, dict) and listed.get("tasks"):
                return {"task_spec": listed["tasks"][0]}
        raise Violation("no tasks")

    @property
    def has_probe(self) -> bool:
        return "probe" in self._probes

    @property
    def on_probe(self) -> bool:
        """Whether the environment to check is the probe, by its name and its tools."""
        return self.has_probe and self.environment.lower() == "probe"

    @property
    def has_indexed(self) -> bool:
        return "probe_indexed" in self._probes

    @property
    def environment(self) -> str:
        if self._found is None:
            raise NotTried("no environment with a task was found")
        return self._found

    @property
    def first(self) -> str:
        if not self.environments:
            raise NotTried("no environment was found")
        return self.environments[0]

    @property
    def other(self) -> str:
        for name in self.environments:
            if name.lower() != self.environment.lower():
                return name
        raise NotTried("the server has only one environment")

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> RawAnswer:
        return await self.http.ask(method, path, body, **more)

    async def split(self) -> str:
        listed = (await self.ask("GET", f"/{self.environment}/splits")).json()
        for split in listed if isinstance(listed, list) else []:
            name = split.get("name") if isinstance(split, dict) else split
            count = (await self.ask("POST", f"/{self.environment}/num_tasks", {"split": name})).json()
            if isinstance(count, dict) and count.get("num_tasks", 0) > 0:
                return str(name)
        raise NotTried("no split with tasks was found")

    async def tasks(self, split: str) -> list[Any]:
        answer = await self.ask("POST", f"/{self.environment}/tasks", {"split": split})
        if answer.status != 200:
            raise NotTried("the environment does not list its tasks")
        value = answer.json()
        if not isinstance(value, dict) or not isinstance(value.get("tasks"), list):
            raise Violation('no {"tasks": [...]}', answer.seen)
        return list(value["tasks"])

    async def new_sid(self) -> str:
        """Session id from the server if it provides one, else a random id."""
        answer = await self.ask("POST", "/create_session")
        try:
            return str(json.loads(answer.body)["sid"])
        except (ValueError, KeyError, TypeError):
            reader = EventReader()
            reader.feed(answer.body, 0)
            return next((event.data for event in reader.events), "") or str(uuid.uuid4())

    def task(self, **more: Any) -> dict[str, Any]:
        """Body of a `/create` for the environment to check; `more` is added to the task of the probe."""
        name = self.environment
        spec = {**self._tasks[name]["task_spec"], **more}
        return {"env_name": name, "task_spec": spec}

    @asynccontextmanager
    async def session(
        self,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        must_open: bool = False,
        **task: Any,
    ) -> AsyncIterator["CheckedSession"]:
        given = dict(body or self.task(**task))
        sid = await self.new_sid()
        answer = await self.ask("POST", "/create", given, sid=sid, headers=headers)
        if answer.status != 200 and must_open:
            raise Violation(f"/create answered {answer.status} instead of 200", answer.seen)
        if answer.status != 200:
            raise NotTried(f"no session: /create answered {answer.status} {answer.body[:200]!r}")
        episode = CheckedSession(self, sid, str(given.get("env_name", self.first)))
        try:
            yield episode
        finally:
            with suppress(Violation):  # /delete has its own checks
                await self.ask("POST", "/delete", sid=sid)


def _is_json(answer: RawAnswer) -> bool:
    try:
        answer.json()
    except Violation:
        return False
    return True


@dataclass
class CheckedSession:
    server: ServerUnderTest
    sid: str
    environment: str

    async def get(self, action: str) -> RawAnswer:
        return await self.server.ask("GET", f"/{self.environment}/{action}", sid=self.sid)

    async def post(self, path: str) -> RawAnswer:
        return await self.server.ask("POST", path, sid=self.sid)

    @asynccontextmanager
    async def opened(
        self, name: str, given: Any = None, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncIterator["OpenCall"]:
        """Starts a call and waits for the head of the answer; closes the connection after the block."""
        http = self.server.http
        body = {"name": name, "input": {} if given is None else given, **more}
        sent = http.request(
            "POST",
            f"/{self.environment}/call",
            encoded(body),
            headed(body, self.sid, EVENTS if headers is None else headers),
        )
        async with http.connect() as connection:
            started = asyncio.get_running_loop().time()
            await connection.write(sent)
            async with self._patience(0):
                head = await connection.head()
            yield OpenCall(connection, head, http.patience, started)

    async def call(self, name: str, given: Any = None, *, takes: float = 0, **more: Any) -> RawStream:
        """Calls a tool; returns the complete answer. `takes` is the run time of the tool in seconds."""
        async with self.opened(name, given, **more) as live, self._patience(takes):
            return await live.rest()

    async def some(self, *, accepted: bool = False) -> RawStream:
        """Calls any tool: the probe's echo, or one with a generated input.

        With `accepted`, it is a tool that does not refuse that input.
        """
        if self.server.has_probe and self.environment.lower() == "probe":
            return await self.call("echo", {"text": "hello"})
        listed = (await self.get("task_tools")).json()
        inputs = Inputs(random.Random(0))
        for tool in listed.get("tools", []) if isinstance(listed, dict) else []:
            stream = await self.call(tool["name"], inputs.make(tool.get("input_schema")))
            ended = any(event.name == "end" for event in stream.events)
            if ended and not (accepted and stream.value().get("ok") is False):
                return stream
        raise NotTried("no tool of the environment returned a result for a generated input")

    @asynccontextmanager
    async def _patience(self, more: float) -> AsyncIterator[None]:
        seconds = self.server.http.patience + more
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise Violation(f"the call was not answered within {seconds:g} s") from None


@dataclass
class OpenCall:
    connection: RawConnection
    head: Head
    patience: float
    started: float
    reader: EventReader = field(default_factory=EventReader)

    def __post_init__(self) -> None:
        self._body = self.connection.body(self.head, "POST")

    async def _piece(self) -> bool:
        piece = await anext(self._body, None)
        if piece is None:
            return False
        self.reader.feed(piece, asyncio.get_running_loop().time())
        return True

    async def first(self) -> str:
        try:
            async with asyncio.timeout(self.patience):
                while not self.reader.events:
                    if not await self._piece():
                        raise Violation(
                            "the stream ended before its first event", self.head.raw + self.reader.body
                        )
        except TimeoutError:
            raise Violation(f"no event within {self.patience:g} s", self.head.raw) from None
        event = self.reader.events[0]
        if event.name != "task_id":
            raise Violation("the first event is not task_id", event.raw)
        return event.data

    async def rest(self) -> RawStream:
        seen = -1
        arrivals = 0
        try:
            while await self._piece():
                if len(self.reader.events) != seen:
                    seen, arrivals = len(self.reader.events), self.connection.arrivals
        except OSError as error:
            raise Violation(f"the connection broke: {error}", self.reader.body) from None
        return RawStream(
            self.head,
            self.reader.events,
            self.reader.comments,
            self.reader.body,
            unfinished=self.reader.unfinished,
            started=self.started,
            ended=asyncio.get_running_loop().time(),
            arrivals_after_last=self.connection.arrivals - arrivals,
        )
