"""What each endpoint is for, takes and answers: the rows that the OpenAPI document is made of."""

from typing import Any, NamedTuple

from pydantic import BaseModel

from ors import _protocol
from ors._protocol import Endpoint
from ors.server import routes
from ors.server.http.routing import LIVE, READY
from ors.types import (
    CreateSession,
    ForkSession,
    GetTask,
    GetTaskRange,
    ImageBlock,
    ListTasks,
    ListToolsOutput,
    NumTasks,
    Split,
    TextBlock,
    ToolCall,
)

JSON = dict[str, Any]
STRING: JSON = {"type": "string"}
TASK: JSON = {"type": "object", "description": "A task, as the environment lists it."}


def ref(model: type[BaseModel]) -> JSON:
    """A reference to the schema of a model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def shape(**properties: JSON) -> JSON:
    """An object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def listed(items: JSON) -> JSON:
    """An array."""
    return {"type": "array", "items": items}


class Operation(NamedTuple):
    """One endpoint, in words and schemas."""

    endpoint: Endpoint
    summary: str
    answer: JSON | str
    """The schema of a JSON answer, or the content type of another one."""
    body: type[BaseModel] | None = None
    more: str = ""
    headers: tuple[str, ...] = ()
    query: tuple[str, ...] = ()


STATUS, SID = shape(status=STRING), shape(sid=STRING)
TASKS = shape(tasks=listed(TASK), env_name=STRING)
_SESSIONS = Endpoint(routes.SESSIONS.lstrip("/"), "GET")
_SESSION = Endpoint(f"{routes.SESSIONS.lstrip('/')}/{{sid}}", "DELETE")
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
    Operation(_protocol.HEALTH, "Says that the server runs.", STATUS),
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
    Operation(_protocol.GET_TASK, "Another name of `task`.", shape(task=TASK, env_name=STRING), GetTask),
    Operation(_protocol.GET_TASK_RANGE, "Another name of `task_range`.", TASKS, GetTaskRange),
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
    Operation(_protocol.TASK_TOOLS, "The tools that the session has.", ref(ListToolsOutput)),
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
        "New sessions that go on from where one stands.",
        shape(sids=listed(STRING)),
        ForkSession,
        "Not of the standard.",
        (_protocol.IDEMPOTENCY_KEY,),
    ),
    Operation(Endpoint(LIVE.lstrip("/"), "GET"), "Says that the process runs. Needs no key.", STATUS),
    Operation(
        Endpoint(READY.lstrip("/"), "GET"),
        "Says that new sessions are taken; 503 if not. Needs no key.",
        STATUS,
    ),
    Operation(Endpoint(routes.METRICS.lstrip("/"), "GET"), "The metrics, for Prometheus.", "text/plain"),
    Operation(
        _SESSIONS,
        "The sessions of this key.",
        shape(total={"type": "integer"}, offset={"type": "integer"}, sessions=listed({"type": "object"})),
        query=("environment", "state", "offset", "limit"),
    ),
    Operation(_SESSION, "Ends one of them.", SID),
)
