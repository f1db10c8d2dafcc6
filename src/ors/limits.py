"""The limits of a server."""

from dataclasses import dataclass

__all__ = ["Limits"]

PING_SECONDS = 10.0
"""Default interval of pings: comment lines in open streams, and the client's requests to `/ping`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a server, in seconds and bytes. None means no limit."""

    body_bytes: int = 32 * 2**20
    """Largest request body; a larger one gets 413."""
    arriving_bytes: int = 256 * 2**20
    """Memory for request bodies that are still arriving, of all clients together; further ones get 503."""
    connections: int | None = 10_000
    """Most connections at once per process, if it may open that many files; further ones get 503."""
    result_bytes: int = 64 * 2**20
    """Largest result of a tool; a larger one becomes an `error` event, or is cut if the tool allows it."""
    reply_tasks: int = 100_000
    """Most tasks in one answer; a request for more gets 400."""
    sessions: int | None = None
    """Most sessions at once on this server."""
    sessions_per_environment: int | None = None
    """Most sessions at once per environment."""
    sessions_per_key: int | None = None
    """Most sessions at once per API key."""
    queue: int = 0
    """Session creations that wait for a place at the limit, by API key in turn; further ones get 429."""
    queue_seconds: float = 60.0
    """Longest wait of a queued session creation."""
    calls: int | None = None
    """Most calls at once on this server; further ones get 429."""
    queued_calls: int = 256
    """Most calls of one session that wait for their turn; further ones get 429."""
    kept_bytes: int = 256 * 2**20
    """Memory for finished results, which are kept for clients that come back."""
    kept_seconds: float = 60.0
    """How long finished results are kept."""
    idle_seconds: float = 900.0
    """A session expires after this time without a request."""
    life_seconds: float | None = None
    """A session ends this long after its creation, even if it is in use."""
    tombstone_seconds: float = 900.0
    """How long requests to an ended session get 410; after that, 404."""
    tombstones: int = 100_000
    """Most ended sessions that are remembered for that."""
    setup_seconds: float | None = None
    """Longest time of an environment's constructor and setup()."""
    tool_seconds: float | None = None
    """Longest time of a tool call."""
    teardown_seconds: float = 30.0
    """Longest time of an environment's teardown(); after that it is abandoned, and logged."""
    retire_seconds: float = 0.0
    """On SIGTERM, sessions may continue for this long and new ones are refused; another signal ends them."""
    grace_seconds: float = 10.0
    """On shutdown, running calls may continue for this long."""
    ping_seconds: float = PING_SECONDS
    """How often an open stream gets a comment line, so that no proxy closes it."""
