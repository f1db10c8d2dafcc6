"""Checks of running calls: order, concurrency, duration, idempotency."""

import asyncio
from itertools import pairwise

from ors.conformance import expect
from ors.conformance.checks import check
from ors.conformance.events import RawStream
from ors.conformance.faults import Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest

PATIENCE = 5.0


@check("call.cancelled", probe=True)
async def cancelled(server: ServerUnderTest) -> None:
    """The stream must end in time."""
    async with server.session() as episode:
        try:
            async with asyncio.timeout(PATIENCE):
                given = await episode.call("cancel")
        except TimeoutError:
            raise Violation(f"the stream had not ended after {PATIENCE:g} s") from None
        given.error()


@check("call.queued-after-finished", probe=True)
async def queued_after_finished(server: ServerUnderTest) -> None:
    """Sends a call while the finishing call runs."""
    async with server.session() as episode:
        async with episode.opened("give", {"reward": 1.0, "finished": True, "seconds": 0.4}) as first:
            await first.first()
            second = await episode.call("give", {"reward": 1.0}, takes=1)
            (await first.rest()).output()
        if second.value().get("ok") is not False:
            raise Violation("the second call ran after the end of the episode", second.seen)


@check("call.in-order", probe=True)
async def in_order(server: ServerUnderTest) -> None:
    """Sends three calls, each after the previous one has its task id."""
    async with server.session() as episode:
        tasks: list[asyncio.Task[RawStream]] = []
        for name in "abc":
            tasks.append(await _begun(episode, name))
        last = (await asyncio.gather(*tasks))[-1]
    if last.text() != "+a -a +b -b +c -c":
        raise Violation(f"the order was {last.text()}", last.seen)


async def _begun(episode: CheckedSession, name: str) -> asyncio.Task[RawStream]:
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def call() -> RawStream:
        try:
            async with episode.opened("step", {"name": name, "seconds": 0.2}) as live:
                begun.set_result(await live.first())
                return await live.rest()
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            raise

    task = asyncio.create_task(call())
    await begun
    return task


@check("call.others-go-on", probe=True)
async def others_go_on(server: ServerUnderTest) -> None:
    """Calls a plain function that sleeps."""
    seconds = 2.0
    clock = asyncio.get_running_loop()
    async with server.session() as blocked, server.session() as other:
        await other.get("prompt")
        async with blocked.opened("block", {"seconds": seconds}) as live:
            await live.first()
            began = clock.time()
            (await other.call("add")).output()
            expect.status(await server.ask("GET", "/health"), 200)
            waited = clock.time() - began
            await live.rest()
    if waited > seconds * 0.6:
        raise Violation(f"another session was delayed for {waited:.1f} s")


@check("call.once", probe=True)
async def once(server: ServerUnderTest) -> None:
    """Repeats the call while it runs and after its end."""
    headers = {"Idempotency-Key": server.run, "Accept": "text/event-stream"}
    async with server.session() as episode:
        async with episode.opened("slow", {"seconds": 0.3}, headers=headers) as live:
            task_id = await live.first()
            second = await episode.call("slow", {"seconds": 0.3}, headers=headers)
            await live.rest()
        third = await episode.call("slow", {"seconds": 0.3}, headers=headers)
        for given in (second, third):
            if given.task_id != task_id:
                raise Violation("a call with the same key has another task id", given.seen)
        counted = await episode.call("counted")
        if counted.text() != "1":
            raise Violation(f"the tool ran {counted.text()} times", counted.seen)


@check("call.pings", probe=True, slow=True)
async def pings(server: ServerUnderTest) -> None:
    """Expects two comment lines in time."""
    period = server.times.ping
    async with server.session() as episode:
        given = await episode.call("slow", {"seconds": 2.5 * period}, takes=2.5 * period)
    given.output()
    moments = [given.started, *(at for at, _ in given.comments)]
    if len(moments) < 3:
        raise Violation(f"{len(moments) - 1} comment lines in {2.5 * period:g} s", given.seen)
    longest = max(later - earlier for earlier, later in pairwise(moments))
    if longest > period * 1.3:
        raise Violation(f"{longest:.1f} s without a comment line", given.seen)


@check("call.long", probe=True, slow=True)
async def long(server: ServerUnderTest) -> None:
    """Runs longer than results are kept and than most proxies wait."""
    seconds = server.times.kept * 1.5
    async with server.session() as episode:
        given = await episode.call("slow", {"seconds": seconds}, takes=seconds)
    given.output()
