"""How patient a client is: its times, counts and sizes, in one value."""

from dataclasses import dataclass

from ors.limits import PING_SECONDS

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How often a client tries, how long it waits, how it keeps sessions alive. Times are in seconds."""

    retries: int = 12
    """What only asks (and opening or closing a session) is tried again this often, over the whole request."""
    rejoins: int = 80
    """A call whose connection broke is rejoined this often in a row; a connection that held counts anew.

    Often enough that pings give up first: a call then always ends with the `SessionLost` of its session."""
    backoff_seconds: float = 0.05
    """The first pause between attempts. It doubles, with jitter, unless the server says Retry-After."""
    backoff_limit_seconds: float = 1.5
    """... up to this: within two seconds of a server's return its clients know what became of their calls."""
    connect_seconds: float = 10.0
    """A connection must be made within this time."""
    request_seconds: float = 300.0
    """Anything but a call ends within this time, all its attempts included."""
    setup_seconds: float = 1800.0
    """... and what waits for an environment's setup (prompt, tools of a session) within this one."""
    call_seconds: float = 86_400.0
    """A tool call ends within this time, all its attempts included."""
    heartbeat_seconds: float = 3 * PING_SECONDS
    """A call's stream without a byte, not even a ping, for this long is taken for dead and rejoined."""
    cleanup_seconds: float = 5.0
    """A session whose opening was cancelled is deleted within this time, or left to expire."""
    ping_seconds: float = PING_SECONDS
    """An open session that is not used is pinged this often."""
    ping_failures: int = 5
    """A session is lost after this many failed pings in a row."""
    ping_concurrency: int = 64
    """At most this many pings are on their way at once."""
    answer_bytes: int = 256 * 2**20
    """An answer over this is an error and is read no further. Servers of ours send results up to 64 MiB."""
    keepalive_seconds: float = 15.0
    """A connection idle for this long is closed, before the server does it: those in the field wait 60 s."""
    page_size: int = 100
    """Iterating over a split asks for this many tasks at once."""
