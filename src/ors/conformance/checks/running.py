"""Checks of calls while they run, and of reconnecting to one by its task id."""

import asyncio
import uuid
from itertools import pairwise

from ors.conformance import expect
from ors.conformance.checks import check, in_session
from ors.conformance.http import Answer, read_events
from ors.conformance.requirements import Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest

PATIENCE = 5.0


@in_session("call.cancelled", "probe")
async def cancelled(episode: CheckedSession) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            given = await episode.call("cancel")
    except TimeoutError:
        raise Violation(f"the stream had not ended after {PATIENCE:g} s") from None
    given.error()


@in_session("call.queued-after-finished", "probe")
async def queued_after_finished(episode: CheckedSession) -> None:
    async with episode.opened("give", {"reward": 1.0, "finished": True, "seconds": 0.4}) as first:
        await first.first()
        second = await episode.call("give", {"reward": 1.0}, takes=1)
        (await first.rest()).output()
    second.fault_if(second.value().get("ok") is not False, "the second call ran after the end of the episode")


@in_session("call.in-order", "probe")
async def in_order(episode: CheckedSession) -> None:
    """Sends three calls, each after the previous one has its task id."""
    tasks: list[asyncio.Task[Answer]] = []
    for name in "abc":
        tasks.append(await _begun(episode, name))
    last = (await asyncio.gather(*tasks))[-1]
    expect.text(last, "+a -a +b -b +c -c")


async def _begun(episode: CheckedSession, name: str) -> asyncio.Task[Answer]:
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def call() -> Answer:
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


@check("call.others-go-on", "probe")
async def others_go_on(server: ServerUnderTest) -> None:
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


@in_session("call.once", "probe")
async def once(episode: CheckedSession) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex, "Accept": "text/event-stream"}
    async with episode.opened("slow", {"seconds": 0.3}, headers=headers) as live:
        task_id = await live.first()
        second = await episode.call("slow", {"seconds": 0.3}, headers=headers)
        await live.rest()
    third = await episode.call("slow", {"seconds": 0.3}, headers=headers)
    for given in (second, third):
        given.fault_if(given.task_id != task_id, "a call with the same key has another task id")
    expect.text(await episode.call("counted"), "1")


@check("call.pings", "probe", "slow")
async def pings(server: ServerUnderTest) -> None:
    period = server.times.ping
    async with server.session() as episode:
        given = await episode.call("slow", {"seconds": 2.5 * period}, takes=2.5 * period)
    given.output()
    comments = read_events(given.body)[1]
    moments = [given.started, *(given.arrival(end)[0] for end in comments)]
    given.fault_if(len(moments) < 3, f"{len(moments) - 1} comment lines in {2.5 * period:g} s")
    longest = max(later - earlier for earlier, later in pairwise(moments))
    given.fault_if(longest > period * 1.3, f"{longest:.1f} s without a comment line")


@check("call.long", "probe", "slow")
async def long(server: ServerUnderTest) -> None:
    """Runs longer than results are kept and than most proxies wait."""
    seconds = server.times.kept * 1.5
    async with server.session() as episode:
        given = await episode.call("slow", {"seconds": seconds}, takes=seconds)
    given.output()


def _same(first: Answer, again: Answer) -> None:
    again.fault_if(first.value() != again.value(), "the result is different")


@in_session("rejoin.finished", "probe")
async def rejoin_finished(episode: CheckedSession) -> None:
    first = await episode.call("add")
    _same(first, await episode.call("add", task_id=first.task_id))
    expect.text(await episode.call("counted"), "1")


@in_session("rejoin.running", "probe")
async def rejoin_running(episode: CheckedSession) -> None:
    async with episode.opened("slow", {"seconds": 0.5}) as live:
        task_id = await live.first()
        again = await episode.call("slow", {"seconds": 0.5}, task_id=task_id, takes=1)
        _same(await live.rest(), again)
    expect.text(await episode.call("counted"), "1")


@in_session("rejoin.dropped", "probe")
async def dropped(episode: CheckedSession) -> None:
    async with episode.opened("slow", {"seconds": 0.4}) as live:
        task_id = await live.first()
    again = await episode.call("slow", {"seconds": 0.4}, task_id=task_id, takes=1)
    expect.text(again, "1")
    expect.text(await episode.call("counted"), "1")


@in_session("rejoin.task-id-first", "probe")
async def task_id_first(episode: CheckedSession) -> None:
    first = await episode.call("add")
    again = await episode.call("add", task_id=first.task_id)
    if not again.events or again.events[0].name != "task_id" or again.task_id != first.task_id:
        raise Violation("the first event is not task_id with the same id", again.seen)


@in_session("rejoin.whatever-input", "probe")
async def whatever_input(episode: CheckedSession) -> None:
    first = await episode.call("add")
    _same(first, await episode.call("echo", {"text": "x"}, task_id=first.task_id))


@in_session("rejoin.error", "probe")
async def rejoin_error(episode: CheckedSession) -> None:
    first = await episode.call("fail", {"text": "broken today"})
    again = await episode.call("fail", {"text": "broken today"}, task_id=first.task_id)
    again.fault_if(first.error() != again.error(), "the error event is different")


@in_session("rejoin.unknown")
async def rejoin_unknown(episode: CheckedSession) -> None:
    given = await episode.call("echo", {"text": "x"}, task_id=uuid.uuid4().hex)
    given.fault_if(given.error() != "unknown task_id", "the error is not 'unknown task_id'")


@in_session("rejoin.unknown-echo")
async def unknown_echo(episode: CheckedSession) -> None:
    task_id = uuid.uuid4().hex
    given = await episode.call("echo", {"text": "x"}, task_id=task_id)
    if given.task_id != task_id or given.events[0].name != "task_id":
        raise Violation("the stream does not begin with the same task_id", given.seen)


@in_session("rejoin.unknown-runs-nothing", "probe")
async def unknown_runs_nothing(episode: CheckedSession) -> None:
    await episode.call("add", task_id=uuid.uuid4().hex)
    expect.text(await episode.call("counted"), "0")


@check("rejoin.other-session", "probe")
async def other_session(server: ServerUnderTest) -> None:
    async with server.session() as first, server.session() as second:
        given = await first.call("echo", {"text": "of the first session"})
        stolen = await second.call("echo", {"text": "x"}, task_id=given.task_id)
        stolen.fault_if(stolen.error() != "unknown task_id", "the error is not 'unknown task_id'")


@in_session("rejoin.kept", "probe", "slow")
async def rejoin_kept(episode: CheckedSession) -> None:
    first = await episode.call("add")
    await asyncio.sleep(episode.server.times.kept * 0.9)
    _same(first, await episode.call("add", task_id=first.task_id))


@in_session("rejoin.expired", "probe", "slow")
async def expired(episode: CheckedSession) -> None:
    first = await episode.call("add")
    await asyncio.sleep(episode.server.times.kept + episode.server.times.slack)
    (await episode.call("add", task_id=first.task_id)).error()
    expect.text(await episode.call("counted"), "1")
