"""TRL: environments for `GRPOTrainer(environment_factory=…, reward_funcs=…)`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from math import fsum
from typing import Any, Unpack

from ors.adapters.chat import Content, content_of, last_reply, tool_method, tool_schemas
from ors.adapters.training import (
    Training,
    TrainingArguments,
    Watch,
    check_step,
    component_means,
    exit_on_sigterm,
    logger,
    secrets_from,
)
from ors.client import Environment, ToolCallError, ToolInvocation
from ors.rollouts import AgentMessage, EpisodeRecord, SteppedEpisodeSync, ToolMessage, UserMessage


def records_of(
    environments: Sequence[Any], completions: Sequence[Any], **batch: Any
) -> list[EpisodeRecord | None]:
    """Ends the episodes of a batch, as TRL gives it to reward functions; None for other environments."""
    trainer = getattr(batch.get("log_metric"), "__self__", None)  # TRL shows itself nowhere else
    ends, sampled = getattr(trainer, "eos_token_ids", ()), batch.get("completion_ids", ())
    cut = [bool(ends) and len(ids) > 0 and ids[-1] not in ends for ids in sampled]
    rows = zip(environments, completions, cut or [False] * len(completions), strict=True)
    return [env._end(said, cut) if isinstance(env, Rollout) else None for env, said, cut in rows]


class Rollout:
    """The environment of one rollout at a time. Its public methods are the tools, and `reset`."""

    def __init__(self, env: Environment, secrets: Mapping[str, str], training: Training) -> None:
        self._env, self._secrets, self._training = env, secrets, training
        self._episode: SteppedEpisodeSync | None = None

    def reset(self, *, split: str, index: int, **_: Any) -> Content:
        """Begins an episode; returns the prompt. If the task cannot be opened, the episode has no reward."""
        if self._episode is not None:
            self._episode.stop("the trainer began another episode")
        self._episode, first = self._training.begin(
            lambda: self._env.session(secrets=self._secrets, split=split, index=index)
        )
        return content_of([block for each in first if isinstance(each, UserMessage) for block in each.blocks])

    def _call(self, name: str, given: dict[str, Any]) -> Content:
        assert self._episode is not None, "call reset() first"
        ended = self._episode.record is not None
        new = () if ended else self._episode.step(AgentMessage(calls=(ToolInvocation(name, given),)))
        result = next((each for each in new if isinstance(each, ToolMessage)), None)
        if result is None:
            raise ToolCallError("The episode has ended.")
        content = content_of(result.blocks)
        if not result.ok:
            raise ToolCallError(str(content))
        return content

    def _end(self, completion: Sequence[Mapping[str, Any]], cut: bool = False) -> EpisodeRecord:
        assert self._episode is not None, "call reset() first"
        # TRL takes a call that it cannot read for text, and ends the rollout.
        reply = last_reply(completion)
        if self._episode.record is None and reply is not None:
            self._episode.step(replace(reply, stop="length") if cut else reply)
        return self._episode.stop("the trainer ended the episode")


REST = "rest"
"""The name of the function of what the named rewards leave of the reward."""
DIGITS = 9
_MARK = "_ors_leaves_out"


class TRLEnvironments:
    """Makes the environments of a trainer, and rewards their episodes: `environment_factory` and a reward.

    Tools are those that all tasks of `env` share. All episodes share the client of `env`. `secrets` names
    those that the environment gets, from the variables of the process.

    Raises:
        ValueError: a tool cannot be a Python method, a secret is missing, or an argument is not valid.
    """

    def __init__(
        self, env: Environment, *, secrets: Iterable[str] = (), **arguments: Unpack[TrainingArguments]
    ) -> None:
        self._training = Training.of(arguments)
        if arguments.get("nudge") is not None:
            raise ValueError(
                "TRL ends a rollout at the first reply without a tool call: it cannot send a nudge"
            )
        functions = [tool["function"] for tool in tool_schemas(env.list_tools())]
        methods = {each["name"]: tool_method(**each) for each in functions}
        self._class: type[Rollout] = type(f"{env.name}_environment", (Rollout,), methods)
        self._env = env
        self._secrets = secrets_from(secrets)
        self._watch = Watch()
        exit_on_sigterm()

    def __call__(self) -> Rollout:
        """A new environment, which plays one episode after another."""
        return self._class(self._env, self._secrets, self._training)

    def rows(
        self, split: str, indices: Iterable[int] | None = None, environment: str | None = None
    ) -> list[dict[str, Any]]:
        """The tasks of a split as rows of a dataset: `Dataset.from_list(environments.rows("train"))`.

        `environment` is the key of these environments in a dict of several; by default, their name.
        """
        system = self._training.arguments.get("system")
        prompt = [{"role": "system", "content": system}] if system else []
        prompt.append({"role": "user", "content": ""})  # the trainer adds the prompt of the task
        chosen = range(self._env.num_tasks(split)) if indices is None else indices
        named = {"prompt": prompt, "environment": environment or self._env.name}
        return [{**named, "split": split, "index": index} for index in chosen]

    def reward(
        self, environments: Sequence[Any], completions: Sequence[Any], **batch: Any
    ) -> list[float | None]:
        """Ends all episodes; returns their rewards. The trainer leaves out those that are None.

        Of several `TRLEnvironments` in one trainer, the first rewards all episodes.

        Raises:
            MostFailed: most episodes failed.
        """
        return self._rewards(self.reward, lambda record: record.reward, environments, completions, batch)

    def reward_functions(self, *names: str) -> list["RewardFunction"]:
        """One reward function for each named reward, and one for the rest: together, they give the reward.

        Give them to the trainer instead of `reward`. By default, the names are those that the environment
        declares.

        Raises:
            ValueError: no name is given, and the environment declares none.
        """
        names = names or tuple(self._env.reward_spec().components)
        if not names:
            raise ValueError(
                f"{self._env.name} declares no reward_components; name them: reward_functions('correct')"
            )
        return [RewardFunction(self, name, names) for name in (*names, None)]

    def _rewards(
        self,
        function: Callable[..., Any],
        value: Callable[[EpisodeRecord], float | None],
        environments: Sequence[Any],
        completions: Sequence[Any],
        batch: Mapping[str, Any],
    ) -> list[float | None]:
        """What a function of ours returns. The first one of a trainer counts and checks the episodes, too."""
        log: Callable[[str, float], object] = batch.get("log_metric", lambda *_: None)
        functions = getattr(getattr(log, "__self__", None), "reward_funcs", [])
        ours = [each for each in functions if _is_reward(each)] or [function]
        if ours[0].__self__ is not self:
            return [None] * len(environments)
        if self.reward in ours and len({isinstance(each, RewardFunction) for each in ours}) > 1:
            raise ValueError(
                "`reward` and `reward_functions` count the reward twice: give the trainer only one of them"
            )
        records = records_of(environments, completions, **batch)
        if function == ours[0]:
            self._wrap_others(functions, function)
            played = [each for each in records if each is not None]
            for name, mean in {**self._watch.count(played), **component_means(played)}.items():
                log(name, mean)
            check_step(played)
        return [None if each is None or each.reward is None else value(each) for each in records]

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same reward function, but None for episodes without a reward, so that they are left out."""

        def masked(given: Sequence[Any], batch: Mapping[str, Any]) -> list[Any]:
            lacks = [each is not None and each.reward is None for each in records_of(**batch)]
            return [None if lack else each for lack, each in zip(lacks, given, strict=True)]

        @wraps(function)
        def wrapped(**batch: Any) -> list[Any]:
            return masked(function(**batch), batch)

        @wraps(function)
        async def awaited(**batch: Any) -> list[Any]:
            return masked(await function(**batch), batch)

        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            type(function).__call__
        )
        made = awaited if is_async else wrapped
        setattr(made, _MARK, True)
        return made

    def _wrap_others(self, functions: list[Any], first: Callable[..., Any]) -> None:
        """Wraps the other reward functions of a trainer. It drops only rows for which all return None."""
        own = functions.index(first) if first in functions else 0
        for number, each in enumerate(functions):
            if hasattr(each, _MARK) or _is_reward(each):
                continue
            model = hasattr(each, "forward")  # of PyTorch, which TRL calls in a way of its own
            if model or number < own:
                logger.warning(
                    "%s has scored episodes that have no reward, so that failures may train as losses:"
                    " give the trainer environments.wrap(function), or environments.reward first",
                    getattr(each, "__name__", type(each).__name__),
                )
            if not model:
                functions[number] = self.wrap(each)


class RewardFunction:
    """The reward function of one named reward; without a name, of what they all leave of the reward."""

    def __init__(self, environments: TRLEnvironments, name: str | None, names: Sequence[str]) -> None:
        self.__self__, self.__name__, self._name, self._names = environments, name or REST, name, names

    def __call__(
        self, environments: Sequence[Any], completions: Sequence[Any], **batch: Any
    ) -> list[float | None]:
        """The values of the episodes; None for those that have no reward."""
        return self.__self__._rewards(self, self._value, environments, completions, batch)

    def _value(self, record: EpisodeRecord) -> float:
        if self._name is not None:
            return record.components.get(self._name, 0.0)
        named = fsum(record.components.get(name, 0.0) for name in self._names)
        return round((record.reward or 0.0) - named, DIGITS)


def _is_reward(function: object) -> bool:
    return isinstance(getattr(function, "__self__", None), TRLEnvironments)
