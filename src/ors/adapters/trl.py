"""TRL: environments for `GRPOTrainer(environment_factory=…, reward_funcs=…)`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Unpack

from ors.adapters.common.clients import exit_on_sigterm, secrets_from
from ors.adapters.common.methods import tool_method
from ors.adapters.common.training import Training, TrainingArguments, Watch, check_step, logger
from ors.adapters.trl_rollout import Rollout, records_of
from ors.client import Environment, convert_tools

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
            raise ValueError("TRL ends a rollout with its first reply without a call: it cannot send a nudge")
        tools = convert_tools(env.list_tools(), "openai-chat")
        methods = {tool["function"]["name"]: tool_method(**tool["function"]) for tool in tools}
        self._class: type[Rollout] = type(f"{env.name}_environment", (Rollout,), methods)
        self._env = env
        self._secrets = secrets_from(secrets)
        self._watch = Watch()
        exit_on_sigterm()

    def __call__(self) -> Rollout:
        """A new environment, which plays one episode after the other."""
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
        log: Callable[[str, float], object] = batch.get("log_metric", lambda *_: None)
        functions = getattr(getattr(log, "__self__", None), "reward_funcs", [])
        if self.reward != next(filter(_is_reward, functions), self.reward):
            return [None] * len(environments)
        self._wrap_others(functions)
        records = records_of(environments, completions, **batch)
        played = [each for each in records if each is not None]
        for name, value in self._watch.count(played).items():
            log(name, value)
        check_step(played)
        return [None if each is None else each.reward for each in records]

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

    def _wrap_others(self, functions: list[Any]) -> None:
        """Wraps the other reward functions of a trainer. It drops only rows for which all return None."""
        own = functions.index(self.reward) if self.reward in functions else 0
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


def _is_reward(function: object) -> bool:
    return isinstance(getattr(function, "__self__", None), TRLEnvironments)
