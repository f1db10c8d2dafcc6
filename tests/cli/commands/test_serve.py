"""`ors serve`: what it prints, where it listens, how it logs, restarts and ends."""

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ors import Limits
from ors.client import ORS, Session, ToolCallError
from ors.errors import ToolFailed
from tests.support.commands import ORS as COMMAND
from tests.support.commands import PATIENCE, Running, run, running, variables
from tests.support.raw_http import Raw

pytestmark = pytest.mark.long

QUICK = """\
import asyncio
from ors import Environment, TextBlock, ToolOutput, tool

class Quick(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]
    @classmethod
    def list_tasks(cls, split):
        return [{}]
    def get_prompt(self):
        return [TextBlock(text="VERSION")]
    @tool
    async def hang(self) -> ToolOutput:
        "Hang."
        await asyncio.Event().wait()
"""
SLOW = QUICK.replace("return [{}]", "return [{'text': open('fifo').read()}]")
"""Lists its tasks when someone writes into the fifo."""


@contextmanager
def park_session(url: str, env: str = "park", split: str = "train") -> Iterator[Session]:
    with ORS(url) as client, client.environment(env).session(split=split, index=0) as session:
        yield session


def test_it_prints_environments_tools_counts_an_address_and_a_curl_line_that_works(park: str) -> None:
    with running("serve", park, "--port", "0") as server:
        url = server.url()
        assert server.line("^park")[0]
        curl = server.line("^Try: (curl .*)")[1]
        answer = subprocess.run(curl.split(), capture_output=True, check=True)
        assert "echo" in {tool["name"] for tool in json.loads(answer.stdout)["tools"]}
        with ORS(url) as client:
            assert client.environment("park").num_tasks("train") == 50
        done = server.stop()
    assert done.code == 0


def test_its_announcement_as_json_is_one_line(park: str) -> None:
    with running("serve", park, "--port", "0", "--json") as server:
        told = json.loads(server.line("^{.*}$")[0])
        assert told["environments"][0]["splits"] == {"train": 50, "odd": 2}
        assert Raw(told["url"]).get("/health").status == 200


def test_a_split_that_takes_long_to_list_holds_up_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    os.mkfifo(tmp_path / "fifo")
    with running("serve", "slow.py", "--port", "0", "--json", cwd=tmp_path) as server:
        told = json.loads(server.line("^{.*}$")[0])
        assert told["environments"][0]["splits"] == {"train": None}
        assert Raw(told["url"]).get("/health").status == 200
        (tmp_path / "fifo").write_text("listed")
        assert Raw(told["url"]).post("/quick/num_tasks", {"split": "train"}).json() == {"num_tasks": 1}
        assert server.stop().code == 0


