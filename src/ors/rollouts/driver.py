"""`rollouts`: many episodes at once."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Unpack

from ors.client import AsyncEnvironment, Environment, Session
from ors.client.sessions.create import Ending, all_ended
from ors.client.transports.base import running_loop
from ors.providers.messages import Usage
from ors.rollouts.episodes.episode import (
    Agent,
    EpisodeKey,
    EpisodeRecord,
    GivenTask,
    RunningEpisode,
    TaskRef,
    episode_key,
    listed,
    session_for,
    task_ref,
)
from ors.rollouts.episodes.outcome import Failed, worth_retrying
from ors.rollouts.episodes.played import CallbackFailed, PlayedEpisode, play
from ors.rollouts.episodes.rules import PlayArguments, RolloutArguments, Rules

LISTED_SECONDS = 5.0
"""How long the record of an episode that has ended waits for its task."""
_Begin = tuple[TaskRef, int]
"""An episode to play: its task and sample."""


def rollouts(
    env: AsyncEnvironment,
    tasks: Iterable[GivenTask] | AsyncIterable[GivenTask],
    agent: Agent,
    *,
    samples: int = 1,
    concurrency: int = 64,
    model_requests: int | None = None,
    retries: int = 0,
    skip: Container[EpisodeKey] = (),
    secrets: Mapping[str, str] | None = None,
    keep_tasks: bool = False,
    on_begin: Callable[[RunningEpisode], object] | None = None,
    on_turn: Callable[[RunningEpisode], object] | None = None,
    on_end: Callable[[EpisodeRecord], object] | None = None,
    **arguments: Unpack[PlayArguments],
) -> "Rollouts":
    """Plays `samples` episodes of each task; yields their records as they end.

    `RolloutArguments` describes the arguments. Tasks are taken as they are needed, and may be endless.
    A slow consumer slows the episodes down. Closing or dropping the iterator cancels running episodes: use
    `contextlib.aclosing` if you keep it in a variable.

    Raises:
        ValueError: an argument is not valid.
    """
    if min(samples, concurrency, 1 if model_requests is None else model_requests) < 1 or retries < 0:
        raise ValueError("samples, concurrency and model_requests must be at least 1, and retries at least 0")
    slots = None if model_requests is None else asyncio.Semaphore(model_requests)
    told = (on_begin, on_turn, on_end)
    episodes = _episodes(env, tasks, samples, skip)
    rules = Rules(**arguments)
    return Rollouts(
        _Crew(env, agent, rules, episodes, concurrency, retries, slots, secrets, keep_tasks, *told)
    )


async def with_retries(attempt: Callable[[], Awaitable[EpisodeRecord]], retries: int) -> EpisodeRecord:
    """Plays an episode again, in a new session, while the infrastructure fails."""
    attempts: list[EpisodeRecord] = []
    while True:
        attempts.append(await attempt())
        if len(attempts) > retries or not worth_retrying(attempts[-1].outcome):
            return attempts[0] if len(attempts) == 1 else _joined(attempts)


def _joined(attempts: Sequence[EpisodeRecord]) -> EpisodeRecord:
    """The record of the last attempt, with those before it and what is known from them."""
    *earlier, last = attempts
    outcome, usage = last.outcome, sum((each.usage for each in attempts), Usage())
    if isinstance(outcome, Failed):
        ran = any(isinstance(each.outcome, Failed) and each.outcome.may_have_run for each in attempts)
        outcome = replace(outcome, may_have_run=ran)
    return replace(last, outcome=outcome, usage=usage, attempts=len(attempts), earlier=tuple(earlier))


class Rollouts(AsyncIterator[EpisodeRecord]):
    """The records of episodes, as they end. Closing or dropping it cancels running episodes."""

    def __init__(self, crew: "_Crew") -> None:
        self._crew = crew

    async def __anext__(self) -> EpisodeRecord:
        try:
            record = await self._crew.record()
        except BaseException:
            await self.aclose()
            raise
        if record is None:
            raise StopAsyncIteration
        return record

    @property
    def running(self) -> list[RunningEpisode]:
        """The episodes being played, oldest first. Safe to call from another thread."""
        playing = list(self._crew.playing.values())
        return sorted((each.now() for each in playing), key=lambda each: -each.seconds)

    def cancel(self, id: str) -> bool:
        """Cancels a running episode; returns whether there is one with this id. Call it on the event loop.

        Its record has the outcome `Failed`, with the error "Cancelled". It is not retried.
        """
        found = self._crew.playing.get(id)
        if found is not None:
            found.cancel()
        return found is not None

    @property
    def concurrency(self) -> int:
        """Maximum concurrent episodes. Set it on the event loop; lowering it stops no running episode."""
        return self._crew.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        if value < 1:
            raise ValueError("concurrency must be at least 1")
        self._crew.concurrency = value
        self._crew.room.set()

    async def aclose(self) -> None:
        """Cancels what runs, and waits until it has ended."""
        await self._crew.cancelled()

    def __del__(self) -> None:
        self._crew.abandon()


@dataclass(eq=False)
class _Crew:
    """Plays episodes at the same time. Nothing that it runs refers to the `Rollouts` that it works for."""

    env: AsyncEnvironment
    agent: Agent
    rules: Rules
    episodes: AsyncGenerator[_Begin, None]
    concurrency: int
    retries: int
    model_slots: asyncio.Semaphore | None
    secrets: Mapping[str, str] | None
    keep_tasks: bool
    on_begin: Callable[[RunningEpisode], object] | None
    on_turn: Callable[[RunningEpisode], object] | None
    on_end: Callable[[EpisodeRecord], object] | None
    playing: dict[str, PlayedEpisode] = field(default_factory=dict)
    """The episodes that run, by their ids."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be room for another episode."""
    _held: int = 0  # places of episodes that run, or have ended and wait to be taken
    _running: set[asyncio.Task[EpisodeRecord | None]] = field(default_factory=set)
    _ending: Ending = field(default_factory=set)
    _done: asyncio.Queue[asyncio.Task[EpisodeRecord | None] | None] = field(default_factory=asyncio.Queue)
    _loop: asyncio.AbstractEventLoop | None = None

    async def record(self) -> EpisodeRecord | None:
        """The record of an episode that has ended; None if all have."""
        if self._loop is None:
            self._loop = running_loop()
            self._start(self._feed())
        while self._running and (task := await self._done.get()) is not None:
            self._running.discard(task)
            record = task.result()
            if record is not None:
                self._held -= 1
                self.room.set()
                return record
        await all_ended(self._ending, self.env.client.options.request_seconds)
        self._done.put_nowait(None)  # wakes others who wait for a record
        return None

    async def cancelled(self) -> None:
        """Cancels all episodes, and waits until they have ended. None begins any more."""
        self._loop = running_loop()
        for task in self._running:
            task.cancel()
        running, self._running = self._running, set()
        self._done.put_nowait(None)
        await asyncio.gather(*running, return_exceptions=True)

    def abandon(self) -> None:
        """Cancels all episodes without waiting: closing the client does."""
        if not self._running or self._loop is None or self._loop.is_closed():
            return
        if self._loop is _running_loop():
            self.env.client.in_background(self.cancelled())
        else:
            self._loop.call_soon_threadsafe(self.abandon)

    async def _feed(self) -> None:
        play = self._played_and_listed if self.keep_tasks else self._played
        async with aclosing(self.episodes) as episodes:
            while True:
                while self._held >= self.concurrency:
                    self.room.clear()
                    await self.room.wait()
                self._held += 1
                episode = await anext(episodes, None)
                if episode is None:
                    return
                self._start(play(*episode))

    def _start(self, work: Coroutine[Any, Any, EpisodeRecord | None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done.put_nowait)

    async def _played_and_listed(self, task: TaskRef, sample: int) -> EpisodeRecord:
        """Plays one episode; meanwhile, asks for its task."""
        asked = asyncio.ensure_future(listed(self.env, task, self.secrets))
        try:
            record = await self._played(task, sample)
            await asyncio.wait([asked], timeout=LISTED_SECONDS)
            return replace(record, task=asked.result()) if asked.done() else record
        finally:
            asked.cancel()

    def _played(self, task: TaskRef, sample: int) -> Coroutine[Any, Any, EpisodeRecord]:
        attempt = partial(self._attempt, task, sample)
        return with_retries(attempt, self.retries) if self.retries else attempt()

    async def _attempt(self, task: TaskRef, sample: int) -> EpisodeRecord:
        session = session_for(self.env, task, self.secrets)
        told = (self.model_slots, self.on_turn, self._ending)
        episode = PlayedEpisode(session, self.agent, self.rules, sample, *told)
        self.playing[episode.id] = episode
        try:
            if self.on_begin is not None:
                self.on_begin(episode.now())
            record = await episode.play()
        except CallbackFailed as failed:
            raise failed.__cause__ or failed from None
        finally:
            del self.playing[episode.id]
        if self.on_end is not None:
            self.on_end(record)
        return record


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _episodes(
    env: AsyncEnvironment,
    tasks: Iterable[GivenTask] | AsyncIterable[GivenTask],
    samples: int,
    skip: Container[EpisodeKey],
) -> AsyncGenerator[_Begin, None]:
    """The episodes to play. Of a sequence of tasks, all are played before any is played again.

    So early means are those of many tasks. Of other tasks, each is played with all its samples.
    """
    rounds = range(samples) if isinstance(tasks, Sequence) else (None,)
    for sample in rounds:
        async for given in _each(tasks):
            task = task_ref(env, given)
            for each in range(samples) if sample is None else (sample,):
                if not skip or episode_key(task, each) not in skip:
                    yield task, each


async def _each(tasks: Iterable[GivenTask] | AsyncIterable[GivenTask]) -> AsyncIterator[GivenTask]:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
    else:
        for task in tasks:
            yield task


# ── The same without await ──


def play_sync(
    session: Session, agent: Agent, *, sample: int = 0, **arguments: Unpack[PlayArguments]
) -> EpisodeRecord:
    """Plays one episode: see `play`. The agent runs on another thread."""
    return session.portal.run(lambda: play(session.wrapped, agent, sample=sample, **arguments))


def rollouts_sync(
    env: Environment, tasks: Iterable[GivenTask], agent: Agent, **arguments: Unpack[RolloutArguments]
) -> Iterator[EpisodeRecord]:
    """Plays many episodes: see `rollouts`. The agent and the iterator of the tasks run on other threads.

    Leaving the iteration cancels what runs.
    """
    return env.portal.iterate(rollouts(env.wrapped, _in_thread(tasks), agent, **arguments))


async def _in_thread(tasks: Iterable[GivenTask]) -> AsyncIterator[GivenTask]:
    # The tasks may come from the sync client, which cannot be used on its own loop.
    iterator = iter(tasks)
    while taken := await asyncio.to_thread(list, islice(iterator, 1)):
        yield taken[0]
