"""Images without a container engine: unpacked once into a cache, each is the root of sandboxes."""

import fcntl
import hashlib
import json
import os
import subprocess
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ors.errors import SandboxUnavailable
from ors.sandbox.images.sources import Image, Reference, is_image, local
from ors.sandbox.images.unpack import ImageRefused, Unpacking
from ors.sandbox.root import settle
from ors.sandbox.spec import SandboxSpec

VARIABLE = "ORS_IMAGES"
"""Lines NAME=PATH: where images are. `--image` sets it; child processes inherit it."""
DAMAGED = (
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    zlib.error,
    tarfile.TarError,
)
"""What reading a damaged image raises."""


def folder() -> Path:
    """Folder of unpacked images. Sandboxes of root, whose users own nothing, could not enter its home."""
    base = os.environ.get("XDG_CACHE_HOME") or (
        "/var/cache" if os.getuid() == 0 else os.path.expanduser("~/.cache")
    )
    return Path(base) / "ors" / "images"


@dataclass(frozen=True, slots=True)
class Root:
    """The folder of an image, and what the image says of its programs."""

    folder: Path
    config: Mapping[str, Any]

    @property
    def env(self) -> dict[str, str]:
        """Variables of its programs, but for those of its user, who is another one here."""
        split = [line.partition("=") for line in self.config.get("Env") or ()]
        return {name: value for name, _, value in split if name not in ("HOME", "USER")}


def rooted(spec: SandboxSpec) -> SandboxSpec:
    """A spec with the image's folder and variables in place of its name.

    Raises:
        SandboxUnavailable: there is no such image, or it cannot be used.
    """
    root = root_of(str(spec.image))
    return replace(spec, image=None, rootfs=str(root.folder), env={**root.env, **spec.env})


def root_of(name: str) -> Root:
    """Finds an image in the cache, or unpacks it there. Processes that do so at the same time wait for one.

    Raises:
        SandboxUnavailable: there is no such image, or it cannot be used.
    """
    try:
        place = _place(name)
        if place.is_dir() and not is_image(place):
            return Root(place, {})
        home = folder()
        known = _made(home / "names") / hashlib.sha256(_stamp(place, name).encode()).hexdigest()
        with _locked(known):
            root = home / "roots" / known.read_text()
            if not known.read_text() or not root.is_dir():
                with local(place, name) as image:
                    root = _unpacked(home, image)
                known.write_text(image.id)
        return Root(root / "rootfs", json.loads((root / "config.json").read_bytes()).get("config") or {})
    except (ImageRefused, OSError) as error:
        raise SandboxUnavailable(f"image {name}: {error}") from None
    except DAMAGED as error:
        raise SandboxUnavailable(f"image {name}: it is damaged, or no image: {error!r}") from None


def known(name: str) -> bool:
    """Whether an image is on this machine: its name is mapped to a path, or is one."""
    return bool(name) and _place(name).exists()


def _place(name: str) -> Path:
    """The path of an image: one that its name is mapped to, or its name."""
    wanted = Reference.parsed(name)
    for line in os.environ.get(VARIABLE, "").splitlines():
        mapped, _, path = line.partition("=")
        if name == mapped or (wanted is not None and wanted == Reference.parsed(mapped)):
            return Path(path)
    return Path(name)


def _stamp(path: Path, name: str) -> str:
    """Changes when the image at this path does."""
    files = [path / each for each in ("index.json", "manifest.json")] if path.is_dir() else [path]
    stats = [each.stat() for each in files if each.exists()] or [path.stat()]
    return f"{path.resolve()} {name} {[(each.st_ino, each.st_size, each.st_mtime_ns) for each in stats]}"


def _unpacked(home: Path, image: Image) -> Path:
    roots = _made(home / "roots")
    done, making = roots / image.id, roots / f".{image.id}"
    with _locked(_made(home / "locks") / image.id):
        if done.is_dir():
            return done
        _discard(making)  # what a process that was killed has left
        try:
            _unpack(image, _made(making / "rootfs"))
            (making / "config.json").write_bytes(image.config)
            making.rename(done)
        except BaseException:
            _discard(making)
            raise
    return done


def _unpack(image: Image, into: Path) -> None:
    unpacking = Unpacking(str(into))
    for read, digest in zip(image.layers, image.digests, strict=True):
        with read() as file:
            unpacking.add(file, digest)
    settle(into)
    unpacking.finish()


def _made(path: Path) -> Path:
    """A folder that the users of sandboxes can enter, whatever the umask is."""
    if not path.is_dir():
        _made(path.parent)
        path.mkdir(exist_ok=True)
        path.chmod(0o755 if os.getuid() == 0 else 0o700)
    return path


def _discard(path: Path) -> None:
    if path.exists():
        subprocess.run(["chmod", "-R", "u+rwX", path], check=False)
        subprocess.run(["rm", "-rf", path], check=False)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
