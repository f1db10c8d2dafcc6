"""Tools: the methods of an author's class that agents may call."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, Self, TypeVar, overload

from pydantic import BaseModel

from ors._authoring.tool_signatures import Returned, Run, ToolDef, define, setting
from ors.errors import InvalidEnvironment, ToolError
from ors.types import TerminalToolSpec, ToolOutput, ToolSpec

F = TypeVar("F", bound=Callable[..., Run])


@overload
def tool(fn: F) -> F: ...
@overload
def tool(
    *, shared: bool = True, concurrent: bool = False, timeout: float | None = None, truncate: bool = False
) -> Callable[[F], F]: ...
def tool(
    fn: F | None = None,
    *,
    shared: bool = True,
    concurrent: bool = False,
    timeout: float | None = None,
    truncate: bool = False,
) -> F | Callable[[F], F]:
    """Makes a method a tool. Its docstring is the description, its annotations are the input schema.

    It returns a ToolOutput, or, without a reward, a string or a list of blocks.

    `shared=False`: a task-specific tool, listed only within a session. `concurrent=True`: may overlap with
    other concurrent tools of its session. `timeout`: longest run in seconds, instead of the server's limit.
    `truncate=True`: a result over the server's limit loses the end of its text, instead of failing.
    """
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout must be over 0 seconds, not {timeout}")

    def mark(function: F) -> F:
        if isinstance(function, property):
            raise TypeError("@tool marks a method, not a property: remove @property")
        # The first two names are those of ors-sdk 0.1.0, so that its toolsets work here.
        function._env_tool = True  # type: ignore[attr-defined]
        function._env_tool_shared = shared  # type: ignore[attr-defined]
        function._env_tool_concurrent = concurrent  # type: ignore[attr-defined]
        function._env_tool_timeout = timeout  # type: ignore[attr-defined]
        function._env_tool_truncate = truncate  # type: ignore[attr-defined]
        return function

    return mark if fn is None else mark(fn)


def terminal(fn: F) -> F:
    """Makes a tool end the episode with the agent's last message; put it above `@tool`.

    Agents do not see the tool. It takes the message as its only parameter, or nothing.
    """
    fn._env_tool_terminal = True  # type: ignore[attr-defined]
    return fn


# ── Calling an author's code ─────────────────────────────────────────────────────────────────────


class Spawn(Protocol):
    def __call__(self, fn: Callable[..., Any], /, *args: Any) -> Awaitable[Any]: ...


async def _spawn(fn: Callable[..., Any], /, *args: Any) -> Any:
    # Imported here: asyncio takes a fifth of the time to import an environment.
    from asyncio import to_thread

    return await to_thread(fn, *args)


SPAWN: ContextVar[Spawn] = ContextVar("ors_spawn", default=_spawn)
"""Runs `def` methods in this context; a server sets its own thread pool."""


async def call(fn: Callable[..., Any], *args: Any, spawn: Spawn | None = None) -> Any:
    """Calls an author's function: on the loop if it is `async def`, in a thread otherwise."""
    return await (fn(*args) if is_async(fn) else in_thread(fn, *args, spawn=spawn))


async def in_thread(fn: Callable[..., Any], *args: Any, spawn: Spawn | None = None) -> Any:
    """Calls an author's `def` in a thread; what it returns may have to be awaited."""
    result = await (spawn or SPAWN.get())(fn, *args)
    return await result if type(result) not in _PLAIN and inspect.isawaitable(result) else result


_PLAIN = {ToolOutput, list, str}  # the usual results: asking `inspect` takes 0.5 µs


def is_async(fn: Callable[..., Any]) -> bool:
    code = getattr(fn, "__code__", None)  # of a method too; asking `inspect` takes 1 µs
    return inspect.iscoroutinefunction(fn) if code is None else bool(code.co_flags & inspect.CO_COROUTINE)


def method(target: Any, name: str) -> Any:
    """The method of that name of the class, even if an attribute of the instance has the same name."""
    for owner in type(target).__mro__:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            bind = getattr(type(raw), "__get__", None)
            return raw if bind is None else bind(raw, target, type(target))
    return getattr(target, name)  # a proxy object with a __getattr__


