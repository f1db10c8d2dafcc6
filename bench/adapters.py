"""What the adapters cost beside the driver: `python -m bench.adapters [--rounds N]`.

The same episodes are played in turns: by `rollouts` with an agent that answers at once, and by each adapter,
as its trainer uses it, with a policy that answers at once. Compared is the CPU time of this process for a
step. TRL calls one tool at a time, however many rollouts there are, so its adapter is compared with the
driver that plays one episode at a time ("alone"). The trainers' own work (templates, tokens, parsers) is left
out where it can be. The trainers must be installed.
"""

import argparse
import asyncio
import datetime
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.workers.rollout.replica import TokenOutput

from bench import machine
from bench.rollouts import AT_ONCE, STEPS, TASK, driven
from bench.servers import running
from ors.adapters.openenv import ORSSessionFactory
from ors.adapters.skyrl import ORSTextEnv
from ors.adapters.tinker import ORSMessageEnv
from ors.adapters.training import OPTIONS, Recent, Training
from ors.adapters.trl import TRLEnvironments
from ors.adapters.verl import ORSAgentLoop
from ors.client import ORS, AsyncORS

MOST = 1.5
EPISODES = 2 * AT_ONCE
FINAL = STEPS - 1
Way = Callable[[str], Awaitable[None]]


def _given(step: int) -> dict[str, Any]:
    return {"answer": "4", "final": step == FINAL}


async def _driver(url: str) -> None:
    async with AsyncORS(url) as client:
        await driven(client.environment("bench"), EPISODES)


async def _alone(url: str) -> None:
    """The driver with one episode at a time, which is all that TRL does."""
    async with AsyncORS(url) as client:
        await driven(client.environment("bench"), EPISODES, at_once=1)


