"""Episodes for tests of runs: fixed ones, and any that a record can be."""

from typing import Any

from hypothesis import strategies as st

from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Outcome,
    Refused,
    Scored,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Truncated,
    Unscored,
    Usage,
    UserMessage,
)
from ors.types import ImageBlock, TextBlock, ToolSpec

SUBMIT = ToolSpec(
    name="submit",
    description="Submits an answer.",
    input_schema={"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]},
)
LOST = Failed("infrastructure", "call", "SessionLost", "the session has ended", may_have_run=True)


def episode(
    index: int = 0,
    reward: float | None = 1.0,
    *,
    sample: int = 0,
    steps: int = 1,
    split: str = "test",
    outcome: Outcome | None = None,
    **more: Any,
) -> EpisodeRecord:
    """An episode of some steps, the last of which is rewarded."""
    outcome = outcome or (Unscored() if reward is None else Scored())
    messages: list[Any] = [UserMessage([TextBlock(text=f"What is {index} + {index}?")])]
    for step in range(steps):
        last = step == steps - 1
        call = ToolInvocation("submit", {"answer": 2 * index}, f"call_{step}")
        usage = Usage(100, 20, 50, 10)
        messages.append(AgentMessage("Let me see.", (call,), usage=usage, seconds=0.5))
        blocks: list[TextBlock | ImageBlock] = [TextBlock(text="Correct." if reward else "Wrong.")]
        earned = reward if last else None
        messages.append(
            ToolMessage(call.id, "submit", blocks, reward=earned, finished=last, started=step, seconds=0.25)
        )
    given: dict[str, Any] = {
        "id": f"{index:016x}{sample:016x}",
        "task": TaskRef("adder", split, index),
        "sample": sample,
        "outcome": outcome,
        "reward": reward,
        "rewards": (*[None] * (steps - 1), reward),
        "messages": tuple(messages),
        "tools": (SUBMIT,),
        "usage": Usage(100 * steps, 20 * steps, 50 * steps, 10 * steps),
        "agent": "random",
        "session": f"session-{index}",
        "started": 1_700_000_000.0 + index,
        "seconds": 0.75 * steps,
    }
    return EpisodeRecord(**{**given, **more})


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(0, 2**40)
SECONDS = st.floats(-5e10, 5e10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=8) | st.just("messages"), VALUES, max_size=3)
# Over and under the size at which a block becomes a blob.
TEXTS = st.text(max_size=30) | st.sampled_from(["\ud800 alone", "ä" * 65_537])
IMAGES = st.text(max_size=8) | st.sampled_from(
    ["AAAA" * 1025, "AAA=" + "AAAA" * 1025, "iVBORw0KGgo=", "A" * 4099]
)
BLOCKS = st.lists(
    st.builds(TextBlock, text=TEXTS, detail=st.none() | OBJECTS)
    | st.builds(
        ImageBlock, data=IMAGES, mimeType=st.sampled_from(["image/png", "x"]), detail=st.none() | OBJECTS
    ),
    max_size=3,
)
USAGES = st.builds(Usage, WHOLE, WHOLE, WHOLE, WHOLE, st.none() | NUMBERS)
CALLS = st.builds(ToolInvocation, st.text(max_size=8), OBJECTS, st.none() | st.text(), st.none() | st.text())
MESSAGES = st.one_of(
    st.builds(SystemMessage, st.text()),
    st.builds(UserMessage, BLOCKS),
    st.builds(
        AgentMessage,
        st.text(),
        st.lists(CALLS, max_size=2).map(tuple),
        st.none() | st.text(),
        st.sampled_from(["stop", "length", "refusal", "pause", "empty"]),
        USAGES,
        SECONDS,
    ),
    st.builds(
        ToolMessage,
        st.none() | st.text(),
        st.text(),
        BLOCKS,
        st.booleans(),
        st.none() | st.text(),
        st.none() | NUMBERS,
        st.booleans(),
        st.none() | OBJECTS,
        SECONDS,
        SECONDS,
    ),
)
OUTCOMES = st.one_of(
    st.builds(Scored),
    st.builds(Unscored),
    st.builds(Refused),
    st.builds(Truncated, st.sampled_from(["turns", "tokens", "cost", "seconds"]), st.text()),
    st.builds(
        Failed,
        st.sampled_from(["agent", "model", "environment", "infrastructure"]),
        st.sampled_from(["opening", "prompt", "model", "call", "closing"]),
        st.text(),
        st.text(),
        st.booleans(),
    ),
)
TASKS = st.builds(TaskRef, st.text(), st.none() | st.text(), st.none() | WHOLE, st.none() | OBJECTS)
TOOLS = st.builds(ToolSpec, name=st.text(), description=st.text(), input_schema=st.none() | OBJECTS)
RECORDS = st.builds(
    EpisodeRecord,
    st.uuids().map(lambda value: value.hex),
    TASKS,
    WHOLE,
    OUTCOMES,
    st.none() | NUMBERS,
    st.lists(st.none() | NUMBERS, max_size=4).map(tuple),
    st.lists(MESSAGES, max_size=5).map(tuple),
    st.lists(TOOLS, max_size=2).map(tuple),
    USAGES,
    st.text(),
    st.none() | st.text(),
    st.floats(0, 5e10),
    SECONDS,
    st.integers(1, 9),
    components=st.dictionaries(st.text(max_size=8), NUMBERS, max_size=3),
)
"""Any record. Surrogates and integers of any size included."""
