"""The interface below /-/api/runs, without a browser."""

import hashlib
import json
import os
import signal
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ors import Server
from ors.inspector import RunsApi
from ors.rollouts import Failed, Outcome, TaskRef, Truncated, UserMessage
from ors.rollouts.records.writer import declare
from ors.types import ImageBlock, RewardSpec
from tests.support.commands import run as command
from tests.support.commands import running
from tests.support.environments import Lab
from tests.support.episode_records import LOST, episode
from tests.support.live_server import serving
from tests.support.raw_http import Answer, Raw
from tests.support.recorded_runs import called, many, said, talk, write_run

BROKEN = Failed("infrastructure", "opening", "Unavailable")


class Asking:
    """Questions about the runs of one server."""

    def __init__(self, raw: Raw, headers: Mapping[str, str] | None = None) -> None:
        self.raw = raw
        self.headers = headers or {}

    def __call__(self, what: str = "", **asked: object) -> Answer:
        return self.raw.get(f"/-/api/runs{what}?{urlencode(asked)}", headers=self.headers)

    def json(self, what: str = "", **asked: object) -> Any:
        answer = self(what, **asked)
        assert answer.status == 200, answer.body
        return answer.json()

    def tasks(self, **asked: object) -> list[str]:
        return [row["task"] for row in self.json("/episodes", run="run", **asked)["rows"]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asking]:
    """A server that shows the runs below the test's folder."""
    server = Server([Lab])
    server.show_runs(RunsApi(tmp_path))
    with serving(server) as url:
        yield Asking(Raw(url))


def test_pages_of_episodes_are_selected_by_the_server(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", many(250, seed=5))
    whole = ask.json("/episodes", run="run", limit=500)
    assert whole["found"] == len(whole["rows"]) == whole["run"]["episodes"] == 250
    page = ask.json("/episodes", run="run", offset=240, limit=100)
    assert page["rows"] == whole["rows"][240:]
    assert ask.json("/episodes", run="run", offset=999)["rows"] == []
    assert len(ask.json("/episodes", run="run", limit=10**9)["rows"]) == 250
    best = ask.json("/episodes", run="run", sort="-reward", outcome="scored", reward_from=0.5, calls_to=3)
    rewards = [row["reward"] for row in best["rows"]]
    assert rewards == sorted(rewards, reverse=True)
    assert min(rewards) >= 0.5
    assert {row["outcome"] for row in best["rows"]} == {"scored"}
    assert max(row["calls"] for row in best["rows"]) <= 3
    bars = best["histogram"]["bars"]
    scored = [row for row in whole["rows"] if row["outcome"] == "scored" and row["calls"] <= 3]
    assert sum(bar["counts"][0] for bar in bars) == len(scored)


def test_a_failure_is_filtered_by_who_failed_and_a_truncation_by_its_limit(
    ask: Asking, tmp_path: Path
) -> None:
    ends: list[Outcome | None] = [
        BROKEN,
        Failed("environment", "call", "ToolFailed"),
        Truncated("turns"),
        Truncated("tokens"),
        None,
    ]
    write_run(tmp_path / "run", [episode(n, None, outcome=outcome) for n, outcome in enumerate(ends)])
    assert ask.tasks(outcome="failed") == ["test/0", "test/1"]
    assert ask.tasks(outcome="failed environment") == ["test/1"]
    assert ask.tasks(outcome="truncated tokens") == ["test/3"]
    assert ask.tasks(outcome="trunc") == []


def test_tasks_are_sorted_by_number_and_found_by_words(ask: Asking, tmp_path: Path) -> None:
    other = episode(7, agent="Other:Model", task=TaskRef("maze", spec={"size": 3}))
    write_run(tmp_path / "run", [episode(10), episode(9), other])
    assert ask.tasks(sort="task")[:2] == ["test/9", "test/10"]
    assert ask.tasks(task="ADDER test/1") == ["test/10"]
    assert len(ask.tasks(task="other:model")) == 1
    assert ask.tasks(task=other.id, sort="task")[0].startswith("spec ")


def test_the_page_counts_episodes_that_were_given_up_as_its_run_says(ask: Asking, tmp_path: Path) -> None:
    ended = [episode(0, 1.0), episode(1, None), episode(2, None, outcome=Truncated("turns"))]
    write_run(tmp_path / "run", ended)
    write_run(tmp_path / "strict", ended, {"unscored_reward": -1, "truncated_reward": -3.0})
    rows = {row["name"]: row for row in ask.json("")["runs"]}
    assert {name: (row["mean"], row["unrewarded"]) for name, row in rows.items()} == {
        "run": (pytest.approx(1 / 3), 2),
        "strict": (-1.0, 2),
    }
    found = ask.json("/episodes", run="strict", sort="reward")
    assert [row["reward"] for row in found["rows"]] == [-3, -1, 1]
    assert [bar["from"] for bar in found["histogram"]["bars"]] == [-3, -1, 1]
    assert found["histogram"]["without"] == 0
    assert ask.json("/episodes", run="strict", reward_to="-2")["found"] == 1
    both = ask.json("/compare", a="run", b="strict", sort="task")
    assert [row["difference"] for row in both["rows"]] == [0, -1, -3]
    assert both["difference"] == pytest.approx(-4 / 3)


def test_episodes_without_a_reward_come_last_in_both_directions(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0, None, outcome=LOST), episode(1, -1.0), episode(2, 3.0)])
    assert ask.tasks(sort="reward") == ["test/1", "test/2", "test/0"]
    assert ask.tasks(sort="-reward") == ["test/2", "test/1", "test/0"]


