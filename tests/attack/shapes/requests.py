"""Requests that are whole: pipelines, JSON that is none, sessions that are not there."""

from tests.attack.shapes.shape import SID, TRAIN, Shape, ask, chunked, post

_HEALTH = ask("GET /health")
_SESSION = b"X-Session-ID: " + SID
_NOTE = b'{"name":"note","input":{"name":"shape"}}'
_CREATE = b'{"env_name":"ground","task_spec":{}}'


def create(body: bytes, sid: str) -> bytes:
    """A creation with this body."""
    return post("/create", body, f"X-Session-ID: {sid}")


def call(body: bytes) -> bytes:
    """A call of the live session with this body."""
    return post("/ground/call", body, _SESSION)


REQUESTS = (
    Shape("two requests at once", _HEALTH * 2, "200 200 on"),
    Shape("fifty requests at once", _HEALTH * 50, "200 " * 50 + "on"),
    Shape("a pipeline of all kinds", _HEALTH + post("/ground/num_tasks", TRAIN) + ask("HEAD /health") + ask("GET /nowhere/x") + call(_NOTE), "200 200 200 404 200 on", bodiless=(2,)),
    Shape("a pipeline for a session", call(_NOTE) * 5 + ask("GET /ground/prompt", _SESSION), "200 " * 6 + "on"),
    Shape("a pipeline longer than a connection stays", post("/ping", b"", _SESSION) * 40, "200 " * 40 + "on"),
    Shape("nonsense behind good requests", _HEALTH * 3 + b"\0\0\r\n\r\n", "200 200 200 400 close", asgi="200 200 200 400 close | 200 200 400 close | 200 400 close | 400 close"),
    Shape("a body over the limit behind good requests", _HEALTH * 2 + ask("POST /create", "Content-Length: 99999999"), "200 200 413 close", asgi="200 200 413 close | 200 200 close | 200 close", half_close=True),
    Shape("two Hosts behind a good request", _HEALTH + ask("GET /health", "Host: x"), "200 400 close | 200 400 on"),
    Shape("a close in the middle", _HEALTH + ask("GET /health", "Connection: close") + _HEALTH, "200 200 close"),
    Shape("a blank line between requests", _HEALTH + b"\r\n" + _HEALTH, "200 200 on"),
    Shape("a task under its second name", post("/ground/get_task", b'{"split":"train","index":0}'), "200 on"),
    Shape("a range of tasks under its second name", post("/get_task_range/", TRAIN), "308 on"),
    Shape("a rollout log that is none", post("/v1/rollouts", b"[" * 20_000), "200 on"),
    Shape("a call", call(_NOTE), "200 on"),
    Shape("a call in chunks", chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_NOTE), _NOTE), _SESSION, path="/ground/call"), "200 on"),
    Shape("a call by HTTP/1.0", call(_NOTE).replace(b"HTTP/1.1", b"HTTP/1.0"), "200 close"),
    Shape("a call of no session", post("/ground/call", _NOTE), "400 on"),
    Shape("a call of an unknown session", post("/ground/call", _NOTE, "X-Session-ID: nobody"), "404 on"),
    Shape("a call of another environment", post("/rough/call", _NOTE, _SESSION), "404 on"),
    Shape("a call without a body", call(b""), "400 on"),
    Shape("a call of a number", call(b"1"), "400 on"),
    Shape("a call of a list", call(b"[]"), "400 on"),
    Shape("a call of null", call(b"null"), "400 on"),
    Shape("a call of NaN", call(b"NaN"), "400 on"),
    Shape("a call of half an object", call(b'{"name":'), "400 on"),
    Shape("a call of two objects", call(b"{}{}"), "400 on"),
    Shape("a call that is no UTF-8", call(b'{"name":"\xff"}'), "400 on"),
    Shape("a call of UTF-16", call('{"name":"note","input":{}}'.encode("utf-16")), "400 on"),
    Shape("a call with a byte order mark", call(b"\xef\xbb\xbf" + _NOTE), "400 on | 200 on"),
    Shape("a call with a lone surrogate", call(b'{"name":"\\ud800","input":{}}'), "400 on | 200 on"),
    Shape("a call with a NUL", call(b'{"name":"a\\u0000b","input":{}}'), "200 on"),
    Shape("a call with a number of 5,000 digits", call(b'{"name":"note","input":{"name":%b}}' % (b"9" * 5000)), "200 on | 400 on"),
    Shape("a call with 1e999999", call(b'{"name":"note","input":{"name":1e999999}}'), "200 on | 400 on"),
    Shape("a call with 20,000 brackets", call(b"[" * 20_000), "400 on"),
    Shape("a call with 20,000 objects", call(b'{"a":' * 20_000), "400 on"),
    Shape("a call with 30,000 brackets behind a lone surrogate", call(b'{"\\ud800":' + b"[" * 30_000), "400 on"),
    Shape("a call with 300 lists inside each other and a lone surrogate", call(b'{"name":"note","input":{"a":' + b"[" * 300 + b'"\\ud800"' + b"]" * 300 + b"}}"), "400 on"),
    Shape("a call with 140,000 lists", call(b'{"name":"note","input":{"a":[' + b"[]," * 140_000 + b"[]]}}"), "413 on"),
    Shape("a call with 140,000 objects that does not end", call(b'{"name":"note","input":{"a":[' + b"{}," * 140_000), "413 on"),
    Shape("a call with 140,000 keys", call(b'{"name":"note","input":{' + b",".join(b'"%d":0' % n for n in range(140_000)) + b"}}"), "413 on"),
    Shape("a call with 100,000 numbers", call(b'{"name":"note","input":{"name":"shape","a":[' + b"1," * 100_000 + b"1]}}"), "200 on"),
    Shape("a call with a text of 100,000 brackets", call(b'{"name":"note","input":{"name":"shape","a":"' + b"[{,:" * 50_000 + b'"}}'), "200 on"),
    Shape("a creation with 140,000 lists", create(b'{"env_name":"ground","task_spec":{"a":[' + b"[]," * 140_000 + b"[]]}}", "shape-lists"), "413 on"),
    Shape("a listing with 140,000 lists", post("/ground/num_tasks", b'{"split":"train","a":[' + b"[]," * 140_000 + b"[]]}"), "413 on"),
    Shape("the end of a session with 140,000 lists", post("/delete_session", b"[" + b"[]," * 140_000 + b"[]]", _SESSION), "200 on"),
    Shape("a call whose name is a list", call(b'{"name":[],"input":{}}'), "400 on"),
    Shape("a call whose input is a string", call(b'{"name":"note","input":"x"}'), "400 on"),
    Shape("a call with the same key twice", call(b'{"name":"a","name":"note","input":{"name":"shape"}}'), "200 on"),
    Shape("a call of a private method", call(b'{"name":"_trace","input":{"name":"private"}}'), "200 on"),
    Shape("a call of a method that is no tool", call(b'{"name":"get_prompt","input":{}}'), "200 on"),
    Shape("a call of __init__", call(b'{"name":"__init__","input":{}}'), "200 on"),
    Shape("a call with an unknown task id", call(b'{"name":"note","input":{},"task_id":"x"}'), "200 on"),
    Shape("a call with a bad key of its own", post("/ground/call", _NOTE, _SESSION, "Idempotency-Key: " + "k" * 300), "400 on"),
    Shape("a creation without an environment", create(b'{"env_name":"nowhere","task_spec":{}}', "shape-1"), "404 on | 400 on"),
    Shape("a creation of half a task", create(b'{"env_name":"ground","split":"train"}', "shape-2"), "400 on"),
    Shape("a creation beyond the tasks", create(b'{"env_name":"ground","split":"train","index":10000}', "shape-3"), "400 on"),
    Shape("a creation at true", create(b'{"env_name":"ground","split":"train","index":true}', "shape-4"), "400 on"),
    Shape("a creation at 2**70", create(b'{"env_name":"ground","split":"train","index":1180591620717411303424}', "shape-5"), "400 on"),
    Shape("a creation with an id of control characters", create(_CREATE, "a\x01b"), "400 on | 400 close"),
    Shape("a creation with an id of 300 characters", create(_CREATE, "s" * 300), "400 on"),
    Shape("a creation of an id that lives", post("/create", _CREATE, _SESSION), "400 on | 409 on"),
    Shape("a range of tasks without end", post("/ground/task_range", b'{"split":"train","start":0,"stop":%b}' % (b"9" * 400)), "200 on | 400 on"),
    Shape("a file of the inspector that is not there", ask("GET /-/files/..%2f..%2f..%2fetc%2fpasswd"), "404 on"),
    Shape("a session's page of an odd name", ask("GET /-/sessions/%00%ff%0a"), "404 on | 405 on"),
    Shape("the end of a session that never was", ask("DELETE /-/sessions/nobody"), "404 on"),
)  # fmt: skip
