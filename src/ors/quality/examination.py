"""Examines an environment step by step, while it is served in this process or elsewhere."""

import asyncio
import logging
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from itertools import product
from types import FrameType
from typing import Literal, TypeVar

from ors import Environment, Limits, Server
from ors.client import AsyncORS, Options
from ors.errors import ORSError, ServerFailed
from ors.quality import episodes, leftovers, listings
from ors.quality.findings import QualityReport
from ors.quality.subject import EnvironmentUnderTest, ExaminationPlan, Stuck
from ors.server.observe.events import Event, LoopHeld

T = TypeVar("T")

LAST_SECONDS = 5.0
"""Time for interrupted work to clean up."""


class HeldLoops(dict[str, LoopHeld]):
    """Collects the methods that hold the server's event loop, with the longest time of each."""

    def observe(self, event: Event) -> None:
        """Keeps an event, unless memory is being traced, which makes everything slow."""
        if isinstance(event, LoopHeld) and not tracemalloc.is_tracing():
            known = self.get(event.method, event)
            self[event.method] = max(known, event, key=lambda each: each.seconds)


def _while_serving(server: Server, work: Callable[[str], T]) -> T:
    """Serves in this thread while another thread runs `work(url)`; returns its result.

    The server gets the main thread, as in `ors serve`, because environment code may need it for signals.
    Exceptions of environments are findings, so they are not logged.
    """
    outcome = Future[T]()

    def on_start(url: str) -> None:
        threading.Thread(target=_do, args=(work, url, outcome), name="ors-work", daemon=True).start()

    def done(outcome: Future[T]) -> None:
        runner.should_exit = True

    def stop(sig: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt  # a second signal means "stop now"
        signals.append(sig)
        logging.disable()  # errors are expected from now on
        end(sig, frame)  # tears open episodes down

    signals: list[int] = []
    runner = server.runner(port=0, on_start=on_start)
    outcome.add_done_callback(done)
    end = runner.handle_exit
    runner.handle_exit = stop  # type: ignore[method-assign]
    with _quietly():
        runner.run()
        if signals:
            wait([outcome], LAST_SECONDS)
            raise KeyboardInterrupt
    return outcome.result()


def _do(work: Callable[[str], T], url: str, outcome: Future[T]) -> None:
    try:
        outcome.set_result(work(url))
    except BaseException as error:
        outcome.set_exception(error)


@contextmanager
def _quietly() -> Iterator[None]:
    log = logging.getLogger("ors.server")
    level, disabled = log.level, logging.root.manager.disable
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
        logging.disable(disabled)


Step = Callable[[EnvironmentUnderTest], Awaitable[None]]

PATIENCE = Options(retries=2, connect_seconds=5)
"""A person is waiting, so a missing server is reported soon."""

STEPS: dict[str, Step] = {
    "splits and tasks": listings.examine,
    "tools": listings.examine_tools,
    "episodes": episodes.examine,
    "gold solution": episodes.examine_gold,
    "forged grades": episodes.examine_graders,
    "leftovers and memory": leftovers.examine,
}


def examine(
    *,
    url: str | None = None,
    classes: Mapping[str, type[Environment]] | None = None,
    elsewhere: str | None = None,
    environment: str | None = None,
    api_key: str | None = None,
    plan: ExaminationPlan | None = None,
    on_step: Callable[[str, str], None] | None = None,
) -> list[QualityReport]:
    """Examines the environments of a server, or classes, which are served in this process.

    `classes` maps names on the wire to classes, which are also examined for leftovers. `elsewhere` is the
    URL of another process that serves the same classes and must list the same tasks. `on_step` gets the
    name of the environment and of the step.

    Raises:
        TransportError: the server cannot be reached.
        ServerFailed: it has no environments.
        ValueError: it has no environment of that name.
    """
    if (url is None) == (classes is None):
        raise ValueError("give either the URL of a server, or classes")
    plan = plan or ExaminationPlan()

    def work(where: str) -> list[QualityReport]:
        return asyncio.run(_examine(where, classes or {}, elsewhere, environment, api_key, plan, on_step))

    return work(url) if url is not None else _while_served(list((classes or {}).values()), plan, work)


def _while_served(
    classes: Sequence[type[Environment]], plan: ExaminationPlan, work: Callable[[str], list[QualityReport]]
) -> list[QualityReport]:
    """Serves classes in this process while they are examined; adds the methods that held its loop."""
    limits = Limits(teardown_seconds=plan.ending_seconds, grace_seconds=0)
    held = HeldLoops()
    told: Literal["line", "stacktrace"] = "stacktrace" if plan.traceback else "line"
    server = Server(classes, told, limits=limits, observers=[held], inspector=False)
    reports = _while_serving(server, work)
    named = {cls.name().lower(): cls for cls in classes}
    for report, event in product(reports, held.values()):
        if _has(named[report.environment], event.method):
            report.found(
                "holds-loop",
                f"{event.method} blocked the event loop for {event.seconds:.1f} s ({event.where}), "
                "and all other sessions with it",
            )
    return reports


def _has(cls: type[Environment], method: str) -> bool:
    """Whether a method is of a class, or of its toolsets."""
    owner = method.rpartition(".")[0]
    return any(owner == base.__qualname__ for each in (cls, *(cls.toolsets or ())) for base in each.__mro__)


async def _examine(
    url: str,
    classes: Mapping[str, type[Environment]],
    elsewhere: str | None,
    environment: str | None,
    api_key: str | None,
    plan: ExaminationPlan,
    on_step: Callable[[str, str], None] | None,
) -> list[QualityReport]:
    reports = []
    async with (
        AsyncORS(url, api_key, options=PATIENCE) as client,
        AsyncORS(elsewhere or url, options=PATIENCE) as other,
    ):
        for name in _chosen(await client.list_environments(), environment):
            subject = EnvironmentUnderTest(
                client.environment(name), plan, QualityReport(name), classes.get(name)
            )
            with suppress(ORSError):  # the step of the tools reports it
                subject.rewards = await subject.env.reward_spec()
            subject.elsewhere = other.environment(name) if elsewhere else None
            await _steps(subject, on_step or (lambda environment, step: None))
            reports.append(subject.report)
    return reports


def _chosen(names: list[str], environment: str | None) -> list[str]:
    if not names:
        raise ServerFailed("the server has no environments")
    if environment is None:
        return names
    if environment.lower() not in [name.lower() for name in names]:
        raise ValueError(f"there is no environment {environment!r}. Environments: {', '.join(names)}")
    return [environment.lower()]


async def _steps(subject: EnvironmentUnderTest, on_step: Callable[[str, str], None]) -> None:
    name = subject.report.environment
    for what, step in STEPS.items():
        if what == "episodes":
            on_step(name, f"plays up to {subject.plan.most} episodes")
        if subject.stuck:
            subject.report.not_tried[what] = subject.stuck
            continue
        on_step(name, what)
        with suppress(Stuck):
            await step(subject)
    subject.report.figures["episodes"] = subject.played
