"""The OpenAPI document, compared with the table of endpoints and with a real server."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from examples.math_qa import TASKS
from ors import _protocol
from scripts.site import openapi
from scripts.site.operations import OPERATIONS, Operation
from tests.support.raw_http import Answer, Raw

pytestmark = pytest.mark.xdist_group("site")

DOCUMENT = json.loads(openapi.as_json())
FOR_TASKS = {"split": "train", "index": 0, "start": 0, "stop": 2}


def test_every_endpoint_of_the_standard_is_in_the_document() -> None:
    described = [each.endpoint for each in OPERATIONS]
    assert set(_protocol.ENDPOINTS) | {_protocol.FORK} <= set(described)
    assert len(described) == len(set(described))


def answered(raw: Raw, operation: Operation, sid: str) -> Answer:
    """What a server answers to a plain request."""
    path = operation.endpoint.path("mathqa").replace("{sid}", sid)
    body: dict[str, Any] = {"name": "submit", "input": {"answer": 1}, "n": 1}
    if operation.endpoint is _protocol.CREATE:
        body = {"env_name": "mathqa", "split": "train", "index": 0}
        sid = raw.post("/create_session", None).json()["sid"]
    if operation.body is not None and "split" in operation.body.model_fields:
        known = operation.body.model_fields
        body |= {key: value for key, value in FOR_TASKS.items() if key in known}
    return raw(operation.endpoint.method, path, body if operation.body else None, sid=sid)


@pytest.mark.parametrize("operation", OPERATIONS, ids=openapi.path)
def test_a_server_answers_as_the_document_says(operation: Operation, served: Raw) -> None:
    answer = answered(served, operation, served.session("mathqa", TASKS["train"][0]))
    described = DOCUMENT["paths"][openapi.path(operation)][operation.endpoint.method.lower()]
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
