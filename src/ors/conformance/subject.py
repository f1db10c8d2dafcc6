"""The server under test, with its sessions and calls."""

import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ors.conformance.http import Answer, Http
from ors.conformance.requirements import NotTried, Violation
from ors.schemas import Inputs

PROBES = {"probe": {"echo", "give", "slow", "strange_reward", "notes"}, "probe_indexed": {"always"}}
"""Their names, and tools by which they are recognised."""
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
    _found: tuple[str, str, dict[str, Any]] | None = None
    """An environment, one of its splits, and the first task of that."""
    probes: set[str] = field(default_factory=set)
    """Which of our environments it has."""

    async def discover(self) -> None:
        """Finds environments and the probe. Wrong answers are left to the checks."""
        health, answer = await self.ask("GET", "/health"), await self.ask("GET", "/list_environments")
        listed = answer.json_or_none()
        if listed is None and health.json_or_none() is None:
            raise Violation("neither /health nor /list_environments is JSON", answer.seen)
        if not isinstance(listed, list):
            return
        self.environments = [name for name in listed if isinstance(name, str)]
        for name in self.environments:
            if name.lower() in PROBES:
                await self._recognise(name)
        candidates = (
            [self.wanted] if self.wanted else ["probe"] if "probe" in self.probes else self.environments
        )
        for name in candidates:
            with suppress(Violation):
                self._found = self._found or await self._first_task(name)

    async def _recognise(self, name: str) -> None:
        with suppress(Violation, KeyError, TypeError):
            tools = (await self.ask("GET", f"/{name}/tools")).json()["tools"]
            if {tool["name"] for tool in tools} >= PROBES[name.lower()]:
                self.probes.add(name.lower())

    async def _first_task(self, name: str) -> tuple[str, str, dict[str, Any]]:
        splits = (await self.ask("GET", f"/{name}/splits")).json()
        for split in splits if isinstance(splits, list) else ():
            split_name = str(split.get("name") if isinstance(split, dict) else split)
            given = {"split": split_name, "index": 0}
            task = (await self.ask("POST", f"/{name}/task", given)).json()
            if isinstance(task, dict) and isinstance(task.get("task"), dict):
                return name, split_name, task["task"]
            listed = (await self.ask("POST", f"/{name}/tasks", given)).json()
            if isinstance(listed, dict) and listed.get("tasks"):
                return name, split_name, listed["tasks"][0]
        raise Violation("no tasks")

    @property
    def on_probe(self) -> bool:
        """Whether the environment to check is the probe, by its name and its tools."""
        return "probe" in self.probes and self.environment.lower() == "probe"

    @property
    def _task(self) -> tuple[str, str, dict[str, Any]]:
        if self._found is None:
            raise NotTried("no environment with a task was found")
        return self._found

    @property
    def environment(self) -> str:
        return self._task[0]

    @property
    def split(self) -> str:
        return self._task[1]

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

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        return await self.http.ask(method, path, body, **more)

    async def of_split(self, name: str, **body: Any) -> Answer:
        """Asks for something of the split to check, such as "tasks"."""
        return await self.ask("POST", f"/{self.environment}/{name}", {"split": self.split, **body})

    async def tasks(self) -> list[Any]:
        answer = await self.of_split("tasks")
        if answer.status != 200:
            raise NotTried("the environment does not list its tasks")
        value = answer.json()
        if not isinstance(value, dict) or not isinstance(value.get("tasks"), list):
            raise Violation('no {"tasks": [...]}', answer.seen)
        return list(value["tasks"])

    async def new_sid(self) -> str:
        """Session id from the server if it provides one, else a random id."""
        answer = await self.ask("POST", "/create_session")
        with suppress(KeyError, TypeError):
            return str(answer.json_or_none()["sid"])
        return next((event.data for event in answer.events), "") or str(uuid.uuid4())

    def task(self, **more: Any) -> dict[str, Any]:
        """Body of a `/create` for the environment to check; `more` is added to the task of the probe."""
        name, _, spec = self._task
        return {"env_name": name, "task_spec": {**spec, **more}}

    @asynccontextmanager
    async def created(
        self, body: Any, *, sid: str | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[str, Answer]]:
        """Asks for a session, whose id and answer it yields, and deletes it in the end."""
        sid = sid or await self.new_sid()
        try:
            yield sid, await self.ask("POST", "/create", body, sid=sid, headers=headers)
        finally:
            with suppress(Violation):  # /delete has its own checks
                await self.ask("POST", "/delete", sid=sid)

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
        async with self.created(given, headers=headers) as (sid, answer):
            if answer.status != 200 and must_open:
                raise Violation(f"/create answered {answer.status} instead of 200", answer.seen)
            if answer.status != 200:
                raise NotTried(f"no session: /create answered {answer.status} {answer.body[:200]!r}")
            yield CheckedSession(self, sid, str(given.get("env_name", self.first)))

    async def deleted(self) -> "CheckedSession":
        async with self.session() as episode:
            await episode.get("prompt")
        return episode


@dataclass
class CheckedSession:
    server: ServerUnderTest
    sid: str
    environment: str

    async def get(self, action: str) -> Answer:
        return await self.server.ask("GET", f"/{self.environment}/{action}", sid=self.sid)

    async def post(self, path: str) -> Answer:
        return await self.server.ask("POST", path, sid=self.sid)

    def opened(
        self, name: str, given: Any = None, *, headers: Mapping[str, str] = EVENTS, **more: Any
    ) -> AbstractAsyncContextManager[Answer]:
        """Starts a call and waits for the head of the answer; closes the connection after the block."""
        path, body = self._call(name, given, more)
        return self.server.http.opened("POST", path, body, sid=self.sid, headers=headers)

    async def call(
        self,
        name: str,
        given: Any = None,
        *,
        headers: Mapping[str, str] = EVENTS,
        takes: float = 0,
        **more: Any,
    ) -> Answer:
        """Calls a tool; returns the complete answer. `takes` is the run time of the tool in seconds."""
        path, body = self._call(name, given, more)
        return await self.server.ask("POST", path, body, sid=self.sid, headers=headers, takes=takes)

    def _call(self, name: str, given: Any, more: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return f"/{self.environment}/call", {"name": name, "input": {} if given is None else given, **more}

    async def some(self, *, accepted: bool = False) -> Answer:
        """Calls any tool: the probe's echo, or one with a generated input.

        With `accepted`, it is a tool that does not refuse that input.
        """
        if self.server.on_probe:
            return await self.call("echo", {"text": "hello"})
        listed = (await self.get("task_tools")).json()
        inputs = Inputs(random.Random(0))
        for tool in listed.get("tools", []) if isinstance(listed, dict) else []:
            stream = await self.call(tool["name"], inputs.make(tool.get("input_schema")))
            if stream.has_result and not (accepted and stream.value().get("ok") is False):
                return stream
        raise NotTried("no tool of the environment returned a result for a generated input")
