"""AsyncORS, and the environments of a server."""

import os
import re
from typing import Any, Self
from urllib.parse import urlsplit

from ors._protocol import API_KEY_VARIABLE, HEALTH, LIST_ENVIRONMENTS
from ors.client.requests.decode import items, object_of
from ors.client.requests.keepalive import KeepAlive
from ors.client.requests.server import RemoteServer
from ors.client.sessions.environment import AsyncEnvironment
from ors.client.transports.base import Bound, Transport, proxy_of
from ors.client.transports.http import DirectTransport, ProxiedTransport
from ors.client.transports.multiplexed import MultiplexedTransport
from ors.client.transports.options import Options

DEFAULT_BASE_URL = "http://localhost:8080"


class AsyncORS(Bound):
    """A client of ORS servers. Make one and share it: all its sessions share its connections."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        *,
        options: Options | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.base_url = base_url
        self._given_key = api_key
        self.api_key = api_key or _key_of(base_url)
        self._options = options or Options()
        self._keepalive = KeepAlive(self._options)
        self._remotes: dict[str, RemoteServer] = {}
        self._remote(base_url, transport)

    @property
    def environments(self) -> Self:
        """The client itself."""  # ors-sdk 0.1.0: client.environments.get(name)
        return self

    def environment(self, name: str) -> AsyncEnvironment:
        """The environment of that name."""
        return self.get(name)

    def get(self, name: str, base_url: str | None = None) -> AsyncEnvironment:
        """The environment of that name, at `base_url` if it is not on the client's server."""
        return AsyncEnvironment(name, self._remote(base_url or self.base_url))

    async def list_environments(self) -> list[str]:
        """The names of all environments of the server.

        Raises:
            ResponseError: the server refused.
            TransportError: the server was not reached.
        """
        return items(await self._remote(self.base_url).ask(LIST_ENVIRONMENTS), str, "environments")

    async def health(self) -> dict[str, Any]:
        """The health of the server: `{"status": "ok"}`.

        Raises:
            TransportError, ResponseError: it is not healthy.
        """
        return dict(object_of(await self._remote(self.base_url).ask(HEALTH)))

    def _remote(self, base_url: str, transport: Transport | None = None) -> RemoteServer:
        remote = self._remotes.get(base_url)
        if remote is None:
            if transport is None:
                transport = http_transport(base_url, self._options)
                if self._options.multiplex and type(transport) is DirectTransport:
                    transport = MultiplexedTransport(transport, self._options)
            key = self._given_key or _key_of(base_url)
            remote = RemoteServer(base_url, transport, self._options, self._keepalive, key)
            self._remotes[base_url] = remote
        return remote

    async def close(self) -> None:
        """Closes all connections. Sessions that are still open expire on their server."""
        for remote in self._remotes.values():
            await remote.background_done()
        await self._keepalive.close()
        for remote in self._remotes.values():
            await remote.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


AsyncEnvironmentsAPI = AsyncORS  # ors-sdk 0.1.0: its type of `client.environments`


def _key_of(base_url: str) -> str | None:
    """The API key for a server, from the variables of the process: its own one, or that of all servers."""
    server = urlsplit(base_url).netloc.upper()
    own = [re.sub(r"\W", "_", f"{API_KEY_VARIABLE}_{name}") for name in (server, server.rpartition(":")[0])]
    return next((key for name in (*own, API_KEY_VARIABLE) if (key := os.getenv(name))), None)


def http_transport(base_url: str, options: Options | None = None) -> Transport:
    """The transport to the server at `base_url`: direct, or through the proxy in the environment variables.

    Raises:
        ValueError: `base_url` or the URL of the proxy is not valid.
    """
    options = options or Options()
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be like http://host:port, not {base_url!r}")
    proxy = proxy_of(parts)  # once, since it takes longer than a request
    return ProxiedTransport(parts, proxy, options) if proxy else DirectTransport(parts, options)
