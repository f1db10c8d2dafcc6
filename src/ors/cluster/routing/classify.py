"""Which endpoint and session a request is for, and the answers when its server is gone."""

from ors import _protocol
from ors.cluster.link.client import LOST, WORKER_LOST
from ors.errors import Gone, ORSError, Unavailable
from ors.server.admin.inspector_api import CALLS, SANDBOX
from ors.server.admin.pages import SESSIONS
from ors.server.http.answers import Answer, refusal
from ors.server.http.requests import Request

_BY_NAME = {one.name.rpartition("/")[2]: one for one in (*_protocol.ENDPOINTS, _protocol.FORK)}


def endpoint(request: Request) -> _protocol.Endpoint | None:
    """Returns the endpoint that a request is for; None for a page."""
    return _BY_NAME.get(request.path.rstrip("/").rpartition("/")[2])


def named(request: Request) -> str:
    """Returns the session that the path names, to end it or to look at it; else an empty string."""
    for method, start in (("DELETE", f"{SESSIONS}/"), ("GET", CALLS), ("GET", SANDBOX)):
        if request.method == method and request.path.startswith(start):
            return request.path[len(start) :].rstrip("/")
    return ""


def needs_session(request: Request) -> bool:
    """Whether only the server that has the session can answer."""
    what = endpoint(request)
    # /delete_session deletes nothing; ors-sdk and openreward call it after every discovery call.
    of_session = what is not None and what.needs_session and what is not _protocol.DELETE_SESSION
    return of_session or bool(named(request))


def lost(request: Request) -> Answer:
    """Answers a request that has not run, since its server is gone."""
    error: ORSError = Unavailable("The server is being restarted", retry_after=1, reason=WORKER_LOST)
    if needs_session(request) and endpoint(request) is not _protocol.CREATE:
        error = Gone(LOST, reason=WORKER_LOST)
    return refusal(error)


def ended() -> Answer:
    """Answers a request whose server has ended after its last session."""
    return refusal(Gone("The session has ended, and its server after it", reason="shutdown"))


def unreachable() -> Answer:
    """Answers a request whose server cannot be reached but may be alive."""
    text = "The server of this session cannot be reached now"
    return refusal(Unavailable(text, retry_after=1, reason="unreachable"))
