"""The Open Reward Standard as tables: endpoints, headers, limits, the events of a call, session ids."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from ors._json import loads
from ors._sse import Decoder, Event, encode

# ── Endpoints ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way into a server. `per_environment` ones live below `/{env}`."""

    name: str
    method: str
    per_environment: bool = False
    needs_session: bool = False

    def path(self, environment: str = "") -> str:
        """The path of this endpoint, for one environment where it has one."""
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
    TASK_TOOLS,
    PROMPT,
    CALL,
)

OWN_PREFIX = "-"
"""What is ours and not the standard's lives below `/-/`, which no environment name can reach."""

RESERVED_NAMES = frozenset({endpoint.name for endpoint in ENDPOINTS} | {OWN_PREFIX, ""})
"""First segments of paths that mean something without an environment, so none may be named so."""

# ── Headers ──────────────────────────────────────────────────────────────────────────────────────

SESSION_ID = "X-Session-ID"
SECRETS = "X-Secrets"
API_KEY = "X-API-Key"
IDEMPOTENCY_KEY = "Idempotency-Key"
SERVER_VERSION = "ORS-Version"
"""Sent by our server with every answer: it tells that the server honours `Idempotency-Key`."""
REASON = "ORS-Reason"
"""Sent by our server with an error status: who failed, in a word."""
TRACE = "traceparent"
"""W3C Trace Context: the span of whoever asks."""
EVENT_STREAM = "text/event-stream"
API_KEY_VARIABLE = "ORS_API_KEY"

# ── Limits ───────────────────────────────────────────────────────────────────────────────────────

CHUNK_BYTES = 4096
MAX_ID_CHARS = 256
MAX_SLOT = 0xFFFF
"""The slot of a server is the first 16 bits of the ids that it makes."""
PING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server allows, in seconds and bytes. None means no limit."""

    body_bytes: int = 32 * 2**20
    """A request body over this is answered 413."""
    arriving_bytes: int = 256 * 2**20
    """Bytes of request bodies that are still arriving, of all clients together; further ones get 503."""
    connections: int | None = 10_000
    """Connections at once, of each process, if it may open as many files; further ones get 503."""
    result_bytes: int = 64 * 2**20
    """A tool's result over this is an `error` event, or cut if the tool says so."""
    reply_tasks: int = 100_000
    """A request for more tasks than this at once is answered 400."""
    sessions: int | None = None
    """Sessions at once, on this server."""
    sessions_per_environment: int | None = None
    """Sessions at once, of each environment."""
    sessions_per_key: int | None = None
    """Sessions at once, of each API key."""
    queue: int = 0
    """At the limit of sessions, this many creations wait for a place, in turn by API key; others get 429."""
    queue_seconds: float = 60.0
    """... for at most this long."""
    calls: int | None = None
    """Calls at once, on this server; further ones get 429."""
    queued_calls: int = 256
    """Calls of one session that wait for their turn; further ones get 429."""
    kept_bytes: int = 256 * 2**20
    """Finished results are kept for clients that come back, up to this in all."""
    kept_seconds: float = 60.0
    """... and for this long."""
    idle_seconds: float = 900.0
    """A session without a request for this long expires."""
    life_seconds: float | None = None
    """A session is ended this long after its creation, whatever it does."""
    tombstone_seconds: float = 900.0
    """An ended session answers 410 for this long, then 404."""
    tombstones: int = 100_000
    """... of at most this many sessions."""
    setup_seconds: float | None = None
    """An environment's constructor and setup() may take this long."""
    tool_seconds: float | None = None
    """A tool may run this long."""
    teardown_seconds: float = 30.0
    """An environment's teardown() may take this long; then it is left behind, and logged."""
    retire_seconds: float = 0.0
    """On SIGTERM, sessions may go on for this long, and new ones are refused; another signal ends them."""
    grace_seconds: float = 10.0
    """On shutdown, running calls may go on for this long."""
    ping_seconds: float = PING_SECONDS
    """An open stream gets a comment line this often, so that nobody on the way closes it."""


# ── The events of a call ─────────────────────────────────────────────────────────────────────────

_LINE_SEPARATORS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


UNKNOWN_TASK_ID = "unknown task_id"
"""The `error` event of a rejoin whose task id the session does not know."""

RESULT_GONE = "result no longer kept"
"""The `error` event of a call that has run, and whose result has been dropped since."""

SESSION_OVER = ("Session lost", "Session deleted", "Session expired")
"""An `error` event that begins so ends the session, not just the call."""


def task_id_event(task_id: str) -> bytes:
    """The first event of every call: the id to come back with."""
    return b"event: task_id\ndata: " + task_id.encode() + b"\n\n"


def error_event(message: str, reason: str = "") -> bytes:
    """The last event of a call that has no result; `reason` is a word for programs."""
    return encode("error", message, reason=reason) if reason else encode("error", message)


def result_events(result: bytes) -> bytes:
    """The events that carry a result, given as compact JSON: `chunk`* and `end`.

    Every reader in the field gets the same text back: no piece begins or ends with white space (they
    strip it), and no character stands in it that some readers take for the end of a line.
    """
    # One byte is found forty times faster than three, and as a number ten times faster than as bytes, since
    # `in` tries those as a number first, and fails.
    if 0xE2 in result or 0xC2 in result:
        for raw, escaped in _LINE_SEPARATORS:
            result = result.replace(raw, escaped)
    if len(result) <= CHUNK_BYTES:
        return b"event: end\ndata: " + result + b"\n\n"
    return b"".join(_parts(result))


