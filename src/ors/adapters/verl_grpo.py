"""For verl's trainer, by `VERL_USE_EXTERNAL_MODULES=ors.adapters.verl_grpo`: rollouts without a reward.

The estimator `grpo_ors` leaves them out of the baseline, and verl's own metrics are without them.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo import metric_utils
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est

from ors.adapters.training import MostFailed, means_of

_verls_metrics = metric_utils.compute_data_metrics


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
    groups = [uid if alive else None for uid, alive in zip(index, live, strict=True)]
    sizes, left = Counter(index), Counter(groups)
    lone = torch.tensor([left[uid] == 1 < sizes[uid] for uid in index], device=response_mask.device)
    by_std = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
    mask = response_mask * ~lone.unsqueeze(-1)
    advantages, returns = compute_grpo_outcome_advantage(
        token_level_rewards, mask, np.array(groups, dtype=object), norm_adv_by_std_in_grpo=by_std
    )
    return advantages, returns


def compute_data_metrics(batch: Any, use_critic: bool = True) -> dict[str, Any]:
    """verl's metrics of a step, over the rollouts that are not left out, and the share of each outcome."""
    live = batch.batch["response_mask"].bool().any(-1)
    if not live.any():
        raise MostFailed(
            f"all {len(live)} rollouts of this step are left out: see the logs of verl's workers"
        )
    metrics: dict[str, Any] = _verls_metrics(batch.select_idxs(live), use_critic)
    told = {name: values for name, values in batch.non_tensor_batch.items() if name.startswith("ors/")}
    metrics |= {name: float(np.mean(values.astype(float))) for name, values in told.items()}
    named = [each or {} for each in batch.non_tensor_batch.get("ors_components", [])]
    counted = [each for each, alive in zip(named, live.tolist(), strict=False) if alive]
    metrics |= {f"ors/reward/{name}": mean for name, mean in means_of(counted).items()}
    return metrics | {"ors/left_out": 1 - live.float().mean().item()}


# verl has no hook for it: its modules call their own function of this name.
for module in [each for name, each in sys.modules.items() if name.startswith("verl.")]:
    if getattr(module, "compute_data_metrics", None) is _verls_metrics:
        setattr(module, "compute_data_metrics", compute_data_metrics)  # noqa: B010
