"""A server that dies under its clients."""

import asyncio

import pytest

from ors.client import ORS, AsyncORS, Options, Task
from ors.errors import CallOutcomeUnknown, SessionLost, TransportError
from tests.support.server_process import server_elsewhere
from tests.support.waiting import until

QUICK = Options(backoff_seconds=0.01, backoff_limit_seconds=0.2, rejoins=4, retries=2, ping_seconds=0.2)
LONG = {"seconds": 60}


async def test_a_server_killed_and_restarted_in_a_call_is_session_lost() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=Options(backoff_seconds=0.05)) as client:
            session = await client.environment("slow").session(Task("slow", {})).start()
            begun = asyncio.Event()
            call = asyncio.create_task(session.call_tool("wait", LONG, on_task_id=lambda _: begun.set()))
            await begun.wait()
            process.kill()
            process.wait()
            with server_elsewhere(int(url.rpartition(":")[2])) as (_, again):
                assert again == url
                with pytest.raises(SessionLost) as caught:
                    await call
                assert caught.value.sid == session.sid
                with pytest.raises(SessionLost):
                    await session.get_prompt()


async def test_a_server_killed_for_good_in_a_call_leaves_its_outcome_unknown() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=Options(backoff_seconds=0.01, rejoins=3)) as client:
            session = await client.environment("slow").session(Task("slow", {})).start()
            begun = asyncio.Event()
            call = asyncio.create_task(session.call_tool("wait", LONG, on_task_id=lambda _: begun.set()))
            await begun.wait()
            process.kill()
            process.wait()
            with pytest.raises(CallOutcomeUnknown):
                await call
            with pytest.raises(TransportError, match="cannot be reached"):
                await session.call_tool("wait", LONG)


async def test_a_server_killed_between_calls_is_noticed_by_pings() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=QUICK) as client:
            session = await client.environment("slow").session(Task("slow", {})).start()
            process.kill()
            process.wait()
            await until(lambda: not session.kept, "the pings have given up")
            with pytest.raises(SessionLost, match="5 pings in a row failed") as caught:
                await session.get_prompt()
            assert caught.value.reason == "unreachable"


async def test_a_call_of_a_server_that_stays_away_is_lost_with_its_session_and_says_why() -> None:
    # As with the options that come by default: the pings give up before the rejoins do.
    patient = Options(rejoins=1000, backoff_seconds=0.01, backoff_limit_seconds=0.1, ping_seconds=0.2)
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=patient) as client:
            session = await client.environment("slow").session(Task("slow", {})).start()
            begun = asyncio.Event()
            call = asyncio.create_task(session.call_tool("wait", LONG, on_task_id=lambda _: begun.set()))
            await begun.wait()
            process.kill()
            process.wait()
            with pytest.raises(SessionLost, match=r"gone or cannot be reached.* may have finished") as caught:
                await call
            assert (caught.value.reason, caught.value.sid) == ("unreachable", session.sid)


def test_by_default_the_pings_of_a_dead_server_give_up_before_the_rejoins_of_a_call() -> None:
    options = Options()
    delays = [options.backoff_seconds * 2**n for n in range(options.rejoins)]
    shortest = sum(min(delay, options.backoff_limit_seconds) * 0.5 for delay in delays)
    assert options.ping_failures * options.ping_seconds < shortest


def test_the_sync_client_gets_the_same_errors() -> None:
    with server_elsewhere() as (process, url), ORS(url, options=QUICK) as client:
        session = client.environment("slow").session(Task("slow", {})).start()
        with pytest.raises((CallOutcomeUnknown, SessionLost)):
            session.call_tool("wait", LONG, on_task_id=lambda _: process.kill())
