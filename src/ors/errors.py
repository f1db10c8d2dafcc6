"""Every error of this package, in one tree.

    ORSError
    ├── ToolError               a tool refuses the call: the agent sees the text, the episode continues
    ├── InvalidEnvironment      an environment class is not valid; raised when the server is created
    ├── StartupFailed           the `startup` of an environment raised: the server does not start
    ├── ToolCallError           the call was refused (`ok: false`): tell the model, it can recover
    ├── ToolFailed              the tool raised or was stopped: not the model's fault, mask the step
    ├── CallOutcomeUnknown      the call may or may not have run: do not repeat it, drop the episode
    ├── SessionLost             the session has ended: start a new episode
    ├── SandboxUnavailable      no sandbox can be opened here: the message says what to do
    ├── SandboxLimit            programs in the sandbox hit a limit: the agent's doing
    ├── SandboxDead             the host has ended the sandbox
    ├── JudgeFailed             a judge gave no verdict: raised in a tool, which has then failed
    ├── TransportError          the server was not reached: the request itself may be fine
    │   └── Unavailable         the server answered "not now" (429, 502, 503, 504) until retries ended
    └── ResponseError           the server answered with an error status
        ├── BadRequest          400: the request is not valid; the message says why
        ├── AuthenticationError 401: the API key is missing or wrong
        ├── Forbidden           403: the API key may not do this
        ├── NotFound            404: no such environment, session or path
        ├── MethodNotAllowed    405: the path exists for another method
        ├── Gone                410: the session has ended
        ├── TooLarge            413: the request body is over the limit
        └── ServerFailed        500: the environment or the server failed, as when a setup raised

Each error has `status`, its HTTP status, and `who`, the party that failed: "client", "environment", "server"
or "network". A trainer masks every error that is not of the "client".
`reason` is a code for programs, if the server sent one: "environment" (its code raised), "tool_timeout",
"setup_timeout", "limit", "missing_secrets", "cancelled", "deleted", "expired", "life", "shutdown",
"worker_lost", "unreachable", "starting", "key", "host", "origin".
All of them can be pickled, with their attributes.
"""

from typing import Any, ClassVar, Literal

__all__ = [
    "AuthenticationError",
    "BadRequest",
    "CallOutcomeUnknown",
    "Forbidden",
    "Gone",
    "InvalidEnvironment",
    "JudgeFailed",
    "MethodNotAllowed",
    "NotFound",
    "ORSError",
    "ResponseError",
    "SandboxDead",
    "SandboxLimit",
    "SandboxUnavailable",
    "ServerFailed",
    "SessionLost",
    "StartupFailed",
    "TooLarge",
    "ToolCallError",
    "ToolError",
    "ToolFailed",
    "TransportError",
    "Unavailable",
]

Who = Literal["client", "environment", "server", "network"]


class ORSError(Exception):
    """Any error of this package."""

    status: int = 500
    who: ClassVar[Who] = "server"

    def __init__(self, message: str = "", *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ calls the constructor with `args`, which fails with keyword-only arguments.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[ORSError], args: tuple[Any, ...], state: dict[str, Any]) -> ORSError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ToolError(ORSError):
    """Raise it in a tool to refuse the call: the agent gets `ok: false` with this text.

    `reason` is an optional code for programs.
    """

    status = 200
    who = "client"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)


class InvalidEnvironment(ORSError, ValueError):
    """An environment class is not valid; the message names the class and the method."""

    who = "environment"


class StartupFailed(ORSError):
    """The `startup` of an environment raised; the message names the class and the author's line."""

    who = "environment"


class ToolCallError(ORSError):
    """The call was refused: tell the model, which can try again.

    `reason` is "not_found", "input_validation", "episode_finished", a code of the environment, or None.
    """

    status = 200
    who = "client"


class ToolFailed(ORSError):
    """The tool raised, was stopped, or its result cannot be sent. Mask the step; the session may continue."""

    who = "environment"


class CallOutcomeUnknown(ORSError):
    """The connection broke, and the server cannot tell whether the call ran.

    Repeating the call could run the tool twice, so drop the episode.
    """

    who = "network"


class SessionLost(ORSError):
    """The session has ended or expired, or its server died. Start a new episode.

    `reason` says why: "deleted", "expired", "worker_lost" and others come from the server. "unreachable": the
    server did not answer pings, so the client gave the session up; a call that was running may have finished.
    """

    status = 410

    def __init__(self, message: str = "", *, sid: str | None = None, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.sid = sid


class SandboxUnavailable(ORSError):
    """No sandbox can be opened on this machine. The message says why, and how to fix it."""


class SandboxLimit(ORSError):
    """Programs in a sandbox hit a limit, or killed the sandbox: the agent's doing, so a tool call is refused.

    `reason` names the limit: "processes", "memory", "disk", "file", "time", "killed". With "waiting", a pool
    had no sandbox, and the tool has failed.
    """

    who = "environment"


class SandboxDead(ORSError):
    """The host closed, stopped or killed the sandbox. Open a new one."""


class JudgeFailed(ORSError):
    """A judge gave no verdict. Let it leave the tool: the call has failed, and the episode has no score."""

    who = "environment"


class TransportError(ORSError):
    """The server could not be reached, or its answers were incomplete, until the retries ended."""

    status = 502
    who = "network"


class Unavailable(TransportError):
    """The server answered "not now" until the retries ended. `retry_after` is in seconds."""

    status = 503

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float | None = None,
        status: int = 503,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, reason=reason)
        self.retry_after = retry_after
        self.status = status


class ResponseError(ORSError):
    """The server answered with an error status; the message is its `detail`."""

    def __init__(self, message: str = "", *, status: int | None = None, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        if status is not None:
            self.status = status


class BadRequest(ResponseError):
    """400: the request is not valid. Fix it; repeating it does not help."""

    status = 400
    who = "client"


class AuthenticationError(ResponseError):
    """401: the API key is missing or wrong. Pass `api_key` or set ORS_API_KEY."""

    status = 401
    who = "client"


class Forbidden(ResponseError):
    """403: this API key, host or origin may not do this."""

    status = 403
    who = "client"


class NotFound(ResponseError):
    """404: no such environment, session or path."""

    status = 404
    who = "client"


class MethodNotAllowed(ResponseError):
    """405: the path exists for another method, which `allow` names."""

    status = 405
    who = "client"

    def __init__(self, message: str = "", *, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class Gone(ResponseError):
    """410: the session has ended. Start a new one."""

    status = 410
    who = "client"


class TooLarge(ResponseError):
    """413: the request body is over the server's limit."""

    status = 413
    who = "client"


class ServerFailed(ResponseError):
    """500: the environment or the server failed. Mask the episode."""

    status = 500
    who = "environment"