def test_a_run_comes_with_its_findings(ask: Asking, tmp_path: Path) -> None:
    write_run(
        tmp_path / "run",
        [episode(n, None if n < 12 else 1.0, outcome=LOST if n < 12 else None) for n in range(40)],
    )
    lost, masked = ask.json("/episodes", run="run")["findings"]
    assert lost["text"].startswith("12 of 40 episodes (30.0%) failed: infrastructure")
    assert (lost["count"], len(lost["episodes"])) == (12, 10)
    assert lost["episodes"][0] == episode(0).id
    assert masked["kind"] == "masked"
    write_run(tmp_path / "clean", [episode(n, float(n % 2)) for n in range(40)])
    assert ask.json("/episodes", run="clean")["findings"] == []


def test_the_bars_hold_every_reward_once(ask: Asking, tmp_path: Path) -> None:
    rewards = [n / 7 for n in range(-50, 50)] + [7.0]
    write_run(tmp_path / "run", [episode(n, reward) for n, reward in enumerate(rewards)])
    bars = ask.json("/episodes", run="run")["histogram"]["bars"]
    assert len(bars) == 20
    assert sum(bar["counts"][0] for bar in bars) == len(rewards)
    for bar in bars:
        inside = ask.json("/episodes", run="run", reward_from=bar["least"], reward_to=bar["most"])
        assert inside["found"] == bar["counts"][0]


def test_the_bars_cover_the_declared_range(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(n, n / 100) for n in range(100)])
    declare(tmp_path / "run", {episode(0).task.environment: RewardSpec((-1.0, 4.0))})
    bars = ask.json("/episodes", run="run")["histogram"]["bars"]
    assert (bars[0]["from"], bars[-1]["to"]) == (-1.0, 4.0)
    assert sum(bar["counts"][0] for bar in bars) == 100
    assert ask.json("/episode", run="run", id=episode(0).id)["range"] == [-1.0, 4.0]


@pytest.mark.parametrize("scale", [1e-300, 1e150])
def test_the_bars_of_tiny_and_enormous_rewards_are_numbers(ask: Asking, tmp_path: Path, scale: float) -> None:
    write_run(tmp_path / "run", [episode(n, n * scale) for n in range(-50, 50)])
    bars = ask.json("/episodes", run="run")["histogram"]["bars"]
    assert sum(bar["counts"][0] for bar in bars) == 100
    assert all(isinstance(bar["from"], float) and isinstance(bar["to"], float) for bar in bars)


