"""`ors replay`: an environment's regression test."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from ors import Environment, Server, tool
from ors.client import ORS, ToolInvocation
from ors.errors import ServerFailed, ToolCallError, ToolFailed
from ors.rollouts import AgentMessage, EpisodeRecord, Failed, ToolMessage
from ors.rollouts.records import RunInfo, RunWriter, read_run
from ors.types import TextBlock
from tests.support import SUPPORT
from tests.support.cli_environments import Park
from tests.support.commands import refused, run
from tests.support.eval_environments import Quiz
from tests.support.live_server import serving
from tests.support.recorded import recording

pytestmark = pytest.mark.long

SHOP = '''\
from ors import Environment, TextBlock, ToolError, ToolOutput, terminal, tool

class Shop(Environment):
    @classmethod
    def list_splits(cls):
        return ["train", "test"]
    @classmethod
    def list_tasks(cls, split):
        return [{"price": price} for price in (1, 2, 3)]
    def get_prompt(self):
        return [TextBlock(text="Pay the price.")]
    @tool
    def ask(self) -> ToolOutput:
        """Ask for the price."""
        return ToolOutput(blocks=[TextBlock(text=str(self.task_spec["price"]))], reward=0.0)
    @tool
    def pay(self, coins: int) -> ToolOutput:
        """Pay."""
        if coins < 0:
            raise ToolError("coins must not be negative")
        if coins > 99:
            raise RuntimeError("the till is full")
        done = coins >= self.task_spec["price"]
        return ToolOutput(blocks=[TextBlock(text="thanks")], reward=float(done), finished=done)
    @terminal
    @tool
    def leave(self, message: str) -> ToolOutput:
        """Leave."""
        return ToolOutput(blocks=[], reward=0.5, finished=True)
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The file of an environment."""
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


@pytest.fixture
def recorded(shop: Path, tmp_path: Path) -> Path:
    """A run of three episodes: two that pay, after a refusal, and one that breaks the till."""
    namespace: dict[str, type] = {}
    exec(SHOP, namespace)
    folder = tmp_path / "run"
    with recording(folder, [namespace["Shop"]]) as server, ORS(server.url) as client:
        env = client.environment("shop")
        for split, index in (("train", 0), ("test", 2)):
            with env.session(split=split, index=index) as session:
                session.get_prompt()
                session.list_tools()
                session.call_tool("ask")
                with pytest.raises(ToolCallError):
                    session.call_tool("pay", {"coins": -1})
                session.call_tool("pay", {"coins": 3})
        with env.session(split="train", index=1) as session, pytest.raises(ToolFailed):
            session.call_tool("pay", {"coins": 100})
    return folder


def changed(shop: Path, before: str, after: str) -> None:
    assert before in SHOP
    shop.write_text(SHOP.replace(before, after))


def test_an_environment_that_has_not_changed_gives_the_same(recorded: Path, shop: Path) -> None:
    done = run("replay", str(recorded), str(shop))
    assert (done.code, done.out) == (0, "3 episodes played, 0 with differences\n"), done


@pytest.mark.parametrize(
    ("before", "after", "what", "call", "values"),
    [
        ("float(done)", "2.0 * done", "reward", 3, ("1", "2")),
        ('"thanks"', '"bye"', "result", 3, ("thanks", "bye")),
        ("finished=done", "finished=False", "finished", 3, ("true", "false")),
        ("must not be negative", "are never negative", "result", 2, ("must not be", "are never")),
        ("coins < 0", "coins < -1", "result", 2, ("refused", "thanks")),
        ("Pay the price.", "Pay.", "prompt", None, ("Pay the price.", "Pay.")),
        ("Ask for the price.", "Ask.", "tools", None, ("Ask for the price.", "Ask.")),
        ("def ask(self)", "def ask(self, loud: bool)", "tools", None, ("null", "loud")),
        ("the till is full", "the till is stuck", "result", 1, ("till is full", "till is stuck")),
    ],
)
def test_what_has_changed_is_shown(
    recorded: Path,
    shop: Path,
    before: str,
    after: str,
    what: str,
    call: int | None,
    values: tuple[str, str],
) -> None:
    changed(shop, before, after)
    done = run("replay", str(recorded), str(shop), "--json")
    assert done.code == 1
    first = next(each for each in done.json["differences"] if each["what"] == what)
    assert first["step"] == call
    assert values[0] in json.dumps(first["recorded"])
    assert values[1] in json.dumps(first["now"])
    table = run("replay", str(recorded), str(shop))
    assert table.code == 1
    assert table.out.startswith("EPISODE ")
    assert f" {what} " in table.out


