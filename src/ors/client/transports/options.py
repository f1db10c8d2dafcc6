"""The client's timeouts, retries and limits."""

from dataclasses import dataclass

from ors.limits import PING_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The client's timeouts, retries and limits. Times are in seconds."""

    retries: int = 12
    """Retries of a request other than a call, including those that open or close a session."""
    rejoins: int = 80
    """Attempts in a row to rejoin a broken call; a connection that held for a while resets the count.

    Enough for pings to give up first, so that the call ends with the `SessionLost` of its session."""
    backoff_seconds: float = 0.05
    """First pause between attempts. Doubles each time, with jitter, unless the server sends Retry-After."""
    backoff_limit_seconds: float = 1.5
    """Longest pause. It lets clients get their results within two seconds of a server's restart."""
    connect_seconds: float = 10.0
    """Time limit for connecting."""
    request_seconds: float = 300.0
    """Time limit for a request other than a call, with all attempts; not for the line of a full server."""
    setup_seconds: float = 1800.0
    """Time limit for requests that wait for an environment: a session's prompt and tools, and a fork."""
    call_seconds: float = 86_400.0
    """Time limit for a tool call, including all attempts."""
    heartbeat_seconds: float = 3 * PING_SECONDS
    """A call is rejoined if its stream carries nothing, not even a ping, for this long."""
    cleanup_seconds: float = 5.0
    """Time limit for deleting a session whose start was cancelled; after that it expires."""
    ping_seconds: float = PING_SECONDS
    """Pause between the pings of an idle session."""
    ping_failures: int = 5
    """Failed pings in a row after which a session is lost."""
    ping_concurrency: int = 64
    """Maximum concurrent pings."""
    answer_bytes: int = 256 * 2**20
    """Largest answer; a larger one is an error. `ors` servers send results of up to 64 MiB."""
    multiplex: bool = True
    """Whether all sessions share one connection, where the server is an `ors` server that offers it."""
    keepalive_seconds: float = 15.0
    """An idle connection is closed after this time, before the server does it: most wait 60 s."""
    idle_seconds: int | None = None
    """Sessions expire after this time without a request, if their server would keep them longer.

    Pings are requests, so this is how long the sessions of a killed process stay. Over `ping_seconds`."""
    page_size: int = 100
    """Tasks per request when iterating over a split."""
    keep_messages: bool = True
    """Whether sessions keep their prompt, calls and results, for `session.messages()`.

    That takes memory while the session object lives: about 1.5 kB a call with short texts, more with long
    ones and images. 10,000 sessions of 50 such calls take 0.7 GB."""
