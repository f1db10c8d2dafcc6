"""The two places of verl 0.9.1 that stand in the way, and for which it has no setting."""

from functools import partial

from verl.utils import distributed, import_utils

# It asks for the backends "cpu:gloo,DEVICE:BACKEND", and PyTorch refuses to have the CPU in it twice.
distributed.initialize_global_process_group_ray = partial(
    distributed.initialize_global_process_group_ray, backend="gloo"
)

# Where TRL is installed too, it changes a class that TRL 1.16 no longer has. Only critics would need it.
import_utils.is_trl_available = lambda: False
