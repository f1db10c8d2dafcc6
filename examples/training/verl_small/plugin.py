"""What verl loads in all its processes: `VERL_USE_EXTERNAL_MODULES` names this module.

It brings the platform `cpu`, the rollout engine `small` and the tool parser `numbers`.
"""

from examples.training.verl_small import calls, cpu, patches, rollout  # noqa: F401 - each registers its part
