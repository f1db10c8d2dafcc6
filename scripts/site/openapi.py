"""The OpenAPI document of a server, and the page that is made of it."""

import json

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ors import _protocol
from ors._version import __version__
from ors.types import ImageBlock, ListToolsOutput, RunToolOutput, Split, TextBlock
from scripts.site.markdown import cell, code, table
from scripts.site.operations import JSON, OPERATIONS, STRING, Operation, shape

_ALWAYS = (ImageBlock, ListToolsOutput, RunToolOutput, Split, TextBlock)
_HEADERS = {
    _protocol.SESSION_ID: "The id of the session.",
    _protocol.SECRETS: 'Secrets for the environment: base64 of JSON like `{"name": {"value": "…"}}`.',
    _protocol.IDEMPOTENCY_KEY: "A string of the client's own. A request that is repeated with it runs once.",
}
_ERROR = "An error: `detail` is one sentence. The header `ORS-Reason` has the reason, in one word."


def document() -> JSON:
    """The whole document, in the form of OpenAPI 3.1."""
    paths: JSON = {}
    for each in OPERATIONS:
        paths.setdefault(path(each), {})[each.endpoint.method.lower()] = described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Open Reward Standard, as ors-kit serves it",
            "version": __version__,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas(), "securitySchemes": _keys()},
        "security": [{}, {"key": []}, {"bearer": []}],
    }


def as_json() -> str:
    """The document as a file."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def path(operation: Operation) -> str:
    """The path of an operation; `{environment}` stands for a name."""
    return operation.endpoint.path("{environment}")


def described(operation: Operation) -> JSON:
    """One operation of the document."""
    whole: JSON = {
        "operationId": f"{operation.endpoint.method.lower()}_{operation.endpoint.name}",
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": {
            "200": {"description": "Success.", "content": answered(operation)},
            "default": {"description": _ERROR, "content": _content({"$ref": "#/components/schemas/Error"})},
        },
    }
    if operation.more:
        whole["description"] = operation.more
    if operation.body is not None:
        body = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        whole["requestBody"] = {"required": True, "content": _content(body)}
    return whole


def parameters(operation: Operation) -> list[JSON]:
    """What an operation takes besides its body: parts of the path, headers, values of the query."""
    inside = [name for name in ("environment", "sid") if f"{{{name}}}" in path(operation)]
    session = (_protocol.SESSION_ID,) if operation.endpoint.needs_session else ()
    return [
        *({"name": name, "in": "path", "required": True, "schema": STRING} for name in inside),
        *(_header(name, name in session) for name in (*session, *operation.headers)),
        *({"name": name, "in": "query", "schema": STRING} for name in operation.query),
    ]


def answered(operation: Operation) -> JSON:
    """The answer of an operation, by content type."""
    if isinstance(operation.answer, str):
        return {operation.answer: {"schema": STRING}}
    return _content(operation.answer)


def schemas() -> JSON:
    """The schemas of all bodies and answers, by name."""
    models: set[type[BaseModel]] = {*_ALWAYS, *(each.body for each in OPERATIONS if each.body is not None)}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    return {"Error": shape(detail=STRING), **found["$defs"]}


def as_markdown() -> str:
    """A section for each endpoint, after a link to the document."""
    link = "[openapi.json](openapi.json) has the same as an OpenAPI document, for programs.\n"
    return "\n".join([link, *(_section(each) for each in OPERATIONS)])


def _section(operation: Operation) -> str:
    head = (
        f"### {operation.endpoint.method} {path(operation)}\n\n{operation.summary} {operation.more}".rstrip()
    )
    rows = [
        (
            code(each["name"]),
            each["in"],
            "yes" if each.get("required") else "",
            _HEADERS.get(each["name"], ""),
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


def _header(name: str, required: bool) -> JSON:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "schema": STRING,
        "description": _HEADERS[name],
    }


def _content(schema: JSON) -> JSON:
    return {"application/json": {"schema": schema}}


def _keys() -> JSON:
    return {
        "key": {"type": "apiKey", "in": "header", "name": _protocol.API_KEY},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
