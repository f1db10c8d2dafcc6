"""verl: an agent loop, and the agent that replies with the tokens of verl's servers."""

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from math import inf
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.trainer.ppo.core_algos import AdvantageEstimator

from ors.adapters.chat import call_of, chat_message, images_of, parse_reply, reply_message, tool_schemas
from ors.adapters.training import Training, kind, recent, secrets_from, shared_client, told
from ors.errors import ORSError
from ors.rollouts import (
    AgentMessage,
    ContextExceeded,
    Conversation,
    EpisodeRecord,
    Message,
    ToolMessage,
    Usage,
    play,
)
from ors.rollouts.driver import with_retries
from ors.types import ToolSpec

_COLUMNS = {"data_source", "extra_info", "index", "raw_prompt", "reward", "reward_model", "uid"}
"""Names that verl's batches use: a reward of such a name is `reward_…` there."""


class TokenAgent:
    """Replies with the tokens that verl's servers sample, and keeps them. Plays one episode."""

    def __init__(self, loop: AgentLoopBase, sampling_params: dict[str, Any]) -> None:
        self._loop, self._config = loop, loop.rollout_config
        self._parser = ToolParser.get_tool_parser(self._config.multi_turn.format, loop.tokenizer)
        stops = {*(sampling_params.get("stop_token_ids") or ()), *self._parser.stop_token_ids}
        self._sampling = sampling_params | ({"stop_token_ids": sorted(stops)} if stops else {})
        self._messages: list[dict[str, Any]] = []
        self._request, self._seen = uuid4().hex, 0
        self._images: list[Any] = []
        self._ids, self._mask = list[int](), list[int]()
        self._logprobs: list[float] | None = [] if sampling_params.get("logprobs") else None
        self._extra: dict[str, Any] = {}
        self._experts: Any = None
        self._schemas, self._typed = list[dict[str, Any]](), list[OpenAIFunctionToolSchema]()

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        if not self._messages:  # the tools are the same in all turns
            self._schemas = tool_schemas(tools)
            self._typed = [OpenAIFunctionToolSchema.model_validate(each) for each in self._schemas]
        await self._read(conversation.messages[self._seen :])
        sampled = await self._loop.server_manager.generate(
            request_id=self._request,
            prompt_ids=self._ids,
            sampling_params=self._sampling,
            image_data=self._images or None,
        )
        usage, self._seen = Usage(len(self._ids), len(sampled.token_ids)), len(conversation.messages) + 1
        await self._keep(sampled)
        if sampled.stop_reason == "length" or self._is_full():
            return AgentMessage(stop="length", usage=usage)
        reply = await self._parsed(sampled.token_ids)
        calls = reply.calls[: self._config.multi_turn.max_parallel_calls]
        self._messages.append(reply_message(reply.text, calls))
        return AgentMessage(reply.text, calls, usage=usage)

    def _is_full(self) -> bool:
        """Whether a reply was cut off. Some of verl's servers do not say so: it is as long as they allow."""
        config = self._config
        whole = min(config.prompt_length + config.response_length, config.max_model_len or inf)
        return bool(len(self._mask) >= config.response_length or len(self._ids) >= whole)

    async def _parsed(self, ids: list[int]) -> AgentMessage:
        if self._config.multi_turn.format == "hermes":  # verl's own parser drops calls that it cannot read
            return parse_reply(self._loop.tokenizer.decode(ids))
        text, found = await self._parser.extract_tool_calls(ids, self._typed)
        turn = len(self._messages)
        calls = [
            call_of(each.name, each.arguments, each.tool_call_id or f"call_{turn}_{number}")
            for number, each in enumerate(found)
        ]
        return AgentMessage(text, tuple(calls))

    async def _read(self, new: Sequence[Message]) -> None:
        """Adds the tokens of new messages, which are never the model's."""
        updated = self._messages + [chat_message(message) for message in new]
        images = [image for each in updated[len(self._messages) :] for image in images_of(each["content"])]
        self._loop._assert_mm_supported(bool(images))
        if not self._messages:
            built = self._loop.ct_build_initial_tokens
            self._ids = await built(updated, tools=self._schemas, images=images or None)
        else:
            merged, mask, logprobs = await self._loop.ct_merge_context_msg(
                self._messages, updated, self._ids, self._mask, self._logprobs, tools=self._schemas
            )
            if len(mask) >= self._config.response_length:
                raise ContextExceeded(f"the response is over {self._config.response_length} tokens")
            self._ids, self._mask, self._logprobs = merged.token_ids, mask, logprobs
        self._messages, self._images = updated, self._images + images

    async def _keep(self, sampled: Any) -> None:
        merged, self._mask, self._logprobs = await self._loop.ct_merge_assistant_token(
            self._ids, sampled.token_ids, self._mask, self._logprobs, assistant_logprobs=sampled.log_probs
        )
        self._ids, self._experts = merged.token_ids, sampled.routed_experts
        newest = {key: value for key, value in sampled.extra_fields.items() if key == "max_global_steps"}
        self._extra = (self._extra or sampled.extra_fields) | newest

    def output(
        self, record: EpisodeRecord, step: int | None, metrics: dict[str, float], names: Sequence[str]
    ) -> AgentLoopOutput:
        """The rollout for verl: the reward is at its last token. `names` are those of `reward_extra_info`."""
        cut, pad = self._config.response_length, self._loop.tokenizer.pad_token_id
        start = len(self._ids) - len(self._mask)
        # Attention needs a token, also where the episode ended before any was sampled.
        response, mask = self._ids[start:] or [pad], self._mask or [0]
        logprobs = None if self._logprobs is None else self._logprobs or [0.0]
        steps = [reward for reward in record.rewards if reward is not None]
        calls = [each.seconds for each in record.messages if isinstance(each, ToolMessage)]
        # verl asks for the versions of the model that sampled, also where none did: it is the last one then.
        last = {} if step is None else {"min_global_steps": step - 1, "max_global_steps": step - 1}
        outcome: dict[str, Any] = {"tool_rewards": steps, "ors_outcome": record.outcome.type}
        outcome["ors_calls"] = len(calls)
        outcome["ors_components"] = dict(record.components)
        # verl wants the same names in all rows of all its workers.
        named = {
            f"reward_{name}" if name in _COLUMNS else name: record.components.get(name, 0.0) for name in names
        }
        outcome |= {"reward_extra_info": named} if named else {}
        return AgentLoopOutput(
            prompt_ids=self._ids[:start] or [pad],
            response_ids=response[:cut],
            response_mask=(mask if record.reward is not None else [0] * len(mask))[:cut],
            response_logprobs=None if logprobs is None else logprobs[:cut],
            routed_experts=self._experts,
            multi_modal_data={"images": self._images} if self._images else {},
            reward_score=record.reward or 0.0,
            num_turns=len(record.messages),
            metrics=AgentLoopMetrics(generate_sequences=record.seconds - sum(calls), tool_calls=sum(calls)),
            extra_fields=last | self._extra | outcome | metrics,
        )


