"""Images written by hand, to the letter of the OCI image specification and of `docker save`."""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
OCI = "application/vnd.oci.image"


def entry(name: str, content: bytes | None = None, **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A file; or with `type` something else."""
    info = tarfile.TarInfo(name)
    info.size = len(content or b"")
    info.mode = 0o644 if content is not None else 0o755
    info.mtime = 1_000_000_000
    if content is None and "type" not in fields:
        info.type = tarfile.DIRTYPE
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content or b""


def link(name: str, target: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=target)


def layer(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


@dataclass
class MadeImage:
    """Layers from the lowest to the highest, uncompressed, and what the image says of its programs."""

    layers: list[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = MACHINE
    compress: Callable[[bytes], bytes] = gzip.compress

    def __post_init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        rootfs = {"type": "layers", "diff_ids": [digest(each) for each in self.layers]}
        about = {"os": "linux", "architecture": self.architecture, "config": self.config, "rootfs": rootfs}
        self.about = json.dumps(about).encode()
        layers = [self._blob("layer.v1.tar", self.compress(each)) for each in self.layers]
        manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json"}
        manifest |= {"config": self._blob("config.v1+json", self.about), "layers": layers}
        self.manifest = self._blob("manifest.v1+json", json.dumps(manifest).encode())

    @property
    def id(self) -> str:
        return digest(self.about).removeprefix("sha256:")

    def _blob(self, kind: str, data: bytes) -> dict[str, Any]:
        self.blobs[digest(data)] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": digest(data), "size": len(data)}


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def oci_files(images: Mapping[str, MadeImage]) -> dict[str, bytes]:
    """The OCI layout, with an image for each name."""
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    manifests = []
    for name, image in images.items():
        annotations = {"org.opencontainers.image.ref.name": name}
        target = {"os": "linux", "architecture": image.architecture}
        manifests.append({**image.manifest, "annotations": annotations, "platform": target})
        files |= {f"blobs/sha256/{key[7:]}": data for key, data in image.blobs.items()}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    return files


def docker_files(images: Mapping[str, MadeImage]) -> dict[str, bytes]:
    """What `docker save` writes: layers are not compressed, and have paths."""
    files: dict[str, bytes] = {}
    manifest = []
    for name, image in images.items():
        paths = [f"{digest(each)[7:]}/layer.tar" for each in image.layers]
        files |= dict(zip(paths, image.layers, strict=True)) | {f"{image.id}.json": image.about}
        manifest.append({"Config": f"{image.id}.json", "RepoTags": [name], "Layers": paths})
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def directory_files(images: Mapping[str, MadeImage]) -> dict[str, bytes]:
    """What `skopeo copy` writes to dir: one image."""
    (image,) = images.values()
    files = {key[7:]: data for key, data in image.blobs.items()}
    return {**files, "manifest.json": image.blobs[image.manifest["digest"]]}


def in_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def in_archive(path: Path, files: Mapping[str, bytes], compress: Callable[[bytes], bytes] = bytes) -> Path:
    path.write_bytes(compress(layer(*(entry(f"./{name}", data) for name, data in files.items()))))
    return path


def tree(root: Path, leave: Iterable[str] = ("etc",)) -> dict[str, tuple[object, ...]]:
    """What is below a folder: kind, mode, content or target of each path."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] in leave:
            continue
        mode = path.lstat().st_mode & 0o7777
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", oct(mode))
        else:
            found[name] = ("file", oct(mode), path.read_bytes())
    return found