def _parts(text: bytes) -> list[bytes | memoryview]:
    view = memoryview(text)  # its slices copy nothing: a fresh megabyte costs more than all the rest
    parts: list[bytes | memoryview] = []
    start = 0
    lead = b""  # the first character of this piece, where it had to be written as an escape
    while len(text) - start + len(lead) > CHUNK_BYTES:
        end = start + CHUNK_BYTES - len(lead)
        # Nearly always it can be cut right there: looking here first saves a function for every piece.
        if (0x20 < text[end] < 0x7F and 0x20 < text[end - 1] < 0x7F) or (end := _plain_cut(text, end)):
            parts += (b"event: chunk\ndata: ", lead, view[start:end], b"\n\n")
            start, lead = end, b""
            continue
        piece, start, next_lead = _escaped_cut(text, start, start + CHUNK_BYTES - len(lead) - 5)
        parts += (b"event: chunk\ndata: ", lead, piece, b"\n\n")
        lead = next_lead
    parts += (b"event: end\ndata: ", lead, view[start:], b"\n\n")
    return parts


def _plain_cut(text: bytes, limit: int) -> int:
    # Nearly every text has, within a few bytes, two neighbours that are ASCII and not a space.
    for end in range(limit, limit - 64, -1):
        if 0x20 < text[end] < 0x7F and 0x20 < text[end - 1] < 0x7F:
            return end
    return 0


def _escaped_cut(text: bytes, start: int, end: int) -> tuple[bytes, int, bytes]:
    # The 5 bytes of room are what the last character may grow by when it is written as an escape.
    while text[end] & 0xC0 == 0x80:
        end -= 1
    before = text[max(start, end - 4) : end].decode(errors="ignore")[-1]
    after = text[end : end + 4].decode(errors="ignore")[0]
    piece = text[start:end]
    if _stripped(before):
        piece = piece[: -len(before.encode())] + _escape(before)
    if _stripped(after):
        return piece, end + len(after.encode()), _escape(after)
    return piece, end, b""


def _stripped(character: str) -> bool:
    return character.isspace() or character == "\ufeff"  # the latter by JavaScript's trim()


def _escape(character: str) -> bytes:
    return b"\\u%04x" % ord(character)


class CallReader:
    """Reads the stream of one call: feed it bytes until it is `done`.

    Then either `result` is the call's result as JSON text, or `error` the message of its `error` event.
    """

    __slots__ = ("_decoder", "_pieces", "error", "reason", "result", "task_id")

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._pieces: list[str] = []
        self.task_id: str | None = None
        self.result: str | None = None
        self.error: str | None = None
        self.reason: str | None = None

    @property
    def done(self) -> bool:
        """Whether the last event has arrived."""
        return self.result is not None or self.error is not None

    def feed(self, chunk: bytes) -> bool:
        """Takes the next bytes; says whether the call is done."""
        for event in self._decoder.feed(chunk):
            if not self.done:
                self._take(event)
        return self.done

    def _take(self, event: Event) -> None:
        if event.event == "task_id":
            self.task_id = event.data.strip()
        elif event.event == "chunk":
            self._pieces.append(event.data)
        elif event.event == "end":
            self._pieces.append(event.data)
            self.result = "".join(self._pieces)
        elif event.event == "error":
            self.error = event.data
            self.reason = dict(event.more).get("reason")

    def value(self) -> object:
        """The result, parsed.

        Raises:
            ValueError: what arrived is not JSON.
        """
        return loads(self.result or "null")


# ── Session and task ids ─────────────────────────────────────────────────────────────────────────


def new_session_id(slot: int = 0, incarnation: int = 0) -> str:
    """A UUID of version 8: 16 bits name the server, 32 its incarnation, 74 are random."""
    bits = os.urandom(10).hex()
    variant = "89ab"[int(bits[3], 16) & 3]
    # Written by hand: a third of what a UUID object costs.
    return (
        f"{slot & MAX_SLOT:04x}{incarnation >> 16 & 0xFFFF:04x}-{incarnation & 0xFFFF:04x}-8{bits[:3]}"
        f"-{variant}{bits[4:7]}-{bits[7:19]}"
    )


def session_id_route(sid: str) -> tuple[int, int] | None:
    """The slot and incarnation that `new_session_id` wrote into `sid`; None for anyone else's id."""
    try:
        value = uuid.UUID(sid)
    except ValueError:
        return None
    return (value.int >> 112, value.int >> 80 & 0xFFFFFFFF) if value.version == 8 else None


def task_ids() -> Iterator[str]:
    """Fresh ids for calls, without end."""
    while True:
        # Many at a time: 0.1 µs an id, against 0.5 for reading the system's randomness for each.
        block = os.urandom(4096).hex()
        for start in range(0, len(block), 32):
            yield block[start : start + 32]


def valid_session_id(sid: str) -> bool:
    """Whether `sid` may name a session: printable, not blank, and not over 256 characters."""
    return 0 < len(sid) <= MAX_ID_CHARS and sid.isprintable() and not sid.isspace()
