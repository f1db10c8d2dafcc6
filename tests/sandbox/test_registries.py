"""Images of registries: tokens, platforms, digests, and downloads that break off."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors.errors import SandboxUnavailable
from ors.sandbox import SandboxSpec, open_sandbox
from ors.sandbox.images import known, root_of, sources
from ors.sandbox.images.sources import Reference
from tests.support.commands import run, running
from tests.support.image_files import MACHINE, OCI, MadeImage, docker_files, entry, in_archive, layer, tree
from tests.support.registry import Front, docker_registry, fronted, push
from tests.support.waiting import wait_until

LARGE = os.urandom(300_000)
IMAGE = MadeImage([layer(entry("opt/large", LARGE)), layer(entry("opt/small", b"small"))])
TREE = {
    "opt": ("folder", "0o755"),
    "opt/large": ("file", "0o644", LARGE),
    "opt/small": ("file", "0o644", b"small"),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        push(address, "team/tool", "1", IMAGE)
        yield address


@pytest.fixture
def front(address: str) -> Iterator[Front]:
    with fronted(address) as front:
        yield front


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ors" / "images"


def test_an_image_is_pulled_once_by_its_name(address: str, cache: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    root = root_of(f"{address}/team/tool:1", lambda *each: heard.append(each)).folder
    assert tree(root) == TREE
    assert sum(1 for _, done, size in heard if done == size) == 3  # and the configuration
    assert list((cache / "blobs").iterdir()) == []
    heard.clear()
    assert root_of(f"{address}/team/tool:1", lambda *each: heard.append(each)).folder == root
    assert heard == []


def test_a_tag_that_has_moved_is_followed_only_when_asked(address: str) -> None:
    name = f"{address}/team/moving:1"
    push(address, "team/moving", "1", IMAGE)
    assert tree(root_of(name).folder) == TREE
    push(address, "team/moving", "1", MadeImage([layer(entry("opt/newer", b""))]))
    assert tree(root_of(name).folder) == TREE
    assert set(tree(root_of(name, anew=True).folder)) == {"opt", "opt/newer"}
    assert set(tree(root_of(name).folder)) == {"opt", "opt/newer"}


@pytest.mark.parametrize("kind", [f"{OCI}.index.v1+json", f"{sources.DOCKER}.list.v2+json"])
def test_of_an_index_the_image_for_this_machine_is_pulled(address: str, kind: str) -> None:
    mine = IMAGE.manifest | {"platform": {"os": "linux", "architecture": MACHINE}}
    unknown = mine | {"platform": {"os": "unknown", "architecture": "unknown"}}
    push(
        address,
        "team/many",
        "1",
        IMAGE,
        {"schemaVersion": 2, "mediaType": kind, "manifests": [unknown, mine]},
    )
    assert tree(root_of(f"{address}/team/many:1").folder) == TREE


def test_a_digest_pins_an_image(front: Front) -> None:
    manifests, wrong = "/v2/team/tool/manifests", f"sha256:{'0' * 64}"
    assert tree(root_of(f"{front.address}/team/tool@{IMAGE.manifest['digest']}").folder) == TREE
    with pytest.raises(SandboxUnavailable, match="has no such image"):
        root_of(f"{front.address}/team/tool@{wrong}")
    front.instead[f"{manifests}/{wrong}"] = f"{manifests}/1"
    with pytest.raises(SandboxUnavailable, match=f"does not match its digest {wrong}"):
        root_of(f"{front.address}/team/tool@{wrong}")


def test_a_registry_that_asks_for_a_token_gets_one_and_no_other_host_sees_it(front: Front) -> None:
    assert tree(root_of(f"{front.address}/team/tool:1").folder) == TREE
    given = {path.split("/")[1]: sent for path, sent, _ in front.seen if path != "/v2/team/tool/manifests/1"}
    assert given == {"token": "", "v2": "Bearer for repository:x:pull", "store": ""}


def test_a_registry_that_wants_a_login_is_an_error_that_says_so(front: Front) -> None:
    front.login = True
    with pytest.raises(SandboxUnavailable, match="requires a login; only public images"):
        root_of(f"{front.address}/team/tool:1")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_breaks_off_goes_on_where_it_was(front: Front, ranges: bool) -> None:
    front.most, front.ranges = (100_000 if ranges else 10**6), ranges
    assert tree(root_of(f"{front.address}/team/tool:1").folder) == TREE
    begun = [asked for path, _, asked in front.seen if path.startswith("/store") and asked]
    assert begun[:2] == (["bytes=100000-", "bytes=200000-"] if ranges else [])


def test_a_process_that_was_killed_in_a_download_leaves_its_bytes_to_the_next(
    front: Front, cache: Path
) -> None:
    class Killed(BaseException):
        pass

    def tell(digest: str, done: int, size: int) -> None:
        if 100_000 <= done < size:
            raise Killed

    front.most = 100_000
    with pytest.raises(Killed):
        root_of(f"{front.address}/team/tool:1", tell)
    assert 100_000 in [path.stat().st_size for path in (cache / "blobs").iterdir()]
    front.seen.clear()
    assert tree(root_of(f"{front.address}/team/tool:1").folder) == TREE
    assert "bytes=100000-" in [asked for _, _, asked in front.seen]


def test_a_registry_that_sends_nothing_is_given_up(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TRIES", 2)
    front.most = 0
    with pytest.raises(SandboxUnavailable, match="breaks off: its answer is too short"):
        root_of(f"{front.address}/team/tool:1")


def test_a_layer_that_does_not_match_its_digest_is_refused_and_not_kept(front: Front, cache: Path) -> None:
    front.spoil = True
    with pytest.raises(SandboxUnavailable, match="does not match its digest sha256:"):
        root_of(f"{front.address}/team/tool:1")
    assert [path.name for path in (cache / "blobs").iterdir()] == [IMAGE.id]
    front.spoil = False
    assert tree(root_of(f"{front.address}/team/tool:1").folder) == TREE


def test_several_processes_pull_an_image_once(front: Front) -> None:
    program = "import sys; from ors.sandbox.images import root_of; print(root_of(sys.argv[1]).folder)"
    command = [sys.executable, "-c", program, f"{front.address}/team/tool:1"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {process.communicate()[0].strip() for process in started}
    assert len(found) == 1
    assert tree(Path(found.pop())) == TREE
    assert sum(path.startswith("/store") for path, _, _ in front.seen) == 3  # two layers and a configuration


async def test_what_cannot_be_pulled_is_said_in_one_line(address: str) -> None:
    spec = SandboxSpec(backend="bwrap", image=f"{address}/team/nothing:1")
    with pytest.raises(
        SandboxUnavailable, match=f"image {address}/team/nothing:1: {address} has no such image"
    ):
        await open_sandbox(spec)
    with pytest.raises(SandboxUnavailable, match=r"cannot reach 127.0.0.1:1: .*refused"):
        root_of("127.0.0.1:1/x")
    with pytest.raises(SandboxUnavailable, match="neither an image name nor a path"):
        root_of("No Such Name")


async def test_a_pull_ends_with_the_one_who_waits_for_it(front: Front, cache: Path) -> None:
    front.gate.clear()
    spec = SandboxSpec(backend="bwrap", image=f"{front.address}/team/tool:1")
    opening = asyncio.ensure_future(open_sandbox(spec))
    first = json.loads(IMAGE.blobs[IMAGE.manifest["digest"]])["layers"][0]["digest"]
    large = f"/store/v2/team/tool/blobs/{first}"
    await asyncio.to_thread(
        wait_until, lambda: large in [path for path, _, _ in front.seen], "the pull waits"
    )
    pulling = [each for each in threading.enumerate() if each.name.startswith("ThreadPoolExecutor")]
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    front.gate.set()
    for thread in pulling:
        await asyncio.to_thread(thread.join)
    assert list((cache / "roots").iterdir()) == []
    assert [path for path, _, _ in front.seen][-1] == large  # the other layer was not asked for


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("someone/tool:1", "docker.io/someone/tool:1"),
        ("docker.io/someone/tool", "docker.io/someone/tool:latest"),
        ("quay.io/a/b/c:1", "quay.io/a/b/c:1"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        (f"x:1@sha256:{'a' * 64}", f"docker.io/library/x@sha256:{'a' * 64}"),
    ],
)
def test_a_name_has_a_full_form(name: str, full: str) -> None:
    assert str(Reference.parsed(name)) == full


# ── Commands ─────────────────────────────────────────────────────────────────────────────────────

SERVED = '''
from ors import Environment, TextBlock, ToolOutput, tool
from ors.sandbox.images import root_of

class Shown(Environment):
    tasks = {"train": [{}]}
    def get_prompt(self):
        return [TextBlock(text=" ".join(each.name for each in root_of("tool:1").folder.iterdir()))]
    @tool
    def end(self) -> ToolOutput:
        """End."""
        return ToolOutput("Done.", finished=True)
'''


def test_a_pulled_image_is_known_by_its_name(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{address}/team/tool:1"
    assert not known(name)
    done = run("sandbox", "pull", name)
    assert done.code == 0, done.err
    assert "0.3 of 0.3 MB" in [line.split("  ")[1] for line in done.err.splitlines()]
    assert f"Unpacked in {tmp_path}/ors/images/roots/{IMAGE.id}/rootfs." in done.out
    assert known(name)
    assert not any(map(known, ("tool:1", "No Name", f"{tmp_path}/nothing", f"{address}/team/other:1")))
    monkeypatch.setenv("ORS_IMAGES", f"tool:1={tmp_path}")
    assert known("docker.io/library/tool:1")


def test_an_image_that_cannot_be_pulled_is_an_error_of_one_line(address: str) -> None:
    done = run("sandbox", "pull", f"{address}/team/nothing")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert f"{address} has no such image" in done.err


def test_a_server_and_its_workers_know_where_images_are(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    archive = in_archive(tmp_path / "x.tar", docker_files({"tool:1": IMAGE}))
    words = ["served.py", "--image", f"tool:1={archive}", "--workers", "2", "--port", "0"]
    with running("serve", *words, cwd=tmp_path) as server:
        url = server.line(r"Serving on (http://\S+)")[1]
        prompt = run("prompt", url)
    assert sorted(prompt.out.split()) == ["etc", "opt"]
    wrong = run("serve", "served.py", "--image", "tool:1=/nowhere", cwd=tmp_path)
    assert (wrong.code, "expected NAME=PATH, with a path that exists" in wrong.err) == (2, True)
