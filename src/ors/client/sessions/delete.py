"""Deletes a session on its server."""

import logging
from collections.abc import Mapping

from ors._protocol import DELETE, SESSION_ID
from ors.client.server import RemoteServer
from ors.errors import Gone, NotFound, ORSError

logger = logging.getLogger("ors.client")


async def delete(remote: RemoteServer, headers: Mapping[str, str], seconds: float | None = None) -> None:
    """Deletes the session in `headers`. If that fails or takes over `seconds`, logs that it will expire."""
    try:
        await remote.ask(DELETE, headers=headers, seconds=seconds)
    except (NotFound, Gone):
        pass
    except ORSError as error:
        logger.warning("session %s could not be deleted, it will expire: %s", headers[SESSION_ID], error)
        return
    for line in remote.lines.values():
        line.freed.set()