def test_rewards_that_differ_by_rounding_share_a_bar(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(n, reward) for n, reward in enumerate([0.3, 0.1 + 0.2, 1.0])])
    first, second = ask.json("/episodes", run="run")["histogram"]["bars"]
    assert (first["from"], first["to"], first["counts"]) == (0.3, 0.3, [2])
    inside = ask.json("/episodes", run="run", reward_from=first["least"], reward_to=first["most"])
    assert inside["found"] == 2
    assert second["counts"] == [1]


def test_what_has_not_changed_is_not_sent_again(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0)])
    version = ask.json("/episodes", run="run")["version"]
    assert ask.json("/episodes", run="run", known=version) == {"version": version, "unchanged": True}
    write_run(tmp_path / "run", [episode(1)])
    assert ask.json("/episodes", run="run", known=version)["found"] == 2


def test_a_run_that_was_replaced_is_read_again(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(n) for n in range(3)])
    assert ask.json("/episodes", run="run")["found"] == 3
    for others in ([8], [4, 5, 6, 7, 8]):
        (tmp_path / "run" / "episodes.jsonl").unlink()
        write_run(tmp_path / "run", [episode(n) for n in others])
        assert ask.tasks() == [f"test/{n}" for n in others]


def test_an_episode_is_sent_with_its_neighbours_and_in_parts(ask: Asking, tmp_path: Path) -> None:
    long = episode(1, 0.5, steps=300)
    write_run(tmp_path / "run", [episode(0, 0.25), long, episode(2, 0.75, sample=0)])
    told = ask.json("/episode", run="run", id=long.id, sort="reward")
    assert (told["position"], told["found"]) == (1, 3)
    assert told["previous"] == episode(0).id
    assert told["next"] == episode(2).id
    assert told["messages"] == 601
    first = told["episode"]["messages"]
    rest = ask.json("/episode", run="run", id=long.id, **{"from": len(first)})["episode"]["messages"]
    assert len(first) + len(rest) == 601
    assert rest[0]["role"] == "assistant"  # the results of a message's calls come with it
    elsewhere = ask.json("/episode", run="run", id=long.id, outcome="failed")
    assert (elsewhere["position"], elsewhere["next"]) == (None, None)


def test_blobs_are_sent_as_inert_bytes_and_nothing_else_is(ask: Asking, tmp_path: Path) -> None:
    content = bytes(range(256)) * 32
    image = ImageBlock(data=b64encode(content).decode(), mimeType="image/png")
    write_run(tmp_path / "run", [talk([UserMessage([image]), *called([])])])
    name = hashlib.sha256(content).hexdigest()
    answer = ask("/blob", run="run", blob=name)
    assert answer.body == content
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    secret = tmp_path / "secret"
    secret.write_text("secret")
    linked = "0" * 64
    (tmp_path / "run" / "blobs" / linked).symlink_to(secret)
    os.mkfifo(tmp_path / "run" / "blobs" / ("1" * 64))
    for wrong, status in [
        (linked, 404),
        ("1" * 64, 404),
        ("2" * 64, 404),
        ("../run.json", 400),
        ("..%2f..%2fsecret", 400),
        (name.upper(), 400),
        ("", 400),
    ]:
        assert ask("/blob", run="run", blob=wrong).status == status, wrong


@pytest.mark.parametrize("name", ["../outside", "run/..", ".", "/etc", "run/", "nothing", "", "run\x00"])
def test_only_runs_of_the_folder_can_be_named(ask: Asking, tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run", [episode(0)])
    for what in ("/episodes", "/episode", "/blob", "/compare"):
        answer = ask(what, run=name, a=name, b="run", id="x", blob="0" * 64)
        assert answer.status in (400, 404), what
        assert answer.detail


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "outside", [episode(0)])
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "link").symlink_to(tmp_path / "outside")
    server = Server([Lab])
    server.show_runs(RunsApi(tmp_path / "shown"))
    with serving(server) as url:
        assert Asking(Raw(url)).json()["runs"] == []


