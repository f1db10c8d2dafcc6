"""Sandboxes as clients of openreward 0.1.167 describe them."""

import re
from typing import Literal, Self

from pydantic import BaseModel, model_validator

MachineSize = Literal[
    "0.5:0.5", "1:1", "2:2", "4:4", "8:8", "16:16", "0.5:1", "1:2", "2:4", "4:8", "8:16",
    "0.5:2", "1:4", "2:8", "4:16", "8:32", "16:64", "nvidia-l4",
]  # fmt: skip
"""CPUs and gigabytes of memory."""
_KEYS = re.compile(r"[A-Z0-9_]+_API_KEY|HF_TOKEN|REPLICATE_API_TOKEN|KAGGLE_\w+|MODAL_TOKEN_\w+")
_REPOSITORY = re.compile(r"(?!(?:datasets|spaces|api|models)/)[\w.-]+/[\w.-]+", re.ASCII | re.IGNORECASE)


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


def hf_model_rules(repo_id: str) -> list[SandboxEgressRule]:
    if not _REPOSITORY.fullmatch(repo_id):
        raise ValueError(f"expected a canonical model repo id like 'org/name', got {repo_id!r}")
    api, files = f"/api/models/{repo_id}", f"/{repo_id}/resolve/*"
    paths = (api, f"{api}/*", files, f"/api/resolve-cache/models/{repo_id}/*")
    return [
        SandboxEgressRule(action="allow", host=host, path=path, methods=["GET", "HEAD"])
        for host in ("huggingface.co", "hf.co")
        for path in paths
    ]


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
