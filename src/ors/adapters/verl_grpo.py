"""GRPO of verl without the rollouts that have no reward: `algorithm.adv_estimator=grpo_ors`."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est


@register_adv_est("grpo_ors")
def grpo_ors(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's GRPO, where a fully masked rollout is in no group, and one that is left alone is not trained."""
    live = response_mask.bool().any(-1).tolist()
    sizes, left = Counter(index), Counter(uid for uid, alive in zip(index, live, strict=True) if alive)
    lone = torch.tensor([left[uid] == 1 < sizes[uid] for uid in index], device=response_mask.device)
    alone = [
        uid if alive else f"{uid}/{row}" for row, (uid, alive) in enumerate(zip(index, live, strict=True))
    ]
    by_std = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
    mask = response_mask * ~lone.unsqueeze(-1)
    advantages, returns = compute_grpo_outcome_advantage(
        token_level_rewards, mask, np.array(alone, dtype=object), norm_adv_by_std_in_grpo=by_std
    )
    return advantages, returns
