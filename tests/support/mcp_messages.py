"""MCP messages written by hand."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.raw_http import Answer, Raw

BOTH = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def body(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    sent = {"jsonrpc": "2.0", "method": method, "params": params}
    return sent if id is None else {**sent, "id": id}


def path_of(raw: Raw, sid: str, **headers: str) -> str:
    """The path at which MCP clients play a session."""
    answer = raw.post(
        "/-/mcp", sid=sid, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    assert answer.status == 200, answer
    return str(answer.json()["path"])


def send(
    raw: Raw, path: str, method: str, headers: Mapping[str, str] = BOTH, id: Any = 1, **params: Any
) -> Answer:
    return raw.post(path, body(method, id, **params), headers=headers)


def called(raw: Raw, path: str, name: str, **given: Any) -> Any:
    """The result of a call that is answered as JSON."""
    answer = send(raw, path, "tools/call", name=name, arguments=given)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer
    return answer.json()["result"]


@contextmanager
def streamed(raw: Raw, path: str, name: str, token: Any, **given: Any) -> Iterator[http.client.HTTPResponse]:
    """The answer to a call that takes long."""
    connection = raw.connection()
    try:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        sent = json.dumps(body("tools/call", "slow", name=name, arguments=given, **meta)).encode()
        connection.request("POST", path, sent, BOTH)
        yield connection.getresponse()
    finally:
        connection.close()


def event(response: http.client.HTTPResponse) -> bytes:
    """The next event or comment of a stream, without the blank line."""
    lines = []
    while line := response.readline().strip():
        lines.append(line)
    return b"\n".join(lines)