async def _trl(url: str) -> None:
    """As TRL does: all rollouts of a batch in one thread, step by step."""
    with ORS(url) as client:
        environments = TRLEnvironments(client.environment("bench"), reward="sum")
        made: list[Any] = [environments() for _ in range(AT_ONCE)]
        for _ in range(EPISODES // AT_ONCE):
            for each in made:
                each.reset(split=TASK[0], index=TASK[1])
            for step in range(STEPS):
                for each in made:
                    each.submit(**_given(step))
            assert set(environments.reward(made, [[]] * AT_ONCE)) == {STEPS}


async def _in_threads(play: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(play, range(EPISODES)))


async def _openenv(url: str) -> None:
    """As the harness worker does: a thread for each rollout."""
    factory = ORSSessionFactory(url, "bench", TASK[0], [TASK[1]], reward="sum")

    def play(seed: int) -> None:
        session = factory.create(None, seed)
        session.initial_messages()
        session.list_tools()
        for step in range(STEPS):
            session.call_tool("submit", _given(step))
        assert session.verify([]).env_reward == STEPS
        session.close()

    await _in_threads(play)


async def _skyrl(url: str) -> None:
    """As the generator does: a thread for each rollout, and replies as text."""
    calls = [json.dumps({"name": "submit", "arguments": _given(step)}) for step in range(STEPS)]
    extras = {"extra_info": {"split": TASK[0], "index": TASK[1]}}

    def play(_: int) -> None:
        env = ORSTextEnv(None, extras, base_url=url, environment="bench", arguments={"reward": "sum"})
        env.init([])
        total = sum(env.step(f"<tool_call>{call}</tool_call>")["reward"] for call in calls)
        assert total == STEPS
        env.close()

    await _in_threads(play)


async def _together(play: Callable[[], Awaitable[None]]) -> None:
    left = iter(range(EPISODES))

    async def some() -> None:
        for _ in left:
            await play()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _tinker(url: str) -> None:
    """As the rollout of groups does: a task of the loop for each rollout."""
    renderer: Any = SimpleNamespace(create_conversation_prefix_with_tools=lambda tools, system: [])
    calls = [SimpleNamespace(name="submit", arguments=json.dumps(_given(step))) for step in range(STEPS)]
    replies: list[Any] = [
        {"role": "assistant", "content": "", "tool_calls": [SimpleNamespace(function=call, id=None)]}
        for call in calls
    ]
    async with AsyncORS(url, options=OPTIONS) as client:
        env, training, played = client.environment("bench"), Training.of({"reward": "sum"}), Recent()

        async def play() -> None:
            made = ORSMessageEnv(
                lambda: env.session(split=TASK[0], index=TASK[1]), renderer, training, played
            )
            await made.initial_observation()
            assert sum([(await made.step(reply)).reward for reply in replies]) == STEPS
            await made.close()

        await _together(play)


@ToolParser.register("instant")
class _InstantParser(ToolParser):
    """Reads the number of the step from the one token of a reply."""

    async def extract_tool_calls(self, ids: list[int], tools: Any = None) -> tuple[str, list[FunctionCall]]:
        return "", _CALLS[ids[0]]


_CALLS = [[FunctionCall(name="submit", arguments=json.dumps(_given(step)))] for step in range(STEPS)]
_SAMPLES = [TokenOutput(token_ids=[step], log_probs=[0.0]) for step in range(STEPS)]


class _InstantModel:
    """The model's servers without a model."""

    async def generate(self, prompt_ids: list[int], **_: Any) -> TokenOutput:
        return _SAMPLES[len(prompt_ids) // 2]


class _InstantTokens(ORSAgentLoop):
    """The agent loop without verl's own work: a message is one token."""

    def __init__(self, url: str) -> None:
        self._base_url, self._environment, self._secrets = url, "bench", dict[str, str]()
        self._training, self.config = Training.of({"reward": "sum"}), OmegaConf.create()
        self.tokenizer: Any = SimpleNamespace(pad_token_id=0)
        turns = SimpleNamespace(format="instant", max_parallel_calls=1)
        lengths = {"prompt_length": 1000, "response_length": 1000, "max_model_len": None}
        self.rollout_config: Any = SimpleNamespace(multi_turn=turns, **lengths)
        self.server_manager: Any = _InstantModel()
        self.processor = None

    async def ct_build_initial_tokens(self, messages: Sequence[Any], **_: Any) -> list[int]:
        return [0]

    async def ct_merge_context_msg(
        self, old: Any, new: Any, ids: list[int], mask: list[int], logprobs: Any, **_: Any
    ) -> tuple[Any, list[int], Any]:
        return SimpleNamespace(token_ids=[*ids, 0]), [*mask, 0], None

    async def ct_merge_assistant_token(
        self, ids: list[int], sampled: list[int], mask: list[int], logprobs: Any, **_: Any
    ) -> tuple[Any, list[int], Any]:
        return SimpleNamespace(token_ids=[*ids, *sampled]), [*mask, *[1] * len(sampled)], None


async def _verl(url: str) -> None:
    """As the worker does: a task of the loop for each rollout."""
    row = {"extra_info": {"split": TASK[0], "index": TASK[1]}}

    async def play() -> None:
        assert (await _InstantTokens(url).run({}, **row)).reward_score == STEPS

    await _together(play)


WAYS: dict[str, Way] = {
    "driver": _driver,
    "alone": _alone,
    "trl": _trl,
    "openenv": _openenv,
    "verl": _verl,
    "tinker": _tinker,
    "skyrl": _skyrl,
}


BESIDE = {"alone": "alone", "trl": "alone"}
"""What an adapter is compared with, where that is not the driver with all episodes at once."""


async def compare(url: str, rounds: int) -> dict[str, list[float]]:
    """The CPU time of a step in microseconds, for each round."""
    # Else the collector visits all that importing the trainers has made, at random moments.
    gc.collect()
    gc.freeze()
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name in WAYS if number % 2 else reversed(WAYS):
            began = time.process_time()
            await WAYS[name](url)
            found[name].append((time.process_time() - began) / (EPISODES * STEPS) * 1e6)
    return {name: each[1:] for name, each in found.items()}  # the first round warms up


def main() -> int:
    """Measures, and says whether it is good enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with running("ours") as (server,), machine.pinned(machine.cores()[1]):
        found = asyncio.run(compare(server.url, given.rounds))
    print(datetime.date.today().isoformat(), machine.described())
    print(f"{AT_ONCE} episodes at once, {STEPS} steps each, with their opening and closing")
    worst = 0.0
    for name, each in found.items():
        beside = BESIDE.get(name, "driver")
        ratios = [own / other for own, other in zip(each, found[beside], strict=True)]
        ratio, spread = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
        worst = max(worst, ratio)
        print(f"{name:8} {statistics.median(each):5.0f} µs a step, {ratio:.2f} of {beside} ({spread})")
    print(f"At most {MOST} is allowed; medians of {given.rounds} rounds")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
