"""TRL's own loops of AsyncGRPOTrainer over OpenEnv's harness, with replies by a script."""

import functools
import itertools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from accelerate import PartialState
from datasets import Dataset
from openenv.core.harness import MCPHarnessAdapter
from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

from ors.adapters import serve, training
from ors.adapters.openenv import ORSSessionFactory
from ors.client import Options
from tests.support.outcome_cases import CASES, Case, check
from tests.support.parameters import SUMS
from tests.support.tiny_model import called, tiny_tokenizer
from tests.support.training_environment import Hunt, hunt_elsewhere

RIGHT, WRONG, HINT = called("guess", number=3), called("guess", number=4), called("hint")
CRASH, SHRUG = called("crash"), called("shrug")


class Scripted(_HarnessRolloutLoop):
    """Samples the first replies of a script, and afterwards the right guess. Ends after the first group."""

    script: list[str]
    later: Sequence[str] = (RIGHT,)
    prompts: list[list[int]]
    sampled: list[list[int]]
    before_reply: Callable[[int], object] = staticmethod(lambda turn: None)

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        turn = self.tokenizer.decode(prompt_ids).count("<tool_response>")
        self.before_reply(turn)
        ids = self.tokenizer.encode(
            self.later[turn - 1] if turn else self.script.pop(0), add_special_tokens=False
        )
        self.prompts.append(prompt_ids)
        self.sampled.append(ids)
        return ids, [-0.5] * len(ids)

    def _repeat_iterator(self) -> Any:
        row = {"prompt": [{"role": "user", "content": ""}]}
        return ((3 + n // self.num_generations, row) for n in itertools.count())

    async def _generate_one(self, *args: Any, group_id: int, **kwargs: Any) -> Any:
        if group_id == 3:
            return await super()._generate_one(*args, group_id=group_id, **kwargs)
        await self._stop_event.wait()
        return self._EMPTY_ROLLOUT

    async def _score_group(self, group: Any) -> Any:
        self.group, samples = group, await super()._score_group(group)
        self.scored, self.rewards = samples, group.rollout_rewards
        self._stop_event.set()
        return samples


def played(
    url: str,
    script: Sequence[str],
    environment: str = "hunt",
    split: str = "train",
    before_reply: Callable[[int], object] = lambda turn: None,
    **arguments: Any,
) -> Scripted:
    """The loop after one group."""
    PartialState()  # TRL's logger needs it
    tokenizer = tiny_tokenizer()
    loop = Scripted(
        model_name="tiny",
        dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}]),
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        rollout_buffer=queue.Queue(),
        model_version_value=SimpleNamespace(value=0),
        heartbeat_value=SimpleNamespace(value=0.0),
        failed_event=threading.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
        num_generations=len(script),
        max_inflight_tasks=len(script),
        harness_adapter=MCPHarnessAdapter(),
        harness_session_factory=functools.partial(
            ORSSessionFactory, url, environment, split, **({"reward": "sum"} | arguments)
        ),
    )
    loop.script, loop.before_reply, loop.prompts, loop.sampled = list(script), before_reply, [], []
    loop.run()
    return loop


def by_reward(loop: Scripted) -> list[tuple[float, float]]:
    return sorted((sample.metrics["reward"], round(sample.advantage, 5)) for sample in loop.scored)


def test_a_group_is_scored_by_the_environment(url: str) -> None:
    loop = played(url, [RIGHT, WRONG])
    assert by_reward(loop) == [(0.0, -1.0), (1.0, 1.0)]
    assert "Guess 3." in loop.tokenizer.decode(loop.prompts[0])


