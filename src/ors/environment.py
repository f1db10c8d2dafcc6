"""Environments and toolsets: the base classes for authors."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ors._authoring.declared import Listing, declare_config, declare_tasks, described, task_files, validated
from ors._authoring.tool_signatures import checked
from ors._authoring.tools import Spawn, Toolbox, call, live_tools, method, terminal, tool
from ors._identity import Identity, identity_of
from ors.errors import BadRequest, InvalidEnvironment, ToolError
from ors.types import (
    Block,
    JSONObject,
    ListToolsOutput,
    RewardSpec,
    RunToolError,
    RunToolOutput,
    RunToolSuccess,
    Split,
)

Prompt = str | Sequence[Block]
_TOOLSETS = "_toolset_instances"
_GIVEN = ("task_spec", "secrets")

__all__ = ["Environment", "Secrets", "Toolset", "terminal", "tool"]


class Secrets(dict[str, str]):
    """Secrets by name: a dictionary that hides its values when printed."""

    def __repr__(self) -> str:
        return f"Secrets({', '.join(f'{name}=***' for name in self)})"

    __str__ = __repr__


class Environment(ABC):
    """A task, the tools to work on it, and the rewards. One instance is one episode.

    Declare the tasks in `tasks`, or write `list_splits` and `list_tasks`.

    Every method may be `def` or `async def`. A `def` method runs in a thread, so it may block.
    """

    tasks: ClassVar[Any] = None
    """Tasks by split: {"train": [{...}, ...], "test": "test.jsonl"}. Or the path of a file, whose split is
    "train", or of a folder with one file for each split. Relative paths begin beside the class's module."""
    max_steps: ClassVar[int | None] = None
    """Calls after which an episode is finished. Calls that the tool refuses count too."""
    toolsets: ClassVar[Sequence[type]] = ()
    """Toolset classes whose tools this environment has too."""
    calls_after_finished: ClassVar[bool] = False
    """Whether tools may be called after one has returned `finished=True`."""
    limits: ClassVar[Mapping[str, float | None]] = {}
    """Limits of this environment, by their names in `ors.Limits`: {"tool_seconds": 30}."""
    required_secrets: ClassVar[Sequence[str]] = ()
    """Names of secrets without which no session is created: ["openai_api_key"]."""
    private_fields: ClassVar[Any] = ()
    """Names of task fields that task lists hide, or a class method that returns them.

    Sessions by split and index still get the complete task."""
    if TYPE_CHECKING:  # they are optional, and tools may have these names
        config: ClassVar[Any]
        """The parameters: an instance of the pydantic model `Config` that a class may declare in itself.

        The values are public, and the same for all episodes: do not change them, and put no secret there."""
        grade: ClassVar[Any]
        """A method `grade(self, transcript)`, with which `ors regrade` grades recorded episodes.

        It gets an `ors.rollouts.Transcript`, and returns a number, a dictionary of named rewards, a
        ToolOutput, or None for no reward. `setup` is not called before it."""

    reward_range: ClassVar[Any] = None
    """The least and the highest reward of an episode, such as (0, 1)."""
    reward_components: ClassVar[Any] = None
    """Names of rewards, each with a sentence: {"correct": "Whether the answer is right."}."""

    _rewards: ClassVar[RewardSpec] = RewardSpec()
    _toolbox: ClassVar[Toolbox]
    _listing: ClassVar[Listing]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Not inherited: a subclass has tasks of its own.
        cls._listing = Listing(cls)
        declare_tasks(cls, Environment)
        declare_config(cls)
        cls._rewards = _declared_rewards(cls)

    def __init__(self, task_spec: JSONObject = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        self.task_spec = task_spec
        self.secrets = Secrets(secrets or {})

    @classmethod
    def configured(cls, name: str | None = None, /, **parameters: Any) -> type[Self]:
        """A variant of this environment: a subclass with these parameters and its own name.

        `Server([Adder, Adder.configured("hard", difficulty=9)])` serves both.

        Raises:
            InvalidEnvironment: a value is wrong or missing, or there is no such parameter.
        """
        space: dict[str, Any] = {"config": validated(cls, parameters)} if parameters else {}
        space |= {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
        if name is not None:
            space["name"] = classmethod(lambda cls: name)
        made: type[Self] = type(cls)(cls.__name__, (cls,), space)  # type: ignore[misc]
        return made

    @classmethod
    def startup(cls) -> Any:  # so that an override may be `def` or `async def`
        """Prepares what all episodes share, such as a model; called once at the start of each process."""
        return None

    @classmethod
    def shutdown(cls) -> Any:
        """Releases what `startup` prepared; called once when the process ends, after all teardowns."""
        return None

    if not TYPE_CHECKING:  # a type checker would take every attribute for defined

        def __getattr__(self, name: str) -> Any:
            why = ": __init__ must call super().__init__(task_spec, secrets)" if name in _GIVEN else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{why}")

    def setup(self) -> Awaitable[None] | None:
        """Prepares the episode; called once, before all other methods."""
        return None

    def teardown(self) -> Awaitable[None] | None:
        """Cleans up; called once when the episode ends, even if setup failed."""
        return None

    def fork(self) -> Any:  # so that an override may be `def` or `async def`
        """A copy of this episode for a new session, made between two calls; by default a deep copy.

        Raises:
            TypeError: an attribute cannot be copied; the message names it.
        """
        toolsets = self.__dict__.get(_TOOLSETS, {})
        copies: dict[type, Any] = {}
        copier = Copier({id(toolsets): copies})
        made = copier.copy(self)
        copies.update((cls, copier.copy(one)) for cls, one in toolsets.items() if own_fork(one) is None)
        return made

    @abstractmethod
    def get_prompt(self) -> Prompt | Awaitable[Prompt]:
        """The prompt: what the agent sees first, as a string or blocks."""

    @classmethod
    def list_splits(cls) -> Sequence[Split | str] | Awaitable[Sequence[Split | str]]:
        """The splits. The strings "train" and "test" have that type, all others have type "validation"."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # which cannot know that a class with `tasks` has it
        list_splits = classmethod(abstractmethod(list_splits.__func__))

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[JSONObject] | Awaitable[Sequence[JSONObject]]:
        """All tasks of a split. If there are too many to list, define num_tasks and get_task instead."""
        raise NotImplementedError(f"{cls.__name__} does not list its tasks: use num_tasks and get_task")

    # These three return `Any`, so that an override may be `def` or `async def`.

    @classmethod
    async def num_tasks(cls, split: str) -> Any:
        """The number of tasks in a split."""
        return len(await cls._listing.tasks(split))

    @classmethod
    async def get_task(cls, split: str, index: int) -> Any:
        """The task at an index of a split."""
        return (await cls._listing.tasks(split))[index]

    @classmethod
    async def get_task_range(cls, split: str, start: int | None = None, stop: int | None = None) -> Any:
        """The tasks from `start` to `stop`, as a slice."""
        if getattr_static(cls, "get_task") is getattr_static(Environment, "get_task"):
            tasks: Any = await cls._listing.tasks(split)
            if isinstance(tasks, list | tuple):
                return list(tasks[start:stop])
            return list(await call(getitem, tasks, slice(start, stop)))  # in a thread: it may read a file
        from asyncio import sleep  # late, as in ors._authoring.tools

        indices = range(await call(cls.num_tasks, split))[start:stop]
        found = []
        for count, index in enumerate(indices, 1):
            found.append(await call(cls.get_task, split, index))
            if count % 100 == 0:
                await sleep(0)  # an `async def` that never waits would block the event loop
        return found

    @classmethod
    def list_tools(cls) -> ListToolsOutput:
        """The tools that every task has."""
        tools = cls._tools()
        return ListToolsOutput(tools=tools.specs(shared=True), terminal_tool=tools.terminal())

    def list_task_tools(self) -> Any:  # so that an override may be `def` or `async def`
        """The tools of this task only, as ListToolsOutput; by default all `@tool(shared=False)` ones
        and those of MCP servers."""
        live = [spec for each in live_tools(self) for spec in each.specs]
        return ListToolsOutput(tools=[*self._tools().specs(shared=False), *live])

    async def _call_tool(self, name: str, input: JSONObject) -> RunToolOutput:
        """Runs a tool by name. Override it to serve tools that have no method."""
        try:
            tools = self._tools()
            output = checked(name, await tools.run(self, name, tools.by_name.get(name), input))
        except ToolError as error:
            return RunToolOutput(RunToolError(error=str(error), reason=error.reason))
        return RunToolOutput(RunToolSuccess(output=output))

    @classmethod
    def name(cls) -> str:
        """The environment's name; on the wire it is in lower case."""
        return cls.__name__

    @classmethod
    def _identity(cls) -> Identity:
        parameters = (described(cls) or {}).get("values")
        return replace(identity_of(cls, task_files(cls)), parameters=parameters)

    @classmethod
    def _with_toolset(cls, name: str) -> "type[Environment]":
        """This class with tools that a session asks for by name. Raises BadRequest if there are none."""
        raise BadRequest(f"toolset_name {name!r}: {cls.name()!r} has no toolsets for sessions to choose")

    @classmethod
    def _tools(cls) -> Toolbox:
        if "_toolbox" not in cls.__dict__:
            overridden = not cls._call_tool.__module__.startswith("ors.")
            if not isinstance(cls.toolsets, Sequence | None):
                raise InvalidEnvironment(f"{cls.__name__}.toolsets is a list of classes, as in [MyToolset]")
            cls._toolbox = Toolbox(cls, tuple(cls.toolsets or ()), overridden=overridden)
        return cls._toolbox


def _declared_rewards(cls: type[Environment]) -> RewardSpec:
    given = [getattr_static(cls, name) for name in ("reward_range", "reward_components")]
    # A method or a property of that name is the author's own.
    own = [callable(each) or hasattr(each, "__get__") for each in given]
    try:
        return RewardSpec.of(*(None if mine else each for each, mine in zip(given, own, strict=True)))
    except ValueError as error:
        raise InvalidEnvironment(f"{cls.__name__}.{error}") from None


class Toolset:
    """Tools that several environments share: list the class in `Environment.toolsets`."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def fork(self, env: Any) -> Any:  # so that an override may be `def` or `async def`
        """A copy of this toolset for `env`, the copy of its environment. By default a deep copy.

        Raises:
            TypeError: an attribute cannot be copied; the message names it.
        """
        return Copier({id(self.env): env}).copy(self)


def own_fork(target: Any) -> Callable[..., Any] | None:
    """The `fork` that the author of an environment or a toolset has defined; None if there is none."""
    defined = getattr(type(target), "fork", None)
    if defined in (None, Environment.fork, Toolset.fork) or getattr(defined, "_env_tool", False):
        return None
    return method(target, "fork")  # type: ignore[no-any-return]


async def fork_toolsets(env: Any, made: Any, spawn: Spawn) -> None:
    """Gives `made`, a copy of `env`, those toolsets that its `fork` has not copied."""
    toolsets = env.__dict__.get(_TOOLSETS, {})
    if made.__dict__.get(_TOOLSETS, toolsets) is toolsets:  # none, or a shallow copy
        made.__dict__[_TOOLSETS] = {}
    for cls, one in toolsets.items():
        if cls not in made.__dict__[_TOOLSETS]:
            own = own_fork(one)
            fork = partial(own, made) if own else partial(Copier({id(env): made}).copy, one)
            made.__dict__[_TOOLSETS][cls] = await call(fork, spawn=spawn)


class Copier:
    """Copies objects that refer to each other. `known` has copies that exist already, by id of the first."""

    def __init__(self, known: Mapping[int, Any]) -> None:
        self._known = known
        self._memo = dict(known)

    def copy(self, thing: Any) -> Any:
        """A deep copy. Raises a TypeError that names the attribute that cannot be copied."""
        try:
            return deepcopy(thing, self._memo)
        except Exception as error:
            text = f"{self._culprit(thing)} cannot be copied ({error}): define fork() in the class"
            raise TypeError(text) from error

    def _culprit(self, thing: Any) -> str:
        owner = type(thing).__name__
        for name, value in getattr(thing, "__dict__", {}).items():
            try:
                # Not with the memo, which holds parts of what could not be copied.
                deepcopy(value, {**self._known, id(thing): thing})
            except Exception:
                return f"{owner}.{name}"
        return owner
