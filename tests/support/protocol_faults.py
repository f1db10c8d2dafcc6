"""Faults that a server may have, and the checks that each of them must fail."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.faulty_proxy import Ask, Fault, Request, Response

SECRET = "s3cr3t-v4lu3"


@dataclass(frozen=True)
class Planted:
    fault: Fault
    breaks: tuple[str, ...]
    single: bool = False
    """Planted into a server with one environment."""


def says(spoil: Callable[[Request, Response], Response | None]) -> Fault:
    """Spoils answers; None leaves one as it is. Streams that are left alone are not even held up."""

    async def fault(request: Request, ask: Ask) -> Response | None:
        if request.action == "call" and request.tool in ("slow", "step", "give", "block", "cancel"):
            return None
        answer = await ask(request)
        return spoil(request, answer) or answer

    return fault


def status(wrong: dict[int, int]) -> Fault:
    """Gives other statuses, streams excepted."""

    def spoil(request: Request, answer: Response) -> Response | None:
        if answer.status not in wrong:
            return None
        return Response(wrong[answer.status], answer.headers, answer.body)

    return says(spoil)


def on(actions: str, change: Callable[[Any], Any]) -> Fault:
    """Changes the JSON of the good answers of some actions."""

    def spoil(request: Request, answer: Response) -> Response | None:
        plain = answer.status == 200 and "json" in answer.headers.get("content-type", "")
        return answer.with_json(change(answer.json)) if plain and request.action in actions.split() else None

    return says(spoil)


def tools(actions: str, change: Callable[[list[dict[str, Any]]], Any]) -> Fault:
    return on(actions, lambda value: {"tools": change(value["tools"])})


def events(change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Fault:
    """Changes the events of calls."""
    return says(lambda request, answer: answer.with_events(change(answer.events)) if answer.events else None)


def result(change: Callable[[Request, dict[str, Any]], Any]) -> Fault:
    """Changes the results of calls."""

    def spoil(request: Request, answer: Response) -> Response | None:
        if not answer.events or answer.events[-1][0] != "end" or request.action != "call":
            return None
        return answer.with_result(change(request, answer.result))

    return says(spoil)


def output(change: Callable[[dict[str, Any]], Any]) -> Fault:
    """Changes the outputs of calls that went well."""
    return result(lambda _, value: {"ok": True, "output": change(value["output"])} if value["ok"] else value)


def asks(change: Callable[[Request], Request]) -> Fault:
    """Understands requests in its own way."""

    async def fault(request: Request, ask: Ask) -> Response | None:
        changed = change(request)
        return None if changed == request else await ask(changed)

    return fault


def refuses(which: Callable[[Request], bool], status: int) -> Fault:
    """Refuses some requests."""

    async def fault(request: Request, ask: Ask) -> Response | None:
        if not which(request):
            return None
        return Response(status, {"content-type": "application/json"}, b'{"detail": "no"}')

    return fault


def remembers(which: Callable[[Request, set[str]], str | None], status: int) -> Fault:
    """Remembers what `which` gives, and refuses a request that gives the same again."""
    seen: set[str] = set()

    async def fault(request: Request, ask: Ask) -> Response | None:
        key = which(request, seen)
        if key is None:
            return None
        if key in seen:
            return Response(status, {"content-type": "application/json"}, b'{"detail": "no"}')
        seen.add(key)
        return None

    return fault


async def holds_streams_back(request: Request, ask: Ask) -> Response | None:
    """Sends no event before all are there."""
    return await ask(request) if request.action == "call" else None


async def answers_create_late(request: Request, ask: Ask) -> Response | None:
    if request.action != "create":
        return None
    answer = await ask(request)
    await asyncio.sleep(request.json.get("task_spec", {}).get("setup_seconds", 0))
    return answer


def does_not_wait() -> Fault:
    """Refuses questions to sessions that are not set up."""
    slow: set[str] = set()

    async def fault(request: Request, ask: Ask) -> Response | None:
        if request.json.get("task_spec", {}).get("setup_seconds"):
            slow.add(request.sid)
        if request.sid in slow and request.action in ("prompt", "task_tools", "call"):
            return Response(409, {"content-type": "application/json"}, b'{"detail": "not ready"}')
        return None

    return fault


async def blocks_everyone(request: Request, ask: Ask) -> Response | None:
    """While a tool blocks, nobody else is answered."""
    if request.tool == "add":
        await asyncio.sleep(1.4)
    return None


def one_session_for_all() -> Fault:
    """Runs every call in the session that called first."""
    first: list[str] = []

    def change(request: Request) -> Request:
        if request.action != "call":
            return request
        first.append(request.sid)
        return Request(
            request.method, request.path, {**request.headers, "x-session-id": first[0]}, request.body
        )

    return asks(change)


async def ignores_deletes(request: Request, ask: Ask) -> Response | None:
    if request.action != "delete":
        return None
    return Response(200, {"content-type": "application/json"}, json.dumps({"sid": request.sid}).encode())


async def never_ends(request: Request, ask: Ask) -> Response | None:
    if request.tool == "cancel":
        await asyncio.sleep(30)
    return None


async def swallows_big_bodies(request: Request, ask: Ask) -> Response | None:
    if int(request.headers.get("content-length", "0")) > 2**30:
        await asyncio.sleep(30)
    return None


async def ends_bodies_late(request: Request, ask: Ask) -> Response | None:
    if request.tool != "slow":
        return None
    answer = await ask(request)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return Response(200, {}, b"", [head + b"%x\r\n%b\r\n" % (len(answer.body), answer.body), b"0\r\n\r\n"])


async def sends_no_length(request: Request, ask: Ask) -> Response | None:
    if request.action != "call":
        return None
    answer = await ask(request)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return Response(200, {}, b"", [head + answer.body])


async def speaks_no_http(request: Request, ask: Ask) -> Response | None:
    return Response(200, {}, b"", [b"HTTP/1.1 ok\n\n{}"]) if request.action == "ping" else None


def recut(size: int) -> Callable[[Request, Response], Response | None]:
    """Cuts results into pieces of so many characters, with nothing escaped that need not be."""

    def spoil(request: Request, answer: Response) -> Response | None:
        if not answer.events or answer.events[-1][0] != "end":
            return None
        text = json.dumps(answer.result, ensure_ascii=False, separators=(",", ":"))
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        names = ["chunk"] * (len(pieces) - 1) + ["end"]
        return answer.with_events([answer.events[0], *zip(names, pieces, strict=True)])

    return spoil


def body(change: Callable[[bytes], bytes]) -> Fault:
    """Changes the bytes of streams."""
    return says(
        lambda request, answer: (
            Response(answer.status, answer.headers, change(answer.body)) if answer.events else None
        )
    )


def headers(change: Callable[[Request, dict[str, str]], dict[str, str]]) -> Fault:
    """Changes the headers of answers."""
    return says(lambda request, answer: Response(answer.status, change(request, answer.headers), answer.body))


def text(change: Callable[[str], str], tool: str = "") -> Fault:
    """Changes the texts that tools give."""

    def spoil(request: Request, value: dict[str, Any]) -> Any:
        if value["ok"] and (not tool or request.tool == tool):
            for block in value["output"]["blocks"]:
                if "text" in block:
                    block["text"] = change(block["text"])
        return value

    return result(spoil)


def when(tool: str, change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Fault:
    """Changes the events of calls of one tool, long ones included."""

    async def fault(request: Request, ask: Ask) -> Response | None:
        if request.tool not in tool.split():
            return None
        answer = await ask(request)
        return answer.with_events(change(answer.events))

    return fault


def ok(word: str = "fine") -> str:
    value = {"blocks": [{"text": word, "detail": None, "type": "text"}], "metadata": None}
    return json.dumps({"ok": True, "output": {**value, "reward": 1.0, "finished": False}})


def without(key: str) -> Callable[[Any], Any]:
    return lambda value: {name: entry for name, entry in value.items() if name != key}


def unescaped(data: bytes) -> bytes:
    return re.sub(rb"\\u(0085|2028|2029)", lambda m: chr(int(m[1], 16)).encode(), data)
