"""Images without an engine: unpacked once, whatever form they come in, and never outside of the cache."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ors.errors import SandboxUnavailable
from ors.sandbox import SandboxSpec, open_sandbox
from ors.sandbox.battery import battery
from ors.sandbox.images import root_of, unpack
from tests.sandbox.conftest import NOBODY, SOURCE
from tests.support.image_files import (
    MadeImage,
    digest,
    directory_files,
    docker_files,
    entry,
    in_archive,
    in_folder,
    layer,
    link,
    oci_files,
    tree,
    zstd,
)

ROOT = os.getuid() == 0

LAYERS = [
    layer(
        *(entry("opt"), entry("./opt/changed", b"one"), entry("/opt/gone", b"gone")),
        *(entry("opt/emptied"), entry("opt/emptied/old", b"old"), entry("opt/emptied/both")),
        *(entry("opt/locked", mode=0o555), entry("opt/folder-then-file")),
        *(entry("opt/emptied/both/old", b"old"), entry("opt/file-then-folder", b"x")),
        *(entry("opt/folder-then-file/x", b"x"), entry("opt/two-names", b"shared", uid=1234, gid=2345)),
        *(entry("usr/bin"), link("bin", "usr/bin"), entry("opt/tool", b"tool", mode=0o4755)),
    ),
    layer(
        *(entry("opt/changed", b"two", mode=0o600), entry("opt/.wh.gone", b"")),
        # An opaque white-out empties what is below, wherever it stands in its layer.
        *(entry("opt/emptied/both"), entry("opt/emptied/both/new", b"new")),
        *(entry("opt/emptied/empty"), entry("opt/emptied/.wh..wh..opq", b"")),
        *(entry("opt/emptied/new", b"new"), entry("opt/file-then-folder")),
        entry("opt/folder-then-file", b"y"),
        *(entry("opt/locked/late", b"late"), entry("bin/through-a-link", b"here")),
        link("opt/away", "/etc/passwd"),
        *(link("opt/other-name", "opt/two-names", hard=True), entry("opt/.wh.never-there", b"")),
    ),
]  # fmt: skip
EXPECTED = {
    "bin": ("link", "usr/bin"),
    "opt": ("folder", "0o755"),
    "opt/away": ("link", "/etc/passwd"),
    "opt/changed": ("file", "0o600", b"two"),
    "opt/emptied": ("folder", "0o755"),
    "opt/emptied/both": ("folder", "0o755"),
    "opt/emptied/both/new": ("file", "0o644", b"new"),
    "opt/emptied/empty": ("folder", "0o755"),
    "opt/emptied/new": ("file", "0o644", b"new"),
    "opt/file-then-folder": ("folder", "0o755"),
    "opt/folder-then-file": ("file", "0o644", b"y"),
    "opt/locked": ("folder", "0o555"),
    "opt/locked/late": ("file", "0o644", b"late"),
    "opt/other-name": ("file", "0o644", b"shared"),
    "opt/tool": ("file", "0o755", b"tool"),
    "opt/two-names": ("file", "0o644", b"shared"),
    "usr": ("folder", "0o755"),
    "usr/bin": ("folder", "0o755"),
    "usr/bin/through-a-link": ("file", "0o644", b"here"),
}
FORMS: dict[str, Callable[[Path, MadeImage], Path]] = {
    "a folder in the OCI layout": lambda path, image: in_folder(path, oci_files({"v1": image})),
    "an archive of it": lambda path, image: in_archive(path, oci_files({"v1": image})),
    "what docker save writes": lambda path, image: in_archive(path, docker_files({"a:b": image})),
    "that, compressed": lambda path, image: in_archive(path, docker_files({"a:b": image}), gzip.compress),
    "that, unpacked": lambda path, image: in_folder(path, docker_files({"a:b": image})),
    "a folder of skopeo": lambda path, image: in_folder(path, directory_files({"a:b": image})),
}


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="ors-images-"))
    path.chmod(0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", path], check=True)
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def cache(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(public / "cache"))
    monkeypatch.delenv("ORS_IMAGES", raising=False)
    return public / "cache" / "ors" / "images"


@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_unpacked_the_same_from_every_form(form: str, public: Path) -> None:
    root = root_of(str(FORMS[form](public / "image", MadeImage(LAYERS)))).folder
    assert tree(root) == EXPECTED
    assert (root / "opt/two-names").samefile(root / "opt/other-name")
    assert (root / "opt/two-names").stat().st_mtime == 1_000_000_000
    owner = (root / "opt/two-names").stat()
    assert (owner.st_uid, owner.st_gid) == ((1234, 2345) if ROOT else (os.getuid(), os.getgid()))


@pytest.mark.parametrize("compress", [gzip.compress, zstd, bytes])
def test_layers_may_be_compressed_or_not(compress: Callable[[bytes], bytes], public: Path) -> None:
    image = MadeImage(LAYERS, compress=compress)
    assert tree(root_of(str(in_archive(public / "x.tar", oci_files({"x": image})))).folder) == EXPECTED


def test_an_image_is_unpacked_once_also_by_processes_at_the_same_time(public: Path, cache: Path) -> None:
    image = MadeImage([layer(*(entry(f"opt/{n}", os.urandom(2000)) for n in range(300)))])
    paths = [str(form(public / f"image-{n}", image)) for n, form in enumerate(list(FORMS.values())[:3])]
    program = "import sys; from ors.sandbox.images import root_of; print(root_of(sys.argv[1]).folder)"
    started = [
        subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)
        for path in (paths[0], *paths)
    ]
    found = {process.communicate()[0].strip() for process in started}
    assert found == {str(cache / "roots" / image.id / "rootfs")}
    assert [each.name for each in (cache / "roots").iterdir()] == [image.id]
    made = (cache / "roots" / image.id).stat().st_ino
    root_of(paths[2])
    assert (cache / "roots" / image.id).stat().st_ino == made


def test_what_a_killed_process_left_is_made_anew(public: Path, cache: Path) -> None:
    image = MadeImage(LAYERS)
    locked = cache / "roots" / f".{image.id}" / "rootfs" / "opt"
    locked.mkdir(parents=True)
    (locked / "half").touch()
    locked.chmod(0o500)
    assert tree(root_of(str(in_archive(public / "x.tar", oci_files({"x": image})))).folder) == EXPECTED


def test_a_changed_archive_is_another_image(public: Path) -> None:
    path = str(in_archive(public / "x.tar", oci_files({"x": MadeImage(LAYERS)})))
    assert "opt/changed" in tree(root_of(path).folder)
    in_archive(public / "x.tar", oci_files({"x": MadeImage([layer(entry("opt/else", b""))])}))
    assert set(tree(root_of(path).folder)) == {"opt", "opt/else"}


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("files", [oci_files, docker_files])
def test_a_name_is_mapped_to_what_there_is(
    files: Callable[..., dict[str, bytes]], public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {f"docker.io/library/tool:{n}": MadeImage([layer(entry(f"opt/{n}", b""))]) for n in "12"}
    archive = in_archive(public / "two images = one archive.tar", files(made))
    (public / "rootfs").mkdir()
    lines = [f"tool:1={archive}", f"tool:2={archive}", f"tool:3={archive}", f"plain={public}/rootfs"]
    monkeypatch.setenv("ORS_IMAGES", "\n".join(lines))
    for number in "12":
        for name in (f"tool:{number}", f"docker.io/tool:{number}", f"docker.io/library/tool:{number}"):
            assert set(tree(root_of(name).folder)) == {"opt", f"opt/{number}"}
    assert root_of("plain").folder == public / "rootfs"
    for name in ("tool:3", str(archive)):
        with pytest.raises(SandboxUnavailable, match=r"several images \(docker.io/library/tool:1, docker.io"):
            root_of(name)


def test_the_image_for_this_machine_is_taken_and_another_one_refused(public: Path) -> None:
    other = MadeImage([layer(entry("opt/other", b""))], architecture="s390x")
    both = {"x": other, "y": MadeImage([layer(entry("opt/mine", b""))])}
    assert "opt/mine" in tree(root_of(str(in_archive(public / "both.tar", oci_files(both)))).folder)
    for files in (oci_files, docker_files):
        with pytest.raises(SandboxUnavailable, match=r"s390x|no image for linux"):
            root_of(str(in_archive(public / f"{files.__name__}.tar", files({"x": other}))))


# ── Hostile images ───────────────────────────────────────────────────────────────────────────────


def header(**fields: Any) -> bytes:
    return entry("x", b"", **fields)[0].tobuf(tarfile.GNU_FORMAT) + bytes(10240)


def hostile(victim: str) -> dict[str, tuple[list[bytes], str]]:
    """Attacks on a folder outside, or on the machine; and what each is refused with."""
    return {
        "a path upwards": ([layer(entry("opt/../../evil", b"x"))], "leaves the image"),
        "a folder upwards": ([layer(entry("../evil"))], "leaves the image"),
        "a white-out upwards": ([layer(entry("opt/.wh...", b""))], "leaves the image"),
        "a white-out of nothing": ([layer(entry("opt/.wh.", b""))], "damaged"),
        "through a link upwards": (
            [layer(link("out", "../../../../../../..")), layer(entry("out/evil", b"x"))],
            "leaves the image",
        ),
        "through an absolute link": ([layer(link("out", victim), entry("out/evil", b"x"))], "not a folder"),
        "a white-out by a link": ([layer(link("out", victim), entry("out/.wh.kept", b""))], "not a folder"),
        "through a chain of links": (
            [layer(link("a", "b"), link("b", "a")), layer(entry("a/evil", b"x"))],
            "too many links",
        ),
        "a maze of links": (
            [layer(*(link(f"{n}", f"{n + 1}/{n + 1}") for n in range(39)), link("39", "."), entry("0/x"))],
            "too many links",
        ),
        "a hard link outside": ([layer(link("x", f"{victim}/kept", hard=True))], "not a f"),
        "a hard link upwards": ([layer(link("x", f"../..{victim}/kept", hard=True))], "leaves the image"),
        "a hard link through a link": (
            [layer(link("out", victim), link("x", "out/kept", hard=True))],
            "not a folder",
        ),
        "a hard link to nothing": ([layer(link("x", "y", hard=True))], "not a file of the image"),
        "below a file": ([layer(entry("file", b""), entry("file/x", b""))], "not a folder of the image"),
        "a disk": ([layer(entry("dev/sda", type=tarfile.BLKTYPE, devmajor=8))], "is a device"),
        "memory": ([layer(entry("opt/mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1))], "is a device"),
        "too many folders": ([layer(entry("x/" * 500 + "y", b""))], "too many folders"),
        "a name too long": ([layer(entry("x" * 300, b""))], "name too long"),
        "too many files": ([layer(*(entry(f"opt/{n}", b"") for n in range(300)))], "more than 200 files"),
        "too many bytes": ([layer(entry("x", bytes(300_000))) for _ in range(4)], "limit of 1,000,000 bytes"),
        "zeros behind the end": ([layer(entry("x", b"")) + bytes(2_000_000)], "limit of 1,000,000 bytes"),
        "a huge header": ([header(type=tarfile.XHDTYPE, size=2**40)], "header of a layer"),
        "a huge file": ([header(size=2**50)], "limit of 1,000,000 bytes"),
        "a cut layer": ([layer(entry("x", bytes(5000)))[:3000]], "unexpected end|damaged"),
        "no archive": ([b"nonsense" * 1000], "damaged"),
    }  # fmt: skip


@pytest.mark.parametrize("attack", hostile(""))
def test_a_hostile_image_is_refused_and_writes_nothing_outside(
    attack: str, public: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(unpack, "MOST_ENTRIES", 200)
    victim = public / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    layers, reason = hostile(str(victim))[attack]
    archive = in_archive(public / "x.tar", oci_files({"x": MadeImage(layers)}))
    with pytest.raises(SandboxUnavailable, match=reason) as caught:
        root_of(str(archive))
    assert len(str(caught.value).splitlines()) == 1
    assert list((cache / "roots").iterdir()) == []
    assert {path.name for path in public.rglob("*") if path.is_file()} - {"x.tar", "kept"} == {
        path.name for folder in ("names", "locks") for path in (cache / folder).iterdir()
    }
    assert ((victim / "kept").read_text(), (victim / "kept").stat().st_nlink) == ("kept", 1)


def test_a_link_above_a_folder_leads_no_mode_and_no_owner_outside(public: Path) -> None:
    victim = public / "victim"
    victim.mkdir(mode=0o700)
    (victim / "inner").mkdir(mode=0o700)
    folders = [entry("out"), entry("out/inner", mode=0o777, uid=1234), entry("out/inner/file", b"")]
    layers = [layer(*folders), layer(link("out", str(victim)))]
    root_of(str(in_archive(public / "x.tar", oci_files({"x": MadeImage(layers)}))))
    inner = (victim / "inner").stat()
    assert (inner.st_mode & 0o777, inner.st_uid, list(victim.rglob("*"))) == (
        0o700,
        os.getuid(),
        [victim / "inner"],
    )


def test_devices_that_every_sandbox_has_are_left_out(public: Path) -> None:
    null = entry("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
    archive = in_archive(public / "x.tar", oci_files({"x": MadeImage([layer(null, entry("opt/x", b""))])}))
    assert set(tree(root_of(str(archive)).folder)) == {"dev", "opt", "opt/x"}


@pytest.mark.parametrize("part", ["manifest", "config", "layer"])
def test_a_part_that_does_not_match_its_digest_is_refused(part: str, public: Path) -> None:
    image = MadeImage(LAYERS)
    wrong = {"manifest": image.manifest["digest"], "config": digest(image.about)}
    key = wrong.get(part) or next(key for key in image.blobs if key not in wrong.values())
    data = gzip.compress(layer(entry("opt/other", b""))) if part == "layer" else image.blobs[key] + b" "
    image.blobs[key] = data
    with pytest.raises(SandboxUnavailable, match="does not match its digest sha256:"):
        root_of(str(in_archive(public / "x.tar", oci_files({"x": image}))))


def test_an_image_that_names_files_elsewhere_reads_none_of_them(public: Path) -> None:
    (public / "secret.tar").write_bytes(LAYERS[0])
    image = MadeImage(LAYERS[:1])
    for name in (f"{public}/secret.tar", "../secret.tar", "link.tar"):
        manifest = [{"Config": f"{image.id}.json", "Layers": [name]}]
        files = {f"{image.id}.json": image.about, "manifest.json": json.dumps(manifest).encode()}
        folder = in_folder(public / "image", files)
        (folder / "link.tar").unlink(missing_ok=True)
        (folder / "link.tar").symlink_to(public / "secret.tar")
        with pytest.raises(SandboxUnavailable, match="is missing, or elsewhere"):
            root_of(str(folder))


@pytest.mark.parametrize("name", ["/nowhere/image.tar", "/dev/null", "/etc/passwd"])
def test_what_is_no_image_is_an_error_in_one_line(name: str) -> None:
    with pytest.raises(SandboxUnavailable, match=f"^image {name}: .+$"):
        root_of(name)


def test_files_that_an_image_has_as_links_are_not_written_through(public: Path) -> None:
    (public / "victim").write_text("kept")
    links = [link(f"etc/{name}", str(public / "victim")) for name in ("passwd", "hosts", "resolv.conf")]
    archive = in_archive(public / "x.tar", oci_files({"x": MadeImage([layer(*links)])}))
    root = root_of(str(archive)).folder
    assert (public / "victim").read_text() == "kept"
    assert not (root / "etc/passwd").is_symlink()
    outside = in_archive(public / "y.tar", oci_files({"y": MadeImage([layer(link("etc", str(public)))])}))
    root_of(str(outside))
    assert not (public / "hosts").exists()


# ── In a sandbox ─────────────────────────────────────────────────────────────────────────────────

SHOW = """
cat /opt/changed /etc/motd; echo; ls /opt
echo $GREETING-$HOME; id -un; stat -c %u /opt/changed; echo x > /opt/x
"""
PROGRAM = """
import asyncio, json, sys
from ors.sandbox import SandboxSpec, open_sandbox
from ors.sandbox.battery import battery

