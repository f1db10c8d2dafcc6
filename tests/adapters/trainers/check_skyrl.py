"""skyrl-gym's environments, made and stepped as SkyRL's generator does."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import skyrl_gym
from skyrl_gym.envs import registration

from ors.adapters import serve
from ors.adapters.training import NoReward
from ors.rollouts import EpisodeLimits
from tests.support.parameters import SUMS
from tests.support.tiny_model import called
from tests.support.training_environment import Hunt, hunt_elsewhere

Made = Callable[..., Any]


@pytest.fixture
def made(url: str) -> Iterator[Made]:
    """Makes an environment by its registered id, and closes it, as the generator does in the end."""
    envs: list[Any] = []

    def make(
        split: str = "train", at: str = url, environment: str = "hunt", secrets: Any = (), **arguments: Any
    ) -> Any:
        fields = {"base_url": at, "environment": environment, "arguments": {"reward": "sum"} | arguments}
        fields["secrets"] = secrets
        id = f"ors-{len(registration.registry)}"
        registration.register(id, entry_point="ors.adapters.skyrl:ORSTextEnv", kwargs=fields)
        extras = {"extra_info": {"split": split, "index": 3}, "max_turns": 4}
        envs.append(skyrl_gym.make(id, env_config=None, extras=extras))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def test_the_prompt_comes_with_the_tools_after_the_rows_own_messages(made: Made) -> None:
    first, _ = made().init([{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}])
    system, prompt = first
    assert system["content"].startswith("Be brief.\n\n# Tools")
    assert '"name": "guess"' in system["content"]
    assert prompt == {"role": "user", "content": "Guess 3."}


def test_each_turn_is_credited_and_finished_ends_the_episode(made: Made) -> None:
    env = made()
    env.init([])
    hinted = env.step(called("hint"))
    assert (hinted["reward"], hinted["done"]) == (0.25, False)
    assert hinted["observations"] == [{"role": "tool", "content": "Read the prompt."}]
    done = env.step(called("guess", number=3))
    assert (done["reward"], done["done"], done["metadata"]) == (1.0, True, {"outcome": "scored"})


def test_secrets_come_from_variables(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="set the environment variable HUNT_KEY"):
        made(environment="locked", secrets=["hunt_key"])
    monkeypatch.setenv("HUNT_KEY", "sesame")
    env = made(environment="locked", secrets=["hunt_key"])
    assert env.init([])[0][-1]["content"] == "sesame: guess 3."
    assert env.step(called("guess", number=3))["reward"] == 1.0


def test_a_server_with_parameters_is_started_for_it(made: Made) -> None:
    env = made(at=serve(SUMS, {"difficulty": 5}), environment="sums")
    env.init([])
    assert env.step(called("submit", answer=3 + 5))["reward"] == 1.0


@pytest.mark.parametrize(
    ("reward", "paid"), [("sum", [0.25, 0.25, 0.0]), ("last", [0.25, 0.0, -0.25]), ("max", [0.25, 0.0, 0.0])]
)
def test_the_steps_so_far_have_paid_what_the_episode_counts_as_if_it_is_cut_off(
    made: Made, reward: str, paid: list[float]
) -> None:
    env = made(reward=reward)
    env.init([])
    replies = (called("hint"), called("hint"), called("guess", number=4))
    assert [env.step(each)["reward"] for each in replies] == paid


def test_an_episode_that_earns_nothing_has_paid_what_that_counts_as(made: Made) -> None:
    env = made(truncated_reward=-1.0)
    env.init([])
    replies = (called("look"), called("hint"), called("guess", number=3))
    assert [env.step(each)["reward"] for each in replies] == [-1.0, 1.25, 1.0]


def test_a_reduction_that_needs_the_whole_episode_is_paid_at_its_end(made: Made) -> None:
    env = made(reward=lambda rewards: rewards[1])
    env.init([])
    assert [env.step(each)["reward"] for each in (called("hint"), called("guess", number=3))] == [0.0, 1.0]


def test_the_turns_that_the_generator_allows_are_played(made: Made) -> None:
    env = made()
    env.init([])
    assert [env.step(called("look"))["done"] for _ in range(4)] == [False, False, False, True]
    env = made(limits=EpisodeLimits(turns=2))
    env.init([])
    assert [env.step(called("look"))["done"] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("bad", ["crash", "shrug"])
def test_an_episode_without_reward_raises_instead_of_training_as_0(made: Made, bad: str) -> None:
    env = made(unscored_reward=None)
    env.init([])
    with pytest.raises(NoReward, match="has no reward"):
        env.step(called(bad))


def test_giving_up_counts_as_in_an_evaluation(made: Made) -> None:
    env = made()
    env.init([])
    ended = env.step("I give up.")
    assert (ended["reward"], ended["done"], ended["metadata"]) == (0.0, True, {"outcome": "unscored"})


def test_a_setup_that_fails_raises(made: Made) -> None:
    with pytest.raises(NoReward, match="environment, at the stage 'opening', ServerFailed"):
        made(split="broken").init([])


def test_a_server_that_is_killed_raises(made: Made) -> None:
    with hunt_elsewhere() as (process, address):
        env = made(at=address)
        env.init([])
        process.kill()
        process.wait()
        with pytest.raises(NoReward, match="infrastructure"):
            env.step(called("guess", number=3))


def test_refusals_and_calls_that_cannot_be_read_go_to_the_model(made: Made) -> None:
    env = made()
    env.init([])
    assert env.step(called("refuse"))["observations"] == [{"role": "tool", "content": "not today"}]
    error = [{"role": "tool", "content": "The call is not a JSON object with a name and arguments."}]
    for text in ("[" * 100_000, '{"name": "guess", "arguments": {"number": "\ud83d"}}'):
        assert env.step(f"<tool_call>{text}</tool_call>")["observations"] == error


def test_images_are_named(made: Made) -> None:
    env = made()
    env.init([])
    assert env.step(called("look"))["observations"][0]["content"] == "A pixel:\n[image of type image/png]"


def test_the_last_message_goes_to_the_terminal_tool(made: Made) -> None:
    env = made(environment="essay")
    env.init([])
    assert env.step("It is 3.<|im_end|>")["reward"] == 1.0


def test_an_environment_that_the_generator_cuts_off_is_closed(made: Made) -> None:
    env = made()
    env.init([])
    assert Hunt.count["open"] == 1
    env.close()
    env.close()
    assert Hunt.count["open"] == 0
