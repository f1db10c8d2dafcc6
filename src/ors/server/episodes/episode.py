"""Episode: one environment instance with its setup, prompt, calls and teardown."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ors._authoring.tool_signatures import Returned, ToolDef, checked
from ors._authoring.tools import SPAWN, Toolbox, ToolsLost, call, live_tools, method
from ors._json import dumps
from ors._masking import hidden
from ors._rewards import REWARD_COMPONENTS, NamedRewards
from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.environment import Environment, Secrets
from ors.errors import BadRequest, Gone, SandboxLimit, ServerFailed, ToolError
from ors.limits import Limits
from ors.server.episodes.author_code import AuthorCode, CallOrder, EnvironmentForks, OutOfTime, within
from ors.server.episodes.error_text import trace
from ors.server.episodes.result import (
    COPIED_BYTES,
    Result,
    cut,
    failed,
    over,
    refused,
)
from ors.server.episodes.threads import failure_reason
from ors.types import (
    Blocks,
    JSONObject,
    ListToolsOutput,
    RewardSpec,
    RunToolError,
    RunToolOutput,
    RunToolSuccess,
    TextBlock,
    ToolOutput,
    reward_components,
)

log = logging.getLogger("ors.server")

_BLOCKS: TypeAdapter[Any] = TypeAdapter(Blocks)


class SetupTimeout(TimeoutError):
    """A setup exceeded its time limit."""


@dataclass(eq=False, repr=False, slots=True)
class Episode:
    """One instance of an environment, from its constructor to its teardown."""

    _code: AuthorCode
    _limits: Limits  # the server's, overridden by those of the class
    _cls: type[Environment]
    task: JSONObject
    _secrets: Mapping[str, str]
    broken: str = ""
    """Why no further call can run; empty if calls can run."""
    broken_by: str = "tool_timeout"
    """The reason code of `broken`."""
    _env: Environment | None = None
    _busy: asyncio.Future[None] | None = None  # the thread of a constructor or setup
    _order: CallOrder | None = None
    finished: bool = False
    _tools: Toolbox = field(init=False)
    _steps_left: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._tools = self._cls._tools()
        self._steps_left = self._cls.max_steps

    async def setup(self) -> None:
        seconds = self._limits.setup_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._open()
        except TimeoutError:
            if limit.expired():
                raise SetupTimeout(f"setup did not end within {seconds:g} s") from None
            raise

    async def _open(self) -> None:
        SANDBOX_OBSERVER.set(self._code.sandboxes)
        if self._has_default_constructor():
            self._make()
        else:
            await self._in_thread(self._make)
        if self._cls.setup is not Environment.setup:
            await call(method(self._ready, "setup"), spawn=self._in_thread)
        if self._tools.live:
            await self._tools.open_live(self._ready)

    async def _in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        # Resources of a constructor or setup must be released even when nobody waits for it any more:
        # the teardown waits until its thread has ended.
        running = self._code.threads.run(fn, *args)
        self._busy = self._code.threads.over(running)
        try:
            return await running
        finally:
            del running  # its error has this frame in its traceback: no cycle

    def _make(self) -> None:
        self._env = self._cls(task_spec=self.task, secrets=Secrets(self._secrets))

    def _has_default_constructor(self) -> bool:
        # The default constructor does not block, so it needs no thread.
        return self._cls.__init__ is Environment.__init__

    def set_up_at_once(self) -> bool:
        """Makes the environment at once, if no author's code has to run for it. A copy has one already."""
        if self._env is not None:
            return True
        has_setup = self._cls.setup is not Environment.setup or self._tools.live
        if has_setup or not self._has_default_constructor():
            return False
        self._make()
        return True

    @property
    def needs_teardown(self) -> bool:
        has_one = self._cls.teardown is not Environment.teardown or bool(self._tools.live)
        return self._env is not None and has_one

    async def prompt(self) -> Any:
        """The blocks that the agent sees first. Raises ServerFailed if the environment gave none."""
        prompt = await self._ask("get_prompt", method(self._ready, "get_prompt"))
        try:
            return _BLOCKS.validate_python([TextBlock(text=prompt)] if isinstance(prompt, str) else prompt)
        except ValidationError:
            raise ServerFailed(
                f"{self._cls.__name__}.get_prompt must return a str, or a list of TextBlock and ImageBlock, "
                f"such as [TextBlock(text=...)], not {_kinds(prompt)}",
                reason="environment",
            ) from None

    async def tools(self) -> ListToolsOutput:
        shared = await self._ask("list_tools", self._cls.list_tools)
        task_specific = await self._ask("list_task_tools", method(self._ready, "list_task_tools"))
        return ListToolsOutput(
            tools=[*shared.tools, *task_specific.tools], terminal_tool=shared.terminal_tool
        )

    async def call(self, name: str, given: dict[str, Any]) -> Result:
        if self._order is None:
            self._order = CallOrder()
        definition = self._tools.by_name.get(name)
        alone = definition is None or not definition.concurrent
        if not self._order.enter_at_once(alone):
            await self._order.enter(alone)
        try:
            if self.broken:
                return failed(self.broken, self.broken_by)
            if self.finished and not self._cls.calls_after_finished:
                return over(f"{name!r} was not run: the episode has finished")
            seconds = (definition.timeout if definition else None) or self._limits.tool_seconds
            if seconds is None:
                return self._result(name, definition, await self._run(name, definition, given))
            async with asyncio.timeout(seconds) as limit:
                return self._result(name, definition, await self._run(name, definition, given))
        except ToolError as refusal:
            return self._refusal(refusal)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit too: a tool must not end the server
            if isinstance(error, TimeoutError) and seconds is not None and limit.expired():
                return self._out_of_time(name, definition, seconds)
            if isinstance(error, SandboxLimit) and error.reason != "waiting":  # the agent's doing
                return self._refusal(error)
            self._log(f"tool {name!r} failed", error)
            words = self._words("Tool execution failed", error)
            if isinstance(error, ToolsLost):
                self.broken, self.broken_by = words, "environment"
            return failed(words, failure_reason(error))
        finally:
            self._order.leave()

    def _refusal(self, refusal: ToolError | SandboxLimit) -> Result:
        self.finished |= self._was_last_step()
        secrets = self._secrets.values()
        reason = None if refusal.reason is None else hidden(str(refusal.reason), secrets)
        return refused(RunToolError(error=hidden(str(refusal), secrets), reason=reason))

    def _out_of_time(self, name: str, definition: ToolDef | None, seconds: float) -> Result:
        message = f"Tool {name!r} exceeded its time limit of {seconds:g} s"
        is_async = bool(live_tools(self._env, name)) if definition is None else definition.is_async
        if not is_async:
            # Its thread cannot be stopped, and may change the environment while the next call runs.
            message += " and still runs in its thread, so the session has failed"
            self.broken = message
            log.error("%s; %d threads are lost now", message, self._code.threads.lost)
        return failed(message, "tool_timeout")

    def _run(self, name: str, definition: ToolDef | None, given: dict[str, Any]) -> Awaitable[Returned]:
        if SANDBOX_OBSERVER.get() is not self._code.sandboxes:  # most calls inherit it; `set` takes 0.2 µs
            SANDBOX_OBSERVER.set(self._code.sandboxes)
        # An author who overrides _call_tool gets all calls; otherwise they go straight to the tools.
        if self._tools.overridden:
            return self._run_by_author(name, given)
        return self._tools.run(self._env, name, definition, given, self._code.threads.run)

    async def _run_by_author(self, name: str, given: dict[str, Any]) -> ToolOutput:
        SPAWN.set(self._code.threads.run)
        result = await call(method(self._ready, "_call_tool"), name, given)
        result = result.root if isinstance(result, RunToolOutput) else result
        if isinstance(result, RunToolSuccess):
            return result.output
        if isinstance(result, RunToolError):
            raise ToolError(result.error, reason=result.reason)
        if isinstance(result, ToolOutput):
            return result
        raise TypeError(f"_call_tool returned {type(result).__name__}; expected RunToolOutput")

    def _result(self, name: str, definition: ToolDef | None, returned: Returned) -> Result:
        output = returned if type(returned) is ToolOutput else checked(name, returned)
        reward, finished = output.reward, output.finished
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"{name!r} gave the reward {reward}; a reward is a finite number or None")
        if self._steps_left is not None and self._was_last_step() and not finished:
            output, finished = output.model_copy(update={"finished": True}), True
        result = dumps({"ok": True, "output": output.__dict__ if type(output) is ToolOutput else output})
        size, limit = len(result), self._limits.result_bytes
        if size > limit:
            if definition is None or not definition.truncate:
                text = f"Tool {name!r} exceeded its output limit: {size} of {limit} bytes"
                return failed(text, "limit")
            result = cut(output, limit)
        elif size <= COPIED_BYTES:
            result = b"%b" % result
        if self.finished and not self._cls.calls_after_finished and (finished or reward is not None):
            # Overlapped with the call that ended the episode, which has only one end and one last reward.
            how = "was run, but another call finished the episode meanwhile: its result does not count"
            return over(f"{name!r} {how}")
        if finished:
            self.finished = True
        named = None if output.metadata is None else output.metadata.get(REWARD_COMPONENTS)
        if named is not None and type(named) is not NamedRewards:
            named = reward_components(output.metadata)
        return Result(result, "ok", "", reward, finished, named)

    def _was_last_step(self) -> bool:
        if self._steps_left is None:
            return False
        self._steps_left -= 1
        return self._steps_left <= 0

    async def fork(self, count: int) -> list["Episode"]:
        """Makes copies of this episode when its turn has come.

        Raises:
            BadRequest: the episode has finished.
            ServerFailed: the environment cannot be copied.
        """
        order = self._order = self._order or CallOrder()
        await order.enter(alone=True)
        try:
            if self.broken:
                raise ServerFailed(self.broken, reason=self.broken_by)
            if self.finished and not self._cls.calls_after_finished:
                text = "The episode has finished: there is nothing to fork"
                raise BadRequest(text, reason="episode_finished")
            return await self._copies(count)
        finally:
            order.leave()

    async def _copies(self, count: int) -> list["Episode"]:
        SANDBOX_OBSERVER.set(self._code.sandboxes)
        copies = EnvironmentForks(self._ready, count, self._in_thread)
        try:
            await self._ask("fork", copies.make)
        except BaseException:
            copies.stop()
            if self._busy is not None:  # a thread may still make a copy, and read this environment for it
                await asyncio.wait({self._busy}, timeout=self._limits.teardown_seconds)
            await asyncio.gather(*(self._with(env).teardown() for env in copies.made))
            raise
        return [self._with(env) for env in copies.made]

    def _with(self, env: Environment) -> "Episode":
        made = Episode(self._code, self._limits, self._cls, self.task, self._secrets)
        made._env, made.finished, made._steps_left = env, self.finished, self._steps_left
        return made

    async def teardown(self) -> None:
        """Lets the environment clean up. Never raises; logs errors."""
        seconds = self._limits.teardown_seconds
        try:
            await within(seconds, self._tear_down())
        except asyncio.CancelledError:
            raise
        except OutOfTime as error:
            self._log(f"teardown did not end within {seconds:g} s", error)
        except BaseException as error:
            self._log("teardown failed", error)

    def setup_failed(self, error: BaseException) -> str:
        """Logs why the setup failed; returns the error text for clients."""
        self._log("setup failed", error)
        return self._words("Environment setup failed", error)

    @property
    def rewards(self) -> RewardSpec:
        return self._cls._rewards

    @property
    def lost_threads(self) -> int:
        """How many threads of the server run a job that nobody waits for."""
        return self._code.threads.lost

    @property
    def _ready(self) -> Environment:
        if self._env is None:  # torn down meanwhile
            raise Gone("Session deleted", reason="deleted")
        return self._env

    @property
    def sandbox(self) -> Any:
        """The sandbox of the environment, under the name that toolsets know too; None if there is none."""
        return getattr(self._env, "box", None)

    async def _tear_down(self) -> None:
        if self._busy is not None:
            await self._busy
        env, self._env = self._env, None
        for live in live_tools(env):
            await live.close()
        # The base class's teardown does nothing, so it needs no thread.
        if env is not None and type(env).teardown is not Environment.teardown:
            await call(method(env, "teardown"), spawn=self._code.threads.run_at_last)

    async def _ask(self, what: str, fn: Callable[..., Any]) -> Any:
        seconds = self._limits.tool_seconds
        limit = None if seconds is None else asyncio.timeout(seconds)
        try:
            if limit is None:
                return await call(fn, spawn=self._code.threads.run)
            async with limit:
                return await call(fn, spawn=self._code.threads.run)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if limit is not None and limit.expired():
                late = f"Environment failed in {what}: it did not end within {seconds:g} s"
                log.error("environment %s: %s", self._cls.name(), late)
                raise ServerFailed(late, reason="tool_timeout") from None
            self._log(f"{what} failed", error)
            words = self._words(f"Environment failed in {what}", error)
            raise ServerFailed(words, reason=failure_reason(error)) from None

    def _words(self, what: str, error: BaseException) -> str:
        return self._code.error_text.told(what, error, self._secrets.values(), self._cls)

    def _log(self, what: str, error: BaseException) -> None:
        secrets = self._secrets.values()
        log.error("environment %s: %s\n%s", self._cls.name(), what, hidden(trace(error), secrets))


def _kinds(prompt: Any) -> str:
    if not isinstance(prompt, list | tuple):
        return "None" if prompt is None else type(prompt).__name__
    return f"a list with {', '.join(sorted({type(block).__name__ for block in prompt}))}"
