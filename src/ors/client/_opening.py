"""How a session is opened: an id first, then an episode under it."""

import base64
from collections.abc import Mapping
from typing import Any

from ors._json import dumps
from ors._protocol import CREATE, CREATE_SESSION, EVENT_STREAM, SECRETS, CallReader
from ors.client._remote import Answer, Remote, parsed
from ors.client._transport import Broken
from ors.client._wire import field
from ors.errors import BadRequest, TransportError

__all__ = ["create", "new_sid"]


async def new_sid(remote: Remote, headers: Mapping[str, str]) -> str:
    """A fresh session id. An id that gets lost on the way costs nothing, so this may be asked again.

    Raises:
        TransportError, ResponseError: there is none.
    """

    async def attempt() -> str:
        return _sid(await remote.exchange(CREATE_SESSION.method, CREATE_SESSION.path(), headers, b"{}"))

    return await remote.retry().until_answered(attempt)


def _sid(answer: Answer) -> str:
    if EVENT_STREAM not in answer.kind:
        return str(field(parsed(answer), "sid"))
    # ors-sdk 0.1.0 and openreward 0.1.167 always stream: the id is the task id, and `end` is empty.
    reader = CallReader()
    reader.feed(answer.data)
    value = reader.value() if reader.result else None
    sid = value.get("sid") if isinstance(value, dict) else reader.task_id
    if not sid:
        raise Broken("the server's answer has no session id")
    return str(sid)


async def create(
    remote: Remote, headers: Mapping[str, str], task: Mapping[str, Any], secrets: Mapping[str, str]
) -> None:
    """Starts the episode of `task` under the id in `headers`.

    Raises:
        TransportError, ResponseError: it was not started.
    """
    if secrets:
        headers = {**headers, SECRETS: _secrets_header(secrets)}
        if remote.reads_secrets_in_body:
            try:
                return await _create(remote, headers, {**task, "secrets": secrets})
            except BadRequest as error:
                # openreward 0.1.167 reads the header alone, and refuses the specification's field with 422.
                if error.status != 422 or "secrets" not in str(error):
                    raise
                remote.reads_secrets_in_body = False
    return await _create(remote, headers, task)


async def _create(remote: Remote, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
    data = dumps(body)
    maybe_created = False

    async def attempt() -> None:
        nonlocal maybe_created
        try:
            await remote.exchange(CREATE.method, CREATE.path(), headers, data)
        except TransportError:
            maybe_created = True
            raise
        except BadRequest as error:
            # The id is ours alone: it exists because our own attempt, which broke off, had come through.
            if not (maybe_created and "already exists" in str(error)):
                raise

    await remote.retry().until_answered(attempt)


def _secrets_header(secrets: Mapping[str, str]) -> str:
    wrapped = {name: {"value": value} for name, value in secrets.items()}
    return base64.b64encode(dumps(wrapped)).decode()
