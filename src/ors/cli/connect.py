"""From URL or TARGET to a client of it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ors import JSONObject
from ors.cli.errors import Unreachable, Wrong, clean
from ors.cli.targets import as_url, built, environments
from ors.client import ORS, ASGITransport, Environment, Options, Session, Task
from ors.errors import AuthenticationError, Forbidden, ORSError, Unavailable

__all__ = ["PATIENCE", "chosen", "connected", "greet", "known_name", "opened"]

PATIENCE = Options(retries=2, connect_seconds=5)
"""A person waits: a server that is not there is said to be so at once."""
HASTE = Options(retries=2, connect_seconds=5, request_seconds=20)


@contextmanager
def connected(where: str, api_key: str | None = None) -> Iterator[ORS]:
    """A client of the server at a URL, or of a TARGET that is served inside this process.

    Raises:
        Unreachable: the target cannot be served, or nobody at the URL speaks the protocol.
        Wrong: it is neither.
    """
    url = as_url(where)
    if url is not None:
        greet(url, api_key)
        client = ORS(url, api_key, options=PATIENCE)
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
    return client.environment(known_name(client.list_environments(), name))


def greet(url: str, api_key: str | None = None) -> None:
    """Asks first what every server answers at once, to see whether there is one that speaks the protocol.

    Raises:
        Unreachable: there is none. Wrong: it is no URL. AuthenticationError, Forbidden: the key is wrong.
    """
    try:
        with ORS(url, api_key, options=HASTE) as client:
            client.list_environments()
    except ValueError as error:
        raise Wrong(str(error)) from None
    except (AuthenticationError, Forbidden, Unavailable):
        raise
    except ORSError as error:
        text = clean(str(error))
        raise Unreachable(text if url in text else f"{url} does not answer as a server: {text}") from None


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
