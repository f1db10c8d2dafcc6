"""Checks of the results of calls."""

import math
from collections.abc import Mapping
from typing import Any

from ors.conformance import expect
from ors.conformance.checks import Check, check, in_session
from ors.conformance.http import Answer
from ors.conformance.requirements import Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest

TEXTS = (
    "",
    " leading and trailing ",
    "two\nlines\r\nand\ttabs",
    'quotes " and \\ backslashes',
    "naïve 漢字 🎉 \x00 \x1f \x7f",
    ": event: end\ndata: x\n\n",
    "\u0085 \u2028 \u2029 \ufeff",
)


@in_session("call.stream")
async def stream(episode: CheckedSession) -> None:
    given = await episode.some()
    given.fault_if(given.status != 200, f"answered {given.status} instead of 200")
    expect.content_type(given, "text/event-stream")


@in_session("call.without-accept", "probe")
async def without_accept(episode: CheckedSession) -> None:
    for headers in ({}, {"Accept": "application/json"}):
        given = await episode.call("echo", {"text": "x"}, headers=headers)
        expect.content_type(given, "text/event-stream")
        given.output()


@in_session("call.order")
async def order(episode: CheckedSession) -> None:
    """Looks at a small result; with the probe also at a large one and an error."""
    streams = [await episode.some()]
    if "probe" in episode.server.probes:
        streams.append(await episode.call("big", {"characters": 10_000}))
        streams.append(await episode.call("fail", {"text": "x"}))
    for given in streams:
        names = [event.name for event in given.events]
        given.fault_if(names[:1] != ["task_id"], "the first event is not task_id")
        if names[-1:] not in (["end"], ["error"]) or set(names[1:-1]) - {"chunk"}:
            raise Violation(f"the events are {', '.join(names)}", given.seen)


@in_session("call.task-id")
async def task_id(episode: CheckedSession) -> None:
    first, second = await episode.some(), await episode.some()
    expect.uuid_format(first.task_id, first.seen)
    second.fault_if(first.task_id == second.task_id, "two calls have the same task id")


@in_session("call.task-id-early", "probe")
async def task_id_early(episode: CheckedSession) -> None:
    given = await episode.call("slow", {"seconds": 1}, takes=1)
    given.output()
    if given.arrival(given.events[0].end)[0] - given.started > 0.8:
        raise Violation("the first event arrived only with the result", given.seen)


@in_session("call.envelope")
async def envelope(episode: CheckedSession) -> None:
    given = await episode.some()
    value = given.value()
    good = value.get("ok") is True and isinstance(value.get("output"), dict)
    bad = value.get("ok") is False and isinstance(value.get("error"), str)
    given.fault_if(not good and not bad, "the result has neither of the two forms")


def _check_output(given: Answer) -> Mapping[str, Any]:
    output = given.output()
    expect.blocks(output.get("blocks"), given.seen)
    if not isinstance(output.get("finished"), bool):
        raise Violation("`finished` is not a boolean", given.seen)
    reward = output.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise Violation("`reward` is neither a number nor null", given.seen)
    if not isinstance(output.get("metadata"), dict | None):
        raise Violation("`metadata` is neither an object nor null", given.seen)
    return output


@in_session("call.output")
async def output(episode: CheckedSession) -> None:
    _check_output(await episode.some(accepted=True))


@in_session("call.all-keys")
async def all_keys(episode: CheckedSession) -> None:
    given = await episode.some(accepted=True)
    output = _check_output(given)
    if list(output) != ["blocks", "metadata", "reward", "finished"]:
        raise Violation(f"the output has the keys {list(output)}", given.seen)
    expect.block_keys(output["blocks"], given.seen)
    if any(list(block)[-1] != "type" for block in output["blocks"]):
        raise Violation("`type` is not the last key of a block", given.seen)


@in_session("call.no-input", "probe")
async def no_input(episode: CheckedSession) -> None:
    (await episode.call("add", {})).output()


@in_session("call.text", "probe")
async def text(episode: CheckedSession) -> None:
    for wanted in TEXTS:
        expect.text(await episode.call("echo", {"text": wanted}), wanted)


