"""Bodies of many values: counted before they are parsed, and parsed off the event loop."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors import Server
from ors._json import loads
from ors.server.http import requests
from ors.server.http.requests import HEAVY, MOST_VALUES, SMALL_BODY, is_light, values
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.in_process_cluster import linked_servers, routing
from tests.support.live_server import hosted, serving
from tests.support.raw_http import Raw

TEXTS = st.text(st.sampled_from('a"\\,:[]{} \n\u20ac')) | st.text()
JSONS = st.recursive(
    st.none() | st.integers() | st.booleans() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


def weight(value: Any) -> int:
    """What a value counts as, by a walk of it: the first of each list and object is in its container's."""
    if isinstance(value, dict):
        return HEAVY * (1 + len(value)) + max(0, len(value) - 1) + sum(map(weight, value.values()))
    if isinstance(value, list):
        return HEAVY + max(0, len(value) - 1) + sum(map(weight, value))
    return 0


@given(JSONS, st.booleans(), st.integers(0, 50), st.integers(1, 20))
def test_what_is_in_strings_does_not_count(value: Any, escaped: bool, most: int, slice: int) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "MOST_VALUES", most)
        patch.setattr(requests, "_SLICE", slice)
        found = values(body)
    assert (found > most) is (weight(value) > most)
    assert found > most or found >= weight(value)


@pytest.mark.parametrize(
    "body",
    [b"[]," * 10_000, b'"a":1,' * 10_000, b" " * 2_000_000, b'"' + b"x" * 2_000_000 + b'"'],
    ids=["lists", "keys", "long", "one long string"],
)
def test_what_has_many_values_or_would_need_a_long_look_is_not_light(body: bytes) -> None:
    assert not is_light(body)
    assert is_light(body[:1000])


def test_an_exact_count_is_made_where_strings_hold_the_rest() -> None:
    text = json.dumps({"a": json.dumps([{"b": [1, 2, '"\\']}] * 100_000)}).encode()
    assert text.count(b",") > 100_000
    assert values(text) == 2 * HEAVY
    assert values(b"[" + b'"",' * (MOST_VALUES + 1)) > MOST_VALUES


@pytest.mark.parametrize("inner", ['"\\ud800"', '"x"'])
def test_the_depth_of_a_value_is_bounded_whatever_is_in_it(inner: str) -> None:
    for depth, fits in ((200, True), (202, False), (900, False)):
        for open, close in (("[", "]"), ('{"a":', "}")):
            text = (open * depth + inner + close * depth).encode()
            if fits:
                assert loads(text)
            else:
                with pytest.raises(ValueError, match="JSON"):
                    loads(text)


# ── On servers ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Raw]]:
    with ExitStack() as stack:
        alone = Raw(stack.enter_context(serving(Server([Lab]))))
        made = stack.enter_context(linked_servers(2, tmp_path_factory.mktemp("linked"), [Lab]))
        router = stack.enter_context(routing([alone.url]))
        asgi = Raw(stack.enter_context(hosted(Server([Lab]))))
        yield {"server": alone, "workers": made[0].raw, "router": router, "asgi": asgi}


@pytest.fixture(params=["server", "workers", "router", "asgi"])
def raw(fronts: dict[str, Raw], request: pytest.FixtureRequest) -> Raw:
    return fronts[request.param]


def listed(value: bytes, count: int) -> bytes:
    return b"[" + b",".join([value] * count) + b"]"


