"""Endpoints, headers and ids of the standard."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
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

ENDPOINTS = tuple(each for each in tuple(globals().values()) if isinstance(each, Endpoint))
"""All of the standard: those above."""

OWN_PREFIX = "-"
"""Paths that are not of the standard begin with `/-/`, which cannot be an environment name."""

FORK = Endpoint(f"{OWN_PREFIX}/fork", "POST", needs_session=True)
"""Not of the standard: new sessions that continue from the state of one."""

MCP = Endpoint(f"{OWN_PREFIX}/mcp", "POST", needs_session=True)
"""Not of the standard: a path at which MCP clients play a session, without its id."""
SCORE = Endpoint(f"{OWN_PREFIX}/mcp", "GET", needs_session=True)
"""Not of the standard: what the calls of a session have earned so far, for its owner."""

PROGRAM = Endpoint(f"{OWN_PREFIX}/program", "POST", needs_session=True)
"""Not of the standard: starts a program in the sandbox of a session, and streams what it sends."""
PROGRAM_DATA = Endpoint(f"{OWN_PREFIX}/program/data", "POST", needs_session=True)
"""Not of the standard: what is sent back to it."""
STDIN, STDOUT, STDERR = range(3)
"""Numbers of a program's streams; further ones are of its connections."""

DESCRIPTION = Endpoint(f"{OWN_PREFIX}/environments", "GET")
"""Not of the standard: the description of an environment, below its name."""

RESERVED_NAMES = frozenset({endpoint.name for endpoint in ENDPOINTS} | {OWN_PREFIX, ""})
"""First path segments with a meaning of their own: no environment may have such a name."""


SESSION_ID = "X-Session-ID"
SECRETS = "X-Secrets"
API_KEY = "X-API-Key"
IDEMPOTENCY_KEY = "Idempotency-Key"
SERVER_VERSION = "ORS-Version"
"""Sent with every answer: shows clients that the server supports `Idempotency-Key`."""
REASON = "ORS-Reason"
"""Sent with every error status: the reason, in one word."""
IDLE_SECONDS = "ORS-Idle-Seconds"
"""Sent with `/create`: the session expires after this time without a request, if its server allows longer."""
TRACE = "traceparent"
"""W3C Trace Context: the span of the client."""
EVENT_STREAM = "text/event-stream"
API_KEY_VARIABLE = "ORS_API_KEY"


MAX_ID_CHARS = 256
MAX_SLOT = 0xFFFF
"""The slot of a server is the first 16 bits of its session ids."""


def new_session_id(slot: int = 0, incarnation: int = 0) -> str:
    """A UUID of version 8: 16 bits are the slot of the server, 32 its incarnation, 74 are random."""
    bits = os.urandom(10).hex()
    variant = "89ab"[int(bits[3], 16) & 3]
    # Formatted by hand: takes a third of the time of a UUID object.
    return (
        f"{slot & MAX_SLOT:04x}{incarnation >> 16 & 0xFFFF:04x}-{incarnation & 0xFFFF:04x}-8{bits[:3]}"
        f"-{variant}{bits[4:7]}-{bits[7:19]}"
    )


PREFIX_CHARS = 13
"""The first characters of a session id name its server: slot and incarnation."""


def id_prefix(slot: int, incarnation: int) -> str:
    return new_session_id(slot, incarnation)[:PREFIX_CHARS]


def session_id_route(sid: str) -> tuple[int, int] | None:
    """The slot and incarnation in an id made by `new_session_id`; None for other ids."""
    try:
        value = uuid.UUID(sid)
    except ValueError:
        return None
    return (value.int >> 112, value.int >> 80 & 0xFFFFFFFF) if value.version == 8 else None


def task_ids() -> Iterator[str]:
    while True:
        # Many at a time: 0.1 µs an id instead of 0.5.
        block = os.urandom(4096).hex()
        for start in range(0, len(block), 32):
            yield block[start : start + 32]


def valid_session_id(sid: str) -> bool:
    """Whether `sid` may name a session: printable Latin-1, not blank, and not over 256 characters."""
    latin = sid.isascii() or max(sid) <= "\xff"
    return 0 < len(sid) <= MAX_ID_CHARS and latin and sid.isprintable() and not sid.isspace()
