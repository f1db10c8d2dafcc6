"""The OpenAPI document, compared with the table of endpoints and with a real server."""

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from examples.math_qa import TASKS, MathQA
from examples.word_hunt import WordHunt
from ors import Server, _protocol
from ors.server.admin.openapi import OPERATIONS, Operation, document
from ors.server.routes import MCP_ROUTES, PAGES, STANDARD
from tests.support.live_server import serving
from tests.support.raw_http import Answer, Raw

DOCUMENT = document()
UNDESCRIBED = {"/v1/rollouts", "/-/mcp/{sid}"}
"""What keeps nothing, and is there for one package's scripts; and what speaks MCP."""
FOR_TASKS = {"split": "train", "index": 0, "start": 0, "stop": 2}


@pytest.fixture(scope="module")
def served() -> Iterator[Raw]:
    with serving(Server([MathQA, WordHunt])) as url:
        yield Raw(url)


def test_every_endpoint_is_in_the_document() -> None:
    described = [(each.endpoint.method, each.path) for each in OPERATIONS]
    rows = (*STANDARD, *PAGES, *MCP_ROUTES)
    served = {(row.method, row.pattern) for row in rows if row.pattern not in UNDESCRIBED}
    assert set(described) == served
    assert len(described) == len(set(described))


def answered(raw: Raw, operation: Operation, sid: str) -> Answer:
    """What a server answers to a plain request."""
    path = operation.endpoint.path("mathqa").replace("{sid}", sid).replace("{environment}", "mathqa")
    body: dict[str, Any] = {"name": "submit", "input": {"answer": 1}, "n": 1}
    if operation.endpoint is _protocol.CREATE:
        body = {"env_name": "mathqa", "split": "train", "index": 0}
        sid = raw.post("/create_session", None).json()["sid"]
    if operation.body is not None and "split" in operation.body.model_fields:
        known = operation.body.model_fields
        body |= {key: value for key, value in FOR_TASKS.items() if key in known}
    return raw(operation.endpoint.method, path, body if operation.body else None, sid=sid)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.path)
def test_a_server_answers_as_the_document_says(operation: Operation, served: Raw) -> None:
    answer = answered(served, operation, served.session("mathqa", TASKS["train"][0]))
    described = DOCUMENT["paths"][operation.path][operation.endpoint.method.lower()]
    (kind,) = described["responses"]["200"]["content"]
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith(kind)
    if kind == "application/json":
        schema = described["responses"]["200"]["content"][kind]["schema"]
        jsonschema.validate(answer.json(), schema | {"components": DOCUMENT["components"]})


def test_a_result_and_an_error_have_the_shapes_of_the_document(served: Raw) -> None:
    def check(value: Any, name: str) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
        jsonschema.validate(value, schema)

    sid = served.session("mathqa", TASKS["train"][0])
    check(served.call(sid, "submit", {"answer": 1}, env="mathqa").result(), "RunToolOutput")
    check(served.call(sid, "submit", {"answer": 1}, env="mathqa").result(), "RunToolOutput")
    check(served.post("/nowhere/task", {}).json(), "Error")
