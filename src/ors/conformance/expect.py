"""Assertions about answers; each raises a Violation with the bytes that show it."""

import uuid
from typing import Any

from ors.conformance.http import Answer
from ors.conformance.requirements import Violation, shown

BLOCK_KEYS = {"text": ("text",), "image": ("data", "mimeType")}
"""The kinds of blocks, each with the keys that hold a string; all have `detail` and `type` as well."""


def status(answer: Answer, *wanted: int) -> Answer:
    if answer.status not in wanted:
        names = " or ".join(map(str, wanted))
        raise Violation(f"answered {answer.status} instead of {names}", answer.seen)
    return answer


def value(answer: Answer, wanted: Any) -> None:
    answer.fault_if(status(answer, 200).json() != wanted, f"the answer is not {wanted!r}")


def mapping(answer: Answer, *keys: str) -> dict[str, Any]:
    given = status(answer, 200).json()
    if not isinstance(given, dict):
        raise Violation("the answer is not an object", answer.seen)
    for key in keys:
        answer.fault_if(key not in given, f"the object has no {key!r}")
    return given


def entry(answer: Answer, key: str, wanted: Any) -> None:
    if mapping(answer, key)[key] != wanted:
        raise Violation(f"`{key}` is not {shown(repr(wanted).encode())}", answer.seen)


def array(answer: Answer) -> list[Any]:
    given = status(answer, 200).json()
    if not isinstance(given, list):
        raise Violation("the answer is not an array", answer.seen)
    return given


def detail(answer: Answer) -> str:
    """Checks that the answer is an error in the standard's form; returns its message."""
    given = answer.json()
    if not isinstance(given, dict) or not isinstance(given.get("detail"), str):
        raise Violation('an error that is not {"detail": "<message>"}', answer.seen)
    return str(given["detail"])


def uuid_format(text: object, seen: bytes) -> None:
    try:
        uuid.UUID(str(text))
    except ValueError:
        raise Violation(f"{text!r} is not in UUID format", seen) from None


def tools(answer: Answer) -> list[dict[str, Any]]:
    listed = mapping(answer, "tools")["tools"]
    if not isinstance(listed, list):
        raise Violation("`tools` is not an array", answer.seen)
    for tool in listed:
        if not isinstance(tool, dict):
            raise Violation("a tool that is not an object", answer.seen)
        for key in ("name", "description"):
            if not isinstance(tool.get(key), str):
                raise Violation(f"a tool without the string {key!r}", answer.seen)
        if not isinstance(tool.get("input_schema"), dict | None):
            raise Violation(f"the input_schema of {tool['name']!r} is not an object", answer.seen)
    return listed


def tool_names(answer: Answer) -> set[str]:
    return {str(tool["name"]) for tool in tools(answer)}


def text(stream: Answer, wanted: str) -> None:
    stream.fault_if(stream.text() != wanted, f"the text is not {shown(wanted.encode())}")


def kinds(given: list[dict[str, Any]], wanted: list[str], seen: bytes) -> None:
    if [block["type"] for block in given] != wanted:
        raise Violation(f"the blocks are not {' and '.join(wanted)}", seen)


def content_type(head: Answer, wanted: str) -> None:
    if (head.header("content-type") or "").split(";")[0].strip().lower() != wanted:
        raise Violation(f"the answer is not {wanted}", head.raw)


def redirect(answer: Answer, wanted: str) -> None:
    if not (answer.header("location") or "").endswith(wanted):
        raise Violation(f"the redirect does not go to {wanted}", answer.raw)


def blocks(given: Any, seen: bytes) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise Violation("the blocks are not an array", seen)
    for block in given:
        if not isinstance(block, dict) or block.get("type") not in [*BLOCK_KEYS]:
            raise Violation(f"a block that is neither {' nor '.join(BLOCK_KEYS)}", seen)
        for key in BLOCK_KEYS[block["type"]]:
            if not isinstance(block.get(key), str):
                raise Violation(f"a block without the string {key!r}", seen)
    return given


def block_keys(given: list[dict[str, Any]], seen: bytes) -> None:
    for block in given:
        if block.keys() != {*BLOCK_KEYS[block["type"]], "detail", "type"}:
            raise Violation(f"a {block['type']} block with the keys {sorted(block)}", seen)
