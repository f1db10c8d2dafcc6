"""Where images are: in folders, in archives (OCI, or as `docker save` writes them) and in registries."""

import fcntl
import hashlib
import json
import platform
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ors.sandbox.images.unpack import PIECE, SPARE_BYTES, Entry, ImageRefused

LARGEST_DOCUMENT = 8 * 2**20
MOST_LAYERS, MOST_FILES = 500, 10_000
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""Annotations that name an image of a layout."""
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
HUB = "docker.io"

Read = Callable[[], IO[bytes]]
Blob = Callable[[Mapping[str, Any]], IO[bytes]]
"""Opens the part of an image that a descriptor names."""


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
        pattern = r"([a-z0-9][\w.:/-]*?)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?"
        found = re.fullmatch(pattern, name, re.ASCII)
        if found is None:
            return None
        first, _, rest = found[1].partition("/")
        if not rest or not (first == "localhost" or set(first) & {".", ":"}):
            first, rest = HUB, found[1]
        rest = f"library/{rest}" if first == HUB and "/" not in rest else rest
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
    layers: Sequence[Read]


def image_of(blob: Blob, manifest: Mapping[str, Any], wanted: str = "", depth: int = 0) -> Image:
    """Follows a manifest, or an index of manifests, to the image for this machine."""
    if "manifests" in manifest and depth < 3:
        chosen = _chosen(manifest["manifests"], wanted)
        return image_of(blob, json.loads(_document(blob, chosen)), wanted, depth + 1)
    if "config" not in manifest or "layers" not in manifest:
        raise ImageRefused("its manifest is neither OCI nor Docker's version 2")
    return _checked(_document(blob, manifest["config"]), [partial(blob, each) for each in manifest["layers"]])


def _document(blob: Blob, descriptor: Mapping[str, Any]) -> bytes:
    data = small(blob(descriptor))
    if hashlib.sha256(data).hexdigest() != digits(descriptor):
        raise ImageRefused(f"a part of it does not match its digest {descriptor['digest']}")
    return data


def small(file: IO[bytes]) -> bytes:
    """All bytes of a file that can have only few."""
    with file:
        data = file.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ImageRefused(f"a description in it has over {LARGEST_DOCUMENT:,} bytes")
    return data


def digits(descriptor: Mapping[str, Any]) -> str:
    """The digits of a digest, which are safe as a name of a file."""
    digest = str(descriptor.get("digest"))
    if re.fullmatch("sha256:[0-9a-f]{64}", digest) is None:
        raise ImageRefused(f"{digest!r} is not a SHA-256 digest")
    return digest[7:]


def _checked(text: bytes, layers: Sequence[Read]) -> Image:
    config = json.loads(text)
    digests, built_for = config["rootfs"]["diff_ids"], config.get("architecture") or MACHINE
    if len(digests) != len(layers) or len(layers) > MOST_LAYERS:
        raise ImageRefused(f"it has {len(layers)} layers, and digests of {len(digests)}")
    if built_for != MACHINE:
        raise ImageRefused(f"it is built for {built_for}, but this machine is {MACHINE}")
    return Image(hashlib.sha256(text).hexdigest(), text, digests, layers)


def _chosen(manifests: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    here = {"os": "linux", "architecture": MACHINE}
    fitting = [each for each in manifests if here.items() <= {**here, **(each.get("platform") or {})}.items()]
    names = [[str((each.get("annotations") or {}).get(key, "")) for key in NAMES] for each in fitting]
    return fitting[_position(names, wanted)]


def _position(names: Sequence[Sequence[str]], wanted: str) -> int:
    """The position of the image with the wanted name, or of the only one."""
    if not names:
        raise ImageRefused(f"it has no image for linux/{MACHINE}")
    known = Reference.parsed(wanted)
    for position, each in enumerate(names):
        if known and any(name == known.tag or Reference.parsed(name) == known for name in each if name):
            return position
    if len({tuple(each) for each in names}) > 1:
        found = ", ".join(next(filter(None, each), "one without a name") for each in names)
        raise ImageRefused(f"it has several images ({found}); choose one with NAME=PATH")
    return 0


# ── Folders and archives ─────────────────────────────────────────────────────────────────────────


def is_image(folder: Path) -> bool:
    """Whether a folder holds an image, rather than being the root of one."""
    return any((folder / name).is_file() for name in ("index.json", "manifest.json"))


@contextmanager
def local(path: Path, wanted: str) -> Iterator[Image]:
    """The image of a folder or an archive; with the wanted name, if it has several."""
    if path.is_dir():
        yield _image_in(partial(_beneath, path.resolve()), wanted)
        return
    with tarfile.open(path, tarinfo=Entry) as archive:
        members: dict[str, tarfile.TarInfo] = {}
        for member in archive:
            members[member.name.removeprefix("./")] = member
            if len(members) > MOST_FILES:
                raise ImageRefused(f"it has more than {MOST_FILES:,} files: that is no archive of an image")

        def read(name: str) -> IO[bytes]:
            file = archive.extractfile(members[name]) if name in members else None
            if file is None:
                raise ImageRefused(f"its file {name} is missing")
            return file

        yield _image_in(read, wanted)


def _beneath(folder: Path, name: str) -> IO[bytes]:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise ImageRefused(f"its file {name} is missing, or elsewhere")
    return path.open("rb")


def _image_in(read: Callable[[str], IO[bytes]], wanted: str) -> Image:
    def either(first: str, second: str) -> IO[bytes]:
        try:
            return read(first)
        except ImageRefused:
            return read(second)

    found = json.loads(small(either("index.json", "manifest.json")))
    if isinstance(found, dict):  # a layout; or a manifest with its parts, by `skopeo copy` to dir:
        blob = lambda each: either(f"blobs/sha256/{digits(each)}", digits(each))  # noqa: E731
        return image_of(blob, found, wanted)
    chosen = found[_position([each.get("RepoTags") or [] for each in found], wanted)]
    return _checked(small(read(chosen["Config"])), [partial(read, name) for name in chosen["Layers"]])


# ── Registries: by their HTTP API, and only public images, for nobody logs in ────────────────────

DOCKER = "application/vnd.docker.distribution.manifest"
OCI = "application/vnd.oci.image"
ACCEPT = f"{OCI}.index.v1+json, {OCI}.manifest.v1+json, {DOCKER}.list.v2+json, {DOCKER}.v2+json"
SILENCE_SECONDS = 30.0
TRIES = 5
"""How often in a row a download may break without a byte."""
LOOPBACK = re.compile(r"(localhost|127\.[\d.]+)(:\d+)?")

Tell = Callable[[str, int, int], None]
"""Called during a download: the digest, the bytes so far and the total. An exception ends the download."""


@contextmanager
def pulled(reference: Reference, blobs: Path, tell: Tell) -> Iterator[Image]:
    """An image of a registry. Its layers stay in the folder until it is used: a broken pull goes on there."""
    registry = _Registry(reference, blobs, tell)
    yield image_of(registry.blob, registry.top(reference.tag))
    for path in registry.used:
        path.unlink(missing_ok=True)


class _Registry:
    def __init__(self, reference: Reference, blobs: Path, tell: Tell) -> None:
        self._host, self._blobs, self._tell, self._token = reference.host, blobs, tell, ""
        near = LOOPBACK.fullmatch(reference.host) is not None
        host = f"registry-1.{HUB}" if reference.host == HUB else reference.host
        self._url = f"{'http' if near else 'https'}://{host}/v2/{reference.repository}"
        self._scope = f"repository:{reference.repository}:pull"
        self._open = build_opener(*([ProxyHandler({})] if near else [])).open
        self.used: list[Path] = []

    def blob(self, descriptor: Mapping[str, Any]) -> IO[bytes]:
        """Opens a part of the image, once all of it is here."""
        path, size = self._blobs / digits(descriptor), int(descriptor["size"])
        if size > shutil.disk_usage(self._blobs).free - SPARE_BYTES:
            raise ImageRefused(f"a part of {size:,} bytes is too large for the disk")
        kind = "manifests" if re.search("manifest|index", str(descriptor.get("mediaType"))) else "blobs"
        file = path.open("a+b")  # and read from there: another process may remove the path
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._fill(file, f"{kind}/{descriptor['digest']}", size)
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != path.name:
                path.unlink(missing_ok=True)
                raise ImageRefused(f"a part of it does not match its digest {descriptor['digest']}")
        except BaseException:
            file.close()
            raise
        self.used.append(path)
        file.seek(0)
        return file

    def _fill(self, file: IO[bytes], name: str, size: int) -> None:
        failures = 0
        while (done := file.seek(0, 2)) < size:
            trouble = self._more(file, name, done, size)
            failures = failures + 1 if file.seek(0, 2) <= done else 0
            if failures == TRIES:
                raise ImageRefused(f"{self._host} breaks off: {trouble or 'its answer is too short'}")
            time.sleep(failures and 0.1 * 2**failures)

    def _more(self, file: IO[bytes], name: str, done: int, size: int) -> Exception | None:
        """Appends what is missing; returns what has broken it off."""
        try:
            with self._get(name, {"Range": f"bytes={done}-"} if done else {}) as answer:
                if answer.status != 206:  # it starts anew
                    file.truncate(done := 0)
                while piece := answer.read(PIECE):
                    done += len(piece)
                    if done > size:
                        raise ImageRefused(f"a part is larger than the {size:,} bytes of its descriptor")
                    file.write(piece)
                    self._tell(name.partition("/")[2], done, size)
        except (OSError, HTTPException) as error:
            return error
        finally:
            file.flush()
        return None

    def top(self, tag: str) -> Mapping[str, Any]:
        try:
            data = small(self._get(f"manifests/{tag}"))
        except (OSError, HTTPException) as error:
            raise ImageRefused(f"cannot reach {self._host}: {getattr(error, 'reason', error)}") from None
        if ":" in tag and tag != f"sha256:{hashlib.sha256(data).hexdigest()}":
            raise ImageRefused(f"a part of it does not match its digest {tag}")
        return dict(json.loads(data))

    def _get(self, path: str, headers: Mapping[str, str] = {}, *, again: bool = True) -> HTTPResponse:
        request = Request(f"{self._url}/{path}", headers={"Accept": ACCEPT, **headers})
        if self._token:  # not for the host that a registry redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            answer: HTTPResponse = self._open(request, timeout=SILENCE_SECONDS)
            return answer
        except HTTPError as error:
            with error:
                if error.code == 401 and again:
                    self._token = self._asked(error.headers.get("WWW-Authenticate", ""))
                    return self._get(path, headers, again=False)
                if error.code >= 500 or error.code == 429:
                    raise OSError(f"it answers {error.code} {error.reason}") from None
                why = "has no such image" if error.code == 404 else f"answers {error.code} {error.reason}"
                raise ImageRefused(f"{self._host} {why}; only public images can be pulled") from None

    def _asked(self, challenge: str) -> str:
        """Asks for a token, as the registry says: https://distribution.github.io/distribution/spec/auth/token."""
        told = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = urlsplit(told.get("realm", ""))
        near = realm.scheme == "http" and LOOPBACK.fullmatch(realm.netloc)
        if not challenge.lower().startswith("bearer") or not (near or realm.scheme == "https"):
            raise ImageRefused(f"{self._host} requires a login; only public images can be pulled")
        asked = {"service": told.get("service", ""), "scope": told.get("scope", self._scope)}
        found = json.loads(small(self._open(f"{told['realm']}?{urlencode(asked)}", timeout=SILENCE_SECONDS)))
        return str(found.get("token") or found["access_token"])
