"""`ors serve --record`: the run that a server leaves, alone and with workers."""

import json
import signal
from pathlib import Path

import pytest

from ors.client import ORS
from ors.rollouts import Scored
from ors.rollouts.records import RunInfo, RunWriter, read_run
from tests.support.commands import run, running
from tests.support.raw_http import Raw

pytestmark = pytest.mark.long


def play(url: str, answer: int = 3, index: int = 0) -> None:
    with ORS(url) as client, client.environment("park").session(split="train", index=index) as session:
        session.get_prompt()
        session.call_tool("submit", {"answer": answer})


def test_a_server_records_its_sessions_and_says_where_and_how(park: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "first"
    with running("serve", park, "--port", "0", "--record", str(folder)) as server:
        url = server.url()
        assert server.line(r"Recording sessions to (\S+) \(reward: the sum of all steps\)")[1] == str(folder)
        play(url)
        ended = server.stop(signal.SIGTERM)
    assert ended.code == 0
    assert "1 episodes recorded" in ended.err
    info = json.loads((folder / "run.json").read_text())
    assert info["config"] == {"command": "serve", "targets": [park], "reward": "sum"}
    assert info["kind"] == "sessions"
    (record,) = read_run(folder).episodes()
    assert (record.outcome, record.reward, record.task.index) == (Scored(), 1.0, 0)
    assert len(record.hash or "") == 64
    assert info["environments"] == {"park": {"version": None, "hash": record.hash, "parameters": None}}


@pytest.mark.parametrize("words", [[], ["--record-private"], ["--record-private", "--workers", "2"]], ids=str)
def test_private_fields_are_recorded_by_choice(words: list[str], tmp_path: Path) -> None:
    quiz = str(Path(__file__).parents[2] / "support" / "eval_environments.py")
    with running("serve", quiz, "--port", "0", "--record", str(tmp_path), *words) as server:
        url = server.line(r"Serving on (http://\S+)")[1]
        with ORS(url) as client, client.environment("quiz").session(split="train", index=2) as session:
            session.get_prompt()
        server.stop(signal.SIGTERM)
    (record,) = read_run(tmp_path).episodes()
    private = {"answer": 14} if words else {}
    assert record.task.spec == {"split": "train", "number": 2, **private}


@pytest.mark.parametrize("words", [[], ["--workers", "2"]], ids=str)
def test_the_run_keeps_what_the_environment_declares_of_its_rewards(words: list[str], tmp_path: Path) -> None:
    graded = str(Path(__file__).parents[2] / "support" / "essay_environment.py:Graded")
    with running("serve", graded, "--port", "0", "--record", str(tmp_path), *words) as server:
        with ORS(server.url()) as client, client.environment("graded").session("train", 0) as session:
            session.call_tool("submit", {"correct": 1, "tidy": 0.5})
        server.stop(signal.SIGTERM)
    (entry,) = read_run(tmp_path).entries
    assert (entry.score, entry.range) == (1.5, (0.0, 3.0))


def test_a_choice_of_what_is_recorded_needs_a_record(park: str) -> None:
    done = run("serve", park, "--port", "0", "--record-private")
    assert (done.code, done.err.splitlines()[-1]) == (2, "Error: --record-private needs --record FOLDER")


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["alone", "two workers"])
def test_the_inspector_of_a_recording_server_shows_its_runs(
    park: str, tmp_path: Path, workers: list[str]
) -> None:
    with running("serve", park, "--port", "0", "--record", str(tmp_path / "run"), *workers) as server:
        url = server.url()
        play(url)
        raw = Raw(url)
        assert raw.get("/-/api/about").json()["runs"] is True
        (shown,) = raw.get("/-/api/runs").json()["runs"]
        assert shown["name"] == "run"


def test_a_server_goes_on_with_the_run_of_the_one_before(park: str, tmp_path: Path) -> None:
    for _ in range(2):
        with running("serve", park, "--port", "0", "--record", str(tmp_path)) as server:
            play(server.url())
            server.stop(signal.SIGTERM)
    assert len(read_run(tmp_path).entries) == 2


def test_workers_record_into_one_run(park: str, tmp_path: Path) -> None:
    with running("serve", park, "--port", "0", "--workers", "2", "--record", str(tmp_path)) as server:
        url = server.url()
        for index in range(20):
            play(url, index=index)
        ended = server.stop(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert sorted(record.task.index or 0 for record in read_run(tmp_path).episodes()) == list(range(20))
    assert len(list(tmp_path.glob("episodes*.jsonl"))) == 2


@pytest.mark.parametrize("flags", [[], ["--workers", "2"]], ids=["alone", "workers"])
def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(
    park: str, tmp_path: Path, flags: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    done = run("serve", park, "--port", "0", "--record", str(tmp_path / "file" / "run"), *flags)
    assert (done.code, done.err) == (
        3,
        f"Error: Cannot record to {tmp_path / 'file' / 'run'}: Not a directory\n",
    )


def test_a_folder_with_another_kind_of_run_is_refused(park: str, tmp_path: Path) -> None:
    RunWriter.create(tmp_path, RunInfo.gathered({})).close()
    done = run("serve", park, "--port", "0", "--record", str(tmp_path))
    assert done.code == 2
    assert (
        done.err == f"Error: {tmp_path} has a run of another kind: choose another folder to record sessions\n"
    )


def test_recording_is_refused_with_ray(park: str, tmp_path: Path) -> None:
    done = run("serve", park, "--ray", "--host", "127.0.0.1", "--record", str(tmp_path))
    assert (done.code, done.err) == (
        2,
        "Error: --record cannot be combined with --ray: each node has its own files\n",
    )
