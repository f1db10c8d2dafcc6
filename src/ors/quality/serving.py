"""A server in a thread of this process, for as long as it is needed."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ors import Server

START_SECONDS = 30.0


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Serves while the block runs; gives the URL. What environments raise is reported, so it is not logged.

    Raises:
        RuntimeError: the server does not start.
    """
    log = logging.getLogger("ors.server")
    level, urls, up = log.level, list[str](), threading.Event()

    def on_start(url: str) -> None:
        urls.append(url)
        up.set()

    runner = server.runner(port=0, on_start=on_start)
    thread = threading.Thread(target=runner.run, name="ors-server", daemon=True)
    log.setLevel(logging.CRITICAL + 1)
    try:
        thread.start()
        if not up.wait(START_SECONDS):
            raise RuntimeError("the server did not start")
        yield urls[0]
    finally:
        runner.should_exit = True
        thread.join()
        log.setLevel(level)
