"""One session as its server sees it, and its record."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

from ors._json import dumps, loads
from ors._protocol import ending_error
from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Message,
    Outcome,
    Scored,
    TaskRef,
    ToolMessage,
    UserMessage,
)
from ors.rollouts.episodes.outcome import Party, ended
from ors.rollouts.episodes.rules import ReductionName, reduce_components, reducer
from ors.server.observe.events import (
    CallEnded,
    CallStarted,
    EpisodeStarted,
    PromptAsked,
    SessionEnded,
    ToolsListed,
)
from ors.types import Blocks, JSONObject, TextBlock, ToolOutput, ToolSpec, described, text_and_images

REWARD: ReductionName = "sum"
"""How rewards of a session become one, as in the list of sessions."""
ENDINGS = ("deleted", "expired", "life", "shutdown")
"""Reasons of a call that ended because its session did."""
SESSION_BYTES = 1000
"""Memory of a session without its calls, roughly."""
CALL_BYTES = 500
"""Memory of a call besides its input and its result, roughly."""


@dataclass(slots=True)
class SeenCall:
    tool: str
    id: str
    input: bytes
    """As JSON: the tool may change the object."""
    started: float
    """Seconds since the session began."""
    ended: float = 0.0
    seconds: float = 0.0
    ending: bytes = b""
    """Its result as JSON, or the `error` event, once it has ended."""


class SeenSession:
    """Events of a session so far. Only collects them, since it runs on the event loop."""

    def __init__(self, start: EpisodeStarted) -> None:
        self.start = start
        self.id = uuid.uuid4().hex
        self.at = time.time()
        self._began = time.perf_counter()
        self._running: dict[str, SeenCall] = {}
        self.calls: list[SeenCall] = []
        self.prompt: PromptAsked | None = None
        self.tools: Sequence[ToolSpec] = start.tools
        self.task = None if start.task is None else _json(start.task)
        """As JSON: the environment may change the object."""
        self.bytes = SESSION_BYTES + len(self.task or b"")
        """Memory that it takes, roughly; a fork also counts what it shares with the first session."""

    def fork(self, sid: str) -> "SeenSession":
        """A session that continues from here. Its record begins with what this one has shown so far."""
        made = SeenSession(self.start._replace(sid=sid, task=None))
        made.task, made.bytes = self.task, self.bytes
        made.at, made._began = self.at, self._began
        made.prompt, made.tools = self.prompt, self.tools
        made.calls = [call for call in self.calls if call.id not in self._running]
        return made

    @property
    def age(self) -> float:
        return time.perf_counter() - self._began

    def see(self, event: PromptAsked | ToolsListed | CallStarted | CallEnded) -> int:
        match event:
            case CallStarted():
                size = self._call_started(event)
            case CallEnded():
                size = self._call_ended(event)
            case ToolsListed():
                self.tools, size = event.tools, 0
            case PromptAsked():
                size = self._prompt_asked(event)
            case _:
                assert_never(event)
        self.bytes += size
        return size

    def _call_started(self, event: CallStarted) -> int:
        call = SeenCall(event.tool, event.task_id, dumps(event.input), self.age)
        self.calls.append(call)
        self._running[event.task_id] = call
        return CALL_BYTES + len(call.input)

    def _call_ended(self, event: CallEnded) -> int:
        call = self._running.pop(event.task_id)
        call.ended, call.seconds, call.ending = self.age, event.seconds, event.ending
        return len(event.ending)

    def _prompt_asked(self, event: PromptAsked) -> int:
        if self.prompt is not None and not self.prompt.error:
            return 0
        self.prompt = event
        text, images = text_and_images(event.blocks)
        return len(text) + sum(len(image.data) for image in images)


def _json(task: JSONObject) -> bytes | None:
    """A task as JSON; None if an author's task has what JSON cannot express."""
    try:
        return dumps(task)
    except (TypeError, ValueError, RecursionError):
        return None


class SeenStep(NamedTuple):
    call: SeenCall
    message: ToolMessage
    failed: bool
    """Whether it ended without a result."""


