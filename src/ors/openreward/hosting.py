"""What an operator gives to the sandboxes that clients of openreward describe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath

from ors.errors import BadRequest
from ors.openreward.settings import SandboxSettings
from ors.sandbox import SandboxSpec

GB = 2**30
PROCESSES = 512
WORKDIR = "/workspace"


@dataclass(frozen=True)
class Hosting:
    """Images, data, network and memory for sandboxes."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Where images are: folders, or archives as `podman save` writes them."""
    host_root: bool = False
    """Whether other images get the programs of this machine."""
    data: Path | None = None
    """The folder that buckets are mounted from."""
    open_network: bool = False
    """Whether sandboxes that do not block the network get this machine's."""
    memory: int | None = None
    """Most memory of one sandbox."""

    def spec(self, settings: SandboxSettings) -> SandboxSpec:
        """The sandbox for these settings.

        Raises:
            BadRequest: it cannot be had here; the message says why, and what to do.
        """
        for name in ("sidecars", "host_aliases", "network"):
            if getattr(settings, name) is not None:
                raise BadRequest(f"{name}: not offered here")
        cpus, memory = self._size(settings.machine_size)
        try:
            return SandboxSpec(
                image=self._image(settings.image),
                writable=True,
                mounts=self._mounts(settings),
                workdir=WORKDIR,
                env=settings.env or {},
                network="host" if self.open_network and not settings.block_network else "none",
                cpus=cpus,
                memory=memory,
                disk=memory // 2,
                tmp=memory // 8,
                processes=PROCESSES,
            )
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def _size(self, machine_size: str) -> tuple[float, int]:
        cpus, _, gigabytes = machine_size.partition(":")
        if not gigabytes:
            raise BadRequest(f"machine_size {machine_size!r}: there is no GPU here; choose one such as '1:2'")
        memory = int(float(gigabytes) * GB)
        if self.memory is not None and memory > self.memory:
            most = f"{self.memory / GB:g} GB of memory"
            raise BadRequest(f"machine_size {machine_size!r}: a sandbox has at most {most} here")
        return float(cpus), memory

    def _image(self, name: str) -> str | None:
        # Never the name itself, which a client could make a path of this machine.
        if name not in self.images and not self.host_root:
            raise BadRequest(
                f"image {name!r} is not here. Pass --image {name}=PATH with its folder or archive, "
                "or --host-root to use the programs of this machine instead"
            )
        return self.images.get(name)

    def _mounts(self, settings: SandboxSettings) -> dict[str, str]:
        bucket = settings.bucket_config
        if bucket is None:
            return {}
        if self.data is None:
            raise BadRequest(f"bucket_config: pass --data FOLDER with the files for {bucket.mount_path}")
        within = (bucket.only_dir or "").lstrip("/")
        folder = (self.data / within).resolve()
        if not folder.is_relative_to(self.data.resolve()) or not folder.is_dir() or ":" in within:
            raise BadRequest(f"bucket_config: there is no folder {bucket.only_dir!r} in the data")
        return {normpath(bucket.mount_path): str(folder)}
