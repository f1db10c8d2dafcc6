"""Bytes that a client may send, and the outcomes that are right."""

from dataclasses import dataclass

from tests.attack.wire import Answered

SID = b"@SID@"
"""Stands for the id of a live session."""
LAST = b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-API-Key: sesame\r\nConnection: close\r\n\r\n"
"""Is sent behind each shape: whether it is answered tells where the front end took the shape to end."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Bytes, and the outcomes that are right.

    An outcome is the statuses in their order, then "on" if what is sent behind is answered too, or "close" if
    the connection is closed and nothing behind is read. Several outcomes may be right: "400 close | 200 on".
    "stays" is for uvicorn, which keeps a connection after a request for another protocol and reads no more of it.
    """

    name: str
    sent: bytes
    expected: str
    asgi: str = ""
    """The outcome under uvicorn, whose own parser stands before the application, where it may differ."""
    router: str = ""
    """The outcome at a router, which knows no keys but its own, where it may differ."""
    bodiless: tuple[int, ...] = ()
    """The places of the answers to HEAD."""
    half_close: bool = False
    """Whether the client closes its half behind the shape, and sends no more."""

    def right(self, front: str) -> list[str]:
        """The outcomes that are right for that front end."""
        return [outcome.strip() for outcome in (self._own(front) or self.expected).split("|")]

    def alike(self, front: str, outcome: str) -> str:
        """The statuses that all front ends must have in common; nothing where that one may differ."""
        return "" if self._own(front) else outcome.rpartition(" ")[0]

    def _own(self, front: str) -> str:
        return {"asgi": self.asgi, "router": self.router}.get(front, "")

    def outcome(self, given: list[Answered]) -> str:
        """Returns the outcome, from all answers."""
        statuses = [str(answer.status) for answer in given]
        if given and given[-1].body.startswith(b'{"version":'):
            return " ".join([*statuses[:-1], "on"])
        return " ".join([*statuses, "close"])


def ask(line: str, *fields: str | bytes, body: bytes = b"", host: bool = True) -> bytes:
    """A request of these lines, with a Host unless told otherwise; the rest is as given."""
    lines = [f"{line} HTTP/1.1".encode("latin-1"), *([b"Host: localhost"] if host else [])]
    lines += [field if isinstance(field, bytes) else field.encode("latin-1") for field in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def post(path: str, body: bytes, *fields: str | bytes) -> bytes:
    """A request with a body of a known length."""
    return ask(f"POST {path}", f"Content-Length: {len(body)}", *fields, body=body)


def chunked(body: bytes, *fields: str | bytes, path: str = "/ground/num_tasks") -> bytes:
    """A request whose body is in chunks, as they are given."""
    return ask(f"POST {path}", "Transfer-Encoding: chunked", *fields, body=body)


TRAIN = b'{"split":"train"}'
HIDDEN = ask("GET /-/health/live")
"""A request that stands where none may be: an answer to it is one too many."""
