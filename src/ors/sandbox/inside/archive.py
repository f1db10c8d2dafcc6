"""Files and folders as a stream of bytes, written and read on both sides of a sandbox.

A record is its kind (`F`ile, `D`irectory, `L`ink, `H`ard link to a path before it, `W`: what was there is
gone), its mode in four bytes, the length of its path in four, the size of its content in eight, the path and
the content. That of a file is pieces between holes: offset and length in eight bytes each, and the bytes; a
length of zero ends them. `Z` ends the stream. The agent runs this text too.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    Write = Callable[[bytes], object]
    Names = dict[tuple[int, int], bytes]

PIECE = 1 << 16
HEAD = 17
CHANGES = "/.changes"
"""The layers of a writable root, in a sandbox."""


def record(kind: bytes, mode: int = 0, path: bytes = b"", size: int = 0) -> bytes:
    return kind + mode.to_bytes(4, "big") + len(path).to_bytes(4, "big") + size.to_bytes(8, "big") + path


def pack(
    base: bytes, names: dict[bytes, bytes], write: Write, *, unlock: bool = False, most: tuple[int, ...] = ()
) -> None:
    """Writes files and folders of `base`; `names` has the name of each in the stream.

    Devices, sockets and pipes are left out, links are not followed. `unlock`: files that their owner may not
    read become readable; other file systems, and what a program changes meanwhile, are left out. `most`: the
    length of a path, and the size of all files, beyond which there is an error.
    """
    first: Names = {}
    size, mounts = 0, mount_points() if base == os.fsencode(CHANGES) else set()
    for name, renamed in names.items():
        for path, info in entries(os.path.join(base, name), unlock):
            inner = (renamed + path[len(os.path.join(base, name)) :]).lstrip(b"/")
            if not inner or b"/" + inner in mounts:
                continue
            size += info.st_size
            if most and (len(inner) > most[0] or size > most[1]):
                raise OSError(27, "File too large, or its path too long")
            try:
                if mounts and hides(path, info):
                    write(record(b"W", 0, inner))
                elif unlock and not info.st_mode & 0o400 and not stat.S_ISLNK(info.st_mode):
                    os.chmod(path, stat.S_IMODE(info.st_mode) | 0o400)
                pack_one(path, info, inner, write, first)
            except FileNotFoundError:
                continue
            except OSError:
                if not unlock:
                    raise
    write(record(b"Z"))


def entries(top: bytes, unlock: bool) -> Iterator[tuple[bytes, os.stat_result]]:
    """A path and everything below it, folders before their content."""
    todo = [(top, os.lstat(top))]
    device = todo[0][1].st_dev
    while todo:
        path, info = todo.pop()
        if unlock and info.st_dev != device:
            continue  # of `read_only`: the other sandbox has it too
        yield path, info
        if stat.S_ISDIR(info.st_mode):
            if unlock and info.st_mode & 0o700 != 0o700:
                try:
                    os.chmod(path, stat.S_IMODE(info.st_mode) | 0o700)
                except OSError:
                    continue  # removed meanwhile
            todo += below(path)


def below(folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    """The entries of a folder. Entries that are gone, or too deep for a path, are left out."""
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in sorted(names, reverse=True):
        path = os.path.join(folder, name)
        try:
            found.append((path, os.lstat(path)))
        except OSError:
            continue
    return found


def mount_points() -> set[bytes]:
    with open("/proc/self/mounts", "rb") as file:
        return {line.split()[1] for line in file}


def hides(path: bytes, info: os.stat_result) -> bool:
    """Whether an entry of an upper layer hides what is below it."""
    if stat.S_ISDIR(info.st_mode):
        return "user.overlay.opaque" in os.listxattr(path)
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def pack_one(path: bytes, info: os.stat_result, inner: bytes, write: Write, first: Names) -> None:
    """Writes one record; `first` has the first names of files that have several."""
    mode, key = stat.S_IMODE(info.st_mode), (info.st_dev, info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        write(record(b"D", mode, inner))
    elif stat.S_ISLNK(info.st_mode):
        target = os.readlink(path)
        write(record(b"L", mode, inner, len(target)) + target)
    elif key in first:
        write(record(b"H", mode, inner, len(first[key])) + first[key])
    elif stat.S_ISREG(info.st_mode):
        pack_file(path, mode, inner, write)
        if info.st_nlink > 1:
            first[key] = inner


def pack_file(path: bytes, mode: int, inner: bytes, write: Write) -> None:
    """Writes a file. One that shrinks in the meantime is filled up with zeros."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        data = record(b"F", mode, inner, size)
        for at, piece in pieces(fd, size):
            write(data + at.to_bytes(8, "big") + len(piece).to_bytes(8, "big") + piece)
            data = b""
        write(data + bytes(16))
    finally:
        os.close(fd)


