"""TRL: the environment of one rollout, and how its episode ends."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ors.adapters.common.chat import Content, content_of
from ors.adapters.common.hermes import parse_reply
from ors.adapters.common.training import Training
from ors.client import Environment, ToolCallError, ToolInvocation
from ors.rollouts import AgentMessage, EpisodeRecord, SteppedEpisodeSync, ToolMessage, UserMessage


def records_of(
    environments: Sequence[Any], completions: Sequence[Any], **batch: Any
) -> list[EpisodeRecord | None]:
    """Ends the episodes of a batch, as TRL gives it to reward functions; None for other environments."""
    trainer = getattr(batch.get("log_metric"), "__self__", None)  # TRL shows itself nowhere else
    ends, sampled = getattr(trainer, "eos_token_ids", ()), batch.get("completion_ids", ())
    cut = [bool(ends) and len(ids) > 0 and ids[-1] not in ends for ids in sampled]
    rows = zip(environments, completions, cut or [False] * len(completions), strict=True)
    return [env._end(said, cut) if isinstance(env, Rollout) else None for env, said, cut in rows]


class Rollout:
    """The environment of one rollout at a time. Its public methods are the tools, and `reset`."""

    def __init__(self, env: Environment, secrets: Mapping[str, str], training: Training) -> None:
        self._env, self._secrets, self._training = env, secrets, training
        self._episode: SteppedEpisodeSync | None = None

    def reset(self, *, split: str, index: int, **_: Any) -> Content:
        """Begins an episode; returns the prompt. If the task cannot be opened, the episode has no reward."""
        if self._episode is not None:
            self._episode.stop("the trainer began another episode")
        self._episode, first = self._training.begin(
            lambda: self._env.session(secrets=self._secrets, split=split, index=index)
        )
        return content_of([block for each in first if isinstance(each, UserMessage) for block in each.blocks])

    def _call(self, name: str, given: dict[str, Any]) -> Content:
        assert self._episode is not None, "reset() comes first"
        ended = self._episode.record is not None
        new = () if ended else self._episode.step(AgentMessage(calls=(ToolInvocation(name, given),)))
        result = next((each for each in new if isinstance(each, ToolMessage)), None)
        if result is None:
            raise ToolCallError("The episode has ended.")
        content = content_of(result.blocks)
        if not result.ok:
            raise ToolCallError(str(content))
        return content

    def _end(self, completion: Sequence[Mapping[str, Any]], cut: bool = False) -> EpisodeRecord:
        assert self._episode is not None, "reset() comes first"
        last = completion[-1] if completion else {}
        if self._episode.record is None and last.get("role") == "assistant" and not last.get("tool_calls"):
            # TRL takes a call that it cannot read for text, and ends the rollout.
            reply = parse_reply(str(last.get("content") or ""))
            self._episode.step(replace(reply, stop="length") if cut else reply)
        return self._episode.stop("the trainer ended the episode")
