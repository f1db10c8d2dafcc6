"""Open files of an evaluation: its connections and blobs share one limit of the operating system."""

import asyncio
import errno
import sys
from contextlib import suppress

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
