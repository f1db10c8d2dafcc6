"""How a call ended."""

from dataclasses import dataclass

from ors._protocol import error_event


@dataclass(slots=True)
class Result:
    """The end of a call, with the events for its client."""

    events: bytes
    kind: str = "ok"
    """"ok", "refused" or "failed"."""
    reason: str = ""
    reward: float | None = None
    finished: bool = False


def failed(message: str, reason: str) -> Result:
    """The result of a call that failed."""
    return Result(error_event(message, reason), "failed", reason)
