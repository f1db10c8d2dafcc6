"""What a check can find, besides that all is well."""

SHOWN_BYTES = 400


class Violation(Exception):
    """The server does not do what the requirement says. `seen` are the bytes that show it."""

    def __init__(self, text: str, seen: bytes = b"") -> None:
        super().__init__(text)
        self.text = text
        self.seen = seen


class NotTried(Exception):
    """The check cannot tell on this server; the text says why."""


class ServerUnreachable(Exception):
    """There is no server to check."""


def shown(seen: bytes) -> str:
    """Bytes for a report: readable, on one line, cut to size."""
    text = repr(seen[:SHOWN_BYTES])[2:-1]
    return text + (f"… ({len(seen)} bytes)" if len(seen) > SHOWN_BYTES else "")
