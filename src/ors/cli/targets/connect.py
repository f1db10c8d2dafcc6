"""Clients for a URL or a TARGET; connections to a Ray cluster."""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from ors import JSONObject
from ors.cli.errors import Unreachable, WrongUsage, clean, one_line
from ors.cli.targets.resolve import as_url, built, environments
from ors.client import ORS, ASGITransport, Environment, Options, Session, Task
from ors.errors import AuthenticationError, Forbidden, ORSError, Unavailable

PATIENCE = Options(retries=2, connect_seconds=5)
"""A person is waiting, so a missing server is reported soon."""
HASTE = Options(retries=2, connect_seconds=5, request_seconds=20)


@contextmanager
def connected(where: str, api_key: str | None = None, *, traceback: bool = False) -> Iterator[ORS]:
    """Yields a client of the server at a URL, or of a TARGET that is served inside this process.

    Errors of a TARGET show the line of its author that raised; with `traceback`, all of it.
    """
    url, stack = as_url(where), ExitStack()
    if url is not None:
        if traceback:
            raise WrongUsage("--traceback needs a TARGET: servers do not expose their source")
        greet(url, api_key)
        client = ORS(url, api_key, options=PATIENCE)
    else:
        from ors.server.process.runner import at_hangup  # late: a client needs no server

        server = built(environments([where]), return_errors="stacktrace" if traceback else "line")
        # The client reports a failure in one line; the server's log would repeat it at length.
        logging.getLogger("ors.server").addHandler(logging.NullHandler())
        logging.getLogger("ors.server").propagate = False
        client = ORS("http://in-process", api_key, options=PATIENCE, transport=ASGITransport(server.app))
        # A terminal that is closed is like Ctrl-C: episodes are torn down.
        stack.enter_context(at_hangup(signal.default_int_handler))
    with stack, client:
        yield client


def chosen(client: ORS, name: str | None) -> Environment:
    return client.environment(known_name(client.list_environments(), name))


def greet(url: str, api_key: str | None = None) -> None:
    """Checks that an ORS server answers at a URL, with a request that every server answers quickly."""
    try:
        with ORS(url, api_key, options=HASTE) as client:
            client.list_environments()
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    except (AuthenticationError, Forbidden, Unavailable):
        raise
    except ORSError as error:
        text = clean(" ".join(str(error).split()))
        raise Unreachable(
            text if url in text else f"{url} does not answer as an ORS server: {text}"
        ) from None


def known_name(names: Sequence[str], name: str | None) -> str:
    if not names:
        raise Unreachable("The server has no environments")
    if name is None and len(names) > 1:
        raise WrongUsage(f"There are several environments. Choose one with --env: {', '.join(names)}")
    for known in names:
        if name is None or known.lower() == name.lower():
            return known
    raise WrongUsage(f"There is no environment {name!r}. Environments: {', '.join(names)}")


def opened(
    env: Environment,
    split: str | None,
    index: int,
    task: JSONObject | None,
    secrets: Sequence[tuple[str, str]] | Mapping[str, str] = (),
) -> Session:
    """Session of the chosen task, not open yet. Default: the first task of the first split."""
    if task is not None:
        return env.session(Task(env.name, task), dict(secrets))
    return env.session(secrets=dict(secrets), split=split or env.list_splits()[0], index=index)


def completed_secrets(
    url: str,
    api_key: str | None,
    env: str | None,
    given: Mapping[str, str],
    before: Sequence[str] = (),
    *,
    local: bool,
) -> dict[str, str]:
    """The given secrets, those that an environment requires, and those it got `before`: see `completed`."""
    with ORS(url, api_key, options=PATIENCE) as client:
        found = chosen(client, env)
        required = dict.fromkeys([*found.required_secrets(), *before])
        return completed(found.name, list(required), given, local=local)


def completed(
    environment: str, required: Sequence[str], given: Mapping[str, str], *, local: bool
) -> dict[str, str]:
    """The given secrets, and those that the environment requires, asked for without echo.

    With `local`, they may come from variables. A server must not choose variables of the user to read.
    """
    found = dict(given)
    for name in (each for each in required if not found.get(each)):
        if local and (value := os.environ.get(name) or os.environ.get(name.upper())):
            found[name] = value
        elif sys.stdin.isatty():
            found[name] = click.prompt(f"{clean(name)} (secret)", hide_input=True, err=True)
        else:
            how = f"--secret {name}=VALUE, or --secret {name} for the value of ${name}"
            raise WrongUsage(clean(f"{environment} needs the secret {name}: pass {how}"))
    return found


@contextmanager
def ray_cluster(address: str) -> Iterator[Any]:
    """Connects to the Ray cluster at that address while the block runs; yields the module `ray`."""
    try:
        import ray
    except ImportError:
        raise WrongUsage("--ray needs Ray: pip install 'ors-kit[ray]'") from None
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        how = "start one with `ray start --head`, or use another address"
        raise Unreachable(f"No Ray cluster answers at {address}: {how}") from error
    except RuntimeError as error:  # for example another version of Ray or Python
        raise Unreachable(f"The Ray cluster at {address} cannot be used: {one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
