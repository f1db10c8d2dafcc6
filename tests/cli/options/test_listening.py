"""`ors serve`: who may call it, from where, and through what."""

import ssl
import urllib.request

import pytest

from ors.client import ORS
from tests.support import TLS
from tests.support.commands import run, running
from tests.support.raw_http import Raw

CERTIFICATE, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")
PAGES = ("https://app.example", "http://localhost:3000")


def test_pages_of_chosen_origins_may_call(park: str) -> None:
    origins = [word for page in PAGES for word in ("--cors-origin", page)]
    with running("serve", park, "--port", "0", *origins) as server:
        raw = Raw(server.line(r"Serving on (http://\S+)")[1])
        for page in PAGES:
            preflight = raw("OPTIONS", "/park/call", headers={"Origin": page})
            assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, page)
            tools = raw.get("/park/tools", headers={"Origin": page})
            assert (tools.status, tools.headers["access-control-allow-origin"]) == (200, page)
        foreign = raw.get("/park/tools", headers={"Origin": "https://other.example"})
        assert (foreign.status, foreign.headers["ors-reason"]) == (403, "origin")
        assert "access-control-allow-origin" not in foreign.headers


def test_without_the_flag_no_page_may_call(park: str) -> None:
    with running("serve", park, "--port", "0") as server:
        raw = Raw(server.line(r"Serving on (http://\S+)")[1])
        assert raw("OPTIONS", "/park/call", headers={"Origin": PAGES[0]}).status == 403


def test_a_certificate_makes_it_https(park: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("serve", park, "--port", "0", "--ssl-certfile", CERTIFICATE, "--ssl-keyfile", KEY) as server:
        url = server.line(r"Serving on (https://\S+)")[1]
        trusted = ssl.create_default_context(cafile=CERTIFICATE)
        assert urllib.request.urlopen(f"{url}/health", context=trusted).read() == b'{"status":"ok"}'
        monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
        with ORS(url) as client, client.environment("park").session(split="train", index=0) as session:
            assert session.call_tool("echo", {"text": "through TLS"}).reward == 0.25
        assert server.stop().code == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--ssl-keyfile", KEY), "--ssl-keyfile needs --ssl-certfile"),
        (("--ssl-certfile", KEY), "cannot be used"),
        (("--ssl-certfile", __file__, "--ssl-keyfile", KEY), "cannot be used"),
    ],
    ids=["a key alone", "no certificate", "no PEM"],
)
@pytest.mark.parametrize("command", ["serve", "route"])
def test_a_certificate_that_is_none_is_told_in_one_line(
    park: str, flags: tuple[str, ...], told: str, command: str
) -> None:
    words = [park] if command == "serve" else ["--to", "127.0.0.1:1"]
    done = run(command, *words, "--port", "0", *flags)
    assert done.code != 0
    assert told in done.err
    assert len(done.err.strip().splitlines()) == 1
