"""Images without a container engine: unpacked once into a cache, each is the root of sandboxes."""

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import normpath

from ors.errors import SandboxUnavailable
from ors.sandbox.bwrap import ACCOUNTS, HOSTS
from ors.sandbox.images.sources import Image, Reference, Tell, is_image, local, pulled
from ors.sandbox.images.unpack import ImageRefused, Unpacking
from ors.sandbox.spec import SandboxSpec

log = logging.getLogger(__name__)

VARIABLE = "ORS_IMAGES"
"""Lines NAME=PATH: where images are. `--image` sets it; child processes inherit it."""
DAMAGED = (EOFError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What reading a damaged image raises, beside errors of the formats."""


@dataclass(frozen=True, slots=True)
class Root:
    """The folder of an image, and what the image says of its programs."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"


async def rooted(spec: SandboxSpec) -> SandboxSpec:
    """A spec with the image's folder, variables and working folder in place of its name."""
    ended = threading.Event()

    def tell(digest: str, done: int, size: int) -> None:
        if ended.is_set():
            raise ImageRefused("nobody waits for it any more")
        if done == size:
            log.info("image %s: pulled %s, %s bytes", spec.image, digest, size)

    pool = ThreadPoolExecutor(1)  # its own: many may wait here for one that pulls
    try:
        root = await asyncio.get_running_loop().run_in_executor(pool, root_of, str(spec.image), tell)
    finally:
        ended.set()
        pool.shutdown(wait=False)
    # A folder that programs cannot write to is of no use as their working folder.
    moved = spec.writable and spec.workdir == "/work" and root.workdir != "/"
    workdir, env = root.workdir if moved else spec.workdir, {**root.env, **spec.env}
    try:
        return replace(spec, image=None, rootfs=str(root.folder), workdir=workdir, env=env)
    except ValueError as error:
        raise SandboxUnavailable(f"image {spec.image}: {error}") from None


def known(name: str) -> bool:
    """Whether an image is on this machine: its name is mapped to a path or is one, or it was pulled."""
    with suppress(ImageRefused):
        place = _place(name)
        return place.exists() if isinstance(place, Path) else _cached(str(place)) is not None
    return False


def root_of(name: str, tell: Tell = lambda *_: None, *, anew: bool = False) -> Root:
    """Finds an image in the cache, or unpacks it there. Processes that do so at the same time wait for one.

    With `anew` the registry is asked even if the cache has an image of this name.

    Raises:
        SandboxUnavailable: there is no such image, or it cannot be used.
    """
    try:
        place = _place(name)
        if isinstance(place, Path) and place.is_dir() and not is_image(place):
            return Root(place.resolve())
        stamp = _stamp(place, name) if isinstance(place, Path) else str(place)
        if anew or _cached(stamp) is None:
            _add(place, name, stamp, tell, anew)
        root = _cached(stamp)
        assert root is not None
        return root
    except (ImageRefused, OSError) as error:
        raise SandboxUnavailable(f"image {name}: {error}") from None
    except (*DAMAGED, zlib.error, tarfile.TarError) as error:
        raise SandboxUnavailable(f"image {name}: it is damaged, or no image: {error!r}") from None


def _place(name: str) -> Path | Reference:
    """The path of an image, if its name is one or is mapped to one; else its full name."""
    wanted = Reference.parsed(name)
    for line in os.environ.get(VARIABLE, "").splitlines():
        mapped, _, path = line.partition("=")
        if name == mapped or (wanted is not None and wanted == Reference.parsed(mapped)):
            return Path(path)
    if wanted is None and not name.startswith(("/", ".")):
        raise ImageRefused("this is neither an image name nor a path, which starts with / or .")
    return wanted or Path(name)


def _stamp(path: Path, name: str) -> str:
    files = [path / each for each in ("index.json", "manifest.json")] if path.is_dir() else [path]
    stats = [each.stat() for each in files if each.exists()] or [path.stat()]
    return f"{path.resolve()} {name} {[(each.st_ino, each.st_size, each.st_mtime_ns) for each in stats]}"


# ── The cache ────────────────────────────────────────────────────────────────────────────────────


def folder() -> Path:
    """Folder of unpacked images. Sandboxes of root, whose users own nothing, could not enter its home."""
    own = "/var/cache" if os.getuid() == 0 else os.path.expanduser("~/.cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or own) / "ors" / "images"


def _cached(stamp: str) -> Root | None:
    named = folder() / "names" / _hashed(stamp)
    root = folder() / "roots" / (named.read_text() if named.exists() else "")
    if not (root / "config.json").is_file():
        return None
    told = json.loads((root / "config.json").read_bytes()).get("config") or {}
    # Its user is another one here.
    split = [line.partition("=") for line in told.get("Env") or ()]
    env = {name: value for name, _, value in split if name not in ("HOME", "USER")}
    return Root(root / "rootfs", env, normpath("/" + (told.get("WorkingDir") or "").lstrip("/")))


def _add(place: Path | Reference, name: str, stamp: str, tell: Tell, anew: bool) -> None:
    home = folder()
    named = _made(home / "names") / _hashed(stamp)
    with _locked(named):
        if not anew and _cached(stamp) is not None:  # another process was faster
            return
        source = local(place, name) if isinstance(place, Path) else pulled(place, _made(home / "blobs"), tell)
        with source as image:
            _unpack(image, _made(home / "roots"), _made(home / "locks") / image.id)
        named.write_text(image.id)


def _unpack(image: Image, roots: Path, lock: Path) -> None:
    making = roots / f".{image.id}"
    with _locked(lock):
        if (roots / image.id).is_dir():
            return
        _discard(making)  # what a process that was killed has left
        try:
            unpacking = Unpacking(str(_made(making / "rootfs")))
            for read, digest in zip(image.layers, image.digests, strict=True):
                with read() as file:
                    unpacking.add(file, digest)
            _settle(making / "rootfs")
            unpacking.finish()
            (making / "config.json").write_bytes(image.config)
            making.rename(roots / image.id)
        except BaseException:
            _discard(making)
            raise


def _settle(folder: Path) -> None:
    """Gives the root of an image an account for programs, names of the loopback, and no name servers.

    Nothing is read or written through a link: nobody trusts the image.
    """
    etc = folder / "etc"
    if etc.is_symlink() or (etc.exists() and not etc.is_dir()):
        return
    if not etc.exists():
        etc.mkdir()
        etc.chmod(0o755)
    for path, line in ACCOUNTS.items():
        file = folder / path[1:]
        known = file.read_text(errors="surrogateescape") if file.is_file() and not file.is_symlink() else ""
        if not re.search(f"^{line.partition(':')[0]}:", known, re.MULTILINE):
            _write(file, known + line)
    for name, text in (("hosts", HOSTS), ("hostname", "sandbox\n"), ("resolv.conf", "")):
        _write(etc / name, text)
    if not os.path.lexists(etc / "gitconfig"):
        # The files belong to the user who made the root, and git refuses to work in folders of others.
        _write(etc / "gitconfig", "[safe]\n\tdirectory = *\n")


def _write(file: Path, text: str) -> None:
    if not file.is_symlink() and file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)  # it may be a link
    file.write_text(text, errors="surrogateescape")
    file.chmod(0o644)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
