"""A server in this process, for as long as some work with it lasts."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ors import Server

T = TypeVar("T")


def while_serving(server: Server, work: Callable[[str], T]) -> T:
    """Serves in this thread while another one does `work(url)`; gives what that gave.

    This way around, authors' code finds the main thread where `ors serve` has it: signals need that. What
    environments raise is reported, so it is not logged.

    Raises:
        KeyboardInterrupt: a signal ended the server before the work was done.
    """
    log = logging.getLogger("ors.server")
    level, outcome = log.level, Future[T]()

    def do(url: str) -> None:
        try:
            outcome.set_result(work(url))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            runner.should_exit = True

    def on_start(url: str) -> None:
        threading.Thread(target=do, args=(url,), name="ors-work", daemon=True).start()

    runner = server.runner(port=0, on_start=on_start)
    log.setLevel(logging.CRITICAL + 1)
    try:
        runner.run()
    finally:
        log.setLevel(level)
    if not outcome.done():
        raise KeyboardInterrupt
    return outcome.result()
