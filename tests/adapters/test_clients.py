"""The clients of adapters."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from ors import Server
from ors.adapters import serve
from ors.adapters.training import OPTIONS, shared_client, shared_sync_client
from ors.client import ORS
from tests.support.live_server import serving
from tests.support.parameters import SUMS
from tests.support.training_environment import Hunt

URL = "http://127.0.0.1:9"


def test_all_sync_code_of_a_process_shares_a_client() -> None:
    assert shared_sync_client(URL) is shared_sync_client(URL)
    assert isinstance(shared_sync_client(URL), ORS)


async def test_sessions_keep_no_messages_that_nobody_reads() -> None:
    session = shared_client(URL).environment("any").session(split="train", index=0)
    with pytest.raises(RuntimeError, match="keep_messages=False"):
        await session.messages("openai")


def test_nor_do_those_of_sync_code() -> None:
    session = shared_sync_client(URL).environment("any").session(split="train", index=0)
    with pytest.raises(RuntimeError, match="keep_messages=False"):
        session.messages("openai")


class Kept(Hunt):
    """Says when its session has ended."""

    ended: ClassVar[threading.Event] = threading.Event()

    def teardown(self) -> None:
        super().teardown()
        self.ended.set()


@pytest.fixture
def url() -> Iterator[str]:
    Kept.ended.clear()
    with serving(Server([Kept])) as url:
        yield url


TRL = """
environments = TRLEnvironments(ORS(url).environment("kept"), reward="last")
env = environments()
env.reset(split="train", index=0)
print("open", flush=True)
signal.pause()
"""
SYNC = """
env = shared_sync_client(url).environment("kept")
episode = Training.of({"reward": "last"}).begin(lambda: env.session(split="train", index=0))
print("open", flush=True)
signal.pause()
"""
ASYNC = """
async def main():
    async with shared_client(url).environment("kept").session(split="train", index=0) as session:
        await session.get_prompt()  # a session that is deleted before its setup began has no teardown
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
IMPORTS = """
import asyncio, signal, sys
from ors.adapters.training import shared_client, shared_sync_client
from ors.adapters.training import Training
from ors.adapters.trl import TRLEnvironments
from ors.client import ORS
url = sys.argv[1]
"""


@pytest.mark.parametrize("code", [TRL, SYNC, ASYNC], ids=["trl", "sync", "async"])
def test_a_trainer_that_gets_sigterm_closes_its_sessions(url: str, code: str) -> None:
    command = [sys.executable, "-c", IMPORTS + code, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "open\n"
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(30) == 128 + signal.SIGTERM
    assert Kept.ended.wait(30)


def test_a_handler_of_sigterm_that_is_not_ours_stays(url: str) -> None:
    def handler(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, handler)
    try:
        shared_sync_client(url)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sessions_of_adapters_do_not_outlive_a_killed_trainer_by_much() -> None:
    assert OPTIONS.idle_seconds == 120


def test_a_server_is_started_once_with_parameters_and_keys_stay(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORS_API_KEY", "kept")
    config = {"difficulty": 5, "words": ["a"], "label": "5"}
    with ORS(serve(SUMS, config)) as client:
        told = client.environment("sums").description()
        assert told is not None
        assert told["parameters"]["values"] == {**config, "level": 1}
    assert serve(SUMS, config) == serve(SUMS, config) != serve(SUMS)
    assert os.environ["ORS_API_KEY"] == "kept"
    with pytest.raises(ValueError, match=r"cannot be served with difficulty=0"):
        serve(SUMS, {"difficulty": 0})
    assert "Input should be greater than or equal to 1" in capfd.readouterr().err
