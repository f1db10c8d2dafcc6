"""Every check, with a fault that it must find."""

import json
from typing import Any

from tests.support import protocol_faults as faults
from tests.support.faulty_proxy import Fault, Request, Response
from tests.support.protocol_faults import (
    SECRET,
    Planted,
    asks,
    body,
    events,
    headers,
    ok,
    on,
    output,
    recut,
    refuses,
    remembers,
    result,
    says,
    status,
    text,
    tools,
    unescaped,
    when,
    without,
)

BARE = ["tools", "splits", "tasks", "num_tasks", "prompt", "task_tools", "call", "version"]


def plant(fault: Fault, breaks: str, single: bool = False) -> Planted:
    return Planted(fault, tuple(breaks.split()), single)


def _created(request: Request, seen: set[str]) -> str | None:
    return request.sid if request.action == "create" else None


def _deleted(request: Request, seen: set[str]) -> str | None:
    return request.sid if request.action == "delete" else None


def _bare(request: Request) -> bool:
    return request.path.count("/") == 1 and request.action in BARE


def _errors_as_text(request: Request, answer: Response) -> Response | None:
    if answer.status < 400:
        return None
    return Response(answer.status, answer.headers, b'{"error": {"session": "index"}}')


def _with_secret(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, f"{data} {SECRET}" if name == "error" else data) for name, data in found]


def _plain_json_sid(request: Request, answer: Response) -> Response | None:
    if request.action != "create_session":
        return None
    plain = {"content-type": "application/json"}
    return Response(200, plain, json.dumps({"sid": answer.events[0][1]}).encode()) if answer.events else None


def _streamed_sid(request: Request, answer: Response) -> Response | None:
    if request.action != "create_session" or answer.events:
        return None
    sid = answer.json["sid"]
    return Response(200, {"content-type": "text/event-stream"}, b"").with_events([("task_id", sid)])


def _no_setup_fault(request: Request, answer: Response) -> Response | None:
    return Response(200, answer.headers, b"[]") if answer.status == 500 else None


def _wrong_schema(listed: list[dict[str, Any]]) -> Any:
    return [{**tool, "input_schema": {"type": "record"}} for tool in listed]


def _last_twice(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*found, found[-1]]


def _other_notes(words: str) -> Fault:
    return text(lambda given: words, tool="notes")


def _delete_for_delete_session(request: Request) -> Request:
    path = request.path.replace("/delete_session", "/delete")
    return Request(request.method, path, request.headers, request.body)


def _second_environment(request: Request) -> Request:
    if request.action != "create" or "env_name" in request.json or "split" not in request.json:
        return request
    return request.with_json(env_name="probe_indexed")


def _counts_only(request: Request) -> Request:
    return request.with_json(name="counted") if request.tool == "add" else request


def _no_rejoin(request: Request) -> Request:
    return request.with_json(task_id=...) if request.json.get("task_id") else request


def _pick_for_skip(listed: list[dict[str, Any]]) -> Any:
    return [{**tool, "name": "pick"} if tool["name"] == "skip" else tool for tool in listed]


