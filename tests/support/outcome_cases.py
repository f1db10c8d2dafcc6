"""The table of outcomes as scripted episodes, which every adapter must score alike. Tasks are Hunt's."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

OPTIONS: dict[str, Any] = {
    "unscored_reward": -1.0,
    "truncated_reward": -2.0,
    "failed_reward": {"environment": -3.0},
}
"""What a user may choose, so that each outcome has a reward of its own."""


@dataclass(frozen=True)
class Reply:
    """What the model says: text, or a call with its arguments as text."""

    text: str = ""
    call: str = ""
    given: str = "{}"
    cut: bool = False
    """Whether the length limit cuts it off."""

    def hermes(self) -> str:
        """As a model writes it in the format of Hermes and Qwen."""
        call = f'{{"name": "{self.call}", "arguments": {self.given}}}'
        said = f"<tool_call>\n{call}\n</tool_call>" if self.call else self.text
        return said if self.cut else f"{said}<|im_end|>"

    def message(self) -> AgentMessage:
        """As an agent of `play` says it."""
        try:
            calls = (ToolInvocation(self.call, json.loads(self.given)),) if self.call else ()
        except ValueError as error:
            calls = (ToolInvocation(self.call, {}, None, str(error), self.given),)
        return AgentMessage(self.text, calls, stop="length" if self.cut else "stop")


@dataclass(frozen=True)
class Case:
    """A scripted episode, and what it counts as by default and with `OPTIONS`; None if it is left out."""

    name: str
    replies: Sequence[Reply]
    default: float | None
    chosen: float | None
    environment: str = "hunt"
    split: str = "train"
    ended: tuple[float, float] | None = None
    """What it counts as where the trainer ends the rollout at a call that it cannot read."""


HINT, RIGHT = Reply(call="hint"), Reply(call="guess", given='{"number": 3}')
WRONG, CRASH, SHRUG = Reply(call="guess", given='{"number": 4}'), Reply(call="crash"), Reply(call="shrug")
UNREAD, UNFIT = Reply(call="guess", given='{"number": 3'), Reply(call="guess", given='{"number": "three"}')
GIVES_UP = Reply("I give up.")

CASES = [
    Case("won", [RIGHT], 1.0, 1.0),
    Case("lost", [WRONG], 0.0, 0.0),
    Case("gave up", [GIVES_UP], 0.0, -1.0),
    Case("gave up after earning", [HINT, GIVES_UP], 0.25, 0.25),
    Case("ended without a reward", [SHRUG], 0.0, -1.0),
    Case("cut off", [Reply("I th", cut=True)], 0.0, -2.0),
    Case("cut off after earning", [HINT, Reply("I th", cut=True)], 0.25, 0.25),
    Case("crashed", [CRASH], None, -3.0),
    Case("crashed after earning", [HINT, CRASH], None, -3.0),
    Case("a call that does not fit", [UNFIT, RIGHT], 1.0, 1.0),
    Case("a call that cannot be read", [UNREAD, RIGHT], 1.0, 1.0, ended=(0.0, -2.0)),
    Case("answered", [Reply("It is 3.")], 1.0, 1.0, "essay"),
    Case("answer cut off", [Reply("It is 3", cut=True)], 0.0, -2.0, "essay"),
]

Play = Callable[[str, str, Sequence[Case], Mapping[str, Any]], Sequence[float | None]]
"""Plays cases of one environment on the server at a URL, with options: their rewards, None if left out."""


def check(
    url: str, play: Play, *, ends: bool = False, skip: Sequence[str] = (), cases: Sequence[Case] = CASES
) -> None:
    """Compares what an adapter makes of the cases with the table.

    `ends`: the trainer ends a rollout at a call that it cannot read. `skip` names cases that cannot come up.
    """
    for environment in ("hunt", "essay"):
        played = [each for each in cases if each.environment == environment and each.name not in skip]
        for number, options in enumerate(({}, OPTIONS) if played else ()):
            found = play(url, environment, played, {"reward": "last", **options})
            expected = [
                each.ended[number] if ends and each.ended else (each.default, each.chosen)[number]
                for each in played
            ]
            names = [each.name for each in played]
            assert dict(zip(names, found, strict=True)) == dict(zip(names, expected, strict=True)), options
