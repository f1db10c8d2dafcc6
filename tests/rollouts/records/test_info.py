"""run.json: configuration, versions, git state, and no secrets."""

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ors import __version__
from ors.rollouts.records import RunInfo, RunWriter, read_run
from ors.rollouts.records.info import HIDDEN, redacted


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_a_run_says_what_it_was(tmp_path: Path) -> None:
    config = {"model": "openai:gpt-5", "limits": {"tokens": 4096, "turns": 10}, "out": Path("runs/1")}
    RunWriter.create(tmp_path, RunInfo.gathered(config)).close()
    info = read_run(tmp_path).info
    assert info.config == {**config, "out": "runs/1"}
    assert info.versions == {"ors": __version__, "python": platform.python_version()}
    assert (info.git, info.kind, info.schema) == (None, "rollouts", 1)
    assert info.created > 1_700_000_000


def test_the_git_state_of_the_target_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "adder.py"
    target.write_text("a = 1\n")
    assert RunInfo.gathered({}, target=target).git is None
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    state = RunInfo.gathered({}, target=target).git
    assert state is not None
    assert (len(state.commit), state.branch, state.changed) == (40, "main", False)
    target.write_text("a = 2\n")
    git(tmp_path, "checkout", "--detach")
    state = RunInfo.gathered({}, target=tmp_path).git
    assert state is not None
    assert (state.branch, state.changed) == (None, True)
    RunWriter.create(tmp_path / "run", RunInfo.gathered({}, target=target)).close()
    assert read_run(tmp_path / "run").info.git == state


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": "short"},
        {"api-key": "short"},
        {"OPENAI_API_KEY": "short"},
        {"secret": [["TOKEN", "short"]]},
        {"secrets": {"a": "short"}},
        {"password": 1234},
        {"headers": {"Authorization": "short"}},
        {"hf_token": "short"},
        {"base_url": "https://user:short@host/v1"},
        ["https://short@host/v1"],
    ],
)
def test_what_is_named_like_a_secret_is_hidden(value: Any) -> None:
    text = json.dumps(redacted(value))
    assert HIDDEN in text
    assert "short" not in text
    assert "1234" not in text


@pytest.mark.parametrize(
    "value",
    [
        {"model": "openai:gpt-5-mini-2026-01-01", "tokens": 4096, "max_tokens": 10, "seed": 0, "key": None},
        {"settings": ["answer_key=B", "data_hash=0123456789abcdef0123456789abcdef"]},
        {"base_url": "http://127.0.0.1:8000/v1", "target": "examples/math_qa.py:MathQA", "api_key": ""},
        {"model": "anthropic:claude-sonnet-4-20250514", "nested": {"list": [1, 2.5, True, None]}},
        "accounts/fireworks/models/qwen3-235b-a22b-instruct-2507",
    ],
)
def test_what_is_not_named_like_a_secret_stays(value: Any) -> None:
    assert redacted(value) == value
