"""Unpacks the layers of an image into a folder, and lets nothing in them leave it."""

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from posixpath import join, normpath
from typing import IO, Any

MOST_BYTES, MOST_ENTRIES = 64 * 2**30, 2_000_000
"""Limits of an image, over all of its layers."""
SPARE_BYTES = 2**28
"""What stays free on the disk."""
DEEPEST, MOST_LINKS, LONGEST_HEADER = 200, 40, 2**20
HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PIECE = 1 << 20


class ImageRefused(ValueError):
    """An image is damaged, hostile, or of a kind that cannot be used."""


class Entry(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Entry":
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in HEADERS and entry.size > LONGEST_HEADER:  # tarfile reads it into memory
            raise ImageRefused(f"a header of a layer has {entry.size:,} bytes")
        return entry


class Unpacking:
    """The root folder of an image, to which layers are added from the lowest to the highest.

    Only the root user keeps the owners of files. Bits that change the user are dropped: no sandbox honours
    them, and outside they would be a danger. Nobody else may change the folder meanwhile.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._room = min(MOST_BYTES, shutil.disk_usage(root).free - SPARE_BYTES)
        self._entries, self._links = 0, 0
        self._folders: dict[str, tarfile.TarInfo] = {}

    def add(self, file: IO[bytes], digest: str) -> None:
        """Adds a layer, whose uncompressed bytes must have the digest."""
        with _uncompressed(file, os.path.dirname(self.root)) as stream:
            checked, fresh = _Checked(stream, self), set[str]()
            with tarfile.open(fileobj=checked, mode="r|", tarinfo=Entry) as archive:  # type: ignore[call-overload]
                while (entry := archive.next()) is not None:
                    archive.members.clear()
                    self._put(archive, entry, fresh)
            while checked.read(PIECE):
                pass
        if f"sha256:{checked.hash.hexdigest()}" != digest:
            raise ImageRefused(f"a layer does not match its digest {digest}")

    def finish(self) -> None:
        """Gives folders their modes, which could have kept a plain user from filling them."""
        for path, entry in sorted(self._folders.items(), reverse=True):
            if _is_folder(path) and os.path.realpath(path) == path:  # no later layer has put a link above it
                self._settle(path, entry)

    def count(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ImageRefused(f"it is over the limit of {MOST_BYTES:,} bytes, or too large for the disk")

    def _put(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, fresh: set[str]) -> None:
        self._entries, self._links = self._entries + 1, 0
        if self._entries > MOST_ENTRIES:
            raise ImageRefused(f"it has more than {MOST_ENTRIES:,} files")
        *above, name = _parts(entry.name) or [""]
        if not name or (name.startswith(".wh..wh.") and name != OPAQUE):
            return  # the root itself, or notes of AUFS
        folder = self._folder("/".join(above), entry.name, make=True)
        if name == OPAQUE:
            for each in os.listdir(folder):
                _clear(f"{folder}/{each}", fresh)
        elif name.startswith(WHITEOUT):
            _clear(f"{folder}/{_parts(name[len(WHITEOUT) :])[0]}", fresh)
        else:
            fresh.add(f"{folder}/{name}")
            self._make(archive, entry, f"{folder}/{name}")

    def _make(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> None:
        if not entry.isdir() or not _is_folder(path):
            _remove(path)
        if entry.isdir():
            os.makedirs(path, 0o700, exist_ok=True)
            self._folders[path] = entry
            return
        if entry.islnk():
            os.link(self._linked(entry), path, follow_symlinks=False)
            return
        if entry.issym():
            os.symlink(entry.linkname, path)
        elif entry.isreg():
            self._write(archive, entry, path)
        elif entry.isfifo():
            os.mkfifo(path, 0o600)
        elif entry.ischr() and entry.devmajor in (1, 5) and path.startswith(f"{self.root}/dev/"):
            return  # /dev/null and its kind: a sandbox has its own
        else:
            raise ImageRefused(f"{entry.name} is a device")
        self._settle(path, entry)

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> None:
        if entry.issparse() or entry.size > self._room:  # what is not sparse is counted as it is read
            self.count(entry.size)
        content: Any = archive.extractfile(entry)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            shutil.copyfileobj(content, file, PIECE)

    def _linked(self, entry: tarfile.TarInfo) -> str:
        above, _, name = entry.linkname.rstrip("/").rpartition("/")
        path = f"{self._folder(above, entry.name, make=False)}/{name}"
        if name in ("", ".", "..") or not os.path.lexists(path) or _is_folder(path):
            raise ImageRefused(f"{entry.name} links to {entry.linkname}, which is not a file of the image")
        return path

    def _folder(self, inner: str, name: str, *, make: bool) -> str:
        """The folder that a path leads to, as programs in the image see it. Makes what is missing."""
        parts, path = _parts(inner), self.root
        if self._links > MOST_LINKS or len(parts) > DEEPEST:
            raise ImageRefused(f"{name} is in too many folders, or below too many links")
        for number, part in enumerate(parts, 1):
            above, path = path[len(self.root) + 1 :], f"{path}/{part}"
            if os.path.islink(path):
                self._links += 1
                target = normpath(join(above, os.readlink(path))).lstrip("/")
                beyond = self._folder(target, name, make=False)
                rest = join(beyond[len(self.root) + 1 :], *parts[number:])
                return self._folder(rest, name, make=make)
            if make and not os.path.lexists(path):
                os.mkdir(path, 0o700)
                self._folders[path] = Entry()
                self._folders[path].mode = 0o755
            elif not _is_folder(path):
                raise ImageRefused(f"{name} is below {part}, which is not a folder of the image")
        return path

    def _settle(self, path: str, entry: tarfile.TarInfo) -> None:
        if os.geteuid() == 0:
            with suppress(OSError):  # the root of a container may have few users to give
                os.lchown(path, entry.uid, entry.gid)
        if not entry.issym():
            os.chmod(path, entry.mode & (0o1777 if entry.isdir() else 0o777))
            when = min(max(int(entry.mtime), 0), 2**33)
            os.utime(path, (when, when))


class _Checked:
    """A stream of which the digest is taken, and the length bounded."""

    def __init__(self, stream: IO[bytes], whole: Unpacking) -> None:
        self._stream, self._whole, self.hash = stream, whole, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._whole.count(len(data))
        self.hash.update(data)
        return data


@contextmanager
def _uncompressed(file: IO[bytes], folder: str) -> Iterator[Any]:
    magic = file.read(4)
    file.seek(0)
    if magic[:2] == GZIP:
        yield gzip.GzipFile(fileobj=file, mode="rb")
    elif magic == ZSTD:
        if shutil.which("zstd") is None:
            raise ImageRefused("a layer needs zstd, which is not installed: sudo apt-get install zstd")
        with tempfile.TemporaryFile(dir=folder) as plain:
            shutil.copyfileobj(file, plain, PIECE)
            plain.seek(0)
            command = ["zstd", "--decompress", "--stdout", "--quiet", "--memory=128MB"]
            with subprocess.Popen(command, stdin=plain, stdout=subprocess.PIPE) as process:
                try:
                    yield process.stdout
                finally:
                    process.kill()
    else:
        yield file


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ImageRefused(f"{name!r} leaves the image")
    return parts


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _clear(path: str, fresh: set[str]) -> None:
    """Removes what earlier layers have put there; `fresh` is of this one."""
    if _is_folder(path):
        for name in os.listdir(path):
            _clear(f"{path}/{name}", fresh)
        if path not in fresh:
            with suppress(OSError):  # something fresh is in it
                os.rmdir(path)
    elif path not in fresh:
        _remove(path)


def _remove(path: str) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
