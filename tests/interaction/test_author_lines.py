"""The author's line that raised: shown in commands on a TARGET, and never to anybody elsewhere."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ors import Server, ToolOutput, tool
from ors.cluster.servers import LinkedServer
from tests.attack.link import UPGRADE
from tests.support import SUPPORT
from tests.support.commands import refused, run
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

PARK = SUPPORT / "cli_environments.py"
TARGET = f"{PARK}:Park"
LINE = next(
    n for n, line in enumerate(PARK.read_text().splitlines(), 1) if 'RuntimeError("it broke")' in line
)
SHOWN = f'line {LINE}, in fail\n    raise RuntimeError("it broke")'


class Telling(Lab):
    @tool
    def tell(self) -> ToolOutput:
        """Raises with a secret on its line."""
        raise ValueError("open-sesame")


@pytest.fixture(scope="module")
def telling() -> Iterator[Raw]:
    with serving(Server([Telling], return_errors="line", inspector=True)) as url:
        yield Raw(url)


def test_a_call_of_a_target_shows_the_line_that_raised(tmp_path: Path) -> None:
    done = run("call", TARGET, "fail", cwd=tmp_path)
    assert done.code == 1
    assert done.err == f'Error: Tool execution failed: it broke\n  File "{PARK}", {SHOWN}\n'


def test_the_whole_traceback_is_shown_on_demand(tmp_path: Path) -> None:
    done = run("play", TARGET, "--traceback", cwd=tmp_path, stdin="fail\n")
    assert "Failed: Tool execution failed: Traceback (most recent call last):" in done.out
    assert SHOWN in done.out
    assert "Traceback" not in run("play", TARGET, cwd=tmp_path, stdin="fail\n").out


def test_findings_show_the_line_that_raised(tmp_path: Path) -> None:
    done = run("test", TARGET, "--episodes", "20", "--limit", "1", "--repeat", "1", cwd=tmp_path)
    indented = SHOWN.replace("\n", "\n    ")
    assert (
        "✗ raises: fail raised for an input that fits its schema: Tool execution failed: it broke" in done.out
    )
    assert f'      File "{PARK}", {indented}\n' in done.out


@pytest.mark.parametrize("words", [["call", "fail"], ["play"], ["test"]], ids=lambda words: words[0])
def test_a_server_is_not_asked_for_a_traceback(raw: Raw, words: list[str]) -> None:
    done = refused(words[0], raw.url, *words[1:], "--traceback")
    assert (done.code, "--traceback needs a TARGET" in done.err) == (2, True)


# ── Servers ──────────────────────────────────────────────────────────────────────────────────────


def test_a_server_tells_nobody_its_source_unless_it_was_told_to(raw: Raw, telling: Raw) -> None:
    def told(server: Raw, env: str) -> str:
        return str(server.call(server.session(env), "boom", {"text": "kaboom"}, env=env).error())

    assert told(raw, "lab") == "Tool execution failed: kaboom"
    assert told(telling, "telling").startswith('Tool execution failed: kaboom\n  File "')


def test_secrets_are_masked_in_the_line_too(telling: Raw) -> None:
    sid = "with-a-secret"
    body = {"env_name": "telling", "task_spec": {}, "secrets": {"word": "open-sesame"}}
    assert telling.post("/create", body, sid=sid).status == 200
    assert 'ValueError("***")' in telling.call(sid, "tell", env="telling").error()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto"])
def test_requests_of_a_proxy_are_refused_by_a_server_that_shows_its_source(telling: Raw, header: str) -> None:
    for _ in range(2):  # also if the name has passed before
        assert telling.get("/list_environments", headers={header: "198.51.100.7"}).status == 403
        assert telling.get("/list_environments").status == 200


def test_only_names_of_this_machine_lead_to_it(telling: Raw) -> None:
    assert telling.get("/list_environments", headers={"Host": "trainer.example"}).status == 403


def test_no_router_can_link_to_it(raw: Raw, telling: Raw) -> None:
    def answered(server: Raw) -> bytes:
        with socket.create_connection((server.host, server.port), timeout=20) as connection:
            connection.sendall(UPGRADE)
            return connection.recv(12)

    assert (answered(raw), answered(telling)) == (b"HTTP/1.1 101", b"HTTP/1.1 404")


@pytest.mark.parametrize("where", [{"host": "0.0.0.0"}, {"insecure": True}])
def test_it_listens_on_loopback_alone(where: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exposes source code"):
        Server([Lab], "line", api_keys=["k" * 32]).runner(port=0, **where)
    with pytest.raises(ValueError, match="cannot be used with peers"):
        LinkedServer(Server([Lab], "line"), "127.0.0.1", 0)


@pytest.mark.parametrize("words", [["--host", "0.0.0.0", "--insecure"], ["--workers", "2"], ["--insecure"]])
def test_the_command_says_where_it_may_be_used(words: list[str]) -> None:
    done = refused("serve", TARGET, "--port", "0", "--return-errors", "line", *words)
    assert (done.code, "--return-errors line exposes your source code" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("client", "status"), [(("127.0.0.1", 9), 200), (("198.51.100.7", 9), 403), (None, 403)]
)
async def test_in_another_asgi_server_the_address_of_the_client_counts(client: Any, status: int) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""} if not sent else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/list_environments", "headers": [], "client": client}
    await Server([Lab], "line").app(scope, receive, send)
    assert sent[0]["status"] == status
