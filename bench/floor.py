"""The floor: a plain ASGI application that gives our server's bytes, with no sessions and no validation."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from bench import plans, wire

Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answers = dict[tuple[str, bytes], tuple[Message, Message]]


async def record() -> Answers:
    """What our server answers to every request of the plans, by path and body."""
    server = await wire.ours(1)
    answers: Answers = {}
    sid = ""
    for step in plans.canned():
        answer = await server.ask(step, sid)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"our server does not answer {step.path}: {answer[-200:].decode()}")
        answers[step.path, step.body.encode()] = _messages(answer)
        if step.takes_sid:
            sid = wire.session_id(answer)
    return answers


def _messages(answer: bytes) -> tuple[Message, Message]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    pairs = [line.split(b": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs if name.lower() != b"date"}  # uvicorn adds it
    if headers.pop(b"transfer-encoding", None):
        body = _joined(body)
    headers[b"content-length"] = b"%d" % len(body)
    start = {"type": "http.response.start", "status": int(status.split()[1]), "headers": [*headers.items()]}
    return start, {"type": "http.response.body", "body": body}


def _joined(chunked: bytes) -> bytes:
    body = bytearray()
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunked = rest[int(size, 16) + 2 :]
    return bytes(body)


def application(answers: Answers) -> Any:
    """The ASGI application that gives these answers."""

    async def floor(scope: Message, receive: Receive, send: Send) -> None:
        message = await receive()
        start, body = answers[scope["path"], message["body"]]
        await send(start)
        await send(body)

    return floor


def config(answers: Answers, port: int) -> uvicorn.Config:
    """The floor, with as little else in uvicorn as our own server has."""
    return uvicorn.Config(
        application(answers),
        host="127.0.0.1",
        port=port,
        http="httptools",
        lifespan="off",
        ws="none",
        access_log=False,
        date_header=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )


async def on_wires(connections: int) -> wire.Wires:
    """The floor in this process."""
    made = config(await record(), 0)
    state = uvicorn.Server(made).server_state
    state.default_headers = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")]  # uvicorn's clock does not run here
    made.load()
    protocol: Any = made.http_protocol_class
    loop = asyncio.get_running_loop()
    return wire.Wires(
        lambda: protocol(config=made, server_state=state, app_state={}, _loop=loop), connections
    )


def run(port: int) -> None:
    """Serves the floor until it is told to stop."""
    uvicorn.Server(config(wire.run(record), port)).run()
