"""Forks of sessions of the board environments, asked for by hand."""

import http.client
import json
import uuid
from typing import Any

from tests.support.raw_http import Answer, Raw


def opened(raw: Raw, env: str = "board", **task: Any) -> tuple[str, str]:
    """A new session, and the id of its task."""
    id = uuid.uuid4().hex
    return raw.session(env, {"id": id, **task}), id


def fork(raw: Raw, sid: str, n: Any = 1, key: str = "") -> Answer:
    return raw.post("/-/fork", {"n": n}, sid=sid, headers={"Idempotency-Key": key} if key else {})


def forked(raw: Raw, sid: str, n: int = 1, key: str = "") -> list[str]:
    answer = fork(raw, sid, n, key)
    assert answer.status == 200, answer
    (sids,) = answer.json().values()
    assert len(set(sids) - {sid}) == n
    return list(sids)


def told(raw: Raw, sid: str, tool: str, given: Any = None, env: str = "board") -> str:
    return str(raw.call(sid, tool, given, env=env).result()["output"]["blocks"][0]["text"])


def moved(raw: Raw, sid: str, name: str, env: str = "board") -> str:
    return told(raw, sid, "move", {"name": name}, env)


def total(raw: Raw) -> int:
    return int(raw.get("/-/sessions").json()["total"])


def running(raw: Raw, sid: str) -> int:
    sessions = raw.get("/-/sessions?limit=1000").json()["sessions"]
    return next(int(each["running"]) for each in sessions if each["sid"] == sid)


def asking(raw: Raw, sid: str, n: int, key: str = "") -> http.client.HTTPConnection:
    """The connection of a fork that waits for its answer."""
    connection = raw.connection()
    headers = {"X-Session-ID": sid, **({"Idempotency-Key": key} if key else {})}
    connection.request("POST", "/-/fork", json.dumps({"n": n}), headers)
    return connection
