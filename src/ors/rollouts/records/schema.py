"""JSON Schema of a line, made from its dataclasses."""

from typing import Any

from ors.rollouts.records.blobs import NAME
from ors.rollouts.records.line import SCHEMA, Line, adapter

_BLOB = {"type": "string", "pattern": NAME, "description": "Name of the blob with the content."}


def line_schema() -> dict[str, Any]:
    """The JSON Schema of a line of `episodes.jsonl`. Further keys are allowed."""
    schema = adapter(Line).json_schema()
    definitions = schema["$defs"]
    definitions["AgentMessage"]["properties"].pop("native")
    _by_reference(definitions["TextBlock"], "text")
    _by_reference(definitions["ImageBlock"], "data")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"An episode of a run, schema {SCHEMA}",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _by_reference(block: dict[str, Any], content: str) -> None:
    """Allows a blob in the place of a block's content."""
    block["properties"]["blob"] = _BLOB
    block["required"] = [*(name for name in block["required"] if name != content), "type"]
    block["oneOf"] = [{"required": [content]}, {"required": ["blob"]}]
    block.pop("additionalProperties")
