"""A real server on a real socket, in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from ors import Server
from ors.server.app import App


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


@contextmanager
def hosted(server: Server) -> Iterator[str]:
    """The same as an ASGI application of uvicorn's own connections; gives the URL."""
    config = uvicorn.Config(server.app, port=0, http="httptools", log_level="error")
    runner = uvicorn.Server(config)
    up = threading.Event()

    async def started(sockets: Any = None) -> None:
        await uvicorn.Server.startup(runner, sockets)
        up.set()

    runner.startup = started  # type: ignore[method-assign]
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        assert up.wait(20), "the server did not start"
        yield f"http://127.0.0.1:{runner.servers[0].sockets[0].getsockname()[1]}"
    finally:
        runner.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


def app_of(server: Server) -> App:
    """The application of a server, for tests of what no request shows."""
    return server._app
