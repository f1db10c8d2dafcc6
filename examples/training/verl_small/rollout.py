"""A rollout engine for small models, in plain PyTorch: `actor_rollout_ref.rollout.name=small`."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

GATHER_SECONDS = 0.01
"""How long a reply waits for others, to be sampled in one forward pass with them."""


@dataclass
class Reply:
    """A reply that is being sampled."""

    prompt: list[int]
    temperature: float
    longest: int
    future: asyncio.Future[None]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TokenServer:
    """Has a copy of the model, and samples the pending replies of all episodes together. A Ray actor."""

    def __init__(self, path: str, longest: int, seed: int) -> None:
        torch.set_num_threads(1)  # the matrices are small: more threads would only wait for each other
        torch.manual_seed(seed)
        self._model = AutoModelForCausalLM.from_pretrained(path).eval()
        ends = self._model.generation_config.eos_token_id
        self._ends = {ends} if isinstance(ends, int) else set(ends)
        self._longest = longest
        self._version: int | None = None
        self._waiting: list[Reply] = []

    async def load(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        """Takes the weights of the trainer, which all replies have from now on."""
        self._model.load_state_dict(weights)
        self._version = version

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: None = None,
        video_data: None = None,
    ) -> TokenOutput:
        """Samples a reply, until a token that ends it.

        Raises:
            ValueError: `top_k` or `top_p` is to leave tokens out.
        """
        if sampling_params["top_k"] > 0 or sampling_params["top_p"] < 1:
            raise ValueError("the rollout engine 'small' samples from all tokens: leave top_k and top_p out")
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(GATHER_SECONDS, self._sample)
        reply = Reply(list(prompt_ids), sampling_params["temperature"], self._longest, loop.create_future())
        self._waiting.append(reply)
        await reply.future
        said = {"global_steps": self._version}
        return TokenOutput(
            token_ids=reply.ids, log_probs=reply.logprobs, stop_reason="completed", extra_fields=said
        )

    def _sample(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._extend(waiting)
        except Exception as error:  # these episodes fail with it
            for reply in waiting:
                reply.future.set_exception(error)
            return
        for reply in waiting:
            if reply.ids[-1] in self._ends or len(reply.ids) == reply.longest:
                reply.future.set_result(None)
            else:
                self._waiting.append(reply)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._sample)

    def _extend(self, replies: list[Reply]) -> None:
        """Adds a token to each reply."""
        rows = [torch.tensor(reply.prompt + reply.ids) for reply in replies]
        ends = torch.tensor([len(row) - 1 for row in rows])
        # What follows a row's end is never attended to.
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        with torch.inference_mode():
            choices = self._model(ids, use_cache=False).logits[torch.arange(len(rows)), ends]
            heat = torch.tensor([[max(reply.temperature, 1e-6)] for reply in replies])
            logprobs = (choices / heat).log_softmax(-1)
            chosen = logprobs.exp().multinomial(1)
            chances = logprobs.gather(1, chosen)
        for reply, token, chance in zip(replies, chosen[:, 0].tolist(), chances[:, 0].tolist(), strict=True):
            reply.ids.append(token)
            reply.logprobs.append(chance)


def server_name(rank: int) -> str:
    """The name of the server that belongs to a worker."""
    return f"small_server_{rank}"


class Replica(RolloutReplica):
    """Starts the server; verl's agent loops ask it for replies."""

    async def launch_servers(self) -> None:
        """Starts one actor, which loads the model before it answers."""
        name = server_name(self.replica_rank)
        actor = ray.remote(TokenServer).options(name=name, max_concurrency=self.max_concurrency)
        server = actor.remote(self.model_config.path, self.config.response_length, self.config.seed)
        self.servers, self._server_handle, self._server_address = [server], server, name

    async def sleep(self) -> None:
        """A small model leaves room enough for the trainer."""


class Rollout(base.BaseRollout):
    """The side of the trainer's worker: sends its weights to the server."""

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Sends all weights; returns once the server has them."""
        server = ray.get_actor(server_name(int(os.environ["RANK"])))
        copies = {name: tensor.detach().clone() for name, tensor in weights}
        await server.load.remote(copies, global_steps)

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """A small model leaves room enough for the trainer."""


RolloutReplicaRegistry.register("small", lambda: Replica)
# verl 0.9.1 has no function for this: the workers' half of an engine is looked up here.
base._ROLLOUT_REGISTRY["small", "async"] = f"{__name__}.Rollout"
