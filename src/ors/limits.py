"""Limits: what a server allows."""

from dataclasses import dataclass

__all__ = ["Limits"]

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
