"""What the protocol decides, each line with an id. A test names the lines that it proves."""

from dataclasses import dataclass
from typing import TypeVar

import pytest

T = TypeVar("T")


@dataclass(frozen=True)
class Requirement:
    id: str
    text: str
    source: str


def proves(*ids: str) -> pytest.MarkDecorator:
    """Marks a test as the proof of requirements."""
    unknown = set(ids) - REQUIREMENTS.keys()
    if unknown:
        raise ValueError(f"no such requirement: {', '.join(sorted(unknown))}")
    return pytest.mark.proves(*ids)


_LINES = {
    "HTTP": {
        "http.errors": 'errors outside a stream are {"detail": one string}; a bad body is 400, the detail names the field and echoes no value',
        "http.unknown-keys": "unknown body keys are ignored",
        "http.content-type": "a JSON body is parsed whatever its Content-Type says",
        "http.limits": "a path and query over 16 KiB are 414, headers over 64 KiB 431, a body that comes too slowly is 408, at every front end alike",
        "http.before-body": "key, host and origin are checked when the headers are complete; the body of whoever may not ask is not waited for",
        "http.single-headers": "two Host, X-Session-ID, X-API-Key, Idempotency-Key or X-Secrets headers are 400, at every front end",
        "http.expect": "a client that expects 100-continue gets it once it may send its body; with HTTP/1.0 it never does",
        "http.slash": "a slash at the end of a path changes nothing, with keys or without",
        "http.half-closed": "a client that stops sending has left: it gets what is answered at once; a call goes on and can be rejoined",
        "http.body-size": "a body over the limit is 413; deeply nested JSON is 400",
        "http.body-values": "a body of over 2**20 values, a list, an object or a key counting as 8, is 413, at every front end; bodies of many values share arriving_bytes",
        "http.session-id": "X-Session-ID is checked before the body; missing or blank is 400; any printable id up to 256 characters will do",
        "http.env-names": "environment names are case-insensitive, canonical in lower case; a root path's name is refused when the server is built",
        "http.unknown-env": "an unknown environment is 404 on a server with several",
        "http.one-env": "with one environment, an unrecognised path is redirected (308) below it, query kept",
        "http.visit": "where the inspector is offered, a browser at / is redirected (307) to it, with or without a key; programs are not",
        "http.bare-paths": "with several, bare discovery paths go (308) to the first, bare session paths are served by the session's environment",
        "http.head-health": "HEAD /health is 200",
        "http.wrong-method": "a wrong method is 405 with Allow",
    },
    "Discovery": {
        "discovery.tools": "/tools lists the shared tools, each with exactly name, description, input_schema",
        "discovery.task-tools": "/task_tools lists shared, task-specific and list_task_tools(); an override stands for the task-specific part",
        "discovery.task": "/task and /task_range carry env_name; a negative index is 400; ranges are slices and clamp",
        "discovery.second-names": "/get_task and /get_task_range are second names of /task and /task_range, at every front end",
        "discovery.not-listed": 'list_tasks raising NotImplementedError is 400 with "index-based API"; the rest works',
        "discovery.classmethods": "author's classmethods may be sync or async; caches belong to one class; splits and tasks are listed once",
        "discovery.splits": 'splits are strings or Split; "train", "validation", "test" map to their type, others to "validation"',
    },
    "Sessions": {
        "sessions.create-session": '/create_session gives {"sid"}, or with Accept text/event-stream task_id = sid, then end = {"sid"}',
        "sessions.create": "of N concurrent creates with one sid one is 200, the others 400; constructor and setup run off the loop and after the reply",
        "sessions.after-create": "/prompt and /task_tools wait for setup; /call opens its stream at once and waits inside",
        "sessions.prompt-once": "get_prompt is called once in a session: its first answer is kept, requests at the same time share it, forks have it; a failed one is not kept",
        "sessions.failed-setup": "after a failed setup every request is 500 with the reason, a call an error event; teardown runs once",
        "sessions.secrets": "secrets come from the body and X-Secrets, the header wins per key, a bad header is 400; they appear nowhere",
        "sessions.delete": "/delete cancels setup and calls, tears down once, unknown 404, second time 200; a hanging teardown is bounded",
        "sessions.delete-session": "/delete_session is 200 for every id that can be one, 400 for others, and deletes nothing",
        "sessions.after-end": "after the end 410 while the tombstone lasts, then 404; /create with that id is allowed again",
        "sessions.expiry": "a session expires after idle time; any request with the id counts, a call in flight too; unknown ids leave no trace",
        "sessions.key": "for other keys than its own a session is 404, also after its end; its id is taken for every key while it lives",
        "sessions.ping": "/ping is 200, 404 for an id without episode, 410 after its end",
    },
    "Calls": {
        "calls.order": "task_id, chunk*, end or error; an immediate result goes out in one write with a Content-Length; otherwise the last event and the end of the body go together",
        "calls.rejoin": "a known task_id gives the original call's stream from the beginning; kept 60 s, bounded in bytes; nothing is run again",
        "calls.unknown-task-id": "an unknown task_id is echoed, then error unknown task_id; other sessions' ids are unknown",
        "calls.once": "Idempotency-Key starts or attaches; a key whose result has expired answers error and does not run again, for 65,536 further keys at least",
        "calls.refused": "unknown tool, bad input, call after the end: end with ok false and a reason",
        "calls.raises": "a tool that raises is an error event, every line a data line, the session stays usable; ToolError is ok false",
        "calls.limits": "a tool that is cancelled, or exceeds its time or output limit, is an error event that says so",
        "calls.finished": "after finished further calls are refused, queued ones too; an environment may opt out",
        "calls.turns": "calls of one session run one at a time in order; concurrent ones overlap with each other only; sessions never wait for each other",
        "calls.off-loop": "author's code never runs on the event loop unless it is async def",
        "calls.chunking": "up to 4096 bytes one end event; longer ones in pieces of at most 4096 bytes at character boundaries",
        "calls.safe-text": "no piece begins or ends with white space; U+0085, U+2028, U+2029 are escaped; a lone surrogate loses nothing",
        "calls.wire": "event and data lines with one space, a blank line after; pings are comments; no-cache and X-Accel-Buffering headers",
        "calls.reward": "a reward is a finite number or null; anything else is an error event",
        "calls.env-in-path": "another registered environment in the path of /call is 404",
        "calls.output": "output objects carry all keys in order",
    },
    "Served besides": {
        "besides.rollout-log": "openreward's POST /v1/rollouts is an empty 200 whatever its body says, with a key if the server has keys; nothing is kept of it",
        "besides.version": "GET /version gives the version; what is ours lives below /-/, which no environment name can reach",
        "besides.fork": "POST /-/fork gives n new sessions with copies of the environment, made in the order of calls; all are independent",
        "besides.fork-refused": "an n outside 1 to 1024 or over the limit is 400, a full server 429, a finished episode 400, what cannot be copied 500; nothing is left behind",
        "besides.fork-once": "a fork with the same Idempotency-Key is the same fork; one whose clients have all left before its answer is undone",
    },
    "Our client against their servers": {
        "client.sse": "strips exactly one space, accepts LF, CR and CRLF, lines without a colon, unknown events",
        "client.create": "sends env_name with split and index; secrets in body and header, header alone when the server needs it",
        "client.retries": "retries what only asks, on connection errors and 429, 502, 503, 504, with Retry-After, bounded; never a 4xx",
        "client.pings": "pings every 10 s in the background; lost after five failures in a row, or at 404 or 410",
    },
}

REQUIREMENTS = {
    id: Requirement(id, text, f"PROTOCOL, {section}")
    for section, lines in _LINES.items()
    for id, text in lines.items()
}
