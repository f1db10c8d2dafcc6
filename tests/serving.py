"""A real server on a real socket, in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ors import Server


@contextmanager
def serving(server: Server, **options: Any) -> Iterator[str]:
    """Serves while the block runs; gives the URL."""
    up = threading.Event()
    urls: list[str] = []

    def on_start(url: str) -> None:
        urls.append(url)
        up.set()

    runner = server.runner(port=0, on_start=on_start, **options)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        assert up.wait(20), "the server did not start"
        yield urls[0]
    finally:
        runner.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
