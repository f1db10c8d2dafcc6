"""HTTP and event streams read by hand, sharing no code with what is tested."""

import http.client
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        value = self.json()
        assert list(value) == ["detail"], value
        assert isinstance(value["detail"], str)
        return value["detail"]

    def events(self) -> list[tuple[str, str]]:
        return events(self.body)

    def result(self) -> Any:
        """The value that `chunk`* and `end` carry."""
        found = self.events()
        assert found[0][0] == "task_id", found
        assert found[-1][0] == "end", found
        assert {name for name, _ in found[1:-1]} <= {"chunk"}, found
        return json.loads("".join(data for _, data in found[1:]))

    def error(self) -> str:
        """The text of the `error` event that ends the stream."""
        found = self.events()
        assert [name for name, _ in found] == ["task_id", "error"], found
        return found[-1][1]


def events(body: bytes) -> list[tuple[str, str]]:
    """Events in the exact form that we promise: one space after the colon, LF, a blank line after each."""
    found = []
    assert body == b"" or body.endswith(b"\n\n"), body[-50:]
    for block in body.decode().split("\n\n")[:-1]:
        name, data = "", []
        for line in block.split("\n"):
            if line.startswith(":"):
                continue
            field, value = line.split(": ", 1)
            if field == "event":
                name = value
            elif field == "reason":
                assert name == "error", block  # ours: who failed, in a word that other readers skip
            else:
                assert field == "data", line
                data.append(value)
        if name:
            found.append((name, "\n".join(data)))
    return found


class Stream:
    """A call's stream, read up to its task id."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.head = b""
        while not self.head.endswith(b"\n\n"):
            part = response.read1(65536)
            assert part, "the stream ended before its task id"
            self.head += part
        ((name, self.task_id),) = events(self.head)
        assert name == "task_id"

    def rest(self) -> Answer:
        """All of it, once it has ended."""
        headers = {key.lower(): value for key, value in self.response.getheaders()}
        return Answer(self.response.status, headers, self.head + self.response.read())


class Raw:
    """Requests to one server, a connection each unless kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sid: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = self.connection()
        try:
            connection.request(method, path, as_body(body), as_headers(sid, headers))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **kwargs: Any) -> Answer:
        return self("GET", path, **kwargs)

    def metric(self, name: str) -> float:
        """A sample without labels on the page of metrics."""
        lines = self.get("/-/metrics").body.decode().splitlines()
        (value,) = (line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} "))
        return float(value)

    def post(self, path: str, body: Any = None, **kwargs: Any) -> Answer:
        return self("POST", path, body, **kwargs)

    def session(self, env: str = "lab", task: Any = None, **kwargs: Any) -> str:
        """A new session of an environment."""
        sid = str(uuid.uuid4())
        answer = self.post("/create", {"env_name": env, "task_spec": task or {}}, sid=sid, **kwargs)
        assert answer.status == 200, answer
        return sid

    @contextmanager
    def opened(self, sid: str, name: str, given: Any = None, env: str = "lab") -> Iterator["Stream"]:
        """A tool call whose stream has begun."""
        connection = self.connection()
        try:
            body = as_body({"name": name, "input": {} if given is None else given})
            connection.request("POST", f"/{env}/call", body, as_headers(sid, None))
            yield Stream(connection.getresponse())
        finally:
            connection.close()

    def call(self, sid: str, name: str, given: Any = None, env: str = "lab", **kwargs: Any) -> Answer:
        """A tool call."""
        body = {"name": name, "input": {} if given is None else given}
        task_id = kwargs.pop("task_id", None)
        if task_id is not None:
            body["task_id"] = task_id
        return self.post(f"/{env}/call", body, sid=sid, **kwargs)


def as_body(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


def as_headers(sid: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {**({"X-Session-ID": sid} if sid is not None else {}), **(headers or {})}
