"""Connections that break, everywhere: nothing is lost, nothing runs twice."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from ors.client import AsyncORS, AsyncSession, Options, Task, ToolOutput
from tests.support.cutting_proxy import Cutting, listening
from tests.support.environments import Lab

CALLS, SESSIONS = 2000, 40
PATIENT = Options(backoff_seconds=0.001, backoff_limit_seconds=0.2, retries=20)
EACH_ITS_OWN = replace(PATIENT, keepalive_seconds=0, multiplex=False)


@pytest.mark.parametrize("multiplexed", [False, True])
async def test_every_call_is_answered_and_runs_once_when_connections_break(
    url: str, multiplexed: bool
) -> None:
    # A third of the connections, each for one request; or every connection, which all requests share.
    network = Cutting(url, share=1, most=30_000) if multiplexed else Cutting(url)
    with listening(network.serve) as through:
        await played_once(through, PATIENT if multiplexed else EACH_ITS_OWN)
    assert network.connections > (100 if multiplexed else CALLS)
    assert network.cut > (100 if multiplexed else CALLS / 4)


async def played_once(through: str, options: Options) -> None:
    keys = [uuid.uuid4().hex for _ in range(SESSIONS)]
    async with AsyncORS(through, options=options) as client:
        env = client.environment("lab")

        async def episode(key: str) -> None:
            async with env.session(Task("lab", {"id": key})) as session:
                for n in range(CALLS // SESSIONS):
                    text = f"{key} {n} " + "x" * (97 * n)
                    output = await session.call_tool("echo", {"text": text})
                    assert output.blocks[0].text == text  # type: ignore[union-attr]

        await asyncio.gather(*(episode(key) for key in keys))
    assert [Lab.counts[f"{key}.echo"] for key in keys] == [CALLS // SESSIONS] * SESSIONS
    assert [Lab.counts[f"{key}.teardown"] for key in keys] == [1] * SESSIONS


async def held(session: AsyncSession, key: str) -> asyncio.Task[ToolOutput]:
    call = asyncio.create_task(session.call_tool("hold"))
    assert await asyncio.to_thread(Lab.gates[f"{key}.held"].wait, 20)
    return call


async def test_a_call_outlives_the_network_it_was_sent_over(url: str) -> None:
    key = uuid.uuid4().hex
    network = Cutting(url, share=0)
    with listening(network.serve) as through:
        async with AsyncORS(through, options=PATIENT) as client:
            session = await client.environment("lab").session(Task("lab", {"id": key})).start()
            call = await held(session, key)
            await session._remote.transport.close()  # every connection at once
            Lab.gates[f"{key}.hold"].set()
            output = await call
            assert output.blocks[0].text == "held"  # type: ignore[union-attr]
            assert Lab.counts[f"{key}.hold"] == 1
            await session.close()
