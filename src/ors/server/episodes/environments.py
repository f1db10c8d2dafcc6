"""The environments of a server: their tools, splits and tasks, and what they do once in a process."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from operator import getitem
from typing import Any

from pydantic import BaseModel

from ors._authoring.tools import SPAWN, call
from ors._identity import Identity
from ors.environment import Environment
from ors.errors import BadRequest, InvalidEnvironment, ServerFailed, StartupFailed
from ors.limits import REPLY_TASKS, Limits
from ors.server.episodes.author_code import AuthorCode, OutOfTime, within
from ors.server.episodes.class_checks import (
    check_class,
    checked_name,
    listed_names,
    listed_splits,
    listed_tools,
    overrides,
    own_limits,
)
from ors.server.episodes.episode import Episode
from ors.server.episodes.error_text import author_line, message, trace
from ors.server.episodes.threads import failure_reason
from ors.types import JSONObject

_AT_HAND = (list, tuple)
"""Sequences that do not compute their items."""

_NO_SECRETS: Mapping[str, str] = {}

log = logging.getLogger("ors.server")


class ServedEnvironment:
    """One checked environment class, with everything that needs no session."""

    def __init__(self, cls: type[Environment], code: AuthorCode, limits: Limits) -> None:
        self.cls = cls
        check_class(cls)
        self.name = checked_name(cls)
        self._code = code
        self._server_limits = limits
        self._with_toolsets: dict[str, ServedEnvironment] = {}
        self.description = inspect.cleandoc(cls.__doc__ or "")
        self.required_secrets = listed_names(cls, "required_secrets")
        self.rewards = cls._rewards
        declared = {
            "required_secrets": self.required_secrets,
            "reward_range": self.rewards.range,
            "reward_components": self.rewards.components,
        }
        self.tools = listed_tools(cls).model_copy(
            update={name: each for name, each in declared.items() if each}
        )
        self.task_tools = cls._tools().specs(shared=False)
        self.splits = listed_splits(cls)
        self.limits = own_limits(cls, limits)
        self._makes_tasks = overrides(cls, "get_task")
        self._private = frozenset(listed_names(cls, "private_fields"))
        self._split_names = {split.name for split in self.splits}
        if len(self._split_names) < len(self.splits):
            raise InvalidEnvironment(f"{cls.__name__}.list_splits returns two splits of the same name")

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in (*self.tools.tools, *self.task_tools))

    @cached_property
    def identity(self) -> Identity:
        """Which code this is. The first look reads files, so take it in a thread."""
        return self.cls._identity()

    def check_secrets(self, secrets: Mapping[str, str]) -> None:
        """Raises BadRequest if a required secret is missing or empty; the message names it."""
        missing = [name for name in self.required_secrets if not secrets.get(name)]
        if missing:
            names = ", ".join(repr(name) for name in missing)
            words = "secret" if len(missing) == 1 else "secrets"
            raise BadRequest(f"{self.name!r} needs the {words} {names}", reason="missing_secrets")

    def with_toolset(self, name: str | None) -> "ServedEnvironment":
        """The environment with a toolset of this name too. Raises BadRequest if it does not offer it."""
        if name is None:
            return self
        if name not in self._with_toolsets:
            cls = self.cls._with_toolset(name)
            self._with_toolsets[name] = ServedEnvironment(cls, self._code, self._server_limits)
        return self._with_toolsets[name]

    def episode(self, task: JSONObject, secrets: dict[str, str]) -> Episode:
        return Episode(self._code, self.limits, self.cls, task, secrets or _NO_SECRETS)

    def without_private(self, tasks: Sequence[Any]) -> Sequence[Any]:
        if not self._private:
            return tasks
        return [{key: value for key, value in _items(task) if key not in self._private} for task in tasks]

    async def tasks(self, split: str) -> Sequence[JSONObject]:
        self._check_split(split)
        tasks = await self._listed(split, "Use the index-based API (num_tasks, task, task_range) instead.")
        self._check_count(len(tasks))
        return await self._read(tasks, slice(None))  # type: ignore[no-any-return]

    async def num_tasks(self, split: str) -> int:
        self._check_split(split)
        if not overrides(self.cls, "num_tasks"):
            return len(await self._listed(split, "Nor does it count its tasks."))
        count: int = await self._call(self.cls.num_tasks, split)
        return count

    def task_at_hand(self, split: str, index: int) -> JSONObject | None:
        """The task at an index, if no author's code has to run for it."""
        tasks = None if self._makes_tasks else self.cls._listing.known(split)
        return tasks[index] if isinstance(tasks, _AT_HAND) and 0 <= index < len(tasks) else None

    async def task(self, split: str, index: int) -> JSONObject:
        self._check_split(split)
        if index < 0:
            raise BadRequest("Invalid index: it must not be negative")
        listed = [] if self._makes_tasks else await self._listed(split)
        count = await self._known_count(split) if self._makes_tasks else len(listed)
        if count is not None and index >= count:
            raise BadRequest(f"Invalid index: the split has {count} {'task' if count == 1 else 'tasks'}")
        if not self._makes_tasks:
            return await self._read(listed, index)  # type: ignore[no-any-return]
        task: JSONObject = await self._call(self.cls.get_task, split, index)
        return task

    async def task_range(self, split: str, start: int | None, stop: int | None) -> list[JSONObject]:
        self._check_split(split)
        if not overrides(self.cls, "get_task_range") and not self._makes_tasks:
            await self._listed(split)  # the base class slices this list
        count = await self._known_count(split)
        if count is not None:
            self._check_count(len(range(count)[start:stop]))
        tasks: list[JSONObject] = await self._call(self.cls.get_task_range, split, start, stop)
        return tasks

    async def _listed(self, split: str, instead: str = "") -> Sequence[JSONObject]:
        # In our own threads, which do not keep the process alive when a listing hangs.
        listing = self.cls._listing.tasks(split, self._code.threads.run)
        tasks: Sequence[JSONObject] = await self._guarded("list_tasks", listing, instead)
        return tasks

    async def _read(self, tasks: Sequence[JSONObject], which: int | slice) -> Any:
        if isinstance(tasks, _AT_HAND):
            return tasks[which]
        # Other sequences may read a file for it, or run the author's code.
        return await self._guarded("list_tasks", self._code.threads.run(getitem, tasks, which))

    def _check_count(self, count: int) -> None:
        if count > REPLY_TASKS:
            raise BadRequest(
                f"{count} tasks are too many for one reply; ask for at most {REPLY_TASKS} by task_range",
                reason="limit",
            )

    async def _known_count(self, split: str) -> int | None:
        # An author's get_task may accept any index; their num_tasks gives the limit. The base class's would
        # list all tasks, which an author who wrote get_task wanted to avoid.
        known = self.cls._listing.known(split)
        if known is not None:
            return len(known)
        if not overrides(self.cls, "num_tasks"):
            return None
        count: int = await self._call(self.cls.num_tasks, split)
        return count

    def _check_split(self, split: str) -> None:
        if split not in self._split_names:
            names = ", ".join(repr(split.name) for split in self.splits)
            raise BadRequest(f"Invalid split; the splits are {names}")

    async def in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self._code.threads.run(fn, *args)

    async def _call(self, fn: Any, *args: Any) -> Any:
        SPAWN.set(self._code.threads.run)
        return await self._guarded(fn.__name__, call(fn, *args))

    async def _guarded(self, what: str, work: Awaitable[Any], instead: str = "") -> Any:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except NotImplementedError:
            raise BadRequest(f"{what} is not supported by this environment. {instead}".rstrip()) from None
        except BaseException as error:  # SystemExit too: an author's listing must not end the server
            if isinstance(error, IndexError) and what != "list_tasks":
                raise BadRequest("Invalid index: the split has no such task") from None
            log.error("environment %s: %s failed\n%s", self.cls.name(), what, trace(error))
            words = self._code.error_text.told(f"Environment failed in {what}", error, cls=self.cls)
            raise ServerFailed(words, reason=failure_reason(error)) from None


