"""Metrics of the sandboxes that environments open."""

import logging
from collections.abc import Iterator
from threading import Thread
from typing import ClassVar

import pytest

from ors import Server, TextBlock, ToolOutput, tool
from ors.sandbox import Pool, SandboxSpec
from tests.server.observe.test_metrics_and_log import samples
from tests.support import sandbox_environment
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until

WORDS = {
    "time": "while True: pass",
    "output": "while True: print('y' * 1000)",
    "memory": "import time; much = b'x' * 100 * 2**20; time.sleep(60)",
    "inodes": "import time; [open(str(n), 'w').close() for n in range(1000)]; time.sleep(60)",
}


class Workshop(sandbox_environment.Workshop):
    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec(backend="bwrap", memory=64 * 2**20, inodes=500)

    @tool
    async def run(self, limit: str) -> ToolOutput:
        """Hit a limit."""
        seconds = 0.3 if limit == "time" else 20.0
        result = await self.box.exec(["python3", "-c", WORDS[limit]], timeout=seconds)
        return ToolOutput(blocks=[TextBlock(text=str(result.limit))])


class Crowded(Workshop):
    sandbox = Pool(SandboxSpec(backend="bwrap"), limit=1, warm=0)


@pytest.fixture
def raw() -> Iterator[Raw]:
    with serving(Server([Workshop, Crowded])) as url:
        yield Raw(url)


def test_sandboxes_are_counted_with_the_limits_that_ended_their_programs(
    raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ors.server")
    assert samples(raw)["ors_sandboxes_open",] == 0
    sid = raw.session("workshop")
    raw.call(sid, "bash", {"command": "sleep 60", "timeout": 0.3}, env="workshop")
    for limit in WORDS:
        result = raw.call(sid, "run", {"limit": limit}, env="workshop").result()
        assert result["output"]["blocks"][0]["text"] == limit
    found = samples(raw)
    assert found["ors_sandboxes_open",] == 1
    kills = {key[1]: value for key, value in found.items() if key[0] == "ors_sandbox_kills_total"}
    assert kills["time"] == 2
    assert kills["output"] == 1
    assert kills["memory"] >= 1
    assert kills["inodes"] >= 1
    assert found["ors_sandbox_open_seconds_count",] == 1
    assert 0 < found["ors_sandbox_open_seconds_sum",] < 30
    assert "program in a sandbox killed (time)" in caplog.text
    raw.post("/delete", sid=sid)
    wait_until(lambda: samples(raw)["ors_sandboxes_open",] == 0)


def test_callers_that_wait_for_a_sandbox_of_a_pool_are_counted(raw: Raw) -> None:
    first = raw.session("crowded")
    raw.get("/crowded/prompt", sid=first)
    second = raw.session("crowded")
    waiting = Thread(target=raw.get, args=("/crowded/prompt",), kwargs={"sid": second})
    waiting.start()
    wait_until(lambda: samples(raw)["ors_sandboxes_waiting",] == 1)
    raw.post("/delete", sid=first)
    waiting.join(20)
    found = samples(raw)
    assert found["ors_sandboxes_waiting",] == 0
    assert found["ors_sandboxes_open",] == 1
