"""What servers send, read into types: keys may be missing or new, but values are of the right type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn

from ors.errors import ORSError, ServerFailed, ToolCallError, ToolFailed
from ors.types import ImageBlock, JSONObject, TerminalToolSpec, TextBlock, ToolOutput

__all__ = ["Task", "blocks", "field", "items", "object_of", "terminal_tool", "tool_output", "tools"]

Complaint = Callable[[str], ORSError]


@dataclass
class Task:
    """A task of an environment."""

    environment_name: str
    task_spec: JSONObject


def object_of(answer: Any) -> Mapping[str, Any]:
    """`answer`, which is an object.

    Raises:
        ServerFailed: it is not.
    """
    if not isinstance(answer, Mapping):
        raise _failed(f"it is {_named(answer)}, not an object")
    return answer


def field(answer: Any, key: str, kind: type = object) -> Any:
    """`answer[key]`, which is of that kind.

    Raises:
        ServerFailed: it is not there, or of another kind.
    """
    if not isinstance(answer, Mapping) or key not in answer:
        raise ServerFailed(f"the server's answer has no {key!r}")
    value = answer[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        _wrong(key, value, _KINDS[kind], _failed)
    return value


def items(answer: Any, kind: type, what: str) -> list[Any]:
    """`answer`, which is a list of things of that kind.

    Raises:
        ServerFailed: it is not.
    """
    if not isinstance(answer, list) or not all(isinstance(item, kind) for item in answer):
        raise ServerFailed(f"the server's answer is no list of {what}")
    return answer


def tools(answer: Any, *, terminal: bool = False) -> dict[str, list[Any]]:
    """The part of `answer` that lists tools, with `terminal` also the one for the agent's last message.

    Raises:
        ServerFailed: there is none, or one of them has no name.
    """
    found = items(field(answer, "tools"), Mapping, "tools")
    if not all(isinstance(tool.get("name"), str) for tool in found):
        raise ServerFailed("the server's answer has a tool without a name")
    for tool in found:
        _optional(tool, "description", str, _failed)
        _optional(tool, "input_schema", Mapping, _failed)
    last = terminal_tool(answer) if terminal else None
    return {"tools": found if last is None else [*found, last.as_tool().model_dump()]}


def terminal_tool(answer: Mapping[str, Any]) -> TerminalToolSpec | None:
    """The tool that the agent's last message goes to, in an `answer` that lists tools.

    Raises:
        ServerFailed: it is not one.
    """
    found = answer.get("terminal_tool")
    if found is None:
        return None
    return TerminalToolSpec(
        name=field(found, "name", str),
        arg=_optional(found, "arg", str, _failed),
        description=_optional(found, "description", str, _failed) or "",
    )


def blocks(values: Any) -> list[TextBlock | ImageBlock]:
    """Text and images of a prompt; kinds of blocks that are not known yet are left out.

    Raises:
        ServerFailed: these are no blocks.
    """
    return _blocks(values, _failed)


def tool_output(result: Any) -> ToolOutput:
    """The output of a call.

    Raises:
        ToolCallError: the call was refused. ToolFailed: what came is not a result.
    """
    if not isinstance(result, Mapping):
        raise _not_valid(f"it is {_named(result)}, not an object")
    ok, output = result.get("ok"), result.get("output")
    if ok is False:
        reason = result.get("reason")
        raise ToolCallError(str(result.get("error", "")), reason=None if reason is None else str(reason))
    if ok is not True:
        _wrong("ok", ok, "true or false", _not_valid)
    if not isinstance(output, Mapping):
        _wrong("output", output, "an object", _not_valid)
    # Not by the model: it takes "NaN" for a number and "no" for a truth.
    return ToolOutput.model_construct(
        blocks=_blocks(output.get("blocks") or [], _not_valid),
        metadata=_optional(output, "metadata", Mapping, _not_valid),
        reward=_reward(output.get("reward")),
        finished=bool(_optional(output, "finished", bool, _not_valid)),
    )


def _reward(value: Any) -> float | None:
    if value is None or (type(value) is float and isfinite(value)):
        return value
    if type(value) is not int:
        _wrong("reward", value, "a finite number", _not_valid)
    try:
        return float(value)
    except OverflowError:
        raise _not_valid("'reward' is too large a number") from None


def _blocks(values: Any, complaint: Complaint) -> list[TextBlock | ImageBlock]:
    if not isinstance(values, list):
        _wrong("blocks", values, "a list", complaint)
    found: list[TextBlock | ImageBlock] = []
    for value in values:
        if not isinstance(value, Mapping):
            raise complaint(f"a block is {_named(value)}, not an object")
        kind = value.get("type", "image" if "data" in value else "text")
        detail = _optional(value, "detail", Mapping, complaint)
        if kind == "text":
            found.append(TextBlock(text=_text(value, "text", complaint), detail=detail))
        elif kind == "image":
            data, mime = _text(value, "data", complaint), _text(value, "mimeType", complaint)
            found.append(ImageBlock(data=data, mimeType=mime, detail=detail))
    return found


def _text(value: Mapping[str, Any], key: str, complaint: Complaint) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else _wrong(key, text, "a string", complaint)


def _optional(value: Mapping[str, Any], key: str, kind: type, complaint: Complaint) -> Any:
    found = value.get(key)
    return found if found is None or isinstance(found, kind) else _wrong(key, found, _KINDS[kind], complaint)


def _wrong(key: str, value: Any, wanted: str, complaint: Complaint) -> NoReturn:
    raise complaint(f"{key!r} is {_named(value)}, not {wanted}")


def _failed(problem: str) -> ORSError:
    return ServerFailed(f"the server's answer is not valid: {problem}")


def _not_valid(problem: str) -> ORSError:
    return ToolFailed(f"the result is not valid: {problem}")


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    Mapping: "an object",
}


def _named(value: Any) -> str:
    # The value itself is not told: it may be long, or a secret.
    if isinstance(value, float) and not isfinite(value):
        return "infinite"
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), "null")