@pytest.mark.parametrize("linked", ["blobs", "blob", "episodes.jsonl", "run.json"])
def test_links_out_of_a_run_are_not_followed(ask: Asking, tmp_path: Path, linked: str) -> None:
    secret = b"x" * 70_000
    name = hashlib.sha256(secret).hexdigest()
    write_run(tmp_path / "run", [episode(0, messages=(UserMessage(said(secret.decode())),))])
    path = tmp_path / "run" / {"blob": f"blobs/{name}"}.get(linked, linked)
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    assert ask("/blob", run="run", blob=name).status == 404
    if "blob" in linked:
        path.unlink()
        (tmp_path / "outside").rename(path)
        assert ask("/blob", run="run", blob=name).body == secret
    else:
        assert "is a link" in ask.json()["runs"][0]["problem"]


@pytest.mark.parametrize("odd", ["run.json", "episodes.jsonl", "episodes-1.jsonl"])
def test_a_pipe_in_a_run_neither_hangs_the_page_nor_keeps_it_from_stopping(tmp_path: Path, odd: str) -> None:
    write_run(tmp_path / "fine", [episode(0)])
    write_run(tmp_path / "odd", [episode(0)])
    (tmp_path / "odd" / odd).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "odd" / odd)
    with running("view", str(tmp_path)) as viewing:
        url, _, token = viewing.line(r"on (http://\S+)")[1].partition("/-/?token=")
        ask = Asking(Raw(url), {"ors-inspect-token": token})
        fine, problem = ask.json()["runs"]
        assert fine["episodes"] == 1
        assert "is not a regular file" in problem["problem"]
        assert ask("/episodes", run="odd").status == 404
        assert viewing.stop(signal.SIGTERM).code == 0


@pytest.mark.parametrize("words", ["", "\\u0041", "\\ud800"])
@pytest.mark.parametrize("depth", [150, 230, 900])
def test_a_deeply_nested_episode_is_shown_or_refused_in_words(
    ask: Asking, tmp_path: Path, depth: int, words: str
) -> None:
    write_run(tmp_path / "run", [episode(0)])
    file = tmp_path / "run" / "episodes.jsonl"
    deep = '{"a":' * depth + f'"{words}"' + "}" * depth
    changed = file.read_text().replace('"input":{"answer":0}', f'"input":{deep}')
    assert deep in changed
    file.write_text(changed)
    answer = ask("/episode", run="run", id=episode(0).id)
    if depth < 200:
        assert answer.status == 200
    else:
        assert answer.status == 404
        assert "nested too deeply" in answer.detail


@pytest.mark.parametrize(
    "asked", [{"sort": "id"}, {"reward_from": "much"}, {"offset": "-1"}, {"limit": "x"}, {"calls_to": "1e"}]
)
def test_a_query_that_makes_no_sense_is_refused_in_words(
    ask: Asking, tmp_path: Path, asked: dict[str, str]
) -> None:
    write_run(tmp_path / "run", [episode(0)])
    answer = ask("/episodes", run="run", **asked)
    assert answer.status == 400
    assert "expected" in answer.detail


def test_a_broken_run_does_not_hide_the_others(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "fine", [episode(0)])
    write_run(tmp_path / "newer", [episode(0)])
    line = json.loads((tmp_path / "newer" / "episodes.jsonl").read_text())
    (tmp_path / "newer" / "episodes.jsonl").write_text(json.dumps({**line, "schema": 99}) + "\n")
    write_run(tmp_path / "torn", [episode(0), episode(1)])
    with (tmp_path / "torn" / "episodes.jsonl").open("a") as file:
        file.write('{"schema": 1, "id"\n{"schema": 1, "half of a li')
    write_run(tmp_path / "vast", [episode(0, 1e308), episode(1, 1e308)])
    fine, newer, torn, vast = ask.json()["runs"]
    assert fine["episodes"] == 1
    assert "update ors" in newer["problem"]
    assert (torn["episodes"], torn["unreadable"]) == (2, 1)
    assert vast["episodes"] == 2
    assert ask("/episodes", run="newer").status == 404
    assert ask("/episodes", run="vast").status == 200


def test_messages_that_are_no_messages_are_refused_in_words(ask: Asking, tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0)])
    file = tmp_path / "run" / "episodes.jsonl"
    head, _, _ = file.read_text().partition(',"messages":[')
    for messages in ("5", '{"role":"user"},null', "[" * 100_000):
        file.write_text(f'{head},"messages":[{messages}]}}\n')
        ask.json()
        answer = ask("/episode", run="run", id=episode(0).id)
        assert answer.status == 404
        assert answer.detail.startswith("The line of this episode is broken: ")


