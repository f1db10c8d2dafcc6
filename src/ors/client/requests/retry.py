"""Error statuses of a server, when a request is sent again, and the line of those who wait for a full one."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from time import time
from typing import TypeVar

from ors import errors
from ors._json import loads
from ors._protocol import REASON
from ors.client.transports.base import Broken, NotSent, running_loop
from ors.client.transports.options import Options
from ors.errors import TransportError, Unavailable

_NOT_NOW = frozenset({429, 502, 503, 504})
_BY_STATUS: dict[int, type[errors.ResponseError]] = {
    error.status: error
    for error in (
        errors.BadRequest,
        errors.AuthenticationError,
        errors.Forbidden,
        errors.NotFound,
        errors.Gone,
        errors.TooLarge,
        errors.ServerFailed,
    )
}
STARTING = "starting"
"""The reason of a 503 because setup() still runs: not a failure, however often it is repeated."""
_MAX_TEXT = 2000
_PAGES = ("<!doctype html", "<html")
"""Beginnings of pages for browsers, which say nothing in a line of text."""


def failure(status: int, headers: Mapping[str, str], body: bytes) -> errors.ORSError:
    """The error for an answer whose status is not 2xx."""
    text = _detail(body) or f"the server answered {status}"
    reason = headers.get(REASON) or None
    if status in _NOT_NOW:
        # openreward 0.1.167 answers so every 25 s while an environment's setup runs.
        reason = STARTING if headers.get("X-Backend-State") == STARTING else reason
        return errors.Unavailable(text, retry_after=retry_after(headers), status=status, reason=reason)
    if status < 300 or (status < 400 and not headers.get("Location")):
        return errors.ResponseError(
            f"the server answered {status}, which is not an answer to this request; check base_url",
            status=status,
        )
    if status < 400:
        return errors.ResponseError(f"redirected to {headers['Location']}: use it as base_url", status=status)
    if status == errors.MethodNotAllowed.status:
        return errors.MethodNotAllowed(text, allow=headers.get("Allow", ""))
    if status == errors.AuthenticationError.status:
        return errors.AuthenticationError(f"{text} (pass api_key, or set ORS_API_KEY)", reason=reason)
    nearest = errors.BadRequest if status < 500 else errors.ServerFailed
    return _BY_STATUS.get(status, nearest)(text, status=status, reason=reason)


def certainly_not_run(error: errors.TransportError) -> bool:
    """Whether a request that failed with `error` was certainly not processed."""
    # A 503 with Retry-After is the server's own. One without may be a proxy's, and the server may have
    # the request.
    if isinstance(error, errors.Unavailable):
        return error.status == 429 or (error.status == 503 and error.retry_after is not None)
    return isinstance(error, NotSent)


def too_large(what: str, limit: int) -> str:
    """The message for an answer over the size limit."""
    return f"the {what} is over this client's limit of {limit} bytes; Options(answer_bytes=...) sets another"


def _detail(body: bytes) -> str:
    try:
        value = loads(body)
    except ValueError:
        text = body[:_MAX_TEXT].decode(errors="replace").strip()
        return "" if text.lower().startswith(_PAGES) else text
    detail = value.get("detail", value) if isinstance(value, dict) else value
    if isinstance(detail, list):
        return "; ".join(map(_field, detail))
    return str(detail)


def _field(problem: object) -> str:
    # A 422 of FastAPI repeats the refused values, which may be secrets: only their places are shown.
    if not isinstance(problem, dict):
        return str(problem)
    loc = problem.get("loc")
    place = ".".join(map(str, loc)) if isinstance(loc, list) else "body"
    return f"{place}: {problem.get('msg', 'not valid')}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that a header asks for, as a number or as a date."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except (TypeError, ValueError):
        return None


# ── When a request is sent again ──────────────────────────────────────────────────────────────────

T = TypeVar("T")
JITTER = random.SystemRandom()
"""Without state: environments may depend on the global random numbers of this process."""


class Retry:
    """The attempts of one request: how many are left, the pauses between them, the deadline."""

    __slots__ = ("_delay", "_left", "_not_failed", "_options", "deadline", "seconds")

    def __init__(
        self, options: Options, *, limit: int, seconds: float, deadline: float | None = None
    ) -> None:
        self._options = options
        self._left = limit
        self._delay = options.backoff_seconds
        self.seconds = seconds
        self.deadline = running_loop().time() + seconds if deadline is None else deadline
        self._not_failed: TransportError | None = None  # the last answer, if it only asked to wait

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats `attempt` until it succeeds. Raises its TransportError when no attempt or time is left."""
        while True:
            try:
                async with asyncio.timeout_at(self.deadline):
                    return await attempt()
            except TimeoutError:
                raise self._not_failed or TransportError(f"no answer within {self.seconds:g} s") from None
            except TransportError as error:
                await self.pause(error)

    async def pause(self, error: TransportError) -> None:
        """Waits until the next attempt is due. Raises `error` if no attempt or time is left."""
        delay = self._delay * JITTER.uniform(0.5, 1.0)
        if isinstance(error, Unavailable) and error.retry_after is not None:
            # Random, so that not all clients come back at once.
            delay = max(delay, error.retry_after * JITTER.uniform(1.0, 1.1))
        if self._left <= 0 or asyncio.get_running_loop().time() + delay > self.deadline:
            raise TransportError(str(error)) if isinstance(error, NotSent | Broken) else error
        # Nothing failed while a setup runs, or the server is full.
        waits = error.reason == STARTING or is_full(error)
        self._not_failed = error.with_traceback(None) if waits else None
        self._left -= self._not_failed is None
        self._delay = min(2 * self._delay, self._options.backoff_limit_seconds)
        await self._sleep(delay)

    async def _sleep(self, delay: float) -> None:
        await asyncio.sleep(delay)


def is_full(error: TransportError) -> bool:
    """Whether the server is at a limit, and says when to come back."""
    return isinstance(error, Unavailable) and error.reason == "limit" and error.retry_after is not None


class WaitingLine:
    """Who waits for a place; `freed` is set when this client has deleted a session."""

    def __init__(self) -> None:
        self.waiting = 0
        self.turn = asyncio.Lock()
        self.freed = asyncio.Event()
        self.refusal: Unavailable | None = None  # of the last who asked


class RetryInLine(Retry):
    """The attempts to create one session. One that finds the server full, or a line, goes to its end."""

    def __init__(self, options: Options, line: WaitingLine) -> None:
        super().__init__(options, limit=options.retries, seconds=options.request_seconds)
        self._line = line
        self._waits = self._first = False

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats `attempt` when it is its turn: see `Retry.run`."""
        line = self._line
        try:
            if line.waiting:
                await self._enter()
            result = await super().run(attempt)
            line.refusal = None
            return result
        except Unavailable as error:
            line.refusal = copy(error)  # without its traceback
            raise
        finally:
            line.waiting -= self._waits
            if self._first:
                line.turn.release()

    async def pause(self, error: TransportError) -> None:
        """Waits for the next attempt, on a full server in the line."""
        await (self._enter() if is_full(error) and not self._waits else super().pause(error))

    async def _enter(self) -> None:
        self._waits = True
        self._line.waiting += 1
        self._first = await self._line.turn.acquire()
        now = asyncio.get_running_loop().time()
        if self._line.refusal is None:
            self.deadline = now + self.seconds  # a line that moves is no reason to give up
        else:
            self._not_failed = copy(self._line.refusal)
            if now > self.deadline:
                raise self._not_failed

    async def _sleep(self, delay: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._line.freed.wait()
        self._line.freed.clear()
