"""What a client is bound to: one process, and asyncio."""

import asyncio
from typing import NoReturn


class Bound:
    """An object with connections, which can neither be pickled nor copied."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has open connections, and cannot be pickled or copied:"
            " make a client in each process, and continue a session there with attach(sid)"
        )


def running_loop() -> asyncio.AbstractEventLoop:
    """The running event loop, or a RuntimeError that says what to do without one, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        why = "the async client needs a running asyncio event loop: without one, as under trio,"
        raise RuntimeError(f"{why} use the sync client ors.client.ORS in a thread") from None