def record(session: SeenSession, end: SessionEnded, seconds: float) -> EpisodeRecord:
    """The record of a session that has ended. The session's secrets are masked."""
    start = session.start
    steps = [_step(call) for call in session.calls]
    outcome = _outcome(session, steps, end)
    rewards = tuple(step.message.reward for step in steps)
    given = [reward for reward in rewards if reward is not None]
    named = (step.message.components for step in steps)
    task = None if session.task is None else loads(session.task)
    made = EpisodeRecord(
        session.id,
        TaskRef(start.environment, start.split, start.task_index, task),
        0,
        outcome,
        reducer(REWARD)(given) if isinstance(outcome, Scored) else None,
        rewards,
        _messages(session, steps),
        tuple(session.tools),
        session=start.sid,
        started=session.at,
        seconds=seconds,
        components={} if isinstance(outcome, Failed) else reduce_components(named, REWARD),
    )
    return made if start.mask is None else made.masked(start.mask)


def _outcome(session: SeenSession, steps: Sequence[SeenStep], end: SessionEnded) -> Outcome:
    """How the episode ended, as far as its server can know.

    A client that deletes its session has ended the episode, whatever its reason was. A failed call is the
    end only if no other call came after it.
    """
    rewards = [step.message.reward for step in steps]
    if any(step.message.finished for step in steps):
        return ended(rewards)
    if not end.set_up:
        return _never_opened(end)
    last = max(steps, key=lambda step: step.call.ended, default=None)
    if last is not None and last.failed:
        return _failed_call(last, end)
    if last is None and session.prompt is not None and session.prompt.error:
        return Failed("environment", "prompt", "ServerFailed", session.prompt.error)
    if end.reason != "deleted":
        return Failed("infrastructure", "model", "SessionLost", end.message)
    return ended(rewards)


def _never_opened(end: SessionEnded) -> Outcome:
    if not end.failure:
        return Failed("infrastructure", "opening", "SessionLost", end.message)
    fault: Party = "infrastructure" if end.failure_reason == "limit" else "environment"
    return Failed(fault, "opening", "ServerFailed", end.failure)


def _failed_call(last: SeenStep, end: SessionEnded) -> Outcome:
    if last.message.reason in ENDINGS:
        return Failed("infrastructure", "call", "SessionLost", end.message, may_have_run=True)
    return Failed("environment", "call", "ToolFailed", described(last.message.blocks), may_have_run=True)


def _messages(session: SeenSession, steps: Sequence[SeenStep]) -> tuple[Message, ...]:
    """The prompt, the calls and their results. Calls that overlap are those of one message."""
    messages: list[Message] = []
    if session.prompt is not None and not session.prompt.error:
        messages.append(UserMessage(session.prompt.blocks))
    for group in _overlapping(steps):
        calls = tuple(ToolInvocation(s.call.tool, loads(s.call.input), s.call.id) for s in group)
        messages += [AgentMessage(calls=calls), *(step.message for step in group)]
    return tuple(messages)


def _overlapping(steps: Sequence[SeenStep]) -> list[list[SeenStep]]:
    groups: list[list[SeenStep]] = []
    until = 0.0
    for step in steps:
        if not groups or step.call.started >= until:
            groups.append([])
        groups[-1].append(step)
        until = max(until, step.call.ended)
    return groups


def _step(call: SeenCall) -> SeenStep:
    error = ending_error(call.ending)
    if error is not None:
        return SeenStep(call, _refusal(call, *error), failed=True)
    return SeenStep(call, _result(call, loads(call.ending)), failed=False)


def _result(call: SeenCall, result: Mapping[str, Any]) -> ToolMessage:
    if not result["ok"]:
        return _refusal(call, result["error"], result["reason"])
    output = ToolOutput.model_validate(result["output"])
    more = {"reward": output.reward, "finished": output.finished, "metadata": output.metadata}
    return _message(call, output.blocks, **more)


def _refusal(call: SeenCall, text: str, reason: str | None) -> ToolMessage:
    return _message(call, [TextBlock(text=text)], ok=False, reason=reason)


def _message(call: SeenCall, blocks: Blocks, **more: Any) -> ToolMessage:
    return ToolMessage(call.id, call.tool, blocks, started=call.started, seconds=call.seconds, **more)
