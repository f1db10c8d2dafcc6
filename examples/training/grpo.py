"""GRPO in one file: a transformer, from random weights, learns to play an environment over HTTP.

`python -m examples.training.grpo` serves the number hunt of this folder and trains on it. README.md beside
this file shows what to expect. It needs PyTorch, which this package does not install.
"""

import argparse
import asyncio
import gc
import math
import re
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import uvloop
from torch import nn
from torch.nn import functional

from examples.training import curve
from ors.adapters.training import Watch
from ors.cli.targets.process import served
from ors.client import AsyncEnvironment, AsyncORS, Options, TextBlock, ToolInvocation, ToolSpec
from ors.rollouts import (
    AgentMessage,
    Conversation,
    EpisodeLimits,
    EpisodeRecord,
    Failed,
    Message,
    TaskSampler,
    ToolMessage,
    Truncated,
    UserMessage,
    rollouts,
    task_key,
)
from ors.types import Blocks

ENVIRONMENTS = str(Path(__file__).with_name("number_hunt.py"))
NUMBERS = 100
"""Numbers are written in base 100, so that each below this is one character, and one token."""
SAID = ".hlf?"
"""What can be said of a number: nothing, or the first letter of a guess's result. "?" is a refusal."""
WAVES = 16
GATHER_SECONDS = 0.01
"""How long a reply waits for others, to be sampled in one forward pass with them."""
TEST_EVERY = 10
Reply = tuple[int, float]  # a number, and its log-probability


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how."""

    environment: str = "numberhunt"
    turns: int = 5
    width: int = 64
    layers: int = 2
    steps: int = 100
    tasks: int = 30
    """Tasks of a step."""
    samples: int = 16
    """Episodes of each task: the group whose mean is the baseline."""
    epochs: int = 4
    """Optimizer steps for the episodes of a step, each with all of them: parts of them are too noisy."""
    learning_rate: float = 2e-3
    entropy: float = 0.015
    """Weight of the entropy bonus at first; it falls to 0. Without it, the first guesses that win stay."""
    clip: tuple[float, float] = (0.8, 1.28)
    """How far the probability of a token may move in one step."""


SMALL = Recipe()
BIG = Recipe(
    "bignumberhunt", turns=7, width=192, layers=3, steps=180, tasks=32, learning_rate=5e-4, entropy=0.015
)


class Block(nn.Module):
    """A layer of the transformer: attention, then two linear maps."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds to each place what it reads from the places before it."""
        batch, length, width = x.shape
        split = self.inward(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.outward(read.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    """A transformer that reads numbers, each with the letter that was said of it, and writes numbers."""

    def __init__(self, width: int, layers: int, longest: int = 16) -> None:
        super().__init__()
        self.numbers, self.said = nn.Embedding(NUMBERS, width), nn.Embedding(len(SAID), width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)], nn.LayerNorm(width))
        self.head = nn.Linear(width, width, bias=False)
        for embedding, spread in ((self.numbers, 0.1), (self.said, 4 / width**0.5), (self.places, 0.1)):
            nn.init.normal_(embedding.weight, std=spread)
        # Numbers that are close look alike at first, so what is learned of one holds for its neighbours.
        waves = torch.arange(NUMBERS)[:, None] * torch.arange(1, WAVES + 1) * (math.pi / NUMBERS)
        self.numbers.weight.data[:, : 2 * WAVES] += torch.cat([waves.sin(), waves.cos()], 1) * width**0.5 / 8
        nn.init.zeros_(self.head.weight)  # so that all numbers are equally likely at first

    def forward(self, numbers: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """The log-probabilities of the next number at each place."""
        places = torch.arange(numbers.shape[1], device=numbers.device)
        read = self.blocks(self.numbers(numbers) + self.said(said) + self.places(places))
        return (self.head(read) @ self.numbers.weight.T).log_softmax(-1)


@dataclass
class Line:
    """An episode as the model reads it: the numbers of the prompt, then one for each guess."""

    numbers: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Those at the time of sampling."""

    def add(self, number: int, logprob: float | None = None) -> None:
        """Adds a number; one of the model with its log-probability."""
        self.numbers.append(number)
        self.said.append(0)
        self.sampled.append(logprob is not None)
        self.logprobs.append(logprob or 0.0)


def line(messages: Iterable[Message]) -> Line:
    """The numbers of the prompt, and the number of each reply with the first letter of its result."""
    read = Line()
    for message in messages:
        if isinstance(message, AgentMessage):
            read.add(*message.native)  # the very token that was sampled
        elif isinstance(message, UserMessage):
            for number in re.findall(r"\d+", text(message.blocks)):
                read.add(int(number))
        elif isinstance(message, ToolMessage):
            read.said[-1] = SAID.index(text(message.blocks)[0] if message.ok else "?")
    return read


def text(blocks: Blocks) -> str:
    """The text of a message."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def padded(rows: Sequence[Sequence[Any]], device: str) -> torch.Tensor:
    """Rows of different lengths as one tensor. What follows a row's end is never attended to."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)


class Player:
    """The agent: samples the pending replies of all episodes together."""

    def __init__(self, model: Model, device: str) -> None:
        self.model = model
        self.device = device
        self.cpu_seconds = 0.0
        self._waiting: list[tuple[Line, asyncio.Future[Reply]]] = []

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Guesses the number that the model writes."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        if not self._waiting:
            loop.call_later(GATHER_SECONDS, self._answer)
        self._waiting.append((line(conversation.messages), future))
        number, logprob = await future
        call = ToolInvocation(tools[0].name, {"number": number})
        return AgentMessage(calls=(call,), native=(number, logprob))

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        since = time.process_time()
        try:
            replies = self._sample([context for context, _ in waiting])
        except Exception as error:  # these episodes fail with it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        self.cpu_seconds += time.process_time() - since
        for (_, future), reply in zip(waiting, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    def _sample(self, contexts: list[Line]) -> list[Reply]:
        numbers = padded([each.numbers for each in contexts], self.device)
        said = padded([each.said for each in contexts], self.device)
        ends = torch.tensor([len(each.numbers) - 1 for each in contexts], device=self.device)
        with torch.inference_mode():
            choices = self.model(numbers, said)[torch.arange(len(contexts), device=self.device), ends]
            chosen = choices.exp().multinomial(1)
            logprobs = choices.gather(1, chosen)
        return list(zip(chosen[:, 0].tolist(), logprobs[:, 0].tolist(), strict=True))


def advantages(records: Iterable[EpisodeRecord]) -> list[tuple[EpisodeRecord, float]]:
    """The episodes to learn from, each with its reward above the mean of its group.

    An episode that failed, or that nobody scored, says nothing about the model: it is neither learned from
    nor part of the mean. One that was truncated has the reward that its outcome says.
    """
    groups: defaultdict[Any, list[tuple[EpisodeRecord, float]]] = defaultdict(list)
    for record in records:
        if record.reward is not None and not isinstance(record.outcome, Failed):
            groups[task_key(record.task)].append((record, record.reward))
    learned = []
    for group in groups.values():
        rewards = [reward for _, reward in group]
        mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
        learned += [(record, (reward - mean) / (spread + 1e-4)) for record, reward in group]
    return learned


class Trainer:
    """A training: the model, and everything that is saved with it."""

    def __init__(self, recipe: Recipe, env: AsyncEnvironment, sampler: TaskSampler, device: str) -> None:
        self.recipe = recipe
        self.env = env
        self.sampler = sampler
        self.player = Player(Model(recipe.width, recipe.layers).to(device), device)
        self.optimizer = torch.optim.Adam(self.player.model.parameters(), betas=(0.9, 0.95))
        self.rows: list[curve.Row] = []
        self._watch = Watch()
        self._began = time.perf_counter()

    async def step(self, test: Sequence[tuple[str, int]] = ()) -> curve.Row:
        """Plays the episodes of one step, learns from them, and plays the test tasks, if there are any."""
        records = await self._play(list(islice(self.sampler, self.recipe.tasks)), self.recipe.samples)
        self._watch.count(records)  # warns of failures, and of what `ors runs check` would find
        learned = advantages(records)
        if not learned:
            raise SystemExit(f"No episode of this step has a reward. The first one: {records[0].outcome}")
        entropy = self._learn(learned)
        tested = advantages(await self._play(test, samples=2))
        row = curve.Row(
            step=len(self.rows) + 1,
            seconds=round(time.perf_counter() - self._began, 2),
            reward=round(statistics.fmean(record.reward or 0.0 for record, _ in learned), 4),
            test=round(statistics.fmean(record.reward or 0.0 for record, _ in tested), 4) if tested else None,
            entropy=round(entropy, 4),
            episodes=len(records),
            failed=sum(isinstance(record.outcome, Failed) for record in records),
            truncated=sum(isinstance(record.outcome, Truncated) for record in records),
            calls=sum(isinstance(message, ToolMessage) for record in records for message in record.messages),
        )
        self.rows.append(row)
        return row

    async def _play(self, tasks: Sequence[Any], samples: int) -> list[EpisodeRecord]:
        played = rollouts(
            self.env,
            tasks,
            self.player,
            samples=samples,
            concurrency=max(1, len(tasks) * samples),
            retries=2,
            reward="last",
            limits=EpisodeLimits(turns=self.recipe.turns),
            truncated_reward=0.0,  # a refused guess costs a turn: who runs out of turns has lost
        )
        return [record async for record in played]

    def _learn(self, learned: list[tuple[EpisodeRecord, float]]) -> float:
        """Takes the optimizer steps of one step; returns the mean entropy of the guesses."""
        progress = len(self.rows) / self.recipe.steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * min(1, (len(self.rows) + 1) / 10, 1.1 - progress)
        bonus = self.recipe.entropy * max(0.0, 1 - progress / 0.8)
        lines = [line(record.messages) for record, _ in learned]
        device = self.player.device
        batch = (
            padded([each.numbers for each in lines], device),
            padded([each.said for each in lines], device),
            padded([each.sampled for each in lines], device)[:, 1:].float(),
            padded([each.logprobs for each in lines], device)[:, 1:],
            torch.tensor([[advantage] for _, advantage in learned], device=device),
        )
        entropies, since = [], time.process_time()
        for _ in range(self.recipe.epochs):
            loss, entropy = self._loss(bonus, *batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.player.model.parameters(), 1.0)
            self.optimizer.step()
            entropies.append(entropy.item())
        self.player.cpu_seconds += time.process_time() - since
        return statistics.fmean(entropies)

    def _loss(self, bonus: float, *batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The clipped objective over the sampled tokens, and their entropy."""
        numbers, said, sampled, before, advantage = batch
        choices = self.player.model(numbers[:, :-1], said[:, :-1])
        now = choices.gather(2, numbers[:, 1:, None])[..., 0]
        ratio = ((now - before) * sampled).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(*self.recipe.clip) * advantage)
        entropy = -(choices.exp() * choices).sum(-1)
        total = sampled.sum()
        return -((gain + bonus * entropy) * sampled).sum() / total, (entropy * sampled).sum() / total

    def save(self, path: Path) -> None:
        """Writes the whole state of the training."""
        state = {
            "recipe": asdict(self.recipe),
            "model": self.player.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state(),
            "random": torch.get_rng_state(),
            "rows": [asdict(row) for row in self.rows],
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def restore(self, path: Path) -> None:
        """Goes on where `save` was called."""
        if not path.exists():
            raise SystemExit(f"There is no training to go on with: {path} does not exist.")
        state = torch.load(path, map_location=self.player.device)
        if state["recipe"] != asdict(self.recipe):
            raise SystemExit(f"{path} is of a training with other settings: {state['recipe']}")
        self.player.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.restore(state["sampler"])
        torch.set_rng_state(state["random"].cpu())
        self.rows = [curve.Row(**row) for row in state["rows"]]
        self._began -= self.rows[-1].seconds


async def train(url: str, recipe: Recipe, given: argparse.Namespace) -> Trainer:
    """Trains to the last step; saves the state and the curve as it goes."""
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)  # the matrices are small: more threads would only wait for each other
    async with AsyncORS(url, options=Options(keep_messages=False)) as client:
        env = client.environment(recipe.environment)
        splits = {name: [(name, i) for i in range(await env.num_tasks(name))] for name in ("train", "test")}
        trainer = Trainer(recipe, env, TaskSampler(splits["train"], seed=given.seed), given.device)
        if given.resume:
            trainer.restore(given.out / "state.pt")
        while (step := len(trainer.rows) + 1) <= recipe.steps:
            tested = step % TEST_EVERY == 0 or step in (1, recipe.steps)
            print(await trainer.step(splits["test"] if tested else ()), flush=True)
            if tested:
                trainer.save(given.out / "state.pt")
                curve.write(trainer.rows, given.out)
    return trainer


