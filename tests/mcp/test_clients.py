"""Real MCP clients, of both eras, play a session."""

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ors import Server
from ors.client import ORS
from ors.mcp import OVER
from tests.support.live_server import serving
from tests.support.mcp_environment import ANSWER, REWARD, SECRET, STEP_REWARD, Vault
from tests.support.recording_proxy import recording
from tests.support.side_venvs import FASTMCP, SCRIPTS, environ

PLAY = SCRIPTS / "mcp_client.py"
VERSIONS = {
    "handshake": "2025-11-25",
    "fastmcp-handshake": "2025-11-25",
    "high-level": "2026-07-28",
    "fastmcp": "2026-07-28",
}


def played(client: str, url: str, folder: Path) -> dict[str, Any]:
    command = [FASTMCP.python(), str(PLAY), client, url, str(folder / "go")]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("client", VERSIONS)
def test_an_mcp_client_plays_an_episode(client: str, tmp_path: Path) -> None:
    keyed = Server([Vault], api_keys=["owner=s3cret"])
    with (
        serving(keyed) as server,
        recording(server) as (url, sent),
        ORS(server, "s3cret") as ors,
        ors.environment("vault").session(split="train", index=0) as session,
    ):
        found = played(client, url + urlsplit(session.mcp_url()).path, tmp_path)
        score, sid = session.score(), session.sid or ""
    assert found["version"] == VERSIONS[client]
    assert found["instructions"] == "Open the vault.\n[image of type image/png]"
    assert found["task"] == ["text", "image"]
    assert "submit" in found["tools"]
    assert max(map(len, found["tools"])) <= 50
    assert found["hint"] == {"error": False, "content": ["Look for it."], "structured": None}
    assert found["refuse"] == {"error": True, "content": ["Not like that."], "structured": None}
    assert found["fail"] == {
        "error": True,
        "content": ["Tool execution failed: out of order"],
        "structured": None,
    }
    assert found["invalid"]["error"]
    assert found["long_name"]["content"] == ["again"]
    assert found["task_tool"]["content"] == ["here"]
    assert found["large"]["content"] == ["drawn", ["image", 3_000_000]]
    assert found["slow"]["content"] == ["drawn", ["image", 4]]
    assert found["signs"] > 0
    assert found["slow_and_large"]["content"][1] == "[image left out]"
    assert found["slow_and_large"]["content"][2].startswith("[Cut: ")
    assert found["unknown"].startswith("-32602 Unknown tool 'nope'")
    assert found["submit"]["content"] == ["Noted.", OVER]
    assert found["after"] == {
        "error": True,
        "content": ["'hint' was not run: the episode has finished"],
        "structured": None,
    }
    assert (score.rewards, score.finished, score.failed) == ([STEP_REWARD, REWARD], True, False)
    for hidden in (str(REWARD), str(STEP_REWARD), ANSWER, SECRET, sid, "s3cret", "reward"):
        assert hidden.encode() not in sent
    assert b"Noted." in sent
