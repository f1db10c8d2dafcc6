"""Reads the JSON of servers into types: keys may be missing or unknown, values must have the right type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, NoReturn, get_args

from ors._json import loads
from ors.errors import ORSError, ServerFailed, ToolCallError, ToolFailed
from ors.types import Block, Blocks, JSONObject, RewardSpec, TerminalToolSpec, ToolOutput

ErrorFrom = Callable[[str], ORSError]


@dataclass
class Task:
    """A task of an environment."""

    environment_name: str
    task_spec: JSONObject


class SessionScore(NamedTuple):
    """All calls of a session so far: their rewards, if they gave one, and whether the last one failed."""

    calls: int
    rewards: list[float]
    finished: bool
    failed: bool


def object_of(answer: Any) -> Mapping[str, Any]:
    """Checks that `answer` is an object.

    Raises:
        ServerFailed: it is not.
    """
    if not isinstance(answer, Mapping):
        raise _failed(f"it is {_named(answer)}, not an object")
    return answer


def field(answer: Any, key: str, kind: type = object) -> Any:
    """`answer[key]`, checked to be of type `kind`.

    Raises:
        ServerFailed: it is missing, or of another type.
    """
    if not isinstance(answer, Mapping) or key not in answer:
        raise ServerFailed(f"the server's answer has no {key!r}")
    value = answer[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        _wrong(key, value, _KINDS[kind], _failed)
    return value


def items(answer: Any, kind: type, what: str) -> list[Any]:
    """Checks that `answer` is a list of items of type `kind`.

    Raises:
        ServerFailed: it is not.
    """
    if not isinstance(answer, list) or not all(isinstance(item, kind) for item in answer):
        raise ServerFailed(f"the server's answer is not a list of {what}")
    return answer


def tools(answer: Any, *, terminal: bool = False) -> dict[str, list[Any]]:
    """The tools of `answer`, with `terminal` also the `@terminal` one.

    Raises:
        ServerFailed: there is no such list, or a tool is not valid.
    """
    found = items(field(answer, "tools"), Mapping, "tools")
    if not all(isinstance(tool.get("name"), str) for tool in found):
        raise ServerFailed("the server's answer has a tool without a name")
    for tool in found:
        _optional(tool, "description", str, _failed)
        _optional(tool, "input_schema", dict, _failed)
    last = terminal_tool(answer) if terminal else None
    return {"tools": found if last is None else [*found, last.as_tool().model_dump()]}


def terminal_tool(answer: Mapping[str, Any]) -> TerminalToolSpec | None:
    """The `@terminal` tool of an `answer` that lists tools; None if there is none.

    Raises:
        ServerFailed: it is not valid.
    """
    found = answer.get("terminal_tool")
    if found is None:
        return None
    return TerminalToolSpec(
        name=field(found, "name", str),
        arg=_optional(found, "arg", str, _failed),
        description=_optional(found, "description", str, _failed) or "",
    )


def required_secrets(answer: Mapping[str, Any]) -> list[str]:
    """The names of the secrets that an environment needs, of an `answer` that lists its tools.

    Raises:
        ServerFailed: they are not a list of names.
    """
    found = answer.get("required_secrets")
    return [] if found is None else items(found, str, "names of secrets")


def reward_spec(answer: Mapping[str, Any]) -> RewardSpec:
    """What an environment declares of its rewards, of an `answer` that lists its tools."""
    try:
        return RewardSpec.of(answer.get("reward_range"), answer.get("reward_components"))
    except ValueError:  # of a server whose keys mean something else
        return RewardSpec()


def blocks(values: Any) -> Blocks:
    """The blocks of a prompt, without those of unknown types.

    Raises:
        ServerFailed: a block is not valid.
    """
    return _blocks(values, _failed)


def tool_output(text: bytes | str) -> ToolOutput:
    """The output of a call, whose result is given as JSON.

    Raises:
        ToolCallError: the call was refused. ToolFailed: the result is not valid.
    """
    try:
        result = loads(text)
    except ValueError as error:
        raise _not_valid(str(error)) from None
    if not isinstance(result, dict):
        raise _not_valid(f"it is {_named(result)}, not an object")
    ok, output = result.get("ok"), result.get("output")
    if ok is False:
        reason = result.get("reason")
        raise ToolCallError(str(result.get("error", "")), reason=None if reason is None else str(reason))
    if ok is not True:
        _wrong("ok", ok, "true or false", _not_valid)
    if not isinstance(output, dict):
        _wrong("output", output, "an object", _not_valid)
    metadata = _optional(output, "metadata", dict, _not_valid)
    # Checked here: pydantic reads "NaN" as a number and "no" as false. `model_construct` takes twice as long.
    made: ToolOutput = _OUTPUT.validate_python(
        {
            "blocks": _blocks(output.get("blocks") or [], _not_valid),
            "metadata": None,
            "reward": _reward(output.get("reward")),
            "finished": bool(_optional(output, "finished", bool, _not_valid)),
        }
    )
    if metadata is not None:  # past pydantic: it comes from JSON, and would take 2 µs to check
        made.__dict__["metadata"] = metadata
    return made


def _reward(value: Any) -> float | None:
    if value is None or (type(value) is float and isfinite(value)):
        return value
    if type(value) is not int:
        _wrong("reward", value, "a finite number", _not_valid)
    try:
        return float(value)
    except OverflowError:
        raise _not_valid("'reward' is too large a number") from None


def _blocks(values: Any, error_from: ErrorFrom) -> Blocks:
    if not isinstance(values, list):
        _wrong("blocks", values, "a list", error_from)
    found: Blocks = []
    for value in values:
        if not isinstance(value, dict):
            raise error_from(f"a block is {_named(value)}, not an object")
        kind = value.get("type", "image" if "data" in value else "text")
        given: dict[str, Any] = {"detail": _optional(value, "detail", dict, error_from)}
        if isinstance(kind, str) and kind in _BLOCKS:
            block, keys = _BLOCKS[kind]
            for key in keys:  # a comprehension would add 0.4 µs
                given[key] = _text(value, key, error_from)
            found.append(block.validate_python(given))
    return found


def _text(value: Mapping[str, Any], key: str, error_from: ErrorFrom) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else _wrong(key, text, "a string", error_from)


def _optional(value: Mapping[str, Any], key: str, kind: type, error_from: ErrorFrom) -> Any:
    found = value.get(key)
    return found if found is None or isinstance(found, kind) else _wrong(key, found, _KINDS[kind], error_from)


def _wrong(key: str, value: Any, wanted: str, error_from: ErrorFrom) -> NoReturn:
    raise error_from(f"{key!r} is {_named(value)}, not {wanted}")


def _failed(problem: str) -> ORSError:
    return ServerFailed(f"the server's answer is not valid: {problem}")


def _not_valid(problem: str) -> ORSError:
    return ToolFailed(f"the result is not valid: {problem}")


_OUTPUT = ToolOutput.__pydantic_validator__
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    Mapping: "an object",
}


_BLOCKS = {
    block.model_fields["type"].default: (
        block.__pydantic_validator__,
        [key for key, field in block.model_fields.items() if field.is_required()],
    )
    for block in get_args(Block)
}
"""The kinds of blocks, each with its keys that must be there; all of them hold strings."""


def _named(value: Any) -> str:
    # Never the value itself: it may be long, or a secret.
    if isinstance(value, float) and not isfinite(value):
        return "infinite"
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), "null")
