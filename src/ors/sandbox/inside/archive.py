"""Files and folders as a stream of bytes, written and read on both sides of a sandbox.

A record is its kind (`F`ile, `D`irectory, `L`ink), its mode in four bytes, the length of its path in four,
the size of its content in eight, the path and the content. `Z` ends the stream. The agent runs this text too.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE = 1 << 16
HEAD = 17


def record(kind: bytes, mode: int = 0, path: bytes = b"", size: int = 0) -> bytes:
    """Head of a record, with its path."""
    return kind + mode.to_bytes(4, "big") + len(path).to_bytes(4, "big") + size.to_bytes(8, "big") + path


def pack(
    base: bytes, names: dict[bytes, bytes], write: Callable[[bytes], object], *, unlock: bool = False
) -> None:
    """Writes files and folders of `base`; `names` has the name of each in the stream.

    Devices, sockets and pipes are left out, links are not followed. `unlock`: files that their owner may not
    read become readable, and what a program changes meanwhile is left out.
    """
    for name, renamed in names.items():
        for path, info in entries(os.path.join(base, name), unlock):
            inner = renamed + path[len(os.path.join(base, name)) :]
            try:
                if unlock and not info.st_mode & 0o400 and not stat.S_ISLNK(info.st_mode):
                    os.chmod(path, stat.S_IMODE(info.st_mode) | 0o400)
                pack_one(path, info, inner, write)
            except FileNotFoundError:
                continue
            except OSError:
                if not unlock:
                    raise
    write(record(b"Z"))


def entries(top: bytes, unlock: bool) -> Iterator[tuple[bytes, os.stat_result]]:
    """A path and everything below it, folders before their content."""
    todo = [(top, os.lstat(top))]
    while todo:
        path, info = todo.pop()
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


def pack_one(path: bytes, info: os.stat_result, inner: bytes, write: Callable[[bytes], object]) -> None:
    """Writes one record."""
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        write(record(b"D", mode, inner))
    elif stat.S_ISLNK(info.st_mode):
        target = os.readlink(path)
        write(record(b"L", mode, inner, len(target)) + target)
    elif stat.S_ISREG(info.st_mode):
        pack_file(path, mode, inner, write)


def pack_file(path: bytes, mode: int, inner: bytes, write: Callable[[bytes], object]) -> None:
    """Writes a file. One that shrinks in the meantime is filled up with zeros."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        left = info.st_size if stat.S_ISREG(info.st_mode) else 0
        head = record(b"F", mode, inner, left)
        if not left:
            write(head)
        while left:
            piece = os.read(fd, min(PIECE, left)) or bytes(min(PIECE, left))
            write(head + piece)
            head, left = b"", left - len(piece)
    finally:
        os.close(fd)


def unpack(base: bytes, read: Callable[[int], bytes], *, links: bool) -> None:
    """Makes the files and folders of a stream below `base`. Without `links`, symbolic links are left out.

    Raises:
        ValueError: the stream is not well formed, or leaves `base`.
    """
    folders: list[tuple[bytes, int]] = []
    known: set[bytes] = set()
    while True:
        head = read(HEAD)
        kind, mode = head[:1], int.from_bytes(head[1:5], "big") & 0o777
        if kind == b"Z":
            break
        length = int.from_bytes(head[5:9], "big")
        if kind not in (b"D", b"L", b"F") or not 0 < length <= 4096:
            raise ValueError("a record of the stream is not well formed")
        target = os.path.join(base, checked_path(read(length)))
        size = int.from_bytes(head[9:], "big")
        parent = target if kind == b"D" else os.path.dirname(target)
        if parent not in known:
            os.makedirs(parent, exist_ok=True)
            known.add(parent)
        if kind == b"D":
            folders.append((target, mode))
        elif kind == b"L":
            unpack_link(target, read(min(size, 4096)), links)
        else:
            unpack_file(target, mode, size, read)
    for folder, mode in reversed(folders):  # a folder may forbid its owner to write
        try:
            os.chmod(folder, mode)
        except PermissionError:
            continue  # the place itself, which may belong to root


def checked_path(path: bytes) -> bytes:
    """A path that stays below its base."""
    parts = path.split(b"/")
    if b"\0" in path or not all(parts) or b".." in parts or b"." in parts:
        raise ValueError("a path of the stream leaves its folder")
    return path


def unpack_link(target: bytes, content: bytes, links: bool) -> None:
    """Makes a symbolic link."""
    if links:
        try:
            os.symlink(content, target)
        except FileExistsError:
            os.unlink(target)
            os.symlink(content, target)


def unpack_file(target: bytes, mode: int, size: int, read: Callable[[int], bytes]) -> None:
    """Makes a file, and never writes to one that was there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(target, flags, 0o600)
    except FileExistsError:
        os.unlink(target)
        fd = os.open(target, flags, 0o600)
    try:
        while size:
            piece = read(min(PIECE, size))
            write_all(fd, piece)
            size -= len(piece)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def reader(fd: int) -> Callable[[int], bytes]:
    """Reads exactly so many bytes at a time, and takes them from the file in large pieces."""
    held, start = b"", 0

    def read(size: int) -> bytes:
        nonlocal held, start
        while len(held) - start < size:
            more = os.read(fd, PIECE)
            if not more:
                raise ValueError("the stream ends too early")
            held, start = held[start:] + more, 0
        start += size
        return held[start - size : start]

    return read


def read_all(fd: int, size: int) -> bytes:
    """Reads exactly so many bytes.

    Raises:
        ValueError: the stream ends too early.
    """
    parts, left = [], size
    while left:
        part = os.read(fd, min(left, PIECE))
        if not part:
            raise ValueError("the stream ends too early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
