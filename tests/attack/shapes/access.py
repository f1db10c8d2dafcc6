"""Requests to front ends that ask for a key, and let one foreign page call."""

from tests.attack.shapes.shape import HIDDEN, SID, TRAIN, Shape, ask, post

_ORIGIN = "Origin: https://friend.example"
_KEY = "X-API-Key: sesame"
_PREFLIGHT = "Access-Control-Request-Method: POST"
_LINK = ("Connection: Upgrade", "Upgrade: ors-link")
_NONE = "401 on | 401 close"
_BODY = b"x" * 1000
_TOO_LONG = "Content-Length: 31000000"

ACCESS = (
    Shape("a key", ask("GET /list_environments", _KEY), "200 on"),
    Shape("a key as a bearer's", ask("GET /list_environments", "Authorization: bearer sesame"), "200 on"),
    Shape("no key", ask("GET /list_environments"), _NONE),
    Shape("a wrong key", ask("GET /list_environments", "X-API-Key: Sesame"), _NONE),
    Shape("an empty key", ask("GET /list_environments", "X-API-Key:"), _NONE),
    Shape("a key that is no text", ask("GET /list_environments", b"X-API-Key: \xff\xfe"), _NONE),
    Shape("a key with more behind it", ask("GET /list_environments", "X-API-Key: sesame sesame"), _NONE),
    Shape("a key with Basic", ask("GET /list_environments", "Authorization: Basic sesame"), _NONE),
    Shape("two keys, the wrong one last", ask("GET /list_environments", _KEY, "X-API-Key: wrong"), "401 on | 401 close | 400 on | 400 close"),
    Shape("health needs no key", ask("GET /health"), "200 on"),
    Shape("a page of health needs no key", ask("GET /-/health/live"), "200 on"),
    Shape("a body without a key", post("/ground/num_tasks", TRAIN), _NONE),
    Shape("a body that holds a request, without a key", post("/ground/num_tasks", HIDDEN), _NONE),
    Shape("a body that never comes, without a key", ask("POST /create", _TOO_LONG), "401 close", asgi="401 close | close", router="401 close | close", half_close=True),
    Shape("a body that never comes, with a wrong key", ask("POST /create", _TOO_LONG, "X-API-Key: x"), "401 close", asgi="401 close | close", router="401 close | close", half_close=True),
    Shape("chunks that never end, without a key", ask("POST /create", "Transfer-Encoding: chunked", body=b"3e8\r\n" + _BODY), "401 close", asgi="401 close | close", router="401 close | close", half_close=True),
    Shape("an expectation without a key", ask("POST /create", "Expect: 100-continue", "Content-Length: 31000000"), "401 close", asgi="401 close | close", router="401 close | close", half_close=True),
    Shape("a body from a foreign page that never comes", ask("POST /create", _KEY, "Origin: http://evil.example", "Content-Length: 31000000"), "403 close", asgi="403 close | close", half_close=True),
    Shape("a foreign page", ask("GET /list_environments", _KEY, "Origin: http://evil.example"), "403 on | 403 close"),
    Shape("a page that may", ask("GET /list_environments", _KEY, _ORIGIN), "200 on"),
    Shape("a page that may, without a key", ask("GET /list_environments", _ORIGIN), _NONE),
    Shape("a preflight", ask("OPTIONS /ground/call", _ORIGIN, _PREFLIGHT), "204 on"),
    Shape("a preflight of our own pages", ask("OPTIONS /-/sessions", _ORIGIN, _PREFLIGHT), "204 on | 405 on"),
    Shape("a preflight from a foreign page", ask("OPTIONS /ground/call", "Origin: http://evil.example", _PREFLIGHT), "403 on | 403 close"),
    Shape("a preflight with a body that holds a request", ask("OPTIONS /ground/call", _ORIGIN, f"Content-Length: {len(HIDDEN)}", body=HIDDEN), "204 on"),
    Shape("a preflight that wishes for a link", ask("OPTIONS /-/link", _ORIGIN, *_LINK), "204 on | 204 close | 401 on | 401 close | 404 on | 405 on | 405 close", router="204 on | 204 close | 401 on | 401 close | 404 on | 405 on | 405 close", asgi="204 on | 204 close | 204 400 close | 204 stays | 401 on | 401 close | 401 400 close | 401 stays | 404 on | 404 close | 404 400 close | 404 stays | 405 on | 405 close | 405 400 close | 405 stays"),
    Shape("a preflight that wishes for a link, in full", ask("OPTIONS /-/link", _ORIGIN, _PREFLIGHT, *_LINK), "204 on | 204 close | 401 on | 401 close | 404 on | 405 on | 405 close", router="204 on | 204 close | 401 on | 401 close | 404 on | 405 on | 405 close", asgi="204 on | 204 close | 204 400 close | 204 stays | 401 on | 401 close | 401 400 close | 401 stays | 404 on | 404 close | 404 400 close | 404 stays | 405 on | 405 close | 405 400 close | 405 stays"),
    Shape("a preflight that wishes for HTTP/2", ask("OPTIONS /ground/call", _ORIGIN, _PREFLIGHT, "Connection: Upgrade", "Upgrade: h2c"), "204 on", asgi="204 on | 204 close | 204 400 close | 204 stays"),
    Shape("a link without a key", ask("GET /-/link", *_LINK), "401 on | 401 close", asgi="401 on | 401 close | 401 400 close | 401 stays"),
    Shape("a link without a key from a page that may", ask("GET /-/link", _ORIGIN, *_LINK), "401 on | 401 close", asgi="401 on | 401 close | 401 400 close | 401 stays"),
    Shape("a link by POST with a key", ask("POST /-/link", _KEY, *_LINK, "Content-Length: 0"), "400 on | 404 on | 405 on | 400 close | 404 close | 405 close", asgi="400 on | 400 close | 400 400 close | 400 stays | 404 on | 404 close | 404 400 close | 404 stays | 405 on | 405 close | 405 400 close | 405 stays"),
    Shape("a link by OPTIONS with a key", ask("OPTIONS /-/link", _KEY, _ORIGIN, *_LINK), "204 on | 204 close | 404 on | 404 close | 405 on | 405 close | 400 close", router="204 on | 204 close | 401 on | 401 close | 404 on | 405 on | 405 close", asgi="204 on | 204 close | 204 400 close | 204 stays | 404 on | 404 close | 404 400 close | 404 stays | 405 on | 405 close | 405 400 close | 405 stays"),
    Shape("metrics without a key", ask("GET /-/metrics"), _NONE),
    Shape("sessions without a key", ask("GET /-/sessions"), _NONE),
    Shape("the end of a session without a key", post("/delete", b"", b"X-Session-ID: " + SID), _NONE),
    Shape("a path in disguise without a key", ask("GET /health/../list_environments"), "401 on | 401 close | 404 on"),
    Shape("an encoded path in disguise without a key", ask("GET /%2d/health%2f..%2fmetrics"), "401 on | 401 close | 404 on"),
    Shape("a page of ours with a slash more, without a key", ask("GET /-//metrics"), "401 on | 401 close | 404 on"),
)  # fmt: skip
