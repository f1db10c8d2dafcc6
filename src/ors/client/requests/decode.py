"""Reads the JSON of servers into types: keys may be missing or unknown, values must have the right type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, get_args, overload

from pydantic import TypeAdapter, ValidationError

from ors._json import loads, problems
from ors.errors import ORSError, ServerFailed, ToolCallError, ToolFailed
from ors.providers import Provider
from ors.providers.convert import convert_tool_response
from ors.types import Block, Blocks, JSONObject, RewardSpec, TerminalToolSpec, ToolOutput, ToolSpec

ErrorFrom = Callable[[str], ORSError]


@dataclass
class Task:
    """A task of an environment."""

    environment_name: str
    task_spec: JSONObject


class SessionScore(NamedTuple):
    """All calls of a session so far: their rewards, if any, and whether the last one failed."""

    calls: int
    rewards: list[float]
    finished: bool
    failed: bool


def object_of(answer: Any) -> Mapping[str, Any]:
    """Checks that `answer` is an object. Raises ServerFailed: it is not."""
    if not isinstance(answer, Mapping):
        raise _failed("it is not an object")
    return answer


def field(answer: Any, key: str, kind: type = object) -> Any:
    """`answer[key]`, checked to be of type `kind`. Raises ServerFailed: it is missing, or of another type."""
    if not isinstance(answer, Mapping) or key not in answer:
        raise ServerFailed(f"the server's answer has no {key!r}")
    value = answer[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise _failed(f"{key!r} is not {_KINDS[kind]}")
    return value


def items(answer: Any, kind: type, what: str) -> list[Any]:
    """Checks that `answer` is a list of items of type `kind`. Raises ServerFailed: it is not."""
    if not isinstance(answer, list) or not all(isinstance(item, kind) for item in answer):
        raise ServerFailed(f"the server's answer is not a list of {what}")
    return answer


class HasTools:
    """Whatever lists tools: an environment, or a session."""

    async def _tools(self) -> Any:
        raise NotImplementedError

    @overload
    async def list_tools(self, format: None = None, *, terminal: bool = False) -> list[ToolSpec]: ...

    @overload
    async def list_tools(self, format: Provider, *, terminal: bool = False) -> list[dict[str, Any]]: ...

    async def list_tools(
        self, format: Provider | None = None, *, terminal: bool = False
    ) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of the task, or those that all tasks share: as `ToolSpec`, or in a provider's format.

        The `@terminal` tool is among them only if `terminal` is set.

        Raises:
            SessionLost, ResponseError, TransportError: the server refused, or was not reached.
        """
        return convert_tool_response(tools(await self._tools(), terminal=terminal), format)

    async def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool, which takes the agent's last message; None if there is none.

        Raises:
            SessionLost, ResponseError, TransportError: the server refused, or was not reached.
        """
        return terminal_tool(await self._tools())

    async def is_assistant_message_final(self) -> bool:
        """Whether there is a `@terminal` tool, so that a message without tool calls ends the episode.

        If so, give the text to `call_terminal_tool`, and stop. Raises as `terminal_tool`.
        """
        return await self.terminal_tool() is not None


def tools(answer: Any, *, terminal: bool = False) -> dict[str, list[Any]]:
    """The tools of `answer`, with `terminal` also the `@terminal` one. Raises ServerFailed."""
    found = items(field(answer, "tools"), Mapping, "tools")
    if not all(isinstance(tool.get("name"), str) for tool in found):
        raise ServerFailed("the server's answer has a tool without a name")
    for tool in found:
        _optional(tool, "description", str, _failed)
        _optional(tool, "input_schema", dict, _failed)
    last = terminal_tool(answer) if terminal else None
    return {"tools": found if last is None else [*found, last.as_tool().model_dump()]}


def terminal_tool(answer: Any) -> TerminalToolSpec | None:
    """The `@terminal` tool of an `answer` that lists tools; None if there is none. Raises ServerFailed."""
    found = object_of(answer).get("terminal_tool")
    if found is None:
        return None
    return TerminalToolSpec(
        name=field(found, "name", str),
        arg=_optional(found, "arg", str, _failed),
        description=_optional(found, "description", str, _failed) or "",
    )


def reward_spec(answer: Mapping[str, Any]) -> RewardSpec:
    """What an environment declares of its rewards, of an `answer` that lists its tools."""
    try:
        return RewardSpec.of(answer.get("reward_range"), answer.get("reward_components"))
    except ValueError:  # of a server whose keys mean something else
        return RewardSpec()


def blocks(values: Any) -> Blocks:
    """The blocks of a prompt, without those of unknown types. Raises ServerFailed: a block is not valid."""
    return list(_valid(_BLOCKS, _of_known_types(values), _failed, "blocks"))


def tool_output(text: bytes | str) -> ToolOutput:
    """The output of a call, whose result is given as JSON. Raises ToolCallError, ToolFailed."""
    try:
        result = loads(text)
    except ValueError as error:
        raise _not_valid(str(error)) from None
    if not isinstance(result, dict):
        raise _not_valid("it is not an object")
    ok, output = result.get("ok"), result.get("output")
    if ok is False:
        reason = result.get("reason")
        raise ToolCallError(str(result.get("error", "")), reason=None if reason is None else str(reason))
    if ok is not True or not isinstance(output, dict):
        raise _not_valid("'ok' is not true or false, or 'output' is not an object")
    metadata = _optional(output, "metadata", dict, _not_valid)
    output["metadata"] = None
    try:
        # Strict: otherwise pydantic reads "NaN" as a number and "no" as false.
        made: ToolOutput = _OUTPUT.validate_python(output, strict=True, extra="ignore")
    except ValidationError:
        known = {key: value for key, value in output.items() if value is not None}
        known["blocks"] = _of_known_types(known.get("blocks", []))
        made = _valid(_OUTPUT, known, _not_valid)
    if made.reward is not None and not isfinite(made.reward):
        raise _not_valid("'reward' is not a finite number")
    if metadata is not None:  # past pydantic: it comes from JSON, and would take 2 µs to check
        made.__dict__["metadata"] = metadata
    return made


def _of_known_types(values: Any) -> Any:
    if not isinstance(values, list):
        return values
    return [value for value in values if not isinstance(value, dict) or value.get("type", "text") in _TYPES]


def _valid(validator: Any, value: Any, error_from: ErrorFrom, root: str = "") -> Any:
    try:
        return validator.validate_python(value, strict=True, extra="ignore")
    except ValidationError as error:
        raise error_from(problems(error, root)) from None


def _optional(value: Mapping[str, Any], key: str, kind: type, error_from: ErrorFrom) -> Any:
    found = value.get(key)
    if found is not None and not isinstance(found, kind):
        raise error_from(f"{key!r} is not {_KINDS[kind]}")
    return found


def _failed(problem: str) -> ORSError:
    return ServerFailed(f"the server's answer is not valid: {problem}")


def _not_valid(problem: str) -> ORSError:
    return ToolFailed(f"the result is not valid: {problem}")


_OUTPUT = ToolOutput.__pydantic_validator__
_BLOCKS = TypeAdapter[Blocks](Blocks).validator
_TYPES = [block.model_fields["type"].default for block in get_args(Block)]
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    list: "a list",
    dict: "an object",
    Mapping: "an object",
}
