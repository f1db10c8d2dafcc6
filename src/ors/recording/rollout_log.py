"""OpenReward's rollout log: the events of one rollout become an episode.

openreward 0.1.167 sends `POST /v1/rollouts {"events": […]}`: one event of the type `rollout` when a rollout
begins, `message` for each message, and `rollout_update` for what is known later. Batches may arrive in any
order, and twice.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from ors._json import loads
from ors.client import ToolInvocation
from ors.errors import BadRequest
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Message,
    Outcome,
    Scored,
    SystemMessage,
    TaskRef,
    ToolMessage,
    UserMessage,
)
from ors.rollouts.episodes.outcome import Stage, ended
from ors.rollouts.episodes.rewards import ReductionName, reducer
from ors.types import TextBlock

REWARD: ReductionName = "last"
"""How rewards become one. Not their sum: the SDK repeats the reward of a message on each of its parts."""
ROLLOUT, MESSAGE, UPDATE = "rollout", "message", "rollout_update"
_RELATIONS = {ROLLOUT: "eventId", UPDATE: "eventId", MESSAGE: "rolloutEventId"}
"""By type of event, the field that names the rollout."""

Event = Mapping[str, Any]


def by_rollout(body: bytes) -> dict[str, list[Event]]:
    """The events of a request by the id of their rollout. Types of events that are not known are left out.

    Raises:
        BadRequest: the body has another form.
    """
    try:
        events = from_json(body, allow_inf_nan=True)["events"]  # Python's JSON writes NaN
    except (ValueError, TypeError, LookupError):
        events = None
    if not isinstance(events, list):
        raise BadRequest('The request body must be a JSON object like {"events": […]}')
    found: dict[str, list[Event]] = {}
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise BadRequest(f"events[{number}] must be an object")
        relation = _RELATIONS.get(event.get("eventType", ""))
        if relation is not None:
            found.setdefault(_rollout_id(event.get(relation), number, relation), []).append(event)
    return found


def _rollout_id(value: Any, number: int, relation: str) -> str:
    try:
        return uuid.UUID(value).hex
    except (ValueError, AttributeError, TypeError):
        raise BadRequest(f"events[{number}].{relation} must be a UUID") from None


def is_finished(events: Sequence[Event]) -> bool:
    """Whether one of the events says that the episode has finished."""
    return any(event.get("isFinished") is True for event in events)


@dataclass(frozen=True, slots=True)
class LoggedRollout:
    """One rollout of the log."""

    run: str
    """The name of its run."""
    run_info: Mapping[str, Any]
    record: EpisodeRecord


def assembled(rollout: str, events: Sequence[Event]) -> LoggedRollout:
    """The episode of all events of a rollout. Parts that are missing or of a wrong type are left out."""
    start = next((event for event in events if event.get("eventType") == ROLLOUT), {})
    info: dict[str, Any] = dict(_object(start, "rollout_info"))
    for event in events:
        if event.get("eventType") == UPDATE:
            info |= _object(event, "rollout_info")
    logged = _messages(events)
    times = [_seconds(event) for event in (start, *logged) if _seconds(event)]
    began = min(times, default=0.0)
    conversation = _Conversation(began)
    for event in logged:
        conversation.add(event)
    outcome = _outcome(conversation, logged)
    scored = [each for each in conversation.rewards if each is not None]
    record = EpisodeRecord(
        rollout,
        _task(start, info),
        0,
        outcome,
        reducer(REWARD)(scored) if isinstance(outcome, Scored) else None,
        tuple(conversation.rewards),
        tuple(conversation.messages),
        agent=_text(_object(start, "run_info"), "model_name"),
        started=began,
        seconds=max(times, default=0.0) - began,
        metadata=_metadata(start, info),
    )
    return LoggedRollout(_text(start, "runName") or "unnamed", _object(start, "run_info"), record)


def _messages(events: Sequence[Event]) -> list[Event]:
    """The messages in their order, each once."""
    found = {str(event.get("eventId")): event for event in events if event.get("eventType") == MESSAGE}
    return sorted(found.values(), key=lambda event: _number(event.get("index")) or 0)


def _task(start: Event, info: Mapping[str, Any]) -> TaskRef:
    environment = _text(start, "environment") or _text(start, "variant")
    index = info.get("task_index")
    return TaskRef(
        environment,
        _text(start, "split") or None,
        index if type(index) is int else None,
        _object(start, "task_spec") or None,
    )


def _metadata(start: Event, info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Further facts about the rollout in the log."""
    kept = {key: start[key] for key in ("rolloutName", "variant", "step", "metadata") if key in start}
    return kept | ({"rollout_info": info} if info else {}) or None


def _outcome(conversation: "_Conversation", logged: Sequence[Event]) -> Outcome:
    last = conversation.messages[-1] if conversation.messages else None
    if is_finished(logged) or (isinstance(last, AgentMessage) and not last.calls):
        return ended(conversation.rewards)
    stage: Stage = "call" if isinstance(last, AgentMessage) else "model"
    return Failed("infrastructure", stage, "NoEnd", "The log of this rollout has no end")


@dataclass(slots=True)
class _Conversation:
    """Messages of an episode, from events: parts of one message of the agent are separate events."""

    began: float
    messages: list[Message] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    _calls: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Names and times of the calls, by their ids."""

    def add(self, event: Event) -> None:
        """Adds an event."""
        kind, content, reward = event.get("type"), _text(event, "content"), _number(event.get("reward"))
        if reward is not None or kind == "tool_result":
            self.rewards.append(reward)
        if kind == "system_message":
            self.messages.append(SystemMessage(content))
        elif kind == "user_message":
            self.messages.append(UserMessage([TextBlock(text=content)]))
        elif kind == "tool_result":
            self.messages.append(self._result(event, content, reward))
        elif kind == "tool_call":
            self._add_part(calls=(self._call(event, content),))
        elif kind == "assistant_message":
            self._add_part(text=content)
        elif kind == "reasoning":
            self._add_part(reasoning=content or _text(event, "summary"))

    def _add_part(
        self, text: str = "", calls: tuple[ToolInvocation, ...] = (), reasoning: str | None = None
    ) -> None:
        """Adds to the last message of the agent; begins a new one where that has such a part already."""
        last = self.messages[-1] if self.messages else None
        if not isinstance(last, AgentMessage) or (text and last.text) or reasoning is not None:
            self.messages.append(AgentMessage(text, calls, reasoning))
            return
        self.messages[-1] = AgentMessage(last.text or text, last.calls + calls, last.reasoning)

    def _call(self, event: Event, content: str) -> ToolInvocation:
        name, id = _text(event, "name"), _text(event, "callId") or None
        if id is not None:
            self._calls[id] = name, _seconds(event)
        try:
            given = loads(content)
        except ValueError:
            given = None
        if isinstance(given, dict):
            return ToolInvocation(name, given, id)
        return ToolInvocation(name, {}, id, "The arguments are not a JSON object")

    def _result(self, event: Event, content: str, reward: float | None) -> ToolMessage:
        id, at = _text(event, "callId") or None, _seconds(event)
        name, called = self._calls.get(id or "", ("", at))
        return ToolMessage(
            id,
            name,
            [TextBlock(text=content)],
            reward=reward,
            finished=event.get("isFinished") is True,
            metadata=_object(event, "metadata") or None,
            started=called - self.began,
            seconds=at - called,
        )


def _object(event: Event, key: str) -> Mapping[str, Any]:
    value = event.get(key)
    return value if isinstance(value, dict) else {}


def _text(event: Event, key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _seconds(event: Event) -> float:
    return (_number(event.get("timestamp")) or 0.0) / 1000
