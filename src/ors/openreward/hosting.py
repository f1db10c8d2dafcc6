"""Sandboxes as clients of openreward 0.1.167 describe them, and what an operator gives to them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import normpath
from typing import Literal, Self

from pydantic import BaseModel, model_validator

from ors.errors import BadRequest, SandboxUnavailable
from ors.sandbox import Allow, Sandbox, SandboxSpec, open_sandbox
from ors.sandbox.images import rooted

GB = 2**30
PROCESSES = 512
WORKDIR = "/workspace"
PORTS = (80, 443)
"""Policies are for HTTP and HTTPS."""
HOW = "pass --image NAME=PATH with its folder or archive; --host-root uses this machine's programs instead"

MachineSize = Literal[
    "0.5:0.5", "1:1", "2:2", "4:4", "8:8", "16:16", "0.5:1", "1:2", "2:4", "4:8", "8:16",
    "0.5:2", "1:4", "2:8", "4:16", "8:32", "16:64", "nvidia-l4",
]  # fmt: skip
"""CPUs and gigabytes of memory."""
_KEYS = re.compile(r"[A-Z0-9_]+_API_KEY|HF_TOKEN|REPLICATE_API_TOKEN|KAGGLE_\w+|MODAL_TOKEN_\w+")


class SandboxBucketConfig(BaseModel):
    mount_path: str
    read_only: Literal[True] = True
    only_dir: str | None = None
    implicit_dirs: bool = True


class SandboxSidecarContainer(BaseModel, extra="allow"):
    name: str
    image: str


class SandboxHostAlias(BaseModel):
    ip: str
    hostnames: list[str]


class SandboxEgressRule(BaseModel):
    action: Literal["allow", "deny"]
    host: str
    path: str | None = None
    methods: list[str] | None = None


class SandboxNetworkPolicy(BaseModel):
    rules: list[SandboxEgressRule] = []
    presets: list[str] = []
    enforce: bool = True


class SandboxSettings(BaseModel):
    environment: str
    image: str
    machine_size: MachineSize
    env: dict[str, str] | None = None
    block_network: bool = False
    bucket_config: SandboxBucketConfig | None = None
    sidecars: list[SandboxSidecarContainer] | None = None
    host_aliases: list[SandboxHostAlias] | None = None
    network: SandboxNetworkPolicy | None = None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.network is not None and self.block_network:
            raise ValueError("network and block_network=True are mutually exclusive")
        if self.env is not None:  # programs look for such keys in either case
            self.env = {**{k.lower(): v for k, v in self.env.items() if _KEYS.fullmatch(k)}, **self.env}
        return self


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
        """Opens the sandbox for these settings. An image may say where programs start."""
        spec = self.spec(settings)
        try:
            spec = spec if spec.image is None else await rooted(spec)
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"{error}; {HOW}") from None
        return await open_sandbox(replace(spec, workdir=WORKDIR) if spec.workdir == "/work" else spec)

    def spec(self, settings: SandboxSettings) -> SandboxSpec:
        """What `open` opens. Raises BadRequest: it cannot be had here, and why."""
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
            raise BadRequest(f"image {name!r} is not an image name; {HOW}")
        return name

    def _network(self, settings: SandboxSettings) -> Allow | Literal["none", "host"]:
        if settings.network is not None:
            return self._allowed(settings.network)
        return "host" if self.open_network and not settings.block_network else "none"

    def set_network(self, box: Sandbox, policy: SandboxNetworkPolicy) -> None:
        """Replaces the policy of a sandbox, and ends the connections that it has."""
        allow, egress = self._allowed(policy), box.cell.egress
        if egress is None:
            raise BadRequest("The network of this sandbox cannot be changed: it was created without network=")
        egress.allow = allow
        egress.cut()

    def _allowed(self, policy: SandboxNetworkPolicy) -> Allow:
        decided: dict[str, str] = {}
        for rule in policy.rules:
            if rule.path or rule.methods or "*" in rule.host:
                raise BadRequest(f"network: the rule for {rule.host} does not cover one whole host")
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
