"""Images in folders and archives, in the OCI layout or as `docker save` writes them; names of images."""

import hashlib
import json
import platform
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from ors.sandbox.images.unpack import Entry, ImageRefused

LARGEST_DOCUMENT = 8 * 2**20
MOST_LAYERS, MOST_FILES = 500, 10_000
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""Annotations that name an image of a layout."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, in full: docker.io/library/python:3.12 for python:3.12."""

    host: str
    repository: str
    tag: str
    """A tag or a digest."""

    @classmethod
    def parsed(cls, name: str) -> "Reference | None":
        """Reads a name; None if it cannot be one."""
        found = re.fullmatch(r"([a-z0-9][\w.:/-]*?)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?", name)
        if found is None:
            return None
        first, _, rest = found[1].partition("/")
        if not rest or not (first == "localhost" or set(first) & {".", ":"}):
            first, rest = HUB, found[1]
        if first == HUB and "/" not in rest:
            rest = f"library/{rest}"
        return cls(first, rest, found[3] or found[2] or "latest")

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}{'@' if ':' in self.tag else ':'}{self.tag}"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can be unpacked. Its id is the digest of its configuration, which names its layers."""

    id: str
    config: bytes
    digests: Sequence[str]
    """Digests of the layers, uncompressed."""
    layers: Sequence[Callable[[], IO[bytes]]]


class Store(Protocol):
    """Parts of images, by their digests."""

    def document(self, descriptor: Mapping[str, Any]) -> bytes:
        """A small part, which matches its digest."""

    def layer(self, descriptor: Mapping[str, Any]) -> IO[bytes]: ...


def image_of(store: Store, manifest: Mapping[str, Any], wanted: str = "", depth: int = 0) -> Image:
    """Follows a manifest, or an index of manifests, to the image for this machine."""
    if "manifests" in manifest and depth < 3:
        chosen = _chosen(manifest["manifests"], wanted)
        return image_of(store, json.loads(store.document(chosen)), wanted, depth + 1)
    if "config" not in manifest or "layers" not in manifest:
        raise ImageRefused("its manifest is not one of OCI, nor of docker's second version")
    layers = [partial(store.layer, each) for each in manifest["layers"]]
    return _checked(store.document(manifest["config"]), layers)


def _checked(text: bytes, layers: Sequence[Callable[[], IO[bytes]]]) -> Image:
    config = json.loads(text)
    digests, built_for = config["rootfs"]["diff_ids"], config.get("architecture") or _architecture()
    if len(digests) != len(layers) or len(layers) > MOST_LAYERS:
        raise ImageRefused(f"it has {len(layers)} layers, and digests of {len(digests)}")
    if built_for != _architecture():
        raise ImageRefused(f"it is for {built_for}, and this machine is {_architecture()}")
    return Image(hashlib.sha256(text).hexdigest(), text, digests, layers)


def _chosen(manifests: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    here = {"os": "linux", "architecture": _architecture()}
    fitting = [each for each in manifests if here.items() <= {**here, **(each.get("platform") or {})}.items()]
    names = [[str((each.get("annotations") or {}).get(key, "")) for key in NAMES] for each in fitting]
    return fitting[_position(names, wanted)]


def _position(names: Sequence[Sequence[str]], wanted: str) -> int:
    """The position of the image with the wanted name, or of the only one."""
    if not names:
        raise ImageRefused(f"it has no image for linux/{_architecture()}")
    known = Reference.parsed(wanted)
    for position, each in enumerate(names):
        if known and any(name == known.tag or Reference.parsed(name) == known for name in each if name):
            return position
    if len({tuple(each) for each in names}) > 1:
        found = ", ".join(next(filter(None, each), "one without a name") for each in names)
        raise ImageRefused(f"it has several images ({found}); say which one by NAME=PATH")
    return 0


def _architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def matching(data: bytes, digest: str) -> bytes:
    """The data, if it has this digest."""
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ImageRefused(f"a part of it does not match its digest {digest}")
    return data


def digits(descriptor: Mapping[str, Any]) -> str:
    """The digits of a digest, which are safe as a name of a file."""
    digest = str(descriptor.get("digest"))
    if re.fullmatch("sha256:[0-9a-f]{64}", digest) is None:
        raise ImageRefused(f"{digest!r} is not a SHA-256 digest")
    return digest[7:]


# ── Folders and archives ─────────────────────────────────────────────────────────────────────────


def is_image(folder: Path) -> bool:
    """Whether a folder holds an image, rather than being the root of one."""
    return any((folder / name).is_file() for name in ("index.json", "manifest.json"))


@contextmanager
def local(path: Path, wanted: str) -> Iterator[Image]:
    """The image of a folder or an archive; with the wanted name, if it has several."""
    if path.is_dir():
        yield _Files(partial(_beneath, path.resolve())).image(wanted)
        return
    with tarfile.open(path, tarinfo=Entry) as archive:
        members: dict[str, tarfile.TarInfo] = {}
        for member in archive:
            members[member.name.removeprefix("./")] = member
            if len(members) > MOST_FILES:
                raise ImageRefused(f"it has more than {MOST_FILES:,} files: that is no archive of an image")
        yield _Files(lambda name: archive.extractfile(members[name])).image(wanted)


def _beneath(folder: Path, name: str) -> IO[bytes]:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise ImageRefused(f"its file {name} is elsewhere")
    return path.open("rb")


class _Files:
    def __init__(self, read: Callable[[str], IO[bytes] | None]) -> None:
        self._read = read

    def image(self, wanted: str) -> Image:
        if (index := self._small("index.json")) is not None:
            return image_of(self, json.loads(index), wanted)
        found = json.loads(self._small("manifest.json") or b"null")
        if isinstance(found, dict):  # what `skopeo copy` writes to dir:
            return image_of(self, found)
        if not isinstance(found, list):
            raise ImageRefused("it is no image: it has neither index.json nor manifest.json")
        chosen = found[_position([each.get("RepoTags") or [] for each in found], wanted)]
        layers = [partial(self._present, name) for name in chosen["Layers"]]
        return _checked(self._small(chosen["Config"]) or b"", layers)

    def document(self, descriptor: Mapping[str, Any]) -> bytes:
        name = digits(descriptor)
        data = self._small(f"blobs/sha256/{name}") or self._small(name) or b""
        return matching(data, descriptor["digest"])

    def layer(self, descriptor: Mapping[str, Any]) -> IO[bytes]:
        name = digits(descriptor)
        return self._open(f"blobs/sha256/{name}") or self._present(name)

    def _open(self, name: str) -> IO[bytes] | None:
        try:
            return self._read(name)
        except (KeyError, FileNotFoundError):
            return None

    def _present(self, name: str) -> IO[bytes]:
        file = self._open(name)
        if file is None:
            raise ImageRefused(f"its file {name} is missing")
        return file

    def _small(self, name: str) -> bytes | None:
        file = self._open(name)
        if file is None:
            return None
        with file:
            data = file.read(LARGEST_DOCUMENT + 1)
        if len(data) > LARGEST_DOCUMENT:
            raise ImageRefused(f"its file {name} has over {LARGEST_DOCUMENT:,} bytes")
        return data
