"""The base classes of `openreward.environments`: ours, with what its authors expect of theirs."""

import ast
import base64
import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import ors
from ors import terminal
from ors._authoring.tools import Toolbox
from ors.environment import Secrets
from ors.errors import InvalidEnvironment
from ors.server.episodes.error_text import ReturnErrors
from ors.types import JSONObject, RunToolError, RunToolOutput, RunToolSuccess, TerminalToolSpec

__all__ = ["Environment", "Server", "Toolset", "download_text", "terminal", "tool", "upload_text"]

PLATFORM = ("api_key", "OPENREWARD_API_KEY")
"""Secrets that openreward's client always sends; with ours behind, nothing checks them."""
LEFT_OUT = ("get_messages", "score_group")


def tool(fn: Any = None, *, shared: bool = True, concurrent: bool = False, exclusive: bool = False) -> Any:
    """Makes a method a tool. An `exclusive` one is not concurrent: on our server such a call runs alone."""
    mark = ors.tool(shared=shared, concurrent=concurrent and not exclusive)
    return mark if fn is None else mark(fn)


class Environment(ors.Environment):
    """Base class with the methods of openreward's, which also work without a server."""

    _episode_finished = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "required_secrets" not in vars(cls):
            cls.required_secrets = sorted(set(_required(cls)) - set(PLATFORM))

    def __new__(cls, task_spec: JSONObject = {}, secrets: Any = None) -> "Environment":  # noqa: B006
        if isinstance(secrets, Secrets):  # a server's, not the dictionary of a test
            for name in PLATFORM:
                secrets.setdefault(name, "not-checked-by-ors")
        return super().__new__(cls)

    def __init__(self, task_spec: JSONObject = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        self.task_spec = task_spec  # and no secrets: authors may have a property of that name
        self._toolset_instances: dict[type, Any] = {}

    @classmethod
    def _with_toolset(cls, name: str) -> type[ors.Environment]:
        found = import_module("ors.openreward.toolsets").FOR_SESSIONS.get(name)  # which imports this module
        if found is None:
            return super()._with_toolset(name)
        others = [_without(each, found) for each in cls.toolsets or () if each is not found]
        made: type[Environment] = _without(cls, found, toolsets=[*others, found])
        return made

    @classmethod
    def terminal_tool(cls) -> TerminalToolSpec | None:
        """The tool that takes the agent's last message; None if there is none."""
        return cls.list_tools().terminal_tool

    @classmethod
    def is_assistant_message_final(cls) -> bool:
        """Whether a message without tool calls ends the episode."""
        return cls.terminal_tool() is not None

    async def call_terminal_tool(self, message: str = "") -> RunToolOutput:
        """Ends the episode with a message."""
        spec = self.terminal_tool()
        if spec is None:
            raise ValueError(f"{self.name()!r} has no @terminal tool")
        return await self._call_tool(spec.name, {} if spec.arg is None else {spec.arg: message})

    async def _call_tool(self, name: str, input: JSONObject) -> RunToolOutput:
        # For calls without a server, whose sessions have a latch of their own.
        if not self._episode_finished:
            result = await super()._call_tool(name, input)
            if not self._episode_finished:  # by a call that overlapped: the first end counts
                found = result.root
                self._episode_finished = isinstance(found, RunToolSuccess) and found.output.finished
                return result
        text = f"{name!r} was not run: the episode has finished"
        return RunToolOutput(RunToolError(error=text, reason="episode_finished"))


def _without(owner: type, toolset: type, **members: Any) -> Any:
    """A class like `owner`, whose methods are not tools where the toolset has one of that name."""

    def plain(name: str) -> Callable[..., Any]:
        return lambda self, *given, **named: getattr(super(made, self), name)(*given, **named)

    names = Toolbox(toolset).by_name.keys() & Toolbox(owner).by_name
    about = {"__module__": owner.__module__, "__doc__": owner.__doc__}
    made: Any = type(owner.__name__, (owner,), {**about, **members, **{name: plain(name) for name in names}})
    return made


def _required(cls: type) -> Iterator[str]:
    """Names of the secrets without which the constructor raises, as far as its source says so."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(vars(cls)["__init__"])))
    except (KeyError, OSError, TypeError, SyntaxError):
        return
    read: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=variable)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="secrets"), attr="get"),
                    args=[ast.Constant(value=str(name))],
                ),
            ):
                read[variable] = name
    for node in ast.walk(tree):
        match node:
            case ast.If(
                test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=variable)), body=[*_, ast.Raise()]
            ):
                yield from [read[variable]] if variable in read else []


class Toolset(ors.Toolset):
    """Tools that several environments share, with the sandbox of the environment."""

    label = ""

    def __init__(self, env: Any, sandbox_attr: str = "sandbox") -> None:
        super().__init__(env)
        self.sandbox: Any = getattr(env, sandbox_attr, None)
        if self.sandbox is None:
            raise ValueError(f"{type(self).__name__} requires `env.{sandbox_attr}`, which is not set")

    @classmethod
    def name(cls) -> str:
        return cls.label or cls.__name__


class Server(ors.Server):
    """Serves environments; the arguments are those of openreward's."""

    def __init__(
        self, environments: Sequence[type[ors.Environment]], return_errors: ReturnErrors = "exception"
    ) -> None:
        for cls in environments:
            for name in LEFT_OUT:
                if hasattr(cls, name):
                    raise InvalidEnvironment(f"{cls.__name__}.{name}: ors does not offer {name}")
        super().__init__(environments, return_errors)

    def run(self, host: str = "0.0.0.0", port: int = 8080, **more: Any) -> None:
        super().run(host, port, **more)


async def download_text(sandbox: Any, path: str, encoding: str = "utf-8") -> str:
    data: bytes = await sandbox.download(path)
    return data.decode(encoding)


async def upload_text(sandbox: Any, path: str, content: str, *, ensure_trailing_newline: bool = True) -> None:
    end = "\n" if ensure_trailing_newline and not content.endswith("\n") else ""
    data = base64.b64encode((content + end).encode()).decode()
    await sandbox.check_run(f"echo '{data}' | base64 -d > {shlex.quote(path)}")
