"""The parts of the GRPO example. Needs torch: `test_grpo.py` runs this file where that is installed."""

from typing import Any

import pytest
import torch

from examples.training.grpo import ENVIRONMENTS, SAID, Line, Model, Player, advantages, line, padded, text
from ors.cli.targets.process import served
from ors.client import AsyncORS
from ors.rollouts import EpisodeLimits, EpisodeRecord, Failed, Scored, TaskRef, Truncated, Unscored, rollouts

LOST = Failed("infrastructure", "call", "SessionLost")


def episode(index: int, reward: float | None, outcome: Any = None) -> EpisodeRecord:
    return EpisodeRecord("", TaskRef("hunt", "train", index), 0, outcome or Scored(), reward, (), ())


def test_episodes_without_a_reward_are_in_neither_the_gradient_nor_the_baseline() -> None:
    group = [episode(0, reward) for reward in (1.0, 0.0, 0.0, 1.0)]
    missing = [episode(0, None, LOST), episode(0, 0.0, LOST), episode(0, None, Unscored())]
    learned = advantages([*missing, *group])
    assert [record for record, _ in learned] == group
    assert [value for _, value in learned] == pytest.approx([1.0, -1.0, -1.0, 1.0], rel=1e-3)


def test_a_truncated_episode_counts_with_the_reward_of_its_outcome() -> None:
    learned = advantages([episode(0, 1.0), episode(0, 0.0, Truncated("turns"))])
    assert [value for _, value in learned] == pytest.approx([1.0, -1.0], rel=1e-3)


def test_groups_have_baselines_of_their_own() -> None:
    learned = advantages([episode(0, 1.0), episode(1, 0.0), episode(0, 1.0), episode(1, 0.0)])
    assert [value for _, value in learned] == [0.0] * 4


def player() -> Player:
    torch.manual_seed(0)
    model = Model(32, 2)
    torch.nn.init.normal_(model.head.weight, std=0.5)
    return Player(model, "cpu")


async def played(agent: Player) -> list[EpisodeRecord]:
    with served(ENVIRONMENTS) as url:
        async with AsyncORS(url) as client:
            env = client.environment("numberhunt")
            tasks = [("train", index) for index in range(8)]
            limits = EpisodeLimits(turns=5)
            return [each async for each in rollouts(env, tasks, agent, reward="last", limits=limits)]


async def test_the_model_is_trained_on_the_very_tokens_that_it_sampled() -> None:
    agent = player()
    records = await played(agent)
    lines = [line(record.messages) for record in records]
    choices = agent.model(
        padded([each.numbers for each in lines], "cpu"), padded([each.said for each in lines], "cpu")
    )
    for number, each in enumerate(lines):
        assert sum(each.sampled) == sum(message.role == "assistant" for message in records[number].messages)
        for place, sampled in enumerate(each.sampled):
            if sampled:
                now = choices[number, place - 1, each.numbers[place]].item()
                assert now == pytest.approx(each.logprobs[place], abs=1e-4)
            else:
                assert each.logprobs[place] == 0.0


async def test_an_episode_reads_as_numbers_with_the_first_letters_of_results() -> None:
    (first, *_) = [each for each in await played(player()) if each.task.index == 0]
    read = line(first.messages)
    guesses = [
        call.input["number"] for each in first.messages if each.role == "assistant" for call in each.calls
    ]
    assert read.numbers == [1, 10, 5, *guesses]
    assert [SAID[letter] for letter in read.said[:3]] == ["."] * 3
    letters = [(text(each.blocks)[0] if each.ok else "?") for each in first.messages if each.role == "tool"]
    assert [SAID[letter] for letter in read.said[3:]] == letters


def test_close_numbers_look_alike_at_first() -> None:
    near, middle, far = Model(64, 1).numbers.weight[[20, 21, 60]]
    assert (near - middle).norm() < (far - middle).norm()


async def test_a_model_that_breaks_fails_the_episodes_and_trains_nothing() -> None:
    agent = player()
    agent.model.head = torch.nn.Linear(1, 1)
    records = await played(agent)
    assert {(each.outcome.type, getattr(each.outcome, "who", None)) for each in records} == {
        ("failed", "agent")
    }
    assert advantages(records) == []


def test_a_line_keeps_its_columns_together() -> None:
    read = Line()
    read.add(16)
    read.add(7, -2.0)
    assert (read.numbers, read.said) == ([16, 7], [0, 0])
    assert (read.sampled, read.logprobs) == ([False, True], [0.0, -2.0])
