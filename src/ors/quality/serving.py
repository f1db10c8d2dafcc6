"""Serves in this process while a function uses the server."""

import logging
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from ors.server.observe.events import Event, LoopHeld

if TYPE_CHECKING:
    from ors import Server

T = TypeVar("T")

LAST_SECONDS = 5.0
"""Time for interrupted work to clean up."""


class HeldLoops:
    """Collects the methods that hold the server's event loop, with the longest time of each."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], LoopHeld] = {}

    def observe(self, event: Event) -> None:
        """Keeps an event, unless memory is being traced, which makes everything slow."""
        if isinstance(event, LoopHeld) and not tracemalloc.is_tracing():
            known = self.found.setdefault((event.environment, event.method), event)
            if event.seconds > known.seconds:
                self.found[event.environment, event.method] = event


def while_serving(server: "Server", work: Callable[[str], T]) -> T:
    """Serves in this thread while another thread runs `work(url)`; returns its result.

    The server gets the main thread, as in `ors serve`, because environment code may need it for signals.
    Exceptions of environments are reported by the caller, so they are not logged.

    Raises:
        KeyboardInterrupt: a signal stopped the server before the work was done.
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