def served_environments(
    environments: Iterable[type[Environment]], code: AuthorCode, limits: Limits
) -> dict[str, ServedEnvironment]:
    """Every environment by its name in URLs, in the given order."""
    if inspect.isclass(environments):
        raise TypeError(f"Server takes a list of environments: Server([{environments.__name__}])")
    found: dict[str, ServedEnvironment] = {}
    for given in environments:
        cls = given if inspect.isclass(given) else type(given)
        if not issubclass(cls, Environment):
            raise TypeError(f"{given!r} is not an Environment class")
        environment = ServedEnvironment(cls, code, limits)
        if environment.name in found:
            both = " and ".join(_whereabouts(one) for one in (found[environment.name].cls, cls))
            raise InvalidEnvironment(
                f"two environments are named {environment.name!r}, {both}; override name() of one"
            )
        found[environment.name] = environment
    if not found:
        raise ValueError("Server needs at least one environment: Server([MyEnvironment])")
    return found


def _whereabouts(cls: type[Environment]) -> str:
    """The class and where it is written, if that is known."""
    try:
        file, (_, line) = inspect.getsourcefile(cls), inspect.getsourcelines(cls)
    except (OSError, TypeError):  # such as a class made by a function, or in a notebook
        return f"{cls.__module__}.{cls.__qualname__}"
    return f"{cls.__qualname__} ({file}:{line})"


