"""How a call ended."""

from dataclasses import dataclass

from ors._json import dumps
from ors._protocol import error_event, result_events
from ors.types import RunToolError


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
    return Result(error_event(message, reason), "failed", reason)


def refused(error: RunToolError) -> Result:
    """The result of a call that the tool or the server refused."""
    return Result(result_events(dumps(error)), "refused", error.reason or "tool")


def already_finished(name: str) -> Result:
    """The result of a call after the end of the episode."""
    text = f"{name!r} was not run: the episode has finished"
    return refused(RunToolError(error=text, reason="episode_finished"))


def finished_meanwhile(name: str) -> Result:
    """The result of a call that overlapped with the one that ended the episode."""
    text = f"{name!r} was run, but another call finished the episode meanwhile: its result does not count"
    return refused(RunToolError(error=text, reason="episode_finished"))
