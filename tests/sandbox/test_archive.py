"""Files as a stream of bytes: what both sides of a sandbox pack and unpack."""

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ors.sandbox.inside.archive import leaves, pack, reader, record, unpack


def packed(base: Path, *names: str, unlock: bool = False) -> bytes:
    parts: list[bytes] = []
    found = {os.fsencode(name): os.fsencode(name) for name in names}
    pack(os.fsencode(base), found, parts.append, unlock=unlock)
    return b"".join(parts)


def from_bytes(stream: bytes) -> Callable[[int], bytes]:
    return io.BytesIO(stream).read


def test_files_folders_and_links_arrive_as_they_were(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "top" / "deep").mkdir(parents=True)
    (source / "top" / "deep" / "large").write_bytes(os.urandom(200_000))
    (source / "top" / "empty").touch(mode=0o640)
    (source / "top" / "closed").mkdir(mode=0o500)
    (source / "top" / "link").symlink_to("deep/large")
    os.mkfifo(source / "top" / "pipe")
    target.mkdir()
    stream = packed(source, "top")
    unpack(os.fsencode(target), from_bytes(stream), links=True)
    unpack(os.fsencode(target), from_bytes(stream), links=True)  # over what is there
    assert sorted(path.name for path in (target / "top").iterdir()) == ["closed", "deep", "empty", "link"]
    assert (target / "top" / "link").read_bytes() == (source / "top" / "deep" / "large").read_bytes()
    assert stat.S_IMODE((target / "top" / "empty").stat().st_mode) == 0o640
    assert stat.S_IMODE((target / "top" / "closed").stat().st_mode) == 0o500


def test_links_are_left_out_where_they_are_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "target").mkdir()
    unpack(os.fsencode(tmp_path / "target"), from_bytes(packed(tmp_path, "link")), links=False)
    assert list((tmp_path / "target").iterdir()) == []


def test_what_its_owner_may_not_read_is_unlocked(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_bytes(b"kept")
    (tmp_path / "folder" / "inner" / "file").chmod(0)
    (tmp_path / "folder" / "inner").chmod(0)
    (tmp_path / "target").mkdir()
    stream = packed(tmp_path, "folder", unlock=True)
    unpack(os.fsencode(tmp_path / "target"), from_bytes(stream), links=True)
    inner = tmp_path / "target" / "folder" / "inner"
    assert stat.S_IMODE(inner.stat().st_mode) == 0
    inner.chmod(0o700)
    assert stat.S_IMODE((inner / "file").stat().st_mode) == 0
    (inner / "file").chmod(0o600)
    assert (inner / "file").read_bytes() == b"kept"


@pytest.mark.parametrize("path", [b"../out", b"/out", b"a//b", b"a/./b", b"a\0b"])
def test_a_path_that_leaves_its_folder_is_refused(tmp_path: Path, path: bytes) -> None:
    with pytest.raises(ValueError, match="leaves its folder"):
        unpack(os.fsencode(tmp_path), from_bytes(record(b"F", 0o644, path) + record(b"Z")), links=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("head", [record(b"X", 0, b"a"), record(b"F"), record(b"F", 0, b"a" * 5000)])
def test_a_record_that_is_not_well_formed_is_refused(tmp_path: Path, head: bytes) -> None:
    with pytest.raises(ValueError, match="not well formed"):
        unpack(os.fsencode(tmp_path), from_bytes(head), links=True)


def test_a_stream_that_ends_too_early_is_told() -> None:
    source, sink = os.pipe()
    os.write(sink, b"few")
    os.close(sink)
    with open(source, "rb") as file, pytest.raises(ValueError, match="ends too early"):
        reader(file)(9)


def test_a_stream_makes_nothing_beside_what_was_asked_for(tmp_path: Path) -> None:
    wanted = record(b"D", 0o755, b"top") + record(b"F", 0o644, b"top/file", 0) + bytes(16)
    for other in (record(b"D", 0o755, b"topping"), record(b"H", 0o644, b"top/link", 5) + b"other"):
        with pytest.raises(ValueError, match="leaves its folder"):
            unpack(os.fsencode(tmp_path), from_bytes(wanted + other + record(b"Z")), links=False, top=b"top")
    assert [path.name for path in tmp_path.iterdir()] == ["top"]


def test_files_that_grow_shrink_or_vanish_keep_the_stream_in_step(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("grows", "shrinks", "whole"):
        (tmp_path / "source" / name).write_bytes(b"x" * 200_000)
    parts: list[bytes] = []

    def change(data: bytes) -> None:
        parts.append(data)
        if b"source/grows" in data:
            with (tmp_path / "source" / "grows").open("ab") as file:
                file.write(b"y" * 200_000)
        if b"source/shrinks" in data:
            os.truncate(tmp_path / "source" / "shrinks", 10)

    pack(os.fsencode(tmp_path), {b"source": b"source"}, change)
    (tmp_path / "target").mkdir()
    unpack(os.fsencode(tmp_path / "target"), from_bytes(b"".join(parts)), links=True)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "target" / "source").iterdir()}
    assert sizes == {"grows": 200_000, "shrinks": 200_000, "whole": 200_000}
    assert (tmp_path / "target" / "source" / "whole").read_bytes() == b"x" * 200_000


@pytest.mark.parametrize(
    ("target", "leads_out"),
    [
        ("file", False),
        ("./folder/../file", False),
        ("nothing", False),
        ("{root}/folder/inner", False),
        ("{root}", False),
        ("{root}-beside/file", True),
        ("/etc/passwd", True),
        ("/proc/self/cwd/file", True),
        ("..", True),
        ("folder/../../file", True),
        ("folder/up/file", True),  # by another link
        ("folder/way/file", False),
        ("loop", True),
    ],
)
def test_links_that_lead_out_at_any_step_are_known(tmp_path: Path, target: str, leads_out: bool) -> None:
    root = tmp_path / "work"
    (root / "folder").mkdir(parents=True)
    (root / "file").touch()
    (root / "folder" / "inner").touch()
    (root / "folder" / "up").symlink_to("../..")
    (root / "folder" / "way").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "link").symlink_to(target.format(root=root))
    assert leaves(os.fsencode(root), os.fsencode(root / "link")) == leads_out


def test_a_link_in_a_folder_may_go_up_as_far_as_the_root(tmp_path: Path) -> None:
    (tmp_path / "work" / "folder").mkdir(parents=True)
    for name, target in (("inside", "../file"), ("outside", "../../file")):
        (tmp_path / "work" / "folder" / name).symlink_to(target)
    root = os.fsencode(tmp_path / "work")
    assert not leaves(root, root + b"/folder/inside")
    assert leaves(root, root + b"/folder/outside")


def test_a_file_of_two_names_is_packed_once(tmp_path: Path) -> None:
    (tmp_path / "source" / "top").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "source" / "top" / "one").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "source" / "top" / "one", tmp_path / "source" / "top" / "two")
    stream = packed(tmp_path / "source", "top")
    assert len(stream) < 150_000
    unpack(os.fsencode(tmp_path / "target"), from_bytes(stream), links=True)
    found = [(tmp_path / "target" / "top" / name).stat().st_ino for name in ("one", "two")]
    assert found[0] == found[1]


@pytest.mark.parametrize("most", [(3, 2**30), (4096, 4)], ids=["the length of a path", "the size of all"])
def test_what_is_over_the_bounds_is_an_error(tmp_path: Path, most: tuple[int, int]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"12345")
    with pytest.raises(OSError, match="too large"):
        pack(os.fsencode(tmp_path), {b"folder": b"folder"}, lambda data: None, most=most)
