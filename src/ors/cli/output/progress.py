"""Progress bar of a measurement, on a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ors.cli.load import Tally

REFRESH_SECONDS = 0.2


@contextmanager
def progress(seconds: float, tallies: Callable[[], Sequence[Tally]], *, quiet: bool) -> Iterator[None]:
    """Shows the progress of a measurement if standard error is a terminal and `quiet` is false."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        job = bar.add_task("starting", total=seconds)
        done = threading.Event()

        def refresh() -> None:
            while not done.wait(REFRESH_SECONDS):
                bar.update(job, advance=REFRESH_SECONDS, description=_counts(tallies()))

        thread = threading.Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _counts(tallies: Sequence[Tally]) -> str:
    return "  |  ".join(
        f"{tally.calls.count:,} calls, {tally.episodes:,} episodes, {tally.error_count:,} errors"
        for tally in tallies
    )
