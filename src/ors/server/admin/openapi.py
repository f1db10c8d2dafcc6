"""The OpenAPI document of a server: what each endpoint is for, takes and answers, one row each."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ors import _protocol
from ors._protocol import Endpoint
from ors._version import __version__
from ors.server.http.requests import MAX_DIGITS
from ors.server.http.routing import LIVE, METRICS, OPENAPI, READY, SESSIONS
from ors.types import (
    CreateSession,
    ForkSession,
    GetTask,
    GetTaskRange,
    ImageBlock,
    ListTasks,
    ListToolsOutput,
    NumTasks,
    RunToolOutput,
    Split,
    TextBlock,
    ToolCall,
    ToolSpec,
)

JSON = dict[str, Any]
STRING: JSON = {"type": "string"}
COUNT: JSON = {"type": "integer", "minimum": 0, "maximum": 10**MAX_DIGITS - 1}
ID: JSON = {"type": "string", "pattern": "^[!-~]([ -~]*[!-~])?$", "maxLength": _protocol.MAX_ID_CHARS}
TASK: JSON = {"type": "object", "description": "A task, as the environment lists it."}


def ref(model: type[BaseModel]) -> JSON:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def shape(**properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": list(properties)}


def listed(items: JSON) -> JSON:
    return {"type": "array", "items": items}


def _or_null(kind: str) -> JSON:
    return {"type": [kind, "null"]}


def _own(path: str, method: str = "GET") -> Endpoint:
    return Endpoint(path.lstrip("/"), method)


class Operation(NamedTuple):
    """One endpoint, in words and schemas."""

    endpoint: Endpoint
    summary: str
    answer: JSON | str
    """The schema of a JSON answer, or the content type of another one."""
    body: type[BaseModel] | None = None
    more: str = ""
    headers: tuple[str, ...] = ()
    query: Mapping[str, JSON] = {}

    @property
    def path(self) -> str:
        return self.endpoint.path("{environment}")


STATUS, SID = shape(status=STRING), shape(sid=STRING)
TASKS = shape(tasks=listed(TASK), env_name=STRING)
ENVIRONMENT = shape(
    name=STRING,
    description=STRING,
    version=_or_null("string"),
    hash=_or_null("string"),
    splits=listed(shape(name=STRING, type=STRING)),
    tools=listed(ref(ToolSpec)),
    task_tools=listed(ref(ToolSpec)),
    terminal_tool=_or_null("object"),
    required_secrets=listed(STRING),
    reward_range=_or_null("array"),
    reward_components={"type": "object", "additionalProperties": STRING},
    license=_or_null("string"),
    authors=listed(STRING),
    needs=shape(sandbox={"type": "boolean"}, network=_or_null("boolean"), memory=_or_null("integer")),
)
_CREATE_SESSION = (
    "With `Accept: text/event-stream`, the answer is a stream: the event `task_id` with the id, and "
    "the event `end` with the same JSON."
)
_CALL = (
    "The answer is a stream of events. `task_id` comes first, with the id for rejoining the call. The result "
    "is the text of all `chunk` events and of the `end` event, joined: JSON of the schema `RunToolOutput`. "
    "If the tool failed or was stopped, the last event is `error`, with a message, and a line `reason: …` "
    "for programs."
)

OPERATIONS = (
    Operation(_protocol.HEALTH, "Whether the server is up.", STATUS),
    Operation(_protocol.VERSION, "The version of the package.", shape(version=STRING)),
    Operation(_protocol.LIST_ENVIRONMENTS, "The names of the environments.", listed(STRING)),
    Operation(_protocol.SPLITS, "The splits of an environment.", listed(ref(Split))),
    Operation(_protocol.TOOLS, "The tools that every task of an environment has.", ref(ListToolsOutput)),
    Operation(_protocol.TASKS, "All tasks of a split.", TASKS, ListTasks),
    Operation(
        _protocol.NUM_TASKS, "The number of tasks in a split.", shape(num_tasks={"type": "integer"}), NumTasks
    ),
    Operation(_protocol.TASK, "One task of a split.", shape(task=TASK, env_name=STRING), GetTask),
    Operation(_protocol.TASK_RANGE, "Some tasks of a split, from `start` up to `stop`.", TASKS, GetTaskRange),
    Operation(_protocol.GET_TASK, "Alias of `task`.", shape(task=TASK, env_name=STRING), GetTask),
    Operation(_protocol.GET_TASK_RANGE, "Alias of `task_range`.", TASKS, GetTaskRange),
    Operation(_protocol.CREATE_SESSION, "An id for a new session.", SID, None, _CREATE_SESSION),
    Operation(
        _protocol.CREATE,
        "Opens a session: an episode on one task.",
        SID,
        CreateSession,
        "It answers before the environment is set up. Give either `task_spec`, or `split` and `index`.",
        (_protocol.SECRETS,),
    ),
    Operation(
        _protocol.PROMPT,
        "The prompt of the session's task.",
        listed({"anyOf": [ref(TextBlock), ref(ImageBlock)]}),
    ),
    Operation(_protocol.TASK_TOOLS, "The tools of the session.", ref(ListToolsOutput)),
    Operation(
        _protocol.CALL,
        "Calls a tool.",
        _protocol.EVENT_STREAM,
        ToolCall,
        _CALL,
        (_protocol.IDEMPOTENCY_KEY,),
    ),
    Operation(_protocol.PING, "Keeps a session alive.", STATUS),
    Operation(_protocol.DELETE, "Ends a session; answers when it is torn down.", SID),
    Operation(_protocol.DELETE_SESSION, "Does nothing: for clients that send it after every question.", SID),
    Operation(
        _protocol.FORK,
        "New sessions that continue from the state of this one.",
        shape(sids=listed(STRING)),
        ForkSession,
        "Not of the standard.",
        (_protocol.IDEMPOTENCY_KEY,),
    ),
    Operation(
        _protocol.MCP,
        "The path at which MCP clients play the session.",
        shape(path=STRING),
        None,
        "Not of the standard. The path speaks MCP, which has its own schemas.",
    ),
    Operation(
        _protocol.SCORE,
        "All calls of the session so far.",
        shape(
            calls=COUNT,
            rewards=listed({"type": "number"}),
            finished={"type": "boolean"},
            failed={"type": "boolean"},
        ),
    ),
    Operation(_own(LIVE), "Whether the process is up. Needs no key.", STATUS),
    Operation(_own(READY), "Whether new sessions are accepted; 503 if not. Needs no key.", STATUS),
    Operation(_own(METRICS), "The metrics, for Prometheus.", "text/plain"),
    Operation(
        _own(f"{_protocol.DESCRIPTION.path()}/{{environment}}"),
        "The description of an environment.",
        ENVIRONMENT,
        more="`num_tasks` of a split is null if counting failed, and absent with `counts=false`. "
        "`parameters` is absent if the environment has none.",
        query={"counts": STRING},
    ),
    Operation(
        _own(SESSIONS),
        "The sessions of this key.",
        shape(total={"type": "integer"}, offset={"type": "integer"}, sessions=listed({"type": "object"})),
        query={"environment": STRING, "state": STRING, "offset": COUNT, "limit": COUNT},
    ),
    Operation(_own(f"{SESSIONS}/{{sid}}", "DELETE"), "Ends one of them.", SID),
    Operation(_own(OPENAPI), "This document.", {"type": "object"}),
)

HEADERS = {
    _protocol.SESSION_ID: "The id of the session.",
    _protocol.SECRETS: 'Secrets for the environment: base64 of JSON like `{"name": {"value": "…"}}`.',
    _protocol.IDEMPOTENCY_KEY: "A string that the client chooses. A request repeated with it runs once.",
}
_ALWAYS = (ImageBlock, ListToolsOutput, RunToolOutput, Split, TextBlock)
_ERROR = "An error: `detail` is one sentence. The header `ORS-Reason` has the reason, in one word."


def document() -> JSON:
    """The document, as OpenAPI 3.1."""
    paths: JSON = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.endpoint.method.lower()] = _described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Open Reward Standard, as ors-kit serves it",
            "version": __version__,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": _keys()},
        "security": [{}, {"key": []}, {"bearer": []}],
    }


def _described(operation: Operation) -> JSON:
    whole: JSON = {
        "operationId": f"{operation.endpoint.method.lower()}_{operation.endpoint.name}",
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": {
            "200": {"description": "Success.", "content": _answered(operation)},
            "default": {"description": _ERROR, "content": _content({"$ref": "#/components/schemas/Error"})},
        },
    }
    if operation.more:
        whole["description"] = operation.more
    if operation.body is not None:
        whole["requestBody"] = {"required": True, "content": _content(ref(operation.body))}
    return whole


def parameters(operation: Operation) -> list[JSON]:
    """What an operation takes besides its body: parts of the path, headers, values of the query."""
    inside = {"environment": STRING, "sid": ID}
    session = (_protocol.SESSION_ID,) if operation.endpoint.needs_session else ()
    return [
        *(
            {"name": name, "in": "path", "required": True, "schema": schema}
            for name, schema in inside.items()
            if f"{{{name}}}" in operation.path
        ),
        *(_header(name, name in session) for name in (*session, *operation.headers)),
        *({"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()),
    ]


def _answered(operation: Operation) -> JSON:
    if isinstance(operation.answer, str):
        return {operation.answer: {"schema": STRING}}
    return _content(operation.answer)


def _schemas() -> JSON:
    models: set[type[BaseModel]] = {*_ALWAYS, *(each.body for each in OPERATIONS if each.body is not None)}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    return {"Error": shape(detail=STRING), **found["$defs"]}


def _header(name: str, required: bool) -> JSON:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "schema": STRING if name == _protocol.SECRETS else ID,
        "description": HEADERS[name],
    }


def _content(schema: JSON) -> JSON:
    return {"application/json": {"schema": schema}}


def _keys() -> JSON:
    return {
        "key": {"type": "apiKey", "in": "header", "name": _protocol.API_KEY},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
