"""The floor: a plain ASGI application that gives our server's bytes, with no sessions and no validation."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from bench import plans
from bench.environment import Bench
from ors import Server

Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answers = dict[tuple[str, bytes], list[Message]]


async def record(requests: list[plans.Step]) -> Answers:
    """What our application sends in answer to these requests, in their order, by path and body."""
    app = Server([Bench]).app
    answers: Answers = {}
    sid = ""
    for step in requests:
        sent: list[Message] = []

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        body = step.body.encode()
        await app(_scope(step, sid), _receiver(body), send)
        answers[step.path, body] = sent
        if step.takes_sid:
            sid = sent[1]["body"].decode().split("data: ", 1)[1].split("\n")[0]
    await app.close()
    return answers


def _scope(step: plans.Step, sid: str) -> Message:
    headers = [(b"accept", b"text/event-stream"), (b"x-session-id", sid.encode())]
    return {"type": "http", "method": step.method, "path": step.path, "headers": headers}


def _receiver(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    return receive


def application(answers: Answers) -> Any:
    """The ASGI application that gives these answers."""

    async def floor(scope: Message, receive: Receive, send: Send) -> None:
        message = await receive()
        for answer in answers.get((scope["path"], message["body"])) or answers["/health", b""]:
            await send(answer)

    return floor


def run(port: int) -> None:
    """Serves what our server answers to every request of the plans, under the same uvicorn settings."""
    answers = asyncio.run(record(plans.canned()))
    uvicorn.run(
        application(answers),
        host="127.0.0.1",
        port=port,
        access_log=False,
        lifespan="off",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=75,
        ws="none",
    )
