"""Endpoint: the HTTP address of a model provider."""

import asyncio
import random
import re
from asyncio import sleep
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ors._json import dumps, loads
from ors._masking import MASK, hidden, masked
from ors._version import __version__
from ors.client import Transport, http_transport
from ors.errors import TransportError
from ors.rollouts.agent import ModelError
from ors.rollouts.agents.options import ModelOptions
from ors.rollouts.agents.provider_errors import failure, repeatable, retry_after, status_inside

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

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The provider's answer, as parsed JSON.

        Raises:
            ContextExceeded: the conversation is too long. ModelError: there is no answer after all retries.
        """
        data = dumps(body)
        pause, left = self._options.backoff_seconds, self._options.retries
        while (attempt := await self._attempt(path, data)).error is not None:
            asked = attempt.retry_after or 0.0
            if left <= 0 or not attempt.repeatable or asked > self._options.longest_pause_seconds:
                raise attempt.error
            # Random, so that not all episodes come back at once.
            await sleep(max(asked * random.uniform(1.0, 1.1), pause * random.uniform(0.5, 1.0)))
            pause, left = min(2 * pause, self._options.longest_pause_seconds), left - 1
        return attempt.answer

    async def close(self) -> None:
        await self._transport.close()

    async def _attempt(self, path: str, data: bytes) -> "_Attempt":
        seconds = self._options.request_seconds
        try:
            async with asyncio.timeout(seconds):
                status, headers, body = await self._exchange(path, data)
        except TimeoutError:
            return _Attempt(error=ModelError(f"{self._where} has not answered within {seconds:g} s"))
        except TransportError as error:
            return _Attempt(error=ModelError(f"no answer of {self._where}: {error}"))
        return self._read(status, headers, body)

    async def _exchange(self, path: str, data: bytes) -> tuple[int, Mapping[str, str], bytes]:
        response = await self._transport.send("POST", path, self._headers, data)
        chunks, size = [], 0
        try:
            async for chunk in response.body:
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise ModelError(f"the answer of {self._where} is over {MAX_ANSWER_BYTES} bytes")
                chunks.append(chunk)
        except BaseException:
            response.close()
            raise
        return response.status, response.headers, b"".join(chunks)

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> "_Attempt":
        if 200 <= status < 300:
            try:
                answer = loads(body)
            except ValueError:
                return _Attempt(error=ModelError(f"the answer of {self._where} is not JSON", status=status))
            inside = status_inside(answer)
            if inside is None:
                return _Attempt(self._without_key(answer))
            status = inside
        error = failure(status, body, self._where, self._hidden_parts)
        return _Attempt(None, error, repeatable(status, body), retry_after(headers, body))

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


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One request and what became of it."""

    answer: Any = None
    error: ModelError | None = None
    repeatable: bool = True
    retry_after: float | None = None


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
