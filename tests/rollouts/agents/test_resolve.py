"""From the words of a user to an agent."""

from pathlib import Path
from typing import Any

import pytest

from ors.rollouts import AgentMessage, Conversation, EpisodeRecord, Scored, TaskRef
from ors.rollouts.agents import (
    GoldAgent,
    HumanAgent,
    ModelAgent,
    NoopAgent,
    Prices,
    RandomAgent,
    ReplayAgent,
    resolve,
)
from ors.rollouts.records import RunInfo, RunWriter

OWN = """
class Own:
    def __init__(self, word="hello"):
        self.word = word

    async def reply(self, conversation, tools):
        from ors.rollouts import AgentMessage
        return AgentMessage(self.word)


ready = Own("ready")


def make(word="made"):
    return Own(word)


def fail():
    raise RuntimeError("no luck")


class Names:
    inner = ready


nothing = 3


class Silent:
    pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_agents.py").write_text(OWN)
    (tmp_path / "broken_agents.py").write_text("import not_installed_here")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_agents"


def test_plain_names_are_agents() -> None:
    assert isinstance(resolve("noop"), NoopAgent)
    assert isinstance(resolve("human"), HumanAgent)
    assert isinstance(resolve("gold", solve=lambda task: []), GoldAgent)
    agent = resolve("random", seed=5)
    assert isinstance(agent, RandomAgent)
    assert agent.seed == 5


@pytest.mark.parametrize(
    "provider", ["openai", "openai-chat", "openai-responses", "anthropic", "google", "openrouter"]
)
def test_a_provider_and_a_model_are_an_agent_with_its_options(provider: str) -> None:
    prices = Prices(input=1, output=2)
    agent = resolve(f"{provider}:some/model:free", api_key="sk-12345678", temperature=0.5, prices=prices)
    assert isinstance(agent, ModelAgent)
    assert (agent.provider, agent.model) == (provider, "some/model:free")
    assert (agent.options.temperature, agent.options.prices) == (0.5, prices)


async def test_replay_reads_the_run_that_it_names(tmp_path: Path) -> None:
    task = TaskRef("board", "train", 0)
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(EpisodeRecord("0" * 32, task, 0, Scored(), 1.0, (), (AgentMessage("Again."),)))
    agent = resolve(f"replay:{tmp_path}")
    assert isinstance(agent, ReplayAgent)
    assert (await agent.reply(Conversation(task), [])).text == "Again."


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ready", {}, "ready"),
        ("Names.inner", {}, "ready"),
        ("Own", {}, "hello"),
        ("Own", {"word": "hi"}, "hi"),
        ("make", {}, "made"),
    ],
)
async def test_an_agent_of_ones_own_is_found_by_its_module(
    own: str, name: str, options: dict[str, Any], said: str
) -> None:
    agent = resolve(f"{own}:{name}", **options)
    assert (await agent.reply(Conversation(TaskRef("board")), [])).text == said


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("randm", {}, r"Unknown agent 'randm'\. Did you mean random\?"),
        ("opnai:gpt-5", {}, r"Unknown agent 'opnai:gpt-5'\. Did you mean openai:gpt-5\?"),
        ("antropic", {}, r"Did you mean anthropic:NAME\?"),
        ("random:x", {}, r"Did you mean random\?"),
        ("zzz", {}, r"Use random, noop, gold, human, replay:RUN, openai:MODEL, .*module:object"),
        ("", {}, "Unknown agent ''"),
        (
            "zzz.yyy:agent",
            {},
            r"Unknown agent 'zzz\.yyy:agent'\. There is no module 'zzz\.yyy' either\. Use ",
        ),
        ("openai", {}, "openai needs a name after a colon: openai:MODEL"),
        ("replay:", {}, "replay needs a name after a colon: replay:RUN"),
        ("replay:runs/one", {}, "runs/one is not a run: it has no run.json"),
        ("gold", {}, "gold: missing a required argument: 'solve'"),
        ("noop", {"seed": 1}, r"noop has no option 'seed'\."),
        ("random", {"sed": 1}, r"random has no option 'sed'\. Did you mean seed\?"),
        ("openai:m", {"temprature": 1}, r"openai:m has no option 'temprature'\. Did you mean temperature\?"),
        ("own_agents:Own", {"wrd": 1}, "own_agents:Own cannot be created: TypeError"),
        ("own_agents:ready", {"word": "x"}, "is already an agent, so it takes no options: word"),
        ("own_agents:fail", {}, "own_agents:fail cannot be created: RuntimeError: no luck"),
        ("own_agents:Gone", {}, "own_agents has no Gone"),
        ("own_agents:nothing", {}, "own_agents:nothing is not an agent: it needs a method"),
        ("own_agents:Silent", {}, "own_agents:Silent is not an agent: it needs a method"),
        ("broken_agents:Own", {}, "broken_agents cannot be imported: .*not_installed_here"),
    ],
)
def test_what_is_wrong_is_said(own: str, name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        resolve(name, **options)