def test_calls_after_another_end_are_not_played(recorded: Path, shop: Path) -> None:
    changed(shop, "reward=0.0)", "reward=0.0, finished=True)")
    done = run("replay", str(recorded), str(shop), "--split", "train", "--tasks", "0", "--json")
    assert [(each["what"], each["step"]) for each in done.json["differences"]] == [("finished", 1)]


def test_what_may_differ_is_ignored(recorded: Path, shop: Path) -> None:
    changed(shop, '"thanks"', '"bye"')
    assert run("replay", str(recorded), str(shop), "--ignore", "rewards").code == 1
    assert run("replay", str(recorded), str(shop), "--ignore", "results").code == 0


class Slow(Environment):
    """Its last task never answers in time: in the tool, the prompt or the setup, as `at` says."""

    tasks: ClassVar = {"train": [{"n": 0}, {"n": 1}]}
    at: ClassVar[str] = ""

    async def _wait(self, where: str) -> None:
        if self.task_spec["n"] == 1 and where == self.at:
            await asyncio.Event().wait()

    async def setup(self) -> None:
        await self._wait("setup")

    async def get_prompt(self) -> str:
        await self._wait("prompt")
        return "Ask."

    @tool
    async def ask(self) -> str:
        """Ask."""
        await self._wait("tool")
        return "Done."


@pytest.mark.parametrize("at", ["tool", "prompt", "setup"])
def test_an_episode_that_hangs_is_given_up_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    folder = tmp_path / "run"
    with recording(folder, [Slow]) as server, ORS(server.url) as client:
        for index in (0, 1):
            with client.environment("slow").session(split="train", index=index) as session:
                session.get_prompt()
                session.call_tool("ask", {})
    monkeypatch.setattr(Slow, "at", at)
    monkeypatch.setattr("ors.cli.commands.replay.SLACK_SECONDS", 0.5)
    with serving(Server([Slow])) as url:
        done = refused("replay", str(folder), url, "--json")
    assert done.code == 1, done
    (error,) = done.json["errors"]
    assert (error["index"], error["error"].startswith("it did not end within 0.")) == (1, True)
    assert (done.json["episodes"], done.json["differing"], done.json["differences"]) == (2, 1, [])


def test_only_the_chosen_tasks_are_played(recorded: Path, shop: Path) -> None:
    chosen = run("replay", str(recorded), str(shop), "--split", "train", "--tasks", "1:", "--json").json
    assert chosen["episodes"] == 1
    assert run("replay", str(recorded), str(shop), "--tasks", "0,2", "--json").json["episodes"] == 2
    none = run("replay", str(recorded), str(shop), "--tasks", "7")
    assert (none.code, none.err) == (2, f"Error: {recorded} has no episode of these tasks\n")
    wrong = run("replay", str(recorded), str(shop), "--tasks", "many")
    assert wrong.code == 2
    assert "--tasks 'many' is not valid: give indices like 0:100, 5 or 0,3,7:9" in wrong.err


def test_a_server_at_a_url_is_asked(recorded: Path) -> None:
    with serving(Server([Park])) as url:
        done = run("replay", str(recorded), url)
    assert (done.code, done.err) == (2, "Error: There is no environment 'shop'. Environments: park\n")


def written(folder: Path, records: list[EpisodeRecord], config: dict[str, object]) -> Path:
    with RunWriter.create(folder, RunInfo.gathered(config)) as writer:
        for record in records:
            writer.append(record)
    return folder


