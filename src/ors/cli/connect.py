"""From URL or TARGET to a client of it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ors import JSONObject
from ors.cli.faults import Unreachable, Wrong, clean
from ors.cli.targets import as_url, built, environments
from ors.client import ORS, ASGITransport, Environment, Options, Session, Task
from ors.errors import AuthenticationError, Forbidden, ORSError, TransportError

__all__ = ["PATIENCE", "chosen", "connected", "first_question", "known_name", "opened"]

PATIENCE = Options(retries=2, connect_seconds=5)
"""A person waits: a server that is not there is said to be so at once."""


@contextmanager
def connected(where: str, api_key: str | None = None) -> Iterator[ORS]:
    """A client of the server at a URL, or of a TARGET that is served inside this process.

    Raises:
        Unreachable: the target cannot be served. Wrong: it is neither.
    """
    url = as_url(where)
    if url is not None:
        try:
            client = ORS(url, api_key, options=PATIENCE)
        except ValueError as error:
            raise Wrong(str(error)) from None
    else:
        server = built(environments([where]))
        # The client is told what fails, in one line; the server's log would say it again at length.
        logging.getLogger("ors.server").addHandler(logging.NullHandler())
        logging.getLogger("ors.server").propagate = False
        client = ORS("http://in-process", api_key, options=PATIENCE, transport=ASGITransport(server.app))
    with client:
        yield client


def chosen(client: ORS, name: str | None) -> Environment:
    """The environment of that name; without one, the only one there is.

    Raises:
        Wrong: there is none of that name, or there are several.
    """
    with first_question(client.base_url):
        names = client.list_environments()
    return client.environment(known_name(names, name))


@contextmanager
def first_question(where: str) -> Iterator[None]:
    """What is asked first shows whether a server speaks the protocol at all.

    Raises:
        Unreachable: it does not.
    """
    try:
        yield
    except (AuthenticationError, Forbidden, TransportError):
        raise
    except ORSError as error:
        raise Unreachable(f"{where} does not answer as an ORS server: {clean(str(error))}") from None


def known_name(names: Sequence[str], name: str | None) -> str:
    """The environment of that name; without one, the only one there is.

    Raises:
        Wrong: there is none of that name, or there are several. Unreachable: there is none at all.
    """
    if not names:
        raise Unreachable("The server has no environments")
    if name is None and len(names) > 1:
        raise Wrong(f"There are several environments; choose one with --env: {', '.join(names)}")
    for known in names:
        if name is None or known.lower() == name.lower():
            return known
    raise Wrong(f"There is no environment {name!r}; there is {', '.join(names)}")


def opened(
    env: Environment,
    split: str | None,
    index: int,
    task: JSONObject | None,
    secrets: Sequence[tuple[str, str]] | Mapping[str, str] = (),
) -> Session:
    """A session of the chosen task, not open yet: the first of the first split by default."""
    if task is not None:
        return env.session(Task(env.name, task), dict(secrets))
    return env.session(secrets=dict(secrets), split=split or env.list_splits()[0], index=index)
