"""Signals that stop an evaluation as Ctrl-C does, so that its sessions end and its report is printed."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

STOPPING = ("SIGTERM", "SIGHUP")
"""Windows has no SIGHUP."""


async def stopped_by_signals(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work`; a signal that stops processes, or a terminal that closes, cancels it.

    Raises:
        CancelledError: it was cancelled.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for name in STOPPING:
        number = getattr(signal, name, None)
        # `nohup` ignores SIGHUP, and that must stay.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, task.cancel)
    await task
