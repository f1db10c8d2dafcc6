"""Bad input never crashes, never hangs, never answers 5xx."""

import json
import socket
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ors._protocol import ENDPOINTS
from tests.support.raw_http import Raw

KNOWN = [endpoint.name for endpoint in ENDPOINTS] + ["lab", "other", "-"]
segments = st.sampled_from(KNOWN) | st.text(
    st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=8
)
paths = st.lists(segments, max_size=4).map(lambda parts: "/" + "/".join(parts))
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
words = st.sampled_from(["fuzz-1", "fuzz-2", "lab", "train", "echo", "boom", "nothing", "", "null"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["env_name", "task_spec", "split", "index", "secrets", "name", "input", "task_id", "start", "stop"]
)
bodies = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(keys, words | values, max_size=6).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"name": words, "input": st.dictionaries(words, values, max_size=2)}).map(
        lambda value: json.dumps(value).encode()
    ),
)
header_text = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30
)
headers = st.dictionaries(
    st.sampled_from(["X-Session-ID", "Idempotency-Key", "X-Secrets", "Accept", "Content-Type", "X-API-Key"]),
    words | header_text,
    max_size=4,
)
bounded = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@bounded
@given(method=methods, path=paths, body=bodies, headers=headers)
def test_no_request_is_answered_5xx(
    raw: Raw, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    path = "".join(c if c.isalnum() or c in "/-_." else f"%{ord(c):02x}" for c in path)
    answer = raw(method, path, body, headers=headers)
    assert answer.status < 500, answer
    if answer.status >= 400 and method != "HEAD":
        assert answer.detail


@bounded
@given(
    data=st.binary(max_size=300)
    | st.text(max_size=100).map(lambda text: f"POST /create HTTP/1.1\r\n{text}\r\n\r\n".encode())
)
def test_no_bytes_harm_the_server(raw: Raw, data: bytes) -> None:
    with socket.create_connection((raw.host, raw.port), 10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    assert not received or received.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), received
    assert raw.get("/health").status == 200