_WITHOUT_BASELINE = (AdvantageEstimator.GAE, AdvantageEstimator.REINFORCE_PLUS_PLUS)


class ORSAgentLoop(AgentLoopBase):
    """Plays the task that a row names in `extra_info`, by `split` and `index`. The row's prompt is not used.

    `base_url`, `environment`, the `arguments` of the adapters and `secrets`, which names variables of the
    process, come from the file at `agent_loop_config_path`.
    """

    def __init__(
        self, *args: Any, base_url: str, environment: str, arguments: Any, secrets: Any = (), **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self._base_url, self._environment, self._secrets = base_url, environment, secrets_from(secrets)
        self._training = Training.of(OmegaConf.to_object(arguments))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays one episode. One without reward is masked: `grpo_ors` leaves it out of the baseline too."""
        estimator = OmegaConf.select(self.config, "algorithm.adv_estimator")
        if estimator in list(AdvantageEstimator) and estimator not in _WITHOUT_BASELINE:
            raise ValueError(
                f"algorithm.adv_estimator={estimator} counts episodes without a reward as 0 in the baseline:"
                " set it to grpo_ors, and VERL_USE_EXTERNAL_MODULES to ors.adapters.verl_grpo"
            )
        env, task = shared_client(self._base_url).environment(self._environment), row["extra_info"]
        agents: list[TokenAgent] = []
        played = recent(self._base_url, self._environment)
        if played.names is None:
            with suppress(ORSError):  # the episode will say why
                played.names = tuple((await env.reward_spec()).components)

        def attempt() -> Awaitable[EpisodeRecord]:
            agents.append(TokenAgent(self, sampling_params))
            session = env.session(secrets=self._secrets, split=task["split"], index=int(task["index"]))
            return play(session, agents[-1], **self._training.arguments)

        record = await with_retries(attempt, self._training.retries)
        if kind(record.outcome) in ("failed_agent", "failed_model") and record.reward is None:
            raise RuntimeError(f"the episode {told(record.outcome)}")
        metrics = played.count(record)
        return agents[-1].output(record, row.get("global_steps"), metrics, played.names or ())
