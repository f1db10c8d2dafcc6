"""From URL or TARGET to a client of it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ors import JSONObject
from ors.cli.faults import Wrong
from ors.cli.targets import as_url, built, environments
from ors.client import ORS, ASGITransport, Environment, Options, Session, Task

__all__ = ["PATIENCE", "chosen", "connected", "opened"]

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
    names = client.list_environments()
    if name is None and len(names) == 1:
        return client.environment(names[0])
    if name is None:
        raise Wrong(f"There are several environments; choose one with --env: {', '.join(names)}")
    for known in names:
        if known.lower() == name.lower():
            return client.environment(known)
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
