"""The CPU as a platform of verl: `VERL_PLATFORM=cpu`."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _nothing(*_: Any, **__: Any) -> int:
    """Stands for what a CPU does not have: a memory of its own, a queue to wait for, a profiler."""
    return 0


DEVICE = SimpleNamespace(
    is_available=lambda: False,  # as an accelerator
    get_device_name=lambda: "CPU",
    current_device=torch.cpu.current_device,
    device_count=torch.cpu.device_count,
    set_device=_nothing,
    synchronize=_nothing,
    empty_cache=_nothing,
    mem_get_info=lambda: (0, 0),
    memory_allocated=_nothing,
    memory_reserved=_nothing,
    max_memory_allocated=_nothing,
    max_memory_reserved=_nothing,
)


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    """Every tensor is in main memory, and processes talk by gloo."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = DEVICE
    set_device = synchronize = manual_seed = manual_seed_all = _nothing
    set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _nothing

    def is_available(self) -> bool:
        """It always is."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Never found by itself: who wants it sets `VERL_PLATFORM`."""
        return False

    def current_device(self) -> str:
        """What tensors are moved to."""
        return "cpu"

    def device_count(self) -> int:
        """One, however many cores there are."""
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """A GPU's generation."""
        return None, None

    def communication_backend_name(self) -> str:
        """PyTorch's own backend for CPUs."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable that Ray sets for `ray_resource_name`."""
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        """verl counts its workers by GPUs: the configuration tells Ray that there is one."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Variables that keep Ray from hiding devices."""
        return []

    def is_ipc_supported(self) -> bool:
        """Whether processes can share the memory of a device."""
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """A part of a profile."""
        yield