def pieces(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Offset and content of all that is not a hole in a file."""
    at, piece = 0, b"first"
    while at < size and piece:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
            piece = os.pread(fd, min(PIECE, size - at, os.lseek(fd, at, os.SEEK_HOLE) - at), at)
        except OSError:
            return  # the rest is a hole
        if piece:
            yield at, piece
        at += len(piece)


def unpack(base: bytes, read: Callable[[int], bytes], *, links: bool, top: bytes = b"") -> list[bytes]:
    """Makes the files and folders of a stream below `base`; returns the symbolic links that it made.

    Without `links`, they are left out, and no file is removed. With `top`, there is nothing beside the
    file or folder of that name.

    Raises:
        ValueError: the stream is not well formed, or leaves `base`.
    """
    folders: list[tuple[bytes, int]] = []
    known: set[bytes] = set()
    made: list[bytes] = []
    while True:
        kind, mode, length, size = read_head(read, b"DLFHW" if links else b"DLFH")
        if kind == b"Z":
            break
        target = os.path.join(base, checked_path(read(length), top))
        parent = target if kind == b"D" else os.path.dirname(target)
        if parent not in known:
            os.makedirs(parent, exist_ok=True)
            known.add(parent)
        if kind == b"D":
            folders.append((target, mode))
        elif kind == b"L":
            content = read(min(size, 4096))
            if links:
                unlink(target)
                os.symlink(content, target)
                made.append(target)
        elif kind == b"W":
            remove(target)
        elif kind == b"H":
            first = os.path.join(base, checked_path(read(min(size, 4096)), top))
            unlink(target)
            os.link(first, target)
        else:
            unlink(target)
            unpack_file(target, mode, size, read)
    set_modes(folders)
    return made


def read_head(read: Callable[[int], bytes], kinds: bytes) -> tuple[bytes, int, int, int]:
    """The kind of the next record, its mode, and the lengths of its path and its content."""
    head = read(HEAD)
    kind, length = head[:1], int.from_bytes(head[5:9], "big")
    if kind != b"Z" and (len(kind) != 1 or kind not in kinds or not 0 < length <= 4096):
        raise ValueError("a record of the stream is not well formed")
    return kind, int.from_bytes(head[1:5], "big") & 0o777, length, int.from_bytes(head[9:], "big")


def set_modes(folders: list[tuple[bytes, int]]) -> None:
    """Sets the modes of folders once they are full: one may forbid its owner to write."""
    for folder, mode in reversed(folders):
        try:
            os.chmod(folder, mode)
        except OSError:
            continue  # the place itself, which may belong to root or be read-only


def checked_path(path: bytes, top: bytes) -> bytes:
    parts = path.split(b"/")
    if b"\0" in path or not all(parts) or b".." in parts or b"." in parts or top not in (b"", parts[0]):
        raise ValueError("a path of the stream leaves its folder")
    return path


def unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path)
    else:
        unlink(path)


def leaves(root: bytes, link: bytes) -> bool:
    """Whether a link below `root` leads out of it, at any step of its way."""
    here: list[bytes] = []
    todo = link[len(root) :].split(b"/")
    for _ in range(4096):
        if not todo:
            return False
        name = todo.pop(0)
        if name == b".." and not here:
            return True
        here = here[:-1] if name == b".." else here + [name] * (name not in (b"", b"."))
        try:
            target = os.readlink(os.path.join(root, *here))
        except OSError:
            continue  # no link, or nothing is there
        if target.startswith(b"/"):
            if not (target + b"/").startswith(root + b"/"):
                return True
            here, target = [b""], target[len(root) :]
        here, todo = here[:-1], target.split(b"/") + todo
    return True


def unpack_file(target: bytes, mode: int, size: int, read: Callable[[int], bytes]) -> None:
    """Makes a file, and never writes to one that was there."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while True:
            at, length = int.from_bytes(read(8), "big"), int.from_bytes(read(8), "big")
            if not length:
                break
            os.lseek(fd, at, os.SEEK_SET)
            write_all(fd, read(min(length, PIECE)))
        os.ftruncate(fd, size)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def reader(file: IO[bytes]) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise ValueError("the stream ends too early")
        return data

    return read