PLANTED: dict[str, Planted] = {
    # Messages
    "speaks no HTTP": plant(faults.speaks_no_http, "http.well-formed"),
    "sends JSON as text": plant(
        headers(lambda _, given: {**given, "content-type": "text/plain"}), "http.json-type"
    ),
    "errors of another form": plant(
        says(_errors_as_text),
        "http.error-format http.detail-names-field sid.before-body tasks.not-listed setup-failed.reason",
    ),
    "422 for 400": plant(
        status({400: 422}),
        """http.bad-json http.missing-field http.empty-body http.not-an-object http.wrong-type http.deep-json
        sid.create sid.ping sid.delete sid.delete-session sid.prompt sid.task-tools sid.call sid.blank
        sid.before-body tasks.bad-split num-tasks.bad-split task.bad-split range.bad-split task.out-of-range
        task.negative create.both create.neither create.split-alone create.index-alone create.bad-split
        create.bad-index create.exists create.race secrets.bad-header call.missing-name call.missing-input""",
    ),
    "refuses unknown keys": plant(refuses(lambda r: "no_such_key" in r.json, 422), "http.unknown-keys"),
    "insists on a content type": plant(
        refuses(lambda r: bool(r.body) and "json" not in r.headers.get("content-type", ""), 415),
        "http.content-type",
    ),
    "takes any body": plant(faults.swallows_big_bodies, "http.body-limit"),
    "no Allow": plant(headers(lambda _, given: without("allow")(given)), "http.wrong-method"),
    "no HEAD": plant(refuses(lambda r: r.method == "HEAD", 405), "http.head-health"),
    "no bare paths": plant(refuses(_bare, 404), "http.bare-discovery http.bare-session http.version"),
    "no redirects": plant(refuses(_bare, 404), "http.single-redirect http.single-redirect-308", single=True),
    "minds the case": plant(refuses(lambda r: "/PROBE/" in r.path, 404), "http.environment-case"),
    "200 for 404": plant(
        status({404: 200}),
        """http.unknown-environment-at-once tools.unknown-environment splits.unknown-environment
        tasks.unknown-environment num-tasks.unknown-environment task.unknown-environment
        range.unknown-environment create-session.only-an-id create.unknown-environment ping.unknown
        delete.unknown unknown.prompt unknown.task-tools unknown.call call.environment-mismatch""",
    ),
    # Session header
    "wants a session for everything": plant(
        refuses(lambda r: not r.sid and r.action == "tools", 400), "sid.not-needed environments.usable"
    ),
    "takes short ids only": plant(refuses(lambda r: len(r.sid) > 64, 400), "sid.any"),
    # Discovery
    "not quite healthy": plant(on("health ping", lambda value: {"status": "fine"}), "health.ok ping.ok"),
    "environments in an object": plant(
        on("list_environments", lambda value: {"environments": value}), "environments.list"
    ),
    "an environment that is not there": plant(
        on("list_environments", lambda value: [*value, "ghost"]), "environments.usable"
    ),
    "no descriptions": plant(
        tools("tools task_tools", lambda listed: [without("description")(tool) for tool in listed]),
        "tools.shape task-tools.shape",
    ),
    "no schemas": plant(
        tools("tools task_tools", lambda listed: [without("input_schema")(tool) for tool in listed]),
        "tools.schema-present",
    ),
    "schemas as text": plant(
        tools("tools task_tools", lambda listed: [{**tool, "input_schema": "{}"} for tool in listed]),
        "tools.shape task-tools.shape",
    ),
    "a fourth key": plant(
        tools("tools", lambda listed: [{**tool, "strict": True} for tool in listed]), "tools.exact-keys"
    ),
    "schemas of no type": plant(tools("tools", _wrong_schema), "tools.schema-valid"),
    "tools twice": plant(tools("tools", lambda listed: listed * 2), "tools.distinct"),
    "all tools shared": plant(
        tools("tools", lambda listed: [*listed, {**listed[0], "name": "hint"}]), "tools.shared-only"
    ),
    "splits of another type": plant(
        on("splits", lambda value: [{**split, "type": "dev"} for split in value]),
        "splits.shape splits.types",
    ),
    # Tasks
    "no env_name": plant(
        on("tasks task task_range", without("env_name")), "tasks.shape task.env-name http.environment-case"
    ),
    "another task under the second name": plant(
        on("get_task get_task_range", lambda value: {**value, "env_name": "other"}), "task.second-names"
    ),
    "one task too many": plant(
        on("num_tasks", lambda value: {"num_tasks": value["num_tasks"] + 1}), "num-tasks.count"
    ),
    "tasks in another order": plant(
        on("tasks", lambda value: {**value, "tasks": value["tasks"][::-1]}),
        "task.by-index range.slice range.defaults range.negative range.clamp",
    ),
    # Opening
    "always streams ids": plant(says(_streamed_sid), "create-session.sid"),
    "never streams ids": plant(says(_plain_json_sid), "create-session.stream"),
    "one id for all": plant(
        on("create_session", lambda value: {"sid": "00000000-0000-4000-8000-000000000000"}),
        "create-session.fresh",
    ),
    "answers with another id": plant(
        on("create delete delete_session", lambda value: {"sid": "other"}),
        """create.task-spec create.split-index delete.ok delete.twice delete-session.ok
        delete-session.unknown sid.any""",
    ),
    "another default": plant(asks(_second_environment), "create.default-environment"),
    "answers after setup": plant(faults.answers_create_late, "create.answers-first"),
    "does not wait for setup": plant(
        faults.does_not_wait(),
        "create.prompt-waits create.task-tools-waits create.call-waits create.call-opens",
    ),
    "holds streams back": plant(faults.holds_streams_back, "create.call-opens call.task-id-early"),
    "hides a failed setup": plant(says(_no_setup_fault), "setup-failed.status setup-failed.reason"),
    "runs tools all the same": plant(
        events(lambda found: [found[0], ("end", ok())]),
        """setup-failed.call secrets.hidden call.raises call.raises-text call.strange-reward
        rejoin.error rejoin.unknown rejoin.other-session call.unknown-tool call.unknown-tool-recoverable
        call.bad-input call.bad-input-recoverable task-tools.override-stands call.image format.small
        format.large format.surrogate""",
    ),
    "never tears down": plant(
        _other_notes("setup ready"), "setup-failed.teardown delete.teardown delete.teardown-once"
    ),
    "tears down at the end": plant(_other_notes("setup ready teardown"), "state.finished-stays"),
    "loses secrets": plant(
        asks(lambda r: r.with_json(secrets=...) if "secrets" in r.json else r), "secrets.body"
    ),
    "reads no X-Secrets": plant(asks(lambda r: r.without("x-secrets")), "secrets.header secrets.bad-header"),
    "tells secrets": plant(events(_with_secret), "secrets.hidden"),
    # Living and ending
    "404 for 410": plant(status({410: 404}), "ping.gone gone.prompt gone.task-tools gone.call"),
    "deletes once": plant(remembers(_deleted, 404), "delete.twice"),
    "deletes nothing": plant(
        faults.ignores_deletes, "delete.running-call delete.running-setup delete.teardown gone.prompt"
    ),
    "deletes sessions": plant(asks(_delete_for_delete_session), "delete-session.deletes-nothing"),
    "ids once only": plant(remembers(_created, 400), "gone.create-again"),
    "forgets": plant(asks(_counts_only), "state.kept state.apart"),
    "one session for all": plant(faults.one_session_for_all(), "state.apart"),
    # Episodes
    "loses a shared tool": plant(tools("task_tools", lambda listed: listed[1:]), "task-tools.shared-too"),
    "loses task tools": plant(
        tools("task_tools", lambda listed: [t for t in listed if t["name"] not in ("hint", "pick")]),
        "task-tools.specific task-tools.listed",
    ),
    "lists another task's tools": plant(tools("task_tools", _pick_for_skip), "task-tools.override-stands"),
    "one block": plant(on("prompt", lambda value: value[0]), "prompt.blocks prompt.keys prompt.image"),
    "no detail": plant(
        on("prompt", lambda value: [without("detail")(block) for block in value]), "prompt.keys prompt.image"
    ),
    "no images": plant(on("prompt", lambda value: value[:1]), "prompt.image"),
    "minds the prompt's path": plant(
        refuses(lambda r: r.path == "/probe_indexed/prompt", 404), "prompt.any-environment"
    ),
    # Calls
    "streams as bytes": plant(
        headers(lambda _, given: {**given, "content-type": "application/octet-stream"}),
        "call.stream call.without-accept",
    ),
    "insists on Accept": plant(
        refuses(lambda r: r.action == "call" and "event" not in r.headers.get("accept", ""), 406),
        "call.without-accept",
    ),
    "no task id": plant(
        events(lambda found: found[1:]), "call.order call.task-id rejoin.task-id-first rejoin.unknown-echo"
    ),
    "the last event twice": plant(events(_last_twice), "call.order"),
    "one task id": plant(events(lambda found: [("task_id", "one"), *found[1:]]), "call.task-id"),
    "another envelope": plant(
        result(lambda _, value: {"success": value["ok"], **without("ok")(value)}),
        "call.envelope call.output call.no-input call.text call.image rejoin.dropped",
    ),
    "no finished": plant(output(without("finished")), "call.output call.all-keys"),
    "no nulls": plant(output(without("metadata")), "call.all-keys"),
    "refuses empty inputs": plant(
        refuses(lambda r: r.tool == "add" and not r.json["input"], 400), "call.no-input"
    ),
    "strips text": plant(text(str.strip), "call.text"),
    "other rewards": plant(when("give", lambda found: [found[0], ("end", ok())]), "call.reward"),
    "end after error": plant(
        events(lambda found: [*found, ("end", ok())] if found[-1][0] == "error" else found), "call.raises"
    ),
    "other words": plant(
        events(lambda found: [(n, "failed" if n == "error" else d) for n, d in found]),
        "call.raises-text rejoin.unknown",
    ),
    "dies of an exception": plant(
        remembers(lambda r, seen: r.sid if r.tool == "fail" or r.sid in seen else None, 410),
        "call.raises-lives",
    ),
    "never ends": plant(faults.never_ends, "call.cancelled"),
    "goes on after the end": plant(
        when("give", lambda found: [found[0], ("end", ok())]),
        "call.after-finished call.queued-after-finished",
    ),
    "any order": plant(when("step", lambda found: [found[0], ("end", ok("+a +b -a -b"))]), "call.in-order"),
    "blocks everyone": plant(faults.blocks_everyone, "call.others-go-on"),
    "knows no keys": plant(asks(lambda r: r.without("idempotency-key")), "call.once"),
    # Stream format
    "half an event": plant(body(lambda data: data[:-1]), "format.events"),
    "carriage returns": plant(body(lambda data: data.replace(b"\n", b"\r\n")), "format.lines"),
    "no space": plant(
        body(lambda data: data.replace(b"event: ", b"event:")), "format.lines format.example-clients"
    ),
    "cached": plant(headers(lambda _, given: without("cache-control")(given)), "format.headers"),
    "no length": plant(faults.sends_no_length, "format.at-once"),
    "a late end": plant(faults.ends_bodies_late, "format.end-of-body"),
    "small pieces": plant(says(recut(500)), "format.small format.large"),
    "one piece": plant(says(recut(10**9)), "format.large format.chunk-size format.chunk-size-utf8"),
    "pieces of characters": plant(says(recut(4096)), "format.chunk-size-utf8 format.no-edge-space"),
    "loses a piece": plant(
        events(lambda found: [found[0], *found[2:]] if len(found) > 2 else found),
        "format.reassembly format.chunk-size format.example-clients",
    ),
    "nothing escaped": plant(body(unescaped), "format.no-separators"),
    # Reconnecting
    "runs again": plant(
        asks(_no_rejoin),
        """rejoin.finished rejoin.running rejoin.dropped rejoin.task-id-first rejoin.whatever-input
        rejoin.unknown rejoin.unknown-echo rejoin.unknown-runs-nothing rejoin.other-session""",
    ),
    "forgets errors": plant(
        refuses(lambda r: r.tool == "fail" and bool(r.json.get("task_id")), 404), "rejoin.error"
    ),
}