# ── Tools that a session brings along ────────────────────────────────────────────────────────────


class ToolsLost(RuntimeError):
    """Live tools can run no further call, so the session has failed."""


class LiveTools:
    """A toolset whose tools are known once it is open, such as those of an MCP server."""

    name = ""
    specs: Sequence[ToolSpec] = ()
    forked = False

    def __init__(self, env: Any) -> None:
        self.env = env

    async def open(self) -> None:
        """Connects, and sets `specs`. `close` follows, even after a failure."""

    async def run(self, name: str, given: Mapping[str, Any]) -> ToolOutput:
        """Runs one of `specs`. Raises ToolsLost if no further call can run."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends what was opened. Never raises."""

    async def fork(self, env: Any) -> Self:
        """The same tools for `env`, a copy, opened again."""
        made = type(self)(env)
        env.__dict__["_toolset_instances"][type(self)] = made  # now: it may fail, or be ended
        made.forked = True
        await made.open()
        return made


def live_tools(env: Any, name: str | None = None) -> list[LiveTools]:
    """The live tools of a session; with `name`, those that have such a tool."""
    made = getattr(env, "__dict__", {}).get("_toolset_instances", {}).values()
    live = [each for each in made if isinstance(each, LiveTools)]
    return [each for each in live if name is None or any(spec.name == name for spec in each.specs)]


# ── All tools of a class ─────────────────────────────────────────────────────────────────────────


class Toolbox:
    """The tools of one environment class and its toolsets, by name."""

    def __init__(self, owner: type, toolsets: tuple[type, ...] = (), *, overridden: bool = False) -> None:
        self._owner = owner
        self.overridden = overridden
        """Whether the author's class runs all calls itself."""
        self.by_name = {name: define(owner, name, raw, None) for name, raw in _marked(owner)}
        for toolset in toolsets:
            self._add(toolset)
        self.live = tuple(toolset for toolset in toolsets if issubclass(toolset, LiveTools))

    def _add(self, toolset: type) -> None:
        if not inspect.isclass(toolset):
            owner = self._owner.__name__
            raise InvalidEnvironment(f"{owner}.toolsets holds classes, but {toolset!r} is not one")
        for name, raw in _marked(toolset):
            if name in self.by_name:
                other = (self.by_name[name].toolset or self._owner).__name__
                both = f"of {other} and {toolset.__name__}"
                raise InvalidEnvironment(f"two tools are named {name!r}, {both}; rename one")
            self.by_name[name] = define(toolset, name, raw, toolset)

    async def open_live(self, env: Any) -> None:
        """Opens the live tools of a session. Raises InvalidEnvironment if two tools have the same name."""
        owners = dict.fromkeys(self.by_name, self._owner.__name__)
        made = env.__dict__.setdefault("_toolset_instances", {})
        for toolset in self.live:
            live = made[toolset] = toolset(env)
            await live.open()
            for name in (spec.name for spec in live.specs):
                if name in owners:
                    both = f"of {owners[name]} and {live.name}"
                    raise InvalidEnvironment(f"two tools are named {name!r}, {both}; use only= or prefix=")
                owners[name] = live.name

    def __len__(self) -> int:
        return len(self.by_name) + len(self.live)

    def specs(self, *, shared: bool) -> list[ToolSpec]:
        tools = self.by_name.values()
        return [each.spec for each in tools if each.shared is shared and not each.terminal]

    def terminal(self) -> TerminalToolSpec | None:
        found = [definition for definition in self.by_name.values() if definition.terminal]
        if not found:
            return None
        owner, names = self._owner.__name__, ", ".join(definition.spec.name for definition in found)
        if len(found) > 1:
            raise InvalidEnvironment(f"{owner} has more than one @terminal tool: {names}; keep one")
        spec = found[0].spec
        schema: Any = spec.input_schema or {}
        fields = [*(schema.get("properties") or {}), None]
        if len(fields) > 2 or found[0].concurrent:
            takes = "a @terminal tool takes the agent's message, or nothing"
            raise InvalidEnvironment(f"{owner}.{names}: {takes}")
        return TerminalToolSpec(name=spec.name, arg=fields[0], description=spec.description)

    def run(
        self,
        env: Any,
        name: str,
        definition: ToolDef | None,
        given: Mapping[str, Any],
        spawn: Spawn | None = None,
    ) -> Awaitable[Returned]:
        """Validates the input and runs the tool `name`; `definition` is its entry in `by_name`.

        The caller must pass the result to `ors._authoring.tool_signatures.checked`.
        """
        if definition is not None and definition.direct:
            # The common case, without a coroutine of our own around it, which takes 0.3 µs.
            arguments, function = definition.arguments(given), getattr(type(env), name)
            if not definition.is_async:
                return _direct_in_thread(function, env, arguments, spawn)
            if type(arguments) is dict:
                return function(env, **arguments)  # type: ignore[no-any-return]
            return function(env) if arguments is None else function(env, arguments)  # type: ignore[no-any-return]
        return self._run(env, name, definition, given, spawn)

    async def _run(
        self,
        env: Any,
        name: str,
        definition: ToolDef | None,
        given: Mapping[str, Any],
        spawn: Spawn | None,
    ) -> Returned:
        if definition is None or not (definition.shared or definition.terminal):
            task_tools = await call(method(env, "list_task_tools"), spawn=spawn)
            listed = [spec.name for spec in task_tools.tools]
            if definition is None and name in listed:
                for live in live_tools(env, name):
                    return await live.run(name, given)
                text = f"{name!r} is listed for this task, but nothing serves it"
                raise ToolError(text, reason="not_found")
            if definition is None or name not in listed:
                names = ", ".join([*(spec.name for spec in self.specs(shared=True)), *listed])
                raise ToolError(f"{name!r} is not a valid tool; the tools are: {names}", reason="not_found")
        arguments = definition.arguments(given)
        target = env if definition.toolset is None else await toolset_of(env, definition.toolset, spawn)
        run = method(target, name)
        if type(arguments) is dict:
            run, arguments = partial(run, **arguments), None
        output: Returned = await call(run, *(() if arguments is None else (arguments,)), spawn=spawn)
        return output


