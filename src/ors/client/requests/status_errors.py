"""Error statuses of a server, and the errors of this package for them."""

from collections.abc import Mapping
from time import time

from ors._json import loads
from ors._protocol import REASON
from ors.client.transports.base import NotSent
from ors.errors import (
    AuthenticationError,
    BadRequest,
    Forbidden,
    Gone,
    MethodNotAllowed,
    NotFound,
    ORSError,
    ResponseError,
    ServerFailed,
    TooLarge,
    TransportError,
    Unavailable,
)

_NOT_NOW = frozenset({429, 502, 503, 504})
_BY_STATUS: dict[int, type[ResponseError]] = {
    error.status: error
    for error in (BadRequest, AuthenticationError, Forbidden, NotFound, Gone, TooLarge, ServerFailed)
}
STARTING = "starting"
"""The reason of a 503 because setup() still runs: not a failure, however often it is repeated."""
_MAX_TEXT = 2000
_PAGES = ("<!doctype html", "<html")
"""Beginnings of pages for browsers, which say nothing in a line of text."""


def failure(status: int, headers: Mapping[str, str], body: bytes) -> ORSError:
    """The error for an answer whose status is not 2xx."""
    text = _detail(body) or f"the server answered {status}"
    reason = headers.get(REASON) or None
    if status in _NOT_NOW:
        # openreward 0.1.167 answers so every 25 s while an environment's setup runs.
        reason = STARTING if headers.get("X-Backend-State") == STARTING else reason
        return Unavailable(text, retry_after=retry_after(headers), status=status, reason=reason)
    if status < 300 or (status < 400 and not headers.get("Location")):
        return ResponseError(
            f"the server answered {status}, which is not an answer to this request; check base_url",
            status=status,
        )
    if status < 400:
        return ResponseError(f"redirected to {headers['Location']}: use it as base_url", status=status)
    if status == MethodNotAllowed.status:
        return MethodNotAllowed(text, allow=headers.get("Allow", ""))
    if status == AuthenticationError.status:
        return AuthenticationError(f"{text} (pass api_key, or set ORS_API_KEY)", reason=reason)
    nearest = BadRequest if status < 500 else ServerFailed
    return _BY_STATUS.get(status, nearest)(text, status=status, reason=reason)


def certainly_not_run(error: TransportError) -> bool:
    """Whether a request that failed with `error` was certainly not processed."""
    # A 503 with Retry-After is the server's own. One without may be a proxy's, and the server may have
    # the request.
    if isinstance(error, Unavailable):
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
