"""What an operator gives to the sandboxes that clients of openreward describe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Literal

from ors.errors import BadRequest, SandboxUnavailable
from ors.openreward.settings import SandboxNetworkPolicy, SandboxSettings
from ors.sandbox import Allow, Sandbox, SandboxSpec, open_sandbox

GB = 2**30
PROCESSES = 512
WORKDIR = "/workspace"
PORTS = (80, 443)
"""Policies are for HTTP and HTTPS."""
HOST_ROOT = "pass --image NAME=PATH with its folder or archive, or --host-root to use this machine's programs"


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
    """Whether sandboxes get the network that they ask for: this machine's, or some hosts by HTTP."""
    memory: int | None = None
    """Most memory of one sandbox."""

    async def open(self, settings: SandboxSettings) -> Sandbox:
        """Opens the sandbox for these settings.

        Raises:
            BadRequest: it cannot be had here; the message says why, and what to do.
            SandboxUnavailable: so is its image, or all sandboxes are.
        """
        try:
            return await open_sandbox(self.spec(settings))
        except SandboxUnavailable as error:
            if settings.image not in str(error):
                raise
            raise SandboxUnavailable(f"{error}\n{HOST_ROOT}") from None

    def spec(self, settings: SandboxSettings) -> SandboxSpec:
        """What `open` opens. Raises BadRequest, as it does."""
        for name in ("sidecars", "host_aliases"):
            if getattr(settings, name):
                raise BadRequest(f"{name}: not offered here")
        cpus, memory = self._size(settings.machine_size)
        try:
            return SandboxSpec(
                backend="bwrap",  # no other has writable roots
                image=self._image(settings.image),
                writable=True,
                mounts=self._mounts(settings),
                workdir=WORKDIR,
                env=settings.env or {},
                network=self._network(settings),
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
        if name in self.images or self.host_root:
            return self.images.get(name)
        if name.startswith(("/", ".")) or Path(name).exists():  # clients name no folders of this machine
            raise BadRequest(f"image {name!r} is not a name of an image; {HOST_ROOT}")
        return name

    def _network(self, settings: SandboxSettings) -> Allow | Literal["none", "host"]:
        if settings.network is not None:
            return self._allowed(settings.network)
        return "host" if self.open_network and not settings.block_network else "none"

    def set_network(self, box: Sandbox, policy: SandboxNetworkPolicy) -> None:
        """Replaces the policy of a sandbox, and ends the connections that it has.

        Raises:
            BadRequest: the sandbox was opened without one, or this one cannot be had here.
        """
        allow, egress = self._allowed(policy), box.cell.egress
        if egress is None:
            raise BadRequest("The network of this sandbox cannot be changed: it was created without network=")
        egress.allow = allow
        egress.cut()

    def _allowed(self, policy: SandboxNetworkPolicy) -> Allow:
        decided: dict[str, str] = {}
        for rule in policy.rules:
            if rule.path or rule.methods or "*" in rule.host:
                raise BadRequest(f"network: the rule for {rule.host} is not for one whole host: not offered")
            decided.setdefault(rule.host.lower(), rule.action)  # the first one counts
        if policy.presets or not policy.enforce:
            raise BadRequest("network: presets and enforce=False are not offered; name the hosts in rules")
        hosts = [host for host, action in decided.items() if action == "allow"]
        if hosts and not self.open_network:
            raise BadRequest(f"network: {hosts[0]} cannot be reached from here without --open-network")
        try:
            return Allow(*(f"{host}:{port}" for host in hosts for port in PORTS))
        except ValueError as error:
            raise BadRequest(f"network: {error}") from None

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
