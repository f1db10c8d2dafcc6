"""The endpoints of the standard, as a table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. With `per_environment`, its path is below `/{environment}`."""

    name: str
    method: str
    per_environment: bool = False
    needs_session: bool = False

    def path(self, environment: str = "") -> str:
        """The path of this endpoint, for one environment if it is per environment."""
        return f"/{environment}/{self.name}" if self.per_environment and environment else f"/{self.name}"


HEALTH = Endpoint("health", "GET")
VERSION = Endpoint("version", "GET")
LIST_ENVIRONMENTS = Endpoint("list_environments", "GET")
CREATE_SESSION = Endpoint("create_session", "POST")
CREATE = Endpoint("create", "POST", needs_session=True)
DELETE = Endpoint("delete", "POST", needs_session=True)
DELETE_SESSION = Endpoint("delete_session", "POST", needs_session=True)
PING = Endpoint("ping", "POST", needs_session=True)
TOOLS = Endpoint("tools", "GET", per_environment=True)
SPLITS = Endpoint("splits", "GET", per_environment=True)
TASKS = Endpoint("tasks", "POST", per_environment=True)
NUM_TASKS = Endpoint("num_tasks", "POST", per_environment=True)
TASK = Endpoint("task", "POST", per_environment=True)
TASK_RANGE = Endpoint("task_range", "POST", per_environment=True)
GET_TASK = Endpoint("get_task", "POST", per_environment=True)
"""The standard's second name of TASK; GET_TASK_RANGE is that of TASK_RANGE."""
GET_TASK_RANGE = Endpoint("get_task_range", "POST", per_environment=True)
TASK_TOOLS = Endpoint("task_tools", "GET", per_environment=True, needs_session=True)
PROMPT = Endpoint("prompt", "GET", per_environment=True, needs_session=True)
CALL = Endpoint("call", "POST", per_environment=True, needs_session=True)

ENDPOINTS = (
    HEALTH,
    VERSION,
    LIST_ENVIRONMENTS,
    CREATE_SESSION,
    CREATE,
    DELETE,
    DELETE_SESSION,
    PING,
    TOOLS,
    SPLITS,
    TASKS,
    NUM_TASKS,
    TASK,
    TASK_RANGE,
    GET_TASK,
    GET_TASK_RANGE,
    TASK_TOOLS,
    PROMPT,
    CALL,
)

OWN_PREFIX = "-"
"""Paths that are not of the standard begin with `/-/`, which cannot be an environment name."""

FORK = Endpoint(f"{OWN_PREFIX}/fork", "POST", needs_session=True)
"""Not of the standard: new sessions that go on from where one stands."""

RESERVED_NAMES = frozenset({endpoint.name for endpoint in ENDPOINTS} | {OWN_PREFIX, ""})
"""First path segments with a meaning of their own: no environment may have such a name."""