@in_session("call.reward", "probe")
async def reward(episode: CheckedSession) -> None:
    for wanted in (
        {"reward": None, "finished": False, "metadata": None},
        {"reward": 0.0, "finished": False, "metadata": {}},
        {"reward": -0.25, "finished": False, "metadata": {"a": [1, {"b": None}]}},
        {"reward": 1.0, "finished": True, "metadata": {"ü": "漢"}},
    ):
        given = await episode.call("give", wanted)
        output = _check_output(given)
        for key, value in wanted.items():
            if output.get(key) != value or type(output.get(key)) is bool is not type(value):
                raise Violation(f"`{key}` is not {value!r}", given.seen)


@in_session("call.image", "probe")
async def image(episode: CheckedSession) -> None:
    given = await episode.call("picture")
    found = expect.blocks(given.output().get("blocks"), given.seen)
    expect.kinds(found, ["text", "image"], given.seen)


def _incomplete(id: str, body: Mapping[str, Any]) -> Check:
    async def run(server: ServerUnderTest) -> None:
        async with server.session() as episode:
            path = f"/{server.environment}/call"
            expect.status(await server.ask("POST", path, body, sid=episode.sid), 400)

    return check(id)(run)


INCOMPLETE = (
    _incomplete("call.missing-name", {"input": {}}),
    _incomplete("call.missing-input", {"name": "echo"}),
)


def _refused(given: Answer, *statuses: int) -> None:
    if given.status in statuses:
        return
    given.fault_if(given.status != 200, f"answered {given.status}")
    if any(event.name == "error" for event in given.events):
        return
    given.fault_if(given.value().get("ok") is not False, "the call was not refused")


@in_session("call.unknown-tool")
async def unknown_tool(episode: CheckedSession) -> None:
    _refused(await episode.call("no_such_tool"), 400, 404)


@in_session("call.unknown-tool-recoverable")
async def unknown_tool_recoverable(episode: CheckedSession) -> None:
    _refusal(await episode.call("no_such_tool"), "not_found")


def _refusal(given: Answer, reason: str) -> str:
    value = given.value()
    if value.get("ok") is not False or not isinstance(value.get("error"), str):
        raise Violation('no {"ok": false, "error": ...}', given.seen)
    given.fault_if(value.get("reason") != reason, f"the reason is not {reason!r}")
    return str(value["error"])


@in_session("call.bad-input", "probe")
async def bad_input(episode: CheckedSession) -> None:
    _refused(await episode.call("echo", {"text": [1]}), 400)
    _refused(await episode.call("echo", {}), 400)


@in_session("call.bad-input-recoverable", "probe")
async def bad_input_recoverable(episode: CheckedSession) -> None:
    given = await episode.call("echo", {"text": [1]})
    if not _refusal(given, "input_validation").startswith("Tool input validation error"):
        raise Violation("the text does not begin with 'Tool input validation error'", given.seen)


@in_session("call.raises", "probe")
async def raises(episode: CheckedSession) -> None:
    given = await episode.call("fail", {"text": "broken today"})
    given.error()
    given.fault_if(given.pieces, "the error event is not alone")


@in_session("call.raises-text", "probe")
async def raises_text(episode: CheckedSession) -> None:
    given = await episode.call("fail", {"text": "broken today\ncome back tomorrow"})
    if given.error() != "Tool execution failed: broken today\ncome back tomorrow":
        raise Violation("the message is different", given.seen)


@in_session("call.raises-lives", "probe")
async def raises_lives(episode: CheckedSession) -> None:
    await episode.call("fail", {"text": "broken today"})
    (await episode.call("add")).output()


@in_session("call.strange-reward", "probe")
async def strange_reward(episode: CheckedSession) -> None:
    for name in (str(math.nan), str(math.inf), str(-math.inf)):
        (await episode.call("strange_reward", {"name": name})).error()


@in_session("call.after-finished", "probe")
async def after_finished(episode: CheckedSession) -> None:
    await episode.call("give", {"reward": 1.0, "finished": True})
    _refusal(await episode.call("give", {"reward": 1.0}), "episode_finished")


@in_session("call.environment-mismatch", "several")
async def environment_mismatch(episode: CheckedSession) -> None:
    body = {"name": "echo", "input": {"text": "x"}}
    answer = await episode.server.ask("POST", f"/{episode.server.other}/call", body, sid=episode.sid)
    expect.status(answer, 404)
