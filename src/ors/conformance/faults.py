"""Exceptions of checks: a violation, or a check that is not possible."""

SHOWN_BYTES = 400


class Violation(Exception):
    """The server violates a requirement. `seen` are the bytes that show it."""

    def __init__(self, text: str, seen: bytes = b"") -> None:
        super().__init__(text)
        self.text = text
        self.seen = seen


class NotTried(Exception):
    """The check is not possible on this server; the text says why."""


class ServerUnreachable(Exception):
    """No server answers."""


def shown(seen: bytes) -> str:
    """Formats bytes for a report: readable, on one line, shortened."""
    text = repr(seen[:SHOWN_BYTES])[2:-1]
    return text + (f"… ({len(seen)} bytes)" if len(seen) > SHOWN_BYTES else "")