def main() -> None:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(description="Train a small transformer by GRPO, over HTTP.")
    parser.add_argument("--big", action="store_true", help="a larger model and a harder task, for a GPU")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda (default: cpu)")
    parser.add_argument("--steps", type=int, help="steps of the training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("grpo"), help="folder for results (default: grpo)")
    parser.add_argument("--resume", action="store_true", help="go on with the training in --out")
    parser.add_argument("--url", help="server that has the environments (default: one of its own)")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: leave --device out to train on the CPU")
    recipe = BIG if given.big else SMALL
    recipe = replace(recipe, steps=max(1, given.steps or recipe.steps))
    given.out.mkdir(parents=True, exist_ok=True)
    gc.freeze()  # PyTorch has many objects: to look at them again and again is a third of the client's work
    gc.set_threshold(20_000)
    with nullcontext(given.url) if given.url else served(ENVIRONMENTS) as url:
        print(f"Watch it in the inspector: {url}/-/", flush=True)
        since = time.process_time()
        trainer = uvloop.run(train(url, recipe, given))
        driver = time.process_time() - since - trainer.player.cpu_seconds
    servers = resource.getrusage(resource.RUSAGE_CHILDREN)  # our own server, which has ended
    server = servers.ru_utime + servers.ru_stime
    print(curve.summary(trainer.rows))
    print(f"CPU: model {trainer.player.cpu_seconds:.1f} s, client {driver:.1f} s, server {server:.1f} s.")


if __name__ == "__main__":
    main()
