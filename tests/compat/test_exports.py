"""Exports of runs, read back by the packages that they are for."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    SystemMessage,
    ToolMessage,
    Truncated,
    Usage,
    UserMessage,
)
from ors.rollouts.records import OUTCOMES, RunInfo, RunWriter, export_run, read_run
from ors.types import ImageBlock, TextBlock
from tests.support.episode_records import LOST, episode
from tests.support.side_venvs import DATASETS, HARBOR, SCRIPTS, Package, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
PNG = "iVBORw0KGgo="


def with_images() -> EpisodeRecord:
    image = ImageBlock(data=PNG, mimeType="image/png")
    calls = (ToolInvocation("look", {}), ToolInvocation("submit", {"answer": 4}, "b"))
    return replace(
        episode(7, 0.5),
        messages=(
            SystemMessage("Be brief."),
            UserMessage([TextBlock(text="Look:"), image]),
            AgentMessage("Hm.", calls, "thoughts", usage=Usage(10, 2, 5, 1, 0.25)),
            ToolMessage(None, "look", [image]),
            ToolMessage("b", "submit", [TextBlock(text="Half.")], reward=0.5),
            AgentMessage("Done."),
            ToolMessage(None, "answer", [TextBlock(text="ok")], finished=True),
        ),
    )


def exported(folder: Path, format: Any, out: Path, *records: EpisodeRecord) -> Path:
    with RunWriter.create(folder, RunInfo.gathered({})) as writer:
        for record in records:
            writer.append(record)
    export_run(read_run(folder), format, out, outcomes=OUTCOMES)
    return out


def read_by(package: Package, script: str, *words: str, **more: str) -> Any:
    command = [package.python(), str(SCRIPTS / script), *words]
    done = subprocess.run(command, env=environ(**more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.xdist_group("compat")
def test_harbor_reads_our_trajectories(tmp_path: Path) -> None:
    records = [
        episode(0, 1.0, steps=3),
        episode(1, None, outcome=LOST),
        episode(2, 0.0, outcome=Truncated("turns")),
    ]
    out = exported(tmp_path / "run", "atif", tmp_path / "out", *records, with_images())
    found = read_by(HARBOR, "read_trajectories.py", str(out))
    assert [each["errors"] for each in found] == [[]] * 4
    assert [each["same"] for each in found] == [True] * 4
    assert {each["version"] for each in found} == {"ATIF-v1.8"}
    assert [each["reward"] for each in found] == [1.0, None, 0.0, 0.5]
    assert found[0]["sources"] == ["user", "agent", "agent", "agent"]
    assert [each["images"] for each in found] == [False, False, False, True]
    assert found[3]["sources"] == ["system", "user", "agent", "agent"]
    assert found[3]["calls"] == ["look", "submit"]


@pytest.mark.xdist_group("compat")
def test_harbor_refuses_a_trajectory_that_is_not_one(tmp_path: Path) -> None:
    out = exported(tmp_path / "run", "atif", tmp_path / "out", episode(0))
    (path,) = out.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "reward": 1.0}))
    (found,) = read_by(HARBOR, "read_trajectories.py", str(out))
    assert "unexpected field" in found["errors"][0]


@pytest.mark.xdist_group("compat")
@pytest.mark.parametrize("images", [False, True])
def test_datasets_reads_our_messages(images: bool, tmp_path: Path) -> None:
    records = [episode(0, 1.0, steps=3), episode(1, 0.0), *([with_images()] if images else [])]
    out = exported(tmp_path / "run", "openai", tmp_path / "sft.jsonl", *records)
    offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    rows = read_by(DATASETS, "read_dataset.py", str(out), str(tmp_path / "cache"), **offline)
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(records)
    assert [row["messages"][0]["role"] for row in rows] == [row["messages"][0]["role"] for row in written]
    assert without_none(rows) == without_none(written)


def without_none(value: Any) -> Any:
    """The value without keys that are None: a table has every key in every row."""
    if isinstance(value, dict):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    return [without_none(each) for each in value] if isinstance(value, list) else value
