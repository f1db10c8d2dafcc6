"""One HTTP request, as far as this server reads it."""

import base64
import binascii
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ors import _protocol
from ors._json import loads
from ors.errors import BadRequest, TooLarge
from ors.types import ToolCall

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

Model = TypeVar("Model", bound=BaseModel)

_SESSION_ID = _protocol.SESSION_ID.lower().encode()
_IDEMPOTENCY_KEY = _protocol.IDEMPOTENCY_KEY.lower().encode()
_SECRETS = _protocol.SECRETS.lower().encode()
_EVENT_STREAM = _protocol.EVENT_STREAM.encode()


class Request:
    """A request: what its headers say at once, its body when asked."""

    __slots__ = ("_limit", "_receive", "headers", "scope")

    def __init__(self, scope: Message, receive: Receive, body_limit: int) -> None:
        self.scope = scope
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._limit = body_limit

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, given in lower case; the first one if there are several."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def session_id(self) -> str:
        """The session that the request is about.

        Raises:
            BadRequest: it names none.
        """
        sid = self.maybe_session_id()
        if not sid:
            raise BadRequest(f"The header {_protocol.SESSION_ID} is required")
        if not _protocol.valid_session_id(sid):
            raise _bad_id(_protocol.SESSION_ID)
        return sid

    def maybe_session_id(self) -> str:
        """The session that the request names, or nothing."""
        value = self.header(_SESSION_ID)
        return "" if value is None else value.decode("latin-1").strip()

    def idempotency_key(self) -> str | None:
        """The key that makes a call once-only.

        Raises:
            BadRequest: it is not a usable key.
        """
        value = self.header(_IDEMPOTENCY_KEY)
        if value is None:
            return None
        key = value.decode("latin-1").strip()
        if not _protocol.valid_session_id(key):
            raise _bad_id(_protocol.IDEMPOTENCY_KEY)
        return key

    def wants_events(self) -> bool:
        """Whether the client asks for an event stream."""
        return any(key == b"accept" and _EVENT_STREAM in value.lower() for key, value in self.headers)

    def secrets(self) -> dict[str, str]:
        """The secrets of the `X-Secrets` header: base64 of JSON `{"name": {"value": "…"}}`.

        Raises:
            BadRequest: it cannot be read; the text says nothing of what it held.
        """
        value = self.header(_SECRETS)
        if value is None:
            return {}
        try:
            given = loads(base64.b64decode(value, validate=True))
            secrets = {name: entry["value"] for name, entry in given.items()}
        except (binascii.Error, ValueError, AttributeError, TypeError, KeyError):
            secrets = None
        if secrets is None or not all(isinstance(secret, str) for secret in secrets.values()):
            raise BadRequest(
                f'The header {_protocol.SECRETS} must be base64 of JSON like {{"name": {{"value": "…"}}}}'
            )
        return secrets

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            TooLarge: it is over the limit.
            BadRequest: the client left before it was through.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > self._limit:
                raise self._too_large()
            return body
        self._check_declared_length()
        chunks = bytearray()
        while message["type"] == "http.request":
            chunks += message.get("body", b"")
            if len(chunks) > self._limit:
                raise self._too_large()
            if not message.get("more_body"):
                return bytes(chunks)
            message = await self._receive()
        raise BadRequest("The request body broke off")

    def _check_declared_length(self) -> None:
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > self._limit:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The request body is over the limit of {self._limit} bytes")

    async def json_object(self) -> dict[str, Any]:
        """The body as a JSON object, whatever its content type says.

        Raises:
            BadRequest: it is something else.
        """
        raw = await self.body()
        if not raw:
            raise BadRequest("The request body is empty; a JSON object is expected")
        try:
            value = loads(raw)
        except ValueError:
            raise BadRequest("The request body is not valid JSON, or nested too deeply") from None
        if not isinstance(value, dict):
            raise BadRequest("The request body must be a JSON object")
        return value

    async def model(self, model: type[Model]) -> Model:
        """The body as one of the wire's models.

        Raises:
            BadRequest: it does not fit; the text names the fields and never shows their values.
        """
        value = await self.json_object()
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise BadRequest(_problems(error)) from None

    async def tool_call(self) -> tuple[str, dict[str, Any], str | None]:
        """The body of a call: the tool's name, its input, and the task id to rejoin."""
        value = await self.json_object()
        name, given, task_id = value.get("name"), value.get("input"), value.get("task_id")
        # By hand on the hot path; whatever is unusual gets pydantic's words.
        if type(name) is str and type(given) is dict and (task_id is None or type(task_id) is str):
            return name, given, task_id
        try:
            ToolCall.model_validate(value)
        except ValidationError as error:
            raise BadRequest(_problems(error)) from None
        raise BadRequest("name must be a string, input an object")


def _bad_id(header: str) -> BadRequest:
    return BadRequest(f"The header {header} must be printable, of 1 to {_protocol.MAX_ID_CHARS} characters")


def _problems(error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, problem["loc"]))
        text = problem["msg"].removeprefix("Value error, ")
        problems.append(f"{where}: {text}" if where else text)
    return "; ".join(problems)