def test_a_taken_port_is_one_line(park: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", park, "--port", str(port))
    assert done.code == 3
    why = "the port is in use; choose another --port, or 0 for a free one"
    assert done.err == f"Error: Cannot listen on 127.0.0.1:{port}: {why}\n"


def test_a_host_that_does_not_exist_is_one_line(park: str) -> None:
    done = run("serve", park, "--host", "no.such.host.invalid", "--insecure")
    assert done.code == 3
    assert done.err.startswith("Error: Cannot listen on no.such.host.invalid:8080: ")


def test_another_host_than_loopback_needs_a_key_or_the_word_insecure(park: str) -> None:
    done = run("serve", park, "--port", "0", "--host", "0.0.0.0")
    assert done.code == 2
    assert "anyone who can reach this machine" in done.err
    with running("serve", park, "--port", "0", "--host", "0.0.0.0", "--insecure") as server:
        assert server.line("needs no API key")
        curl = server.line("^Try: (curl .*)")[1]
        assert json.loads(subprocess.run(curl.split(), capture_output=True, check=True).stdout)["tools"]


def test_keys_come_from_a_variable_or_a_file_and_are_never_shown(park: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# who may\n\ncarol=hidden-three sessions=3\n")
    words = ("serve", park, "--port", "0", "--host", "0.0.0.0", "--api-key-file", str(tmp_path / "keys"))
    with running(*words, env={"ORS_API_KEYS": "hidden-one,bob=hidden-two private"}) as server:
        url = server.url().replace("0.0.0.0", "127.0.0.1")
        assert "submit" in server.line("^park.*")[0]
        assert server.line("API keys are sent unencrypted")
        curl = server.line("^Try: (curl .*)")[1]
        env = variables({"ORS_API_KEY": "hidden-two"})
        answer = subprocess.run(["sh", "-c", curl], env=env, capture_output=True, check=True)
        assert json.loads(answer.stdout)["tools"]
        assert run("list", url, env={"ORS_API_KEY": "hidden-three"}).code == 0
        refused = run("list", url, "--api-key", "hidden-wrong")
        assert refused.code == 2
        assert "ORS_API_KEY" in refused.err
        done = server.stop()
    assert "hidden" not in done.out + done.err + refused.err


def test_a_key_that_is_none_is_used_wrongly(park: str) -> None:
    done = run("serve", park, "--api-key", "=hidden")
    assert done.code == 2
    assert "NAME=SECRET" in done.err
    assert "hidden" not in done.err


OPTIONS = [field for field in dataclasses.fields(Limits) if field.metadata["is_option"]]


@pytest.mark.parametrize("field", OPTIONS, ids=lambda field: field.name)
def test_a_limit_is_an_option_with_its_help_and_its_default(field: "dataclasses.Field[object]") -> None:
    from click import Context

    from ors.cli.commands.serve import serve

    option = next(param for param in serve.params if param.name == field.name)
    assert f"--{field.name.replace('_', '-')}" in option.opts
    assert option.to_info_dict()["help"] == field.metadata["help"]
    assert option.type_cast_value(Context(serve), option.default) == field.default


def test_a_limit_is_kept(park: str) -> None:
    with (
        running("serve", park, "--port", "0", "--result-bytes", "10", "--body-bytes", "100") as server,
        park_session(server.url()) as session,
        pytest.raises(ToolFailed, match="10"),
    ):
        session.call_tool("special")
    assert run("serve", park, "--tool-seconds", "-1").code == 2
    assert run("serve", park, "--tool-seconds", "soon").code == 2


def test_what_clients_see_of_an_exception_is_an_option(park: str) -> None:
    with (
        running("serve", park, "--port", "0", "--return-errors", "none") as server,
        park_session(server.url()) as session,
    ):
        with pytest.raises(ToolFailed) as failed:
            session.call_tool("fail")
        with pytest.raises(ToolCallError, match="not today"):
            session.call_tool("refuse")
    assert "it broke" not in str(failed.value)


def test_the_log_is_json_lines_on_standard_error(park: str) -> None:
    with running("serve", park, "--port", "0", "--log-json") as server:
        with (
            ORS(server.url()) as client,
            client.environment("park").session(split="train", index=0) as session,
            pytest.raises(ToolFailed),
        ):
            session.call_tool("fail")
        lines = [json.loads(line) for line in server.stop().err.splitlines()]
    assert {line["logger"] for line in lines} == {"ors.server"}
    (error,) = (line for line in lines if line["level"] == "error")
    assert "it broke" in error["message"]


def test_the_log_level_is_an_option(park: str) -> None:
    with running("serve", park, "--port", "0", "--log-level", "error") as server:
        server.url()
        assert server.stop(signal.SIGINT).code == 0


def test_a_full_pipe_stops_neither_the_server_nor_its_end(park: str) -> None:
    reader = subprocess.Popen(
        [*COMMAND, "serve", park, "--port", "0"],
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(reader)
    with park_session(server.url()) as session:
        # Each failure logs over a kilobyte of traceback; a pipe holds 64, and nobody reads it.
        for _ in range(200):
            with pytest.raises(ToolFailed):
                session.call_tool("fail")
    reader.send_signal(signal.SIGTERM)
    assert reader.wait(PATIENCE) == 0
    reader.communicate()


def test_it_restarts_when_a_file_changes_and_tells_open_calls(tmp_path: Path) -> None:
    module = tmp_path / "quick.py"
    module.write_text(QUICK)
    with running(
        "serve", "quick.py", "--port", "0", "--reload", "--grace-seconds", "0.1", cwd=tmp_path
    ) as server:
        raw = Raw(server.url())
        with raw.opened(raw.session("quick", {"task_spec": {}}), "hang", env="quick") as call:
            module.write_text(QUICK.replace("VERSION", "after the change"))
            assert "shutting down" in call.rest().error()
        assert server.url() == f"http://{raw.host}:{raw.port}"
        with park_session(f"http://{raw.host}:{raw.port}", "quick") as session:
            (block,) = session.get_prompt()
        assert block.model_dump()["text"] == "after the change"
        assert server.stop().code == 0


def test_a_second_signal_ends_a_reloading_server_at_once(tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(QUICK)
    patience = ("--grace-seconds", "1000")
    with running("serve", "quick.py", "--port", "0", "--reload", *patience, cwd=tmp_path) as server:
        raw = Raw(server.url())
        with raw.opened(raw.session("quick"), "hang", env="quick"):
            server.process.send_signal(signal.SIGTERM)
            server.errors(r"shutting down \(waits up to \d+ s for running calls\)")
            assert server.stop().code == 0


PLACE = "Cannot import quick.py: SyntaxError: invalid syntax (quick.py:1)"


@pytest.mark.parametrize("where", [[], ["--host", "0.0.0.0", "--insecure"]], ids=["loopback", "open"])
def test_a_change_that_does_not_import_is_logged_and_the_next_one_is_tried(
    tmp_path: Path, where: list[str]
) -> None:
    module = tmp_path / "quick.py"
    module.write_text(QUICK)
    with running("serve", "quick.py", "--port", "0", "--reload", *where, cwd=tmp_path) as server:
        port = urlsplit(server.url()).port
        raw = Raw(f"http://127.0.0.1:{port}")
        module.write_text("x = = 1")
        assert server.errors(re.escape(PLACE))
        assert server.errors("The server has stopped")
        with pytest.raises(ConnectionRefusedError):
            raw.get("/list_environments")
        module.write_text(QUICK)
        assert server.errors("quick.py changed: restarting")
        assert urlsplit(server.url()).port == port
        assert raw.get("/list_environments").json() == ["quick"]


def test_a_reloaded_server_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(QUICK)
    with running("serve", "quick.py", "--port", "0", "--reload", cwd=tmp_path) as server:
        server.url()
        server.process.kill()
        # Both hold the pipes: these end when the last of them does.
        server.process.communicate(timeout=PATIENCE)
