"""Configurations with which HAProxy and nginx route like `ors route`: by the slot in the session id."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ors import _protocol

STREAM_SECONDS = 3600
"""Longest silence on a connection. Streams ping, so a call may run for longer."""


def haproxy(servers: Mapping[int, str], listen: str) -> str:
    """Returns a configuration of HAProxy (2.4 or newer) for servers by slot."""
    header = _protocol.SESSION_ID.lower()
    rule = "    use_backend slot_{0} if {{ var(txn.sid) -m reg ^{0:04x}.{{4}}-.{{4}}-8 }}"
    rules = "\n".join(rule.format(slot) for slot in servers)
    backends = "\n".join(
        f"\nbackend slot_{slot}\n    server s{slot} {_address(url)} check inter 1s fall 2 rise 1"
        for slot, url in servers.items()
    )
    others = "\n".join(
        f"    server s{slot} {_address(url)} track slot_{slot}/s{slot}" for slot, url in servers.items()
    )
    return f"""\
# Routes by the first characters of {_protocol.SESSION_ID}, which name the server (its slot).
defaults
    mode http
    option http-no-delay            # events go out as they come
    option http-keep-alive
    option httpchk GET {_protocol.HEALTH.path()}
    no option http-buffer-request
    timeout connect 2s
    timeout client {STREAM_SECONDS}s
    timeout server {STREAM_SECONDS}s
    retries 0                       # a call is never sent twice
    http-reuse safe

frontend ors
    bind {listen}
    http-request set-var(txn.sid) req.hdr({header})
{rules}
    default_backend any
{backends}

backend any                         # no session yet, or an id that its client made: by a hash of it
    balance hdr({header})
    hash-type consistent
{others}
"""


def nginx(servers: Mapping[int, str], listen: str) -> str:
    """Returns a configuration of nginx (1.18 or newer) for servers by slot, to include within `http`."""
    variable = "$http_" + _protocol.SESSION_ID.lower().replace("-", "_")
    routes = "\n".join(f'    "~^{slot:04x}.{{4}}-.{{4}}-8" ors_slot_{slot};' for slot in servers)
    return f"""\
# Routes by the first characters of {_protocol.SESSION_ID}, which name the server (its slot).
map {variable} $ors_server {{
{routes}
    default ors_any;
}}
# No session yet: any server. An id that its client made: by a hash of it.
map {variable} $ors_key {{
    "" $request_id;
    default {variable};
}}
{_upstreams(servers)}
server {{
    listen {listen.removeprefix("*:")};
    client_max_body_size 0;             # the servers have a limit of their own
    location / {{
        proxy_pass http://$ors_server;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_buffering off;            # events go out as they come
        proxy_request_buffering off;
        proxy_next_upstream off;        # a call is never sent twice
        proxy_connect_timeout 2s;
        proxy_read_timeout {STREAM_SECONDS}s;
        proxy_send_timeout {STREAM_SECONDS}s;
    }}
}}
"""


def _upstreams(servers: Mapping[int, str]) -> str:
    each = [
        f"upstream ors_slot_{slot} {{\n    server {_address(url)} max_fails=0;\n    keepalive 64;\n}}"
        for slot, url in servers.items()
    ]
    every = "\n".join(f"    server {_address(url)} max_fails=1 fail_timeout=1s;" for url in servers.values())
    return "\n".join(
        [*each, f"upstream ors_any {{\n    hash $ors_key consistent;\n{every}\n    keepalive 64;\n}}"]
    )


def _address(url: str) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or 80}"