def _items(task: Any) -> Iterable[tuple[str, Any]]:
    return task if isinstance(task, BaseModel) else task.items()


# ── Once in a process ────────────────────────────────────────────────────────────────────────────


class ProcessHooks:
    """The hooks of all environments of a server: started in their order, and shut down in reverse."""

    def __init__(self, environments: Iterable[ServedEnvironment], code: AuthorCode) -> None:
        self._environments = list(environments)
        self._code = code
        self._starting: asyncio.Task[None] | None = None
        self._started: list[ServedEnvironment] = []

    async def start(self) -> None:
        """Runs every `startup` once. Raises StartupFailed if one raises; what had started is shut down."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        await self._starting

    async def _start(self) -> None:
        try:
            for environment in self._environments:
                if _has(environment.cls, "startup"):
                    await self._run_startup(environment)
                self._started.append(environment)
        except BaseException:
            await self.stop()
            raise

    async def _run_startup(self, environment: ServedEnvironment) -> None:
        try:
            await within(None, call(environment.cls.startup, spawn=self._code.threads.run))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit too, which says that the environment cannot be served
            log.debug("environment %s: startup failed\n%s", environment.name, trace(error))
            words = f"{environment.cls.__name__}.startup failed: {type(error).__name__}: {message(error)}"
            raise StartupFailed(words + author_line(error, environment.cls)) from error

    async def stop(self) -> None:
        """Runs the `shutdown` of every environment that has started. Never raises; logs errors."""
        self._starting = None
        while self._started:
            environment = self._started.pop()
            if _has(environment.cls, "shutdown"):
                await self._run_shutdown(environment)

    async def _run_shutdown(self, environment: ServedEnvironment) -> None:
        seconds = environment.limits.teardown_seconds
        try:
            await within(seconds, call(environment.cls.shutdown, spawn=self._code.threads.run))
        except asyncio.CancelledError:
            raise
        except OutOfTime:
            log.error("environment %s: shutdown did not end within %g s", environment.name, seconds)
        except BaseException as error:
            log.error("environment %s: shutdown failed\n%s", environment.name, trace(error))


def _has(cls: type[Environment], name: str) -> bool:
    # A tool or an instance method of that name is the author's own.
    raw = getattr_static(cls, name)
    is_hook = isinstance(raw, classmethod | staticmethod) and not getattr(raw, "_env_tool", False)
    return is_hook and raw is not getattr_static(Environment, name)