def test_two_runs_are_compared_over_their_common_tasks(ask: Asking, tmp_path: Path) -> None:
    write_run(
        tmp_path / "a", [episode(0, 0.0), episode(1, 1.0), episode(2, 0.5), episode(3, None, outcome=BROKEN)]
    )
    write_run(
        tmp_path / "b", [episode(0, 1.0), episode(1, 0.5), episode(2, 0.5), episode(3, 1.0), episode(4)]
    )
    told = ask.json("/compare", a="a", b="b")
    assert [row["task"] for row in told["rows"]] == ["test/0", "test/2", "test/1", "test/3", "test/4"]
    assert [row["difference"] for row in told["rows"]] == [1.0, 0.0, -0.5, None, None]
    assert told["difference"] == pytest.approx(0.5 / 3)
    assert (told["better"], told["worse"], told["same"], told["tasks"]) == (1, 1, 1, 5)
    assert told["rows"][4]["a"] == {"id": None, "count": 0, "mean": None}
    assert told["histogram"]["bars"][-1]["counts"] == [1, 3]
    alone = ask.json("/compare", a="a", b="b", shown="alone", sort="task")
    assert [row["task"] for row in alone["rows"]] == ["test/3", "test/4"]
    assert ask.json("/compare", a="a", b="b", known=told["version"])["unchanged"]
    assert ask("/compare", a="a", b="b", shown="most").status == 400


def test_with_several_keys_only_private_ones_see_the_records_of_all(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0)])
    server = Server([Lab], api_keys=["one=secret-1", "two=secret-2 private"])
    server.show_runs(RunsApi(tmp_path))
    with serving(server) as url:
        raw = Raw(url)
        assert Asking(raw)().status == 401
        for secret, status in [("secret-1", 403), ("secret-2", 200)]:
            key = {"X-API-Key": secret}
            assert Asking(raw, key)().status == status
            assert raw.get("/-/api/about", headers=key).json()["runs"] is (status == 200)
    only = Server([Lab], api_keys=["secret"])
    only.show_runs(RunsApi(tmp_path))
    with serving(only) as url:
        assert Asking(Raw(url), {"X-API-Key": "secret"})().status == 200


def test_a_server_without_records_has_no_such_interface(alone: Raw, tmp_path: Path) -> None:
    assert alone.get("/-/api/about").json()["runs"] is False
    assert Asking(alone)().status == 404
    server = Server([Lab], inspector=False)
    server.show_runs(RunsApi(tmp_path))
    with serving(server) as url:
        assert Asking(Raw(url))().status == 404


def test_the_command_needs_its_token_and_answers_no_other_host_or_origin(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0)])
    with running("view", str(tmp_path)) as viewing:
        address = viewing.line(r"on (http://\S+)")[1]
        url, _, token = address.partition("/-/?token=")
        raw = Raw(url)
        mine = {"ors-inspect-token": token}
        assert Asking(raw, mine).json()["runs"][0]["name"] == "run"
        refused = Asking(raw)()
        assert refused.status == 403
        assert "`ors view`" in refused.detail
        for foreign in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert Asking(raw, {**mine, **foreign})().status == 403
        assert raw("POST", "/-/api/runs", headers=mine).status == 405
        assert raw("DELETE", "/-/api/runs", headers=mine).status == 405
        assert raw.get("/list_environments", headers=mine).status == 404
        assert "default-src 'none'" in raw.get("/-/").headers["content-security-policy"]
        viewing.stop()


def test_the_command_shows_a_single_run_and_refuses_what_is_no_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [episode(0)])
    with running("view", str(tmp_path / "run")) as viewing:
        url, _, token = viewing.line(r"on (http://\S+)")[1].partition("/-/?token=")
        ask = Asking(Raw(url), {"ors-inspect-token": token})
        assert ask.json()["runs"][0]["name"] == "run"
        assert ask.tasks() == ["test/0"]
    missing = command("view", str(tmp_path / "missing"))
    assert missing.code == 2
    assert "does not exist" in missing.err
