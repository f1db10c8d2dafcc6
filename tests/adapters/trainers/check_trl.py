"""TRL's GRPOTrainer on our environments: real optimiser steps, replies by a script."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from ors.adapters import serve
from ors.adapters.training import MostFailed
from ors.adapters.trl import TRLEnvironments
from ors.client import ORS, Options
from tests.support.outcome_cases import Case, check
from tests.support.parameters import SUMS
from tests.support.tiny_model import called, tiny_model, tiny_tokenizer
from tests.support.training_environment import Hunt, hunt_elsewhere

END = "I am done.<|im_end|>"
IMPATIENT = Options(ping_seconds=0.2, ping_failures=2, retries=1)
RIGHT, WRONG = (called("guess", number=3), END), (called("guess", number=4), END)


class Scripted(GRPOTrainer):
    """Samples the replies of a script for each rollout of a group instead of the model's."""

    script: Sequence[Sequence[str]] = ()
    before_reply: Callable[[int], object] = staticmethod(lambda turn: None)

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        self.prompts = [*getattr(self, "prompts", []), list(prompt_ids)]
        turn = len(self.prompts) - 1
        self.before_reply(turn)
        texts = [script[turn] for script in self.script if len(script) > turn]
        assert len(texts) == len(prompt_ids)
        return [self.processing_class.encode(text, add_special_tokens=False) for text in texts], None

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        self.rewards = super()._calculate_rewards(*args, **kwargs)
        return self.rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.scored = super()._generate_and_score_completions(inputs)
        return self.scored


@pytest.fixture
def client(url: str) -> Iterator[ORS]:
    with ORS(url) as made:
        yield made


def trained(
    environments: TRLEnvironments,
    folder: Path,
    script: Sequence[Sequence[str]],
    split: str = "train",
    before_reply: Callable[[int], object] = lambda turn: None,
    reward_funcs: Sequence[Callable[..., Any]] = (),
    steps: int = 1,
) -> Scripted:
    """The trainer after steps on one group."""
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(script),
        num_generations=len(script),
        max_steps=steps,
        max_completion_length=2000,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        bf16=False,
        beta=0.0,
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
    )
    trainer = Scripted(
        model=tiny_model(),
        args=config,
        train_dataset=Dataset.from_list(environments.rows(split, [3])),
        processing_class=tiny_tokenizer(),
        environment_factory=environments,
        reward_funcs=list(reward_funcs) or [environments.reward],
    )
    trainer.script, trainer.before_reply = script, before_reply
    trainer.train()
    return trainer


def moved(trainer: Scripted) -> bool:
    """Whether the optimiser changed the model."""
    before, after = tiny_model().state_dict(), trainer.model.state_dict()
    return any(not torch.equal(before[name], after[name]) for name in before)


def test_a_step_of_the_optimiser_is_made_with_the_rewards_of_the_environment(
    client: ORS, tmp_path: Path
) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    trainer = trained(environments, tmp_path, [RIGHT, WRONG])
    assert trainer.rewards.flatten().tolist() == [1.0, 0.0]
    assert trainer.scored["advantages"][0] > 0 > trainer.scored["advantages"][1]
    assert moved(trainer)
    prompt = trainer.processing_class.decode(trainer.prompts[0][0])
    assert "Guess 3." in prompt
    assert '"number": {"type": "integer"' in prompt