def _direct_in_thread(
    function: Callable[..., Any], env: Any, arguments: dict[str, Any] | BaseModel | None, spawn: Spawn | None
) -> Awaitable[Returned]:
    if type(arguments) is dict:
        return in_thread(partial(function, env, **arguments), spawn=spawn)
    return in_thread(function, env, *(() if arguments is None else (arguments,)), spawn=spawn)


def _marked(owner: type) -> Iterator[tuple[str, Any]]:
    for name in dir(owner):
        raw = inspect.getattr_static(owner, name)
        if setting(raw, "_env_tool", False):
            if name in _reserved(owner):
                wrong = f"environments already use the name {name!r}; rename the tool"
                raise InvalidEnvironment(f"{owner.__name__}.{name}: {wrong}")
            yield name, raw
        elif setting(raw, "_env_tool_terminal", False):
            raise InvalidEnvironment(f"{owner.__name__}.{name}: @terminal needs @tool below it")


def _reserved(owner: type) -> set[str]:
    """The names that our base classes have, or set, and that are no tools there."""
    ours = [vars(base).items() for base in owner.__mro__ if base.__module__.startswith("ors.")]
    names = {name for each in ours for name, value in each if not setting(value, "_env_tool", False)}
    return names | {"task_spec", "secrets", "env"}


async def toolset_of(env: Any, toolset: type, spawn: Spawn | None) -> Any:
    """The environment's instance of a toolset, created at the first call of one of its tools."""
    # In `__dict__`, since an author's constructor may not call ours.
    made: dict[type, Any] = env.__dict__.setdefault("_toolset_instances", {})
    if toolset not in made:
        wants_env = bool(inspect.signature(toolset).parameters)
        made.setdefault(toolset, await call(toolset, *((env,) if wants_env else ()), spawn=spawn))
    return made[toolset]
