"""Endpoint: the HTTP address of a model provider."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ors._json import dumps, loads
from ors._masking import MASK, hidden, masked
from ors._version import __version__
from ors.client import Options, Transport, http_transport
from ors.client.requests.retry import Retry
from ors.client.requests.server import read_body
from ors.client.requests.status_errors import retry_after
from ors.errors import ResponseError, TransportError, Unavailable
from ors.providers.base import ModelOptions
from ors.providers.errors import ModelError, failure, repeatable, retry_delay, status_inside

MAX_ANSWER_BYTES = 64 * 2**20
SHORTEST_KEY = 8
"""Local servers get keys such as "EMPTY" or "ollama", which are words of other texts too."""
_LEAST_SHOWN, _MOST_SHOWN = 3, 64
"""Characters of a key that tell it from other words, and that are looked for."""
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"ors-python/{__version__}",
}


class ProviderEndpoint:
    """Sends requests to a model provider, and repeats those that may succeed later."""

    def __init__(self, base_url: str, headers: Mapping[str, str], key: str, options: ModelOptions) -> None:
        self._where = _host(base_url)
        self._transport: Transport = http_transport(base_url)
        self._headers = _HEADERS | dict(headers)
        self._key = key if len(key) >= SHORTEST_KEY else ""
        self._shown = _shown_parts(key)
        self._options = options

    async def ask(
        self, path: str, body: Mapping[str, Any], before_attempt: Callable[[], None] | None = None
    ) -> Any:
        """The provider's answer, as parsed JSON."""
        data = dumps(body)

        async def attempt() -> Any:
            if before_attempt is not None:
                before_attempt()
            return await self._attempt(path, data)

        longest = self._options.longest_pause_seconds
        pauses = Options(backoff_seconds=self._options.backoff_seconds, backoff_limit_seconds=longest)
        limit = self._options.retries
        # Each attempt has a time limit of its own: this one only has to be longer than all of them.
        seconds = (limit + 1) * (self._options.request_seconds + 2 * longest)
        try:
            return await Retry(pauses, limit=limit, seconds=seconds).run(attempt)
        except _RetryableError as last:
            raise last.error from None

    async def close(self) -> None:
        await self._transport.close()

    async def _attempt(self, path: str, data: bytes) -> Any:
        """One request, and its answer.

        Raises:
            _RetryableError: the same request may succeed later. ModelError: it will not.
        """
        seconds = self._options.request_seconds
        try:
            async with asyncio.timeout(seconds):
                response = await self._transport.send("POST", path, self._headers, data)
                body = await read_body(response, MAX_ANSWER_BYTES)
        except TimeoutError:
            raise _RetryableError(ModelError(f"{self._where} did not answer within {seconds:g} s")) from None
        except TransportError as error:
            raise _RetryableError(ModelError(f"no answer from {self._where}: {error}")) from None
        except ResponseError:
            raise ModelError(f"the answer from {self._where} is over {MAX_ANSWER_BYTES} bytes") from None
        return self._read(response.status, response.headers, body)

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        if 200 <= status < 300:
            try:
                answer = loads(body)
            except ValueError:
                error = ModelError(f"the answer from {self._where} is not JSON", status=status)
                raise _RetryableError(error) from None
            inside = status_inside(answer)
            if inside is None:
                return self._without_key(answer)
            status = inside
        error = failure(status, body, self._where, self._hidden_parts)
        asked = retry_after(headers) if headers.get("Retry-After") else retry_delay(body)
        if not repeatable(status, body) or (asked or 0.0) > self._options.longest_pause_seconds:
            raise error
        raise _RetryableError(error, asked)

    def _without_key(self, answer: Any) -> Any:
        # The whole at once: most answers have no key in them, and a search has a cost of its own.
        told = dumps(answer).decode() if self._key else ""
        return answer if self._hidden(told) == told else masked(answer, self._hidden)

    def _hidden(self, text: str) -> str:
        return hidden(self._shown.sub(MASK, text), [self._key])

    def _hidden_parts(self, text: str) -> str:
        """An error's text without the key, or any part of it that tells something."""
        parts = (self._key[n : n + SHORTEST_KEY] for n in range(len(self._key) - SHORTEST_KEY + 1))
        return hidden(self._hidden(text), parts) if self._key else text


class _RetryableError(Unavailable):
    """A request failed that may succeed later."""

    def __init__(self, error: ModelError, retry_after: float | None = None) -> None:
        super().__init__(retry_after=retry_after)
        self.error = error


def _shown_parts(key: str) -> re.Pattern[str]:
    """Finds a key whose middle is left out, as providers show it: `sk-ab***yz`, `sk-ab...`, `***wxyz`."""
    ends = range(min(len(key), _MOST_SHOWN), 0, -1)
    head = "|".join(re.escape(key[:n]) for n in ends if n >= _LEAST_SHOWN)
    tails = [re.escape(key[-n:]) for n in ends]
    left_out = r"(?:\*+|\.{2,}|…+|•+|[xX]{4,})"
    longer = "|".join(tails[: 1 - _LEAST_SHOWN])
    return re.compile(
        rf"(?<![^\W_])(?:{head}){left_out}(?:{'|'.join(tails)})?|{left_out}(?:{longer})(?![^\W_])"
    )


def _host(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        raise ValueError("base_url is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url must be like https://host/v1")
    if parts.query or parts.fragment:
        raise ValueError("base_url must end with its path: put parameters of the query elsewhere")
    return parts.hostname + (f":{port}" if port else "")
