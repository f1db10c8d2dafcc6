"""Deletes a session on its server."""

import asyncio
import logging
from collections.abc import Mapping

from ors._protocol import DELETE, SESSION_ID
from ors.client.server import RemoteServer
from ors.errors import Gone, NotFound, ORSError

logger = logging.getLogger("ors.client")


async def delete(remote: RemoteServer, headers: Mapping[str, str], seconds: float | None = None) -> None:
    """Deletes the session in `headers`. If that fails or takes over `seconds`, logs that it will expire."""
    try:
        async with asyncio.timeout(seconds):
            await remote.ask(DELETE, headers=headers)
    except (NotFound, Gone):
        return
    except ORSError as error:
        logger.warning("session %s could not be deleted, it will expire: %s", headers[SESSION_ID], error)
    except TimeoutError:
        text = "session %s was not deleted within %g s: its teardown takes longer, or it will expire"
        logger.warning(text, headers[SESSION_ID], seconds)