def test_secrets_come_from_variables(client: ORS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    environments = TRLEnvironments(client.environment("locked"), secrets=["hunt_key"], reward="sum")
    env: Any = environments()
    assert env.reset(split="train", index=3) == "sesame: guess 3."
    env.guess(number=3)
    assert environments.reward([env], [[]]) == [1.0]


def test_a_server_with_parameters_is_started_for_it() -> None:
    with ORS(serve(SUMS, {"difficulty": 5})) as client:
        environments = TRLEnvironments(client.environment("sums"), reward="sum")
        env: Any = environments()
        env.reset(split="train", index=3)
        env.submit(answer=3 + 5)
        assert environments.reward([env], [[]]) == [1.0]


def test_only_tokens_of_the_model_are_trained_and_they_are_those_that_it_sampled(
    client: ORS, tmp_path: Path
) -> None:
    trainer = trained(TRLEnvironments(client.environment("hunt"), reward="last"), tmp_path, [RIGHT, WRONG])
    ids, mask = trainer.scored["completion_ids"][0], trainer.scored["tool_mask"][0].bool()
    mask = mask & trainer.scored["completion_mask"][0].bool()
    sampled = [trainer.processing_class.encode(text, add_special_tokens=False) for text in RIGHT]
    assert ids[mask].tolist() == sampled[0] + sampled[1]
    assert "Guessed." in trainer.processing_class.decode(ids[~mask])


@pytest.mark.parametrize("bad", [(called("crash"), END), (called("shrug"), END)], ids=["raises", "no-reward"])
def test_an_episode_without_reward_is_in_neither_gradient_nor_baseline(
    client: ORS, tmp_path: Path, bad: Sequence[str]
) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last", unscored_reward=None)
    with_bad = trained(environments, tmp_path, [RIGHT, RIGHT, WRONG, bad])
    without = trained(environments, tmp_path, [RIGHT, RIGHT, WRONG])
    assert with_bad.rewards.flatten().isnan().tolist() == [False, False, False, True]
    advantages = with_bad.scored["advantages"]
    assert advantages[3] == 0.0
    assert torch.allclose(advantages[:3], without.scored["advantages"])


def constant(completions: Sequence[Any], **_: Any) -> list[float]:
    """A reward function that knows nothing of episodes, as one of the format or the length."""
    return [0.3] * len(completions)


async def later(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.3] * len(completions)


@pytest.mark.parametrize(
    "functions",
    [
        lambda envs: [envs.reward, constant],
        lambda envs: [envs.wrap(constant), envs.reward],
        lambda envs: [envs.reward, later],
        lambda envs: [envs.wrap(later), envs.reward],
    ],
    ids=["unasked", "wrapped", "async", "async-wrapped"],
)
def test_a_second_reward_function_does_not_train_crashes_as_losses(
    client: ORS, tmp_path: Path, functions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    boom = (called("crash"), END)
    script = [RIGHT, RIGHT, WRONG, RIGHT, boom, boom, WRONG, WRONG]
    trainer = trained(environments, tmp_path, script, reward_funcs=functions(environments))
    # Three of the six that count have won: the mean is 0.5, the deviation sqrt(6 * 0.25 / 5) = 0.5477.
    won, lost = 0.5 / (0.5477 + 1e-4), -0.5 / (0.5477 + 1e-4)
    by_hand = [won, won, lost, won, 0.0, 0.0, lost, lost]
    assert trainer.scored["advantages"].tolist() == pytest.approx(by_hand, abs=1e-3)
    assert "may train as losses" not in caplog.text


def test_a_reward_function_that_ran_too_early_to_be_wrapped_is_warned_of_and_right_from_then_on(
    client: ORS, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    script = [RIGHT, WRONG, (called("crash"), END)]
    first = trained(environments, tmp_path, script, reward_funcs=[constant, environments.reward])
    assert not first.rewards.isnan().all(dim=1).any()
    (warning,) = [each.getMessage() for each in caplog.records if "may train" in each.getMessage()]
    assert warning.startswith("constant has scored episodes that have no reward")
    functions = first.reward_funcs
    assert trained(environments, tmp_path, script, reward_funcs=functions).rewards.isnan().all(dim=1)[2]


def test_crashes_that_the_policy_can_cause_are_losses_if_the_user_says_so(
    client: ORS, tmp_path: Path
) -> None:
    boom = (called("hint"), called("crash"), END)
    script = [*[boom] * 6, (called("hint"), *WRONG), (called("hint"), *RIGHT)]
    hunt = client.environment("hunt")
    left_out = trained(TRLEnvironments(hunt, reward="last"), tmp_path, script)
    assert left_out.scored["advantages"][:6].tolist() == [0.0] * 6
    assert (
        left_out.state.log_history[0]["ors/failed_environment"]
        == left_out.state.log_history[0]["ors/left_out"]
        == 6 / 8
    )
    scored = trained(TRLEnvironments(hunt, reward="last", failed_reward={"environment": 0}), tmp_path, script)
    # One win of eight: the mean is 1/8, the deviation sqrt((49 / 64 + 7 / 64) / 7) = 0.35355.
    by_hand = [-0.125 / (0.35355 + 1e-4)] * 7 + [0.875 / (0.35355 + 1e-4)]
    assert scored.scored["advantages"].tolist() == pytest.approx(by_hand, abs=1e-3)
    assert scored.state.log_history[0]["ors/left_out"] == 0.0


def test_failures_shorten_the_gradient_and_do_not_turn_it(
    client: ORS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = []

    def kept(self: Scripted, *args: Any, **kwargs: Any) -> Any:
        loss = GRPOTrainer.training_step(self, *args, **kwargs)
        gradients.append(torch.cat([each.grad.flatten() for each in self.model.parameters()]))
        return loss

    monkeypatch.setattr(Scripted, "training_step", kept)
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    boom, live = (called("crash"), END), [RIGHT, RIGHT, WRONG, WRONG]
    trained(environments, tmp_path, live)
    trainer = trained(environments, tmp_path, [*live, *[boom] * 4])
    without, with_failures = gradients
    mask = trainer.scored["completion_mask"] * trainer.scored["tool_mask"]
    share = mask[:4].sum() / mask.sum()  # TRL divides by all tokens of the batch
    assert 0.4 < share < 0.6
    assert torch.allclose(with_failures, share * without, atol=1e-3 * without.abs().max())


def test_a_reply_that_is_cut_off_is_truncated_and_its_text_is_not_graded(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("essay"), reward="last", truncated_reward=-1.0)
    trainer = trained(environments, tmp_path, [("It is 3.<|im_end|>",), ("It is 3",)])
    assert trainer.rewards.flatten().tolist() == [1.0, -1.0]


def test_a_call_that_cannot_be_read_is_no_answer(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("essay"), reward="last", truncated_reward=-1.0)
    broken = ('<tool_call>\n{"name": "guess", "arguments": {"number": 3\n</tool_call><|im_end|>',)
    trainer = trained(environments, tmp_path, [broken, ("It is 3.<|im_end|>",)])
    assert trainer.rewards.flatten().tolist() == [-1.0, 1.0]


def test_giving_up_is_a_loss_by_default(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    trainer = trained(environments, tmp_path, [RIGHT, (END, END)[:1]])
    assert trainer.rewards.flatten().tolist() == [1.0, 0.0]
    assert trainer.state.log_history[0]["ors/unscored"] == 0.5


def test_every_outcome_counts_as_the_table_says(client: ORS, url: str, tmp_path: Path) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        environments = TRLEnvironments(client.environment(environment), **options)
        script = []
        for case in cases:
            replies = [each.hermes() for each in (case.replies[:1] if case.ended else case.replies)]
            # TRL samples once more after every result, also after the last.
            script.append([*replies, END] if case.replies[-1].call and not case.ended else replies)
        rewards = trained(environments, tmp_path, script).rewards.flatten().tolist()
        return [None if isnan(each) else each for each in rewards]

    check(url, play, ends=True)


def test_setups_that_fail_are_left_out_and_the_training_goes_on(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    made: Any = [environments() for _ in range(4)]
    for env, split in zip(made, ("train", "broken", "train", "train"), strict=True):
        env.reset(split=split, index=3)
    made[0].guess(number=3)
    said = [[{"role": "assistant", "content": "I am done."}]] * 4
    assert environments.reward(made, said) == [1.0, None, 0.0, 0.0]


def test_a_training_whose_episodes_mostly_fail_ends_with_the_reason(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    with pytest.raises(MostFailed, match=r"2 of the 2 episodes of this step failed.*the setup is broken"):
        trained(environments, tmp_path, [(END,), (END,)], split="broken")


def test_a_server_that_is_killed_ends_the_training_with_the_reason(tmp_path: Path) -> None:
    with hunt_elsewhere() as (process, address), ORS(address, options=IMPATIENT) as client:
        environments = TRLEnvironments(client.environment("hunt"), reward="last")

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        hinted = (called("hint"), called("guess", number=3), END)
        with pytest.raises(MostFailed, match="infrastructure, at the stage 'call'"):
            trained(environments, tmp_path, [hinted, hinted], before_reply=kill)


def test_wrong_arguments_are_refused_at_once(client: ORS) -> None:
    wrong: Any = "mean"
    with pytest.raises(ValueError, match="Unknown reward reduction 'mean'"):
        TRLEnvironments(client.environment("hunt"), reward=wrong)
    with pytest.raises(ValueError, match="cannot send a nudge"):
        TRLEnvironments(client.environment("hunt"), reward="last", nudge="Go on.")


def test_environments_of_several_servers_train_together(client: ORS, tmp_path: Path) -> None:
    hunt = TRLEnvironments(client.environment("hunt"), reward="last")
    with hunt_elsewhere() as (_, address), ORS(address) as other:
        elsewhere = TRLEnvironments(other.environment("hunt"), reward="last")
        rows = [*hunt.rows("train", [3]), *elsewhere.rows("train", [3], environment="elsewhere")]
        assert [row["environment"] for row in rows] == ["hunt", "elsewhere"]
        config = GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=2,
            max_steps=1,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Scripted(
            model=tiny_model(),
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=tiny_tokenizer(),
            environment_factory={"hunt": hunt, "elsewhere": elsewhere},
            reward_funcs=[hunt.reward, elsewhere.reward],
        )
        trainer.script = [RIGHT, WRONG, RIGHT, WRONG]
        trainer.train()
    assert trainer.rewards.nansum(dim=1).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_after_finished_no_call_reaches_the_server(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    before = Hunt.count["guess"]
    stubborn = (called("guess", number=4), called("guess", number=3), END)
    trainer = trained(environments, tmp_path, [stubborn, stubborn])
    assert Hunt.count["guess"] - before == 2
    assert trainer.rewards.flatten().tolist() == [0.0, 0.0]


def test_a_refusal_goes_to_the_model_and_the_episode_goes_on(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="sum")
    refused = (called("refuse"), called("hint"), called("guess", number=3), END)
    trainer = trained(environments, tmp_path, [refused, refused])
    assert trainer.rewards.flatten().tolist() == [1.25, 1.25]
    assert "not today" in trainer.processing_class.decode(trainer.prompts[1][0])


def test_the_last_message_goes_to_the_terminal_tool(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("essay"), reward="last")
    trainer = trained(environments, tmp_path, [("It is 3.<|im_end|>",), ("It is 4.<|im_end|>",)])
    assert trainer.rewards.flatten().tolist() == [1.0, 0.0]


def test_an_episode_that_the_trainer_cuts_off_is_truncated(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last", truncated_reward=0.0)
    made = environments()
    made.reset(split="train", index=3)
    logged: dict[str, float] = {}
    completion = [{"role": "tool", "content": "…"}]
    assert environments.reward([made], [completion], log_metric=logged.__setitem__) == [0.0]
    assert logged["ors/truncated"] == 1.0


def test_instructions_are_the_system_message_of_every_row(client: ORS) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last", system="Be brief.")
    (row,) = environments.rows("train", [3])
    assert [each["role"] for each in row["prompt"]] == ["system", "user"]


def test_images_are_content_blocks(client: ORS) -> None:
    environments = TRLEnvironments(client.environment("hunt"), reward="last")
    made: Any = environments()
    made.reset(split="train", index=0)
    text, image = made.look()
    assert text == {"type": "text", "text": "A pixel:"}
    assert image["image"].getpixel((0, 0)) == (255, 0, 0)
    environments.reward([made], [[]])


def test_the_schema_of_a_tool_survives(client: ORS) -> None:
    made: Any = TRLEnvironments(client.environment("hunt"), reward="last")()
    assert get_json_schema(made.guess)["function"] == {
        "name": "guess",
        "description": "Guess the number, which ends the episode.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "number"}},
            "required": ["number"],
        },
    }
    assert get_json_schema(made.look)["function"]["parameters"]["properties"] == {}


NAMED = [(called("hint"), *RIGHT), WRONG, (called("crash"), END), (called("shrug"), END)]


def test_each_named_reward_has_a_function_and_together_they_give_the_reward(
    client: ORS, tmp_path: Path
) -> None:
    environments = TRLEnvironments(client.environment("parts"), reward="sum", unscored_reward=-1.0)
    functions = environments.reward_functions()  # of the names that it declares
    trainer = trained(environments, tmp_path, NAMED, reward_funcs=functions)
    assert trainer.reward_func_names == ["correct", "format", "rest"]
    lists = [[1.0, 0.75, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, -1.0]]
    assert trainer.rewards[[0, 1, 3]].tolist() == lists
    assert trainer.rewards[2].isnan().all()
    whole = trained(environments, tmp_path, NAMED)
    assert whole.rewards.flatten()[[0, 1, 3]].tolist() == [1.75, 0.5, -1.0]
    assert torch.allclose(trainer.scored["advantages"], whole.scored["advantages"])
    for each in (trainer, whole):  # means of the three that count
        logged = next(line for line in each.state.log_history if "ors/left_out" in line)
        assert logged["ors/left_out"] == 0.25
        assert logged["ors/reward/correct"] == pytest.approx(1 / 3)
        assert logged["ors/reward/format"] == pytest.approx(1.25 / 3)
    assert next(line for line in trainer.state.log_history if "rewards/format/mean" in line)[
        "rewards/format/mean"
    ] == pytest.approx(1.25 / 3)


def test_the_reward_is_never_counted_twice(client: ORS, tmp_path: Path) -> None:
    environments = TRLEnvironments(client.environment("parts"), reward="sum")
    both: list[Any] = [environments.reward, *environments.reward_functions("correct")]
    with pytest.raises(ValueError, match="count the reward twice"):
        trained(environments, tmp_path, [RIGHT, WRONG], reward_funcs=both)
    one = environments.reward_functions("correct")
    trainer = trained(environments, tmp_path, [RIGHT, WRONG], reward_funcs=[*one, constant])
    assert trainer.rewards[:, :2].tolist() == [[1.0, 0.5], [0.0, 0.5]]
    with pytest.raises(ValueError, match="hunt declares no reward_components"):
        TRLEnvironments(client.environment("hunt"), reward="sum").reward_functions()
