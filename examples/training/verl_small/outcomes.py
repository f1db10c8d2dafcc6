"""How the episodes of a step ended, among verl's metrics."""

from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class CountingBuffer(ReplayBuffer):
    """verl's buffer of episodes, which counts the outcomes and the tool calls of those that it hands out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=0.1, **kwargs)  # verl's two seconds are a large part of a step

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """The episodes of a step, and metrics."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        stored = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=partition_id, select_fields=["extra_fields"]
        )
        said = list(stored["extra_fields"])
        outcomes = [each["ors_outcome"] for each in said]
        counts = {
            "ors/episodes": len(said),
            "ors/failed": outcomes.count("failed"),
            "ors/truncated": outcomes.count("truncated"),
            "ors/calls": sum(each["ors_calls"] for each in said),
        }
        return batch, metrics | counts
