"""The page of the endpoints, made of the OpenAPI document."""

import json

from ors.server.admin.openapi import HEADERS, JSON, OPERATIONS, Operation, document, parameters
from scripts.site.markdown import cell, code, table


def as_json() -> str:
    """The document of every server, as a file."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def as_markdown() -> str:
    """A section for each endpoint, after a link to the document."""
    link = (
        "[openapi.json](openapi.json) has the same as an OpenAPI document, for programs. A server offers it "
        "at `/-/openapi.json`.\n"
    )
    return "\n".join([link, *(_section(each) for each in OPERATIONS)])


def _section(operation: Operation) -> str:
    head = (
        f"### {operation.endpoint.method} {operation.path}\n\n{operation.summary} {operation.more}".rstrip()
    )
    rows = [
        (
            code(each["name"]),
            each["in"],
            "yes" if each.get("required") else "",
            HEADERS.get(each["name"], ""),
        )
        for each in parameters(operation)
        if each["name"] != "environment"
    ]
    if operation.body is not None:
        schema = operation.body.model_json_schema()
        required = schema.get("required", [])
        rows += [
            (code(name), "body", "yes" if name in required else "", _type(part))
            for name, part in schema["properties"].items()
        ]
    takes = "\n\n" + table(("takes", "where", "required", ""), rows) if rows else "\n\n"
    return f"{head}{takes}\n{_answer(operation)}\n"


def _answer(operation: Operation) -> str:
    if isinstance(operation.answer, str):
        return f"Answers {code(operation.answer)}."
    return f"Answers {code(_type(operation.answer))}."


def _type(schema: JSON) -> str:
    """A schema in a few words: `string`, `{"sid": string}`, `[Split, …]`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return cell(" or ".join(_type(part) for part in schema["anyOf"]))
    if "properties" in schema:
        return (
            "{" + ", ".join(f'"{name}": {_type(part)}' for name, part in schema["properties"].items()) + "}"
        )
    if "items" in schema:
        return f"[{_type(schema['items'])}, …]"
    return str(schema.get("type", "any value"))
