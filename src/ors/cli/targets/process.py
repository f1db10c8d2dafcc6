"""Serves a TARGET in a child process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from ors.cli.settings import erase_secrets
from ors.cli.targets.variants import given_settings, words
from ors.server.process.system import LIFELINE, tied

STOP_SECONDS = 15.0
SETTINGS = {
    "ORS_API_KEYS": "",
    "ORS_SERVE_LOG_LEVEL": "critical",
    "ORS_SERVE_RECORD": "",
    "ORS_SERVE_RELOAD": "0",
}


@contextmanager
def served(*targets: str, variant: Sequence[str] | None = None, **variables: str) -> Iterator[str]:
    """Serves targets while the block runs; yields the URL. The child prints its own errors.

    `variant` is what `words` returns; by default, for what `--set` says.
    """
    targets = (*targets, *(words(given_settings()) if variant is None else variant))
    erase_secrets()
    with tied() as lifeline:
        process = subprocess.Popen(
            [sys.executable, "-m", "ors", "serve", *targets, "--port", "0", "--host", "127.0.0.1", "--json"],
            env={**os.environ, **SETTINGS, **variables, LIFELINE: str(lifeline)},
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not stop the server before we are done
        )
        with _ended(process) as url:
            yield url


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yields the URL of a starting server, and stops it after the block."""
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise click.exceptions.Exit(process.wait() or 3)
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