def test_without_a_target_the_one_of_the_run_is_played(recorded: Path, shop: Path, tmp_path: Path) -> None:
    records = list(read_run(recorded).episodes())
    named = written(tmp_path / "named", records, {"targets": [str(shop)]})
    assert run("replay", str(named)).out == "3 episodes played, 0 with differences\n"
    nameless = run("replay", str(written(tmp_path / "nameless", records, {})))
    assert nameless.code == 2
    assert "does not say what was played: give a URL or a TARGET" in nameless.err


def test_episodes_that_failed_for_infrastructure_are_not_played(
    recorded: Path, shop: Path, tmp_path: Path
) -> None:
    lost = Failed("infrastructure", "call", "SessionLost")
    records = [replace(record, outcome=lost) for record in read_run(recorded).episodes()]
    records[0] = replace(records[0], outcome=Failed("model", "model", "ModelError"))
    folder = written(tmp_path / "lost", records, {})
    done = run("replay", str(folder), str(shop))
    assert done.code == 0
    assert done.out.startswith("1 episode played, 0 with differences\n2 not played: ")


def test_an_episode_that_cannot_be_opened_any_more_counts_as_a_difference(recorded: Path, shop: Path) -> None:
    changed(shop, "(1, 2, 3)", "(1, 2)")
    done = run("replay", str(recorded), str(shop), "--json")
    assert done.code == 1
    (error,) = done.json["errors"]
    assert (error["split"], error["index"]) == ("test", 2)
    assert "Invalid index" in error["error"]


def test_an_episode_that_failed_before_its_first_turn_is_not_played(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, [Quiz]) as server, ORS(server.url) as client:
        session = client.environment("quiz").session(split="broken", index=0)
        with pytest.raises(ServerFailed), session:
            session.get_prompt()
    done = run("replay", str(folder), str(SUPPORT / "eval_environments.py"))
    assert done.code == 0, done
    assert done.out.startswith("0 episodes played, 0 with differences\n1 not played: "), done


def test_the_last_text_of_the_agent_goes_to_the_terminal_tool_again(
    recorded: Path, shop: Path, tmp_path: Path
) -> None:
    (first, *_) = read_run(recorded).episodes()
    last = ToolMessage(None, "leave", [], reward=0.5, finished=True)
    record = replace(first, messages=(AgentMessage("Goodbye."), last), tools=())
    folder = written(tmp_path / "left", [record], {})
    assert run("replay", str(folder), str(shop)).code == 0
    changed(shop, "reward=0.5", "reward=len(message)")
    (found,) = run("replay", str(folder), str(shop), "--json").json["differences"]
    assert (found["what"], found["tool"], found["recorded"], found["now"]) == ("reward", "leave", 0.5, 8.0)


def test_a_call_that_the_agent_wrote_wrongly_is_not_played(
    recorded: Path, shop: Path, tmp_path: Path
) -> None:
    (first, *_) = read_run(recorded).episodes()
    wrong = ToolInvocation("pay", {}, "c1", "not JSON")
    refusal = ToolMessage("c1", "pay", [TextBlock(text="not JSON")], False, "input_validation")
    right = ToolInvocation("pay", {"coins": 1}, "c2")
    paid = ToolMessage("c2", "pay", [TextBlock(text="thanks")], reward=1.0, finished=True)
    messages = (AgentMessage(calls=(wrong, right)), refusal, paid)
    folder = written(tmp_path / "wrong", [replace(first, messages=messages)], {})
    assert run("replay", str(folder), str(shop)).code == 0


def test_a_call_that_failed_and_succeeds_now_differs(recorded: Path, shop: Path, tmp_path: Path) -> None:
    (*_, last) = read_run(recorded).episodes()
    # A driver records no result of a failed call.
    kept = tuple(message for message in last.messages if not isinstance(message, ToolMessage))
    record = replace(last, messages=kept)
    folder = written(tmp_path / "failed", [record], {})
    assert run("replay", str(folder), str(shop)).code == 0
    changed(shop, "coins > 99", "coins > 100")
    (found,) = run("replay", str(folder), str(shop), "--json").json["differences"]
    assert (found["what"], found["recorded"]) == ("result", {"failed": True})


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, shop: Path) -> None:
    done = run("replay", str(tmp_path), str(shop))
    assert (done.code, "is not a run" in done.err) == (2, True)
