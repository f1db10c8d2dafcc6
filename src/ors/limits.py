"""The limits of a server: those that operators set, and those that are fixed."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Limits"]

PING_SECONDS = 10.0
"""Default interval of pings: comment lines in open streams, and the client's requests to `/ping`."""
CONNECTIONS = 10_000
"""Connections of one process; beyond it, 503. For fewer: `ulimit -n`; for more: workers."""
ARRIVING_BYTES = 256 * 2**20
"""Memory for request bodies that are still arriving, of all clients together; beyond it, 503."""
REPLY_TASKS = 100_000
"""Tasks in one reply; a request for more gets 400. Ranges have no such limit."""
QUEUED_CALLS = 256
"""Calls of one session that wait for their turn; beyond it, 429."""
TOMBSTONE_SECONDS = 900.0
"""How long requests to an ended session get 410; after that, 404."""
TOMBSTONES = 100_000
"""Ended sessions that are remembered for that, in about 40 MB."""


def _limit(default: float | None, text: str, *, is_option: bool = True) -> Any:
    return field(default=default, metadata={"help": text, "is_option": is_option})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a server, in seconds and bytes. None means no limit."""

    sessions: int | None = _limit(None, "Maximum concurrent sessions; beyond it, 429.")
    sessions_per_key: int | None = _limit(None, "Maximum concurrent sessions per API key.")
    sessions_per_environment: int | None = _limit(
        None, "Maximum concurrent sessions per environment.", is_option=False
    )
    calls: int | None = _limit(None, "Maximum concurrent calls; beyond it, 429.")
    idle_seconds: float = _limit(900.0, "A session expires after this long without a request.")
    life_seconds: float | None = _limit(
        None, "A session ends this long after its creation, even if it is in use.", is_option=False
    )
    setup_seconds: float | None = _limit(None, "Time limit of an environment's constructor and setup().")
    tool_seconds: float | None = _limit(None, "Time limit of a tool call.")
    teardown_seconds: float = _limit(30.0, "Time limit of teardown(); after that it is abandoned and logged.")
    retire_seconds: float = _limit(
        0.0,
        "On SIGTERM, how long sessions may continue while new ones are refused; a second signal ends them.",
    )
    grace_seconds: float = _limit(10.0, "On shutdown, how long running calls may continue.")
    multiplexed: int = _limit(
        10_000, "Requests that an `ors` client may have open on one connection; 0 allows only HTTP."
    )
    body_bytes: int = _limit(32 * 2**20, "Largest request body; beyond it, 413.")
    result_bytes: int = _limit(
        64 * 2**20, "Largest tool result; a larger one is an error, or is cut off if the tool allows it."
    )
    kept_bytes: int = _limit(256 * 2**20, "Memory for finished results that clients may reconnect for.")
    kept_seconds: float = _limit(60.0, "How long finished results are kept.", is_option=False)
    ping_seconds: float = _limit(
        PING_SECONDS,
        "How often an open stream gets a comment line, so that no proxy closes it.",
        is_option=False,
    )