async def main():
    spec = SandboxSpec(backend="bwrap", image=sys.argv[1])
    async with await open_sandbox(spec) as box:
        shown = await box.exec(sys.argv[2])
    attacks = [v.attack async for v in battery(spec) if not v.blocked] if "battery" in sys.argv else []
    return [shown.stdout.decode(), shown.stderr.decode(), attacks]

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture(scope="module")
def base(rootfs: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(rootfs, ".")
    return buffer.getvalue()


@pytest.fixture
def complete(base: bytes, public: Path) -> Path:
    """An image with Python, in which layers add, replace and delete files."""
    upper = layer(entry("opt"), entry("opt/changed", b"one", mode=0o604), entry("opt/gone", b"", uid=1234))
    config = {"Env": ["GREETING=hello", "PATH=/usr/bin:/bin", "HOME=/root"], "WorkingDir": "/opt"}
    last = layer(entry("opt/changed", b"two ", mode=0o604), entry("opt/.wh.gone", b""))
    made = MadeImage([base, upper, last], config, compress=bytes)
    return in_archive(public / "x.tar", docker_files({"x:1": made}))


async def test_a_sandbox_opens_on_an_image(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_IMAGES", f"x:1={complete}")
    async with await open_sandbox(SandboxSpec(image="x:1")) as box:
        assert box.backend == "bwrap"
        shown = await box.exec(SHOW)
        (fork,) = await box.fork()
        async with fork:
            assert (await fork.exec("cat /opt/changed")).stdout == b"two "
    owner = "65534" if ROOT else "1000"  # of a user that the sandbox does not have
    assert shown.stdout.decode().split() == ["two", "welcome", "changed", "hello-/home/agent", "agent", owner]
    assert b"Read-only" in shown.stderr
    mine = SandboxSpec(image="x:1", env={"GREETING": "bye"})
    async with await open_sandbox(mine) as box:
        assert (await box.exec("echo $GREETING")).stdout == b"bye\n"


async def test_a_writable_image_has_its_own_working_folder(complete: Path) -> None:
    spec = SandboxSpec(image=str(complete), writable=True)
    async with await open_sandbox(spec) as box:
        shown = await box.exec("pwd; id -u; echo new > changed; cat /opt/changed; stat -c %u /opt/changed")
        assert shown.stdout.decode().split() == ["/opt", "0", "new", "0"]
    async with await open_sandbox(replace(spec, workdir="/srv")) as box:
        assert (await box.exec("pwd; cat /opt/changed")).stdout.split() == [b"/srv", b"two"]


def as_plain_user(python: str, cache: Path, *words: str) -> list[Any]:
    cache.mkdir()
    os.chown(cache, NOBODY, NOBODY)
    done = subprocess.run(
        [python, "-c", PROGRAM, *words],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.skipif(not ROOT, reason="the test above runs as a plain user already")
def test_a_sandbox_of_a_plain_user_opens_on_an_image(
    complete: Path, public: Path, public_python: str
) -> None:
    out, err, _ = as_plain_user(public_python, public / "plain", str(complete), SHOW)
    # All files belong to the one user that there is, who is the user of programs inside.
    assert out.split() == ["two", "welcome", "changed", "hello-/home/agent", "agent", "1000"]
    assert "Read-only" in err


@pytest.mark.long
async def test_every_attack_is_blocked_in_an_image(complete: Path) -> None:
    spec = SandboxSpec(backend="bwrap", image=str(complete))
    assert [verdict async for verdict in battery(spec) if not verdict.blocked] == []


@pytest.mark.long
@pytest.mark.skipif(not ROOT, reason="the test above runs as a plain user already")
def test_every_attack_is_blocked_in_an_image_of_a_plain_user(
    complete: Path, public: Path, public_python: str
) -> None:
    assert as_plain_user(public_python, public / "plain", str(complete), "true", "battery")[2] == []


async def test_an_image_without_python_is_refused(public: Path) -> None:
    archive = in_archive(public / "x.tar", oci_files({"x": MadeImage(LAYERS)}))
    with pytest.raises(SandboxUnavailable, match=r"no Python for the agent .*install Python 3.8 or newer"):
        await open_sandbox(SandboxSpec(backend="bwrap", image=str(archive)))
