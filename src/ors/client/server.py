"""One server as its client sees it: requests with their retries, and what has been learnt about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ors._json import dumps, loads
from ors._protocol import API_KEY, SERVER_VERSION, Endpoint
from ors._version import __version__
from ors.client.cleanup import Leftovers
from ors.client.liveness import Liveness
from ors.client.options import Options
from ors.client.retry import Retry
from ors.client.status_errors import failure, too_large
from ors.client.transports.base import Broken, Response, Transport
from ors.errors import ResponseError

__all__ = ["RemoteServer", "Reply", "parsed", "whole"]

_REDIRECTS = frozenset({307, 308})
_MAX_REDIRECTS = 3
_BASE_HEADERS = {
    "Accept": "application/json",
    # Whoever compresses an event stream on the way also holds it back.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"ors-python/{__version__}",
}


class RemoteServer:
    """One server: everything that is sent to it goes through here."""

    def __init__(self, transport: Transport, options: Options, keeper: Liveness, api_key: str | None) -> None:
        self.transport = transport
        self.options = options
        self.keeper = keeper
        self.leftovers = Leftovers()
        self.api_key = api_key
        self.honours_keys = False
        self.reads_secrets_in_body = True

    def headers(self, api_key: str | None = None, **more: str) -> dict[str, str]:
        """The headers of every request; `api_key` stands in for this client's."""
        key = api_key or self.api_key
        return _BASE_HEADERS | ({API_KEY: key} if key else {}) | more

    def path(self, endpoint: Endpoint, environment: str = "") -> str:
        """The path of `endpoint`, ready to be sent."""
        return endpoint.path(quote(environment))

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """One attempt: the answer, whatever its status.

        Raises:
            NotSent, Broken: there is none.
        """
        response = await self.transport.send(method, path, headers, body)
        if response.status in _REDIRECTS:
            response = await self._follow(response, method, headers, body)
        if SERVER_VERSION in response.headers:
            self.honours_keys = True
        return response

    async def _follow(
        self, response: Response, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        # A server with one environment sends bare paths there. Other hosts must not see keys and secrets.
        for _ in range(_MAX_REDIRECTS):
            target = _own_path(response.headers.get("Location", ""))
            if response.status not in _REDIRECTS or target is None:
                break
            response.close()
            response = await self.transport.send(method, target, headers, body)
        return response

    async def ask(
        self,
        endpoint: Endpoint,
        environment: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> Any:
        """What `endpoint` answers. It only asks, so it is asked again while the server is not there.

        Raises:
            TransportError: there was no answer in time. Unavailable: ... but "not now".
            ResponseError: the server refused.
        """
        path = self.path(endpoint, environment)
        sent = headers or self.headers()
        data = dumps(body) if body is not None else None

        async def attempt() -> Any:
            return parsed(await self.exchange(endpoint.method, path, sent, data))

        return await self.retry(seconds).until_answered(attempt)

    def retry(self, seconds: float | None = None) -> Retry:
        """The count of attempts of a request that may be sent again."""
        options = self.options
        return Retry(options, limit=options.retries, seconds=seconds or options.request_seconds)

    async def exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> "Reply":
        """One attempt: a whole answer.

        Raises:
            NotSent, Broken: there is none. Unavailable: it was "not now". ResponseError: the server refused.
        """
        response = await self.send(method, path, headers, body)
        answer = Reply(
            response.headers.get("Content-Type", ""), await whole(response, self.options.answer_bytes)
        )
        if not 200 <= response.status < 300:
            raise failure(response.status, response.headers, answer.data)
        return answer


def _own_path(location: str) -> str | None:
    """The path that a redirection leads to; None if that is another server, or no place at all."""
    try:
        target = urlsplit(location)
    except ValueError:
        return None
    return None if target.netloc or not target.path.startswith("/") else target.geturl()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of a server that agreed."""

    kind: str
    data: bytes


async def whole(response: Response, limit: int) -> bytes:
    """The body of `response`.

    Raises:
        Broken: it ended too early. ResponseError: it has more than `limit` bytes.
    """
    chunks, size = [], 0
    try:
        async for chunk in response.body:
            size += len(chunk)
            if size > limit:
                raise ResponseError(too_large("answer", limit), status=response.status, reason="limit")
            chunks.append(chunk)
    except BaseException:
        response.close()
        raise
    return b"".join(chunks)


def parsed(answer: Reply) -> Any:
    """An answer in JSON.

    Raises:
        Broken: it is not, as when it was cut off or comes from someone on the way.
    """
    try:
        return loads(answer.data)
    except ValueError:
        what = "is not JSON" if answer.data else "is empty"
        raise Broken(f"the server's answer {what}") from None
