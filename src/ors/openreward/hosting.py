"""Sandboxes as clients of openreward 0.1.167 describe them, and what an operator gives to them."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import normpath
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, model_validator

from ors.errors import BadRequest, NotFound, ResponseError, SandboxUnavailable
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
    """Not offered: settings that have one are refused."""


SandboxHostAlias = SandboxSidecarContainer


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


# ── Commands and files, as clients ask for them ──────────────────────────────────────────────────

LONGEST_WORD = 100_000
"""Longer commands go by standard input: a word of a command has at most 128 kB in Linux."""
OUTPUT_BYTES = 16 * 2**20
CHUNK_BYTES = 4 * 2**20
"""Most bytes of a file in one request."""
TIMED_OUT = 124
KILL_SECONDS = 5.0
FILE_SECONDS = 900.0

FILES = """
p=$2 t=$2.orpart
fail() { echo "$p: $2" >&2; exit $1; }
size() { stat -c %s -- "$1" 2> /dev/null || echo -1; }
sum() { sha256sum < "$1" | cut -c -64; }
case $1 in stat|read)
  [ ! -L "$p" ] || fail 40 "is a symlink"
  [ -e "$p" ] || fail 44 "there is no such file"
  [ -f "$p" ] || fail 40 "is not a regular file"
esac
case $1 in
stat) size "$p"; [ -z "$3" ] || sum "$p";;
read)
  n=$(size "$p")
  [ "$3" -le "$n" ] || fail 41 "has $n bytes"
  echo $n >&2
  tail -c +$(($3 + 1)) -- "$p" | head -c "$4";;
write)
  [ -z "$4" ] || mkdir -p -- "$(dirname -- "$p")" || exit 40
  [ "$3" = 0 ] || [ "$(size "$t")" -ge "$3" ] || fail 40 "the bytes before $3 have not arrived"
  : >> "$t" && truncate -s "$3" -- "$t" && cat >> "$t";;
commit)
  [ -e "$t" ] || t=$p  # the commit came twice
  [ "$(size "$t")" = "$3" ] || fail 40 "has $(size "$t") bytes, not $3"
  sum "$t" && { [ "$t" = "$p" ] || mv -T -- "$t" "$p"; };;
esac"""


class Ran(NamedTuple):
    """How a command ended, with the beginning of what it printed."""

    return_code: int
    output: bytes
    timed_out: bool


async def run_command(
    box: Sandbox, cmd: str, timeout: float | None, max_bytes: int | None, shell: str = "/bin/bash"
) -> Ran:
    """Runs a command. It goes on when it has printed `max_bytes`, but nothing further is kept."""
    most = OUTPUT_BYTES + 1 if max_bytes is None else min(max_bytes, OUTPUT_BYTES + 1)
    output, status = bytearray(), None
    word, stdin = (cmd, b"") if len(cmd) <= LONGEST_WORD else (". /dev/stdin", cmd.encode())
    process = await box.spawn(["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", shell, "-c", word])
    try:
        async with asyncio.timeout(timeout or None):
            await process.write(stdin, end=True)
            while data := await process.read():
                output += data[: most - len(output)]
            status, _ = await asyncio.shield(process.ended)
    except TimeoutError:
        process.kill()
        await asyncio.wait([process.ended], timeout=KILL_SECONDS)
    except asyncio.CancelledError:
        process.kill()
        raise
    if len(output) > OUTPUT_BYTES:
        text = f"The output is over the limit of {OUTPUT_BYTES} bytes; write it to a file, and download that"
        raise BadRequest(text, reason="limit")
    if status is None:
        return Ran(TIMED_OUT, bytes(output), timed_out=True)
    return Ran(status if status >= 0 else 128 - status, bytes(output), timed_out=False)


async def ask_file(
    box: Sandbox, what: str, path: str, *words: object, data: bytes = b""
) -> tuple[bytes, bytes]:
    """Asks the shell inside for a file, by FILES: what it prints, and its errors.

    "stat" takes whether to hash, "read" an offset and a length, "write" an offset and whether to make
    folders, "commit" a size. Chunks are written to a file beside `path`, which the commit moves there.
    """
    if "\0" in path:
        raise BadRequest("path: it contains a zero byte")
    command = ["/bin/sh", "-c", FILES, "sh", what, path, *(str(word) for word in words)]
    done = await box.exec(command, stdin=data, timeout=FILE_SECONDS, max_output=CHUNK_BYTES + 1024)
    if done.returncode == 0:
        return done.stdout, done.stderr
    text = done.stderr.decode(errors="replace").strip() or f"ended by a limit: {done.limit}"
    if done.returncode == 41:
        raise ResponseError(text, status=416)
    raise NotFound(text) if done.returncode == 44 else BadRequest(text)


def sizes(printed: tuple[bytes, bytes]) -> dict[str, int | str]:
    size, *digest = printed[0].decode().split()
    return {"size": int(size), "sha256": digest[0]} if digest else {"size": int(size)}
