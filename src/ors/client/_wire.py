"""What servers send, read into types: tolerant of keys that are missing and keys that are new."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ors.errors import ServerFailed, ToolCallError, ToolFailed
from ors.types import ImageBlock, JSONObject, TextBlock, ToolOutput

__all__ = ["Task", "blocks", "field", "items", "tool_output", "tools"]


@dataclass
class Task:
    """A task of an environment."""

    environment_name: str
    task_spec: JSONObject


def field(answer: Any, key: str) -> Any:
    """`answer[key]`.

    Raises:
        ServerFailed: it is not there.
    """
    if not isinstance(answer, Mapping) or key not in answer:
        raise ServerFailed(f"the server's answer has no {key!r}")
    return answer[key]


def items(answer: Any, kind: type, what: str) -> list[Any]:
    """`answer`, which is a list of things of that kind.

    Raises:
        ServerFailed: it is not.
    """
    if not isinstance(answer, list) or not all(isinstance(item, kind) for item in answer):
        raise ServerFailed(f"the server's answer is no list of {what}")
    return answer


def tools(answer: Any) -> dict[str, list[Any]]:
    """The part of `answer` that lists tools.

    Raises:
        ServerFailed: there is none, or one of them has no name.
    """
    found = items(field(answer, "tools"), Mapping, "tools")
    if not all(isinstance(tool.get("name"), str) for tool in found):
        raise ServerFailed("the server's answer has a tool without a name")
    return {"tools": found}


def blocks(values: Iterable[Any]) -> list[TextBlock | ImageBlock]:
    """Text and images; kinds of blocks that are not known yet are left out."""
    found: list[TextBlock | ImageBlock] = []
    for value in values:
        kind = value.get("type", "image" if "data" in value else "text")
        if kind == "text":
            found.append(TextBlock(text=value["text"], detail=value.get("detail")))
        elif kind == "image":
            found.append(
                ImageBlock(data=value["data"], mimeType=value["mimeType"], detail=value.get("detail"))
            )
    return found


def tool_output(result: Any) -> ToolOutput:
    """The output of a call.

    Raises:
        ToolCallError: the call was refused. ToolFailed: what came is not a result.
    """
    try:
        if not result["ok"]:
            raise ToolCallError(str(result.get("error", "")), reason=result.get("reason"))
        output = result["output"]
        return ToolOutput(
            blocks=blocks(output.get("blocks") or ()),
            metadata=output.get("metadata"),
            reward=output.get("reward"),
            finished=bool(output.get("finished")),
        )
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise ToolFailed(f"the result is not valid: {error!r}") from error