def test_secrets_come_from_variables(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    factory = ORSSessionFactory(url, "locked", "train", [3], secrets=["hunt_key"], reward="sum")
    session = factory.create(None, 0)
    assert session.initial_messages()[-1]["content"] == "sesame: guess 3."
    session.call_tool("guess", {"number": 3})
    assert session.verify([]).env_reward == 1.0
    session.close()


def test_a_server_with_parameters_is_started_for_it() -> None:
    session = ORSSessionFactory(serve(SUMS, {"difficulty": 5}), "sums", "train", reward="sum").create(None, 3)
    session.call_tool("submit", {"answer": 3 + 5})
    assert session.verify([]).env_reward == 1.0
    session.close()


def test_done_ends_the_episode_and_ids_are_those_that_were_sampled(url: str) -> None:
    loop = played(url, [HINT])
    assert len(loop.sampled) == 2
    (sample,) = loop.scored
    assert sample.metrics["reward"] == 1.25
    trained = sample.input_ids[sample.completion_mask.astype(bool)].tolist()
    assert trained == loop.sampled[0] + loop.sampled[1]


@pytest.mark.parametrize("bad", [CRASH, SHRUG], ids=["raises", "no-reward"])
def test_an_episode_without_reward_is_in_neither_gradient_nor_baseline(url: str, bad: str) -> None:
    with_bad = played(url, [RIGHT, RIGHT, WRONG, bad], unscored_reward=None)
    without = played(url, [RIGHT, RIGHT, WRONG])
    left_out = [sample for sample in with_bad.scored if np.isnan(sample.metrics["reward"])]
    assert [sample.advantage for sample in left_out] == [0.0]
    live = sorted(pair for pair in by_reward(with_bad) if not np.isnan(pair[0]))
    assert live == by_reward(without)


def test_a_setup_that_fails_is_left_out(url: str) -> None:
    loop = played(url, [RIGHT, RIGHT], split="broken")
    assert loop.rewards == [None, None]
    assert loop.scored == []


def test_crashes_are_losses_if_the_user_says_so(url: str) -> None:
    loop = played(url, [RIGHT, CRASH], failed_reward={"environment": 0.0})
    assert by_reward(loop) == [(0.0, -1.0), (1.0, 1.0)]


def test_every_outcome_counts_as_the_table_says(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        rewards = []
        for case in cases:
            replies = [each.hermes() for each in case.replies]
            monkeypatch.setattr(Scripted, "later", replies[1:])
            rewards += played(url, replies[:1], environment, **options).rewards
        return rewards

    unknown = [case.name for case in CASES if case.replies[-1].cut]  # the harness does not tell
    check(url, play, ends=True, skip=unknown)


def test_giving_up_is_a_loss_by_default_and_a_call_that_cannot_be_read_is_no_answer(url: str) -> None:
    assert by_reward(played(url, [RIGHT, "I give up.<|im_end|>"])) == [(0.0, -1.0), (1.0, 1.0)]
    broken = '<tool_call>\n{"name": "guess", "arguments": {"number": 3\n</tool_call><|im_end|>'
    assert played(url, [broken], environment="essay").rewards == [0.0]


def test_a_nudge_that_nobody_would_send_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="cannot send a nudge"):
        ORSSessionFactory(url, "hunt", "train", reward="last", nudge="Go on.")


def test_a_server_that_is_killed_leaves_its_episodes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = Options(ping_seconds=0.2, ping_failures=2, retries=1)
    monkeypatch.setattr(training, "OPTIONS", impatient)
    with hunt_elsewhere() as (process, address):

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        loop = played(address, [HINT], before_reply=kill)
    assert loop.rewards == [None]
    assert [sample.advantage for sample in loop.scored] == [0.0]


def test_a_refusal_goes_to_the_model(url: str) -> None:
    loop = played(url, [called("refuse")])
    assert "not today" in loop.tokenizer.decode(loop.prompts[1])
    assert loop.rewards == [1.0]


def test_the_last_message_goes_to_the_terminal_tool(url: str) -> None:
    assert played(url, ["It is 3.<|im_end|>"], environment="essay").rewards == [1.0]


def test_a_session_that_is_closed_early_ends(url: str) -> None:
    session = ORSSessionFactory(url, "hunt", "train", [3], reward="last").create(None, seed=7)
    session.initial_messages()
    assert {tool.name for tool in session.list_tools()} > {"guess", "hint"}
    assert Hunt.count["open"] == 1
    session.close()
    assert Hunt.count["open"] == 0


def test_a_verified_episode_has_its_named_rewards_as_metrics(url: str) -> None:
    session = ORSSessionFactory(url, "parts", "train", [3], reward="sum").create(None, 0)
    session.call_tool("hint", {})
    session.call_tool("guess", {"number": 3})
    verified = session.verify([])
    assert (verified.env_reward, verified.metrics) == (1.75, {"format": 0.75, "correct": 1.0})
    session.close()
