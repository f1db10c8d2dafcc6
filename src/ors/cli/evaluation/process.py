"""What the operating system does to an evaluation: signals that stop it, and its limit of open files."""

import asyncio
import errno
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import click

from ors.rollouts import EpisodeRecord
from ors.rollouts.records import RunWriter

PER_EPISODE = 3
"""A connection to the server, one to the model, and one for a ping or a parallel call."""
MOST_RESERVED = 96
"""For everything else; of a low limit, a quarter."""
PAUSE_SECONDS = 0.1


def affordable(concurrency: int) -> int:
    """How many episodes can run at once; raises the limit of open files first, as far as it can be."""
    if sys.platform == "win32":
        return concurrency
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_RESERVED + PER_EPISODE * concurrency
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return concurrency
    with suppress(ValueError, OSError):  # some systems allow less than they say
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fits = max(1, (soft - min(MOST_RESERVED, soft // 4)) // PER_EPISODE)
    if fits < concurrency:
        text = f"{concurrency:,} concurrent episodes need more open files than the limit of {soft:,}"
        click.echo(f"Warning: {text}: playing {fits:,} at once (to raise it: ulimit -n)", err=True)
    return min(fits, concurrency)


async def append(writer: RunWriter, record: EpisodeRecord) -> None:
    """Appends an episode to its run. While no file can be opened, it waits until others are closed."""
    warned = False
    while True:
        try:
            return writer.append(record)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        if not warned:
            click.echo("Warning: too many open files; waiting for some to close", err=True)
        warned = True
        await asyncio.sleep(PAUSE_SECONDS)


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