TOO_MANY = {
    "lists": listed(b"[]", 200_000),
    "objects": listed(b"{}", 200_000),
    "deep lists": listed(b"[" * 100 + b"]" * 100, 2000),
    "keys": b"{" + b",".join(b'"%d":1' % number for number in range(200_000)) + b"}",
    "numbers": listed(b"1", MOST_VALUES + 100),
    "strings": listed(b'""', MOST_VALUES + 100),
    "strings of commas": listed(b'",[:"', MOST_VALUES + 100),
    "a long string before lists": b'["%b",%b]' % (b"[,:" * 2_000_000, b"[]," * 200_000),
    "never ends": listed(b"[]", 200_000)[:-1],
}
BODIES: dict[str, Callable[[bytes], bytes]] = {
    "/create": lambda many: b'{"env_name":"lab","task_spec":{"many":%b}}' % many,
    "/lab/call": lambda many: b'{"name":"echo","input":{"text":"x","many":%b}}' % many,
    "/lab/task": lambda many: b'{"split":"train","index":0,"many":%b}' % many,
    "/lab/get_task_range": lambda many: b'{"split":"train","many":%b}' % many,
    "/-/fork": lambda many: b'{"n":1,"many":%b}' % many,
}


@proves("http.body-values")
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("many", TOO_MANY.values(), ids=TOO_MANY)
def test_a_body_of_too_many_values_is_413_and_nothing_is_done(raw: Raw, path: str, many: bytes) -> None:
    sid = "heavy" if path == "/create" else raw.session()
    answer = raw.post(path, BODIES[path](many), sid=sid)
    assert (answer.status, answer.headers["ors-reason"]) == (413, "limit")
    assert "1,048,576 values" in answer.detail
    if path == "/create":
        assert raw.post("/ping", sid=sid).status == 404


@proves("http.deep-json")
@pytest.mark.parametrize("nested", [b"[" * 30_000_000, b'{"a":' * 2_000_000, b'{"\\ud800":' * 2_000_000])
def test_deep_nesting_is_400_however_long(raw: Raw, nested: bytes) -> None:
    assert raw.post("/lab/call", nested, sid=raw.session()).status == 400


@proves("http.body-values")
def test_a_million_numbers_and_long_texts_are_taken(raw: Raw) -> None:
    numbers = list(range(1_000_000))
    body = {"env_name": "lab", "task_spec": {"id": "numbers", "numbers": numbers}}
    sid = raw.post("/create_session").json()["sid"]
    assert raw.post("/create", body, sid=sid).status == 200
    for text in ("x" * 10_000_000, 'a, b: ["c"]\n\\' * 200_000):
        result = raw.call(sid, "echo", {"text": text}).result()
        assert result["output"]["blocks"][0]["text"] == text
    rows = [{"a": 1, "b": [2, 3]} for _ in range(10_000)]
    assert raw.post("/lab/call", {"name": "echo", "input": {"text": "x", "rows": rows}}, sid=sid).result()[
        "ok"
    ]
    raw.post("/delete", sid=sid)


@proves("http.body-values")
def test_a_large_body_that_is_no_json_is_400(raw: Raw) -> None:
    sid = raw.session()
    for body in (listed(b"[]", 50_000)[:-1], b"{" + listed(b"1", 100_000), listed(b"1", 100_000)):
        assert len(body) > SMALL_BODY
        assert not is_light(body)
        assert raw.post("/lab/call", body, sid=sid).status == 400


def test_a_handler_that_does_not_read_its_body_does_not_mind_its_values(raw: Raw) -> None:
    for body in (TOO_MANY["lists"], listed(b"[]", 50_000)[:-1]):
        assert raw.post("/v1/rollouts", body).status == 200
        assert raw.post("/ping", body, sid=raw.session()).status == 200


@proves("http.body-values")
def test_bodies_of_many_values_share_a_budget_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.http.streams.ARRIVING_BYTES", 20 * 2**20)
    body = BODIES["/create"](listed(b"1", 200_000))  # 13 MB, once it is parsed
    with serving(Server([Lab])) as url, ThreadPoolExecutor(8) as pool:
        raw = Raw(url)

        def create(number: int) -> int:
            return raw.post("/create", body, sid=f"many-{number}").status

        statuses = list(pool.map(create, range(24)))
        assert set(statuses) <= {200, 503}
        assert 200 in statuses
        for number in range(30, 34):  # all of it was given back
            assert create(number) == 200
