"""openreward's client in this process, over sandboxes of ours."""

import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from ors.errors import BadRequest, NotFound, SandboxUnavailable
from ors.openreward import NotOffered
from ors.openreward.hosting import Hosting, SandboxBucketConfig, SandboxNetworkPolicy, SandboxSettings
from ors.openreward.sandboxes import (
    AsyncOpenReward,
    AsyncSandboxesAPI,
    FileTooLargeError,
    FileTransferError,
    FileTransferResult,
    OpenReward,
)
from tests.support.image_files import MadeImage, docker_files, entry, in_archive, layer, link
from tests.support.rootfs import build
from tests.support.waiting import until

SETTINGS = SandboxSettings(environment="a/b", image="python:3", machine_size="1:1", block_network=True)


@pytest.fixture(autouse=True)
def hosting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncOpenReward, "hosting", Hosting(host_root=True))


@pytest_asyncio.fixture
async def box() -> AsyncIterator[AsyncSandboxesAPI]:
    async with AsyncOpenReward(api_key="any").sandbox(SETTINGS) as box:
        yield box


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that the users of sandboxes can enter, which they cannot with pytest's own."""
    with TemporaryDirectory(prefix="ors-data-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


async def test_a_command_ends_as_the_sdk_tells_it(box: AsyncSandboxesAPI) -> None:
    output, code = await box.run(r"printf 'a\033[31mred\033[0m\a\tb  \n\n'; echo err >&2; exit 3")
    assert (output, code) == ("ared\tb  \n\nerr", 3)
    assert (await box.run(r"printf 'a\033[1mb\a'", sanitise=False)).output == "a\x1b[1mb\x07"
    late = await box.run("sleep 60", timeout=0.3)
    assert (late.output, late.return_code, late.timed_out) == ("", 124, True)
    long, exact = await box.run("seq 10 19", max_bytes=3), await box.run("printf abc", max_bytes=3)
    assert (long.output, long.truncated, exact.output, exact.truncated) == ("10\n", True, "abc", False)
    assert await box.check_run(f"echo '{'x' * 200_000}' | wc -c") == "200001"
    with pytest.raises(RuntimeError, match="Command failed: echo no; false\nno"):
        await box.check_run("echo no; false")


async def test_files_go_both_ways_and_from_one_sandbox_to_another(
    box: AsyncSandboxesAPI, tmp_path: Path
) -> None:
    data, local = os.urandom(9_000_000), tmp_path / "data"
    local.write_bytes(data)
    moved = FileTransferResult(len(data), hashlib.sha256(data).hexdigest())
    (tmp_path / "link").symlink_to(local)
    assert await box.upload_from(tmp_path / "link", "/workspace/new/large") == moved
    assert await box.stat_file("/workspace/new/large", sha256=True) == vars(moved)
    await box.upload(local, "/workspace/small")
    assert await box.download("/workspace/small") == await box.download("small") == data
    async with AsyncOpenReward().sandbox(SETTINGS) as other:
        assert other.sid != box.sid
        assert await box.copy_to(other, "/workspace/new/large", "/workspace/copy") == moved
        assert await other.download_to("/workspace/copy", tmp_path / "back") == moved
    assert (tmp_path / "back").read_bytes() == data
    assert (await box.download("/proc/version")).startswith(b"Linux")


async def test_what_cannot_be_copied_is_an_error_of_the_sdk(box: AsyncSandboxesAPI, tmp_path: Path) -> None:
    await box.run("echo 12345 > file; ln -s file link; mkfifo pipe")
    assert await box.download("/workspace/link") == b"12345\n"
    with pytest.raises(FileTooLargeError) as error:
        await box.download("/workspace/link", max_size=5)
    assert (error.value.size, error.value.limit) == (6, 5)
    for path in ("/workspace", "/workspace/none", "/workspace/pipe", "/dev/null"):
        with pytest.raises(FileTransferError, match=path):
            await box.download(path)
    with pytest.raises(BadRequest, match="symlink"):
        await box.download_to("/workspace/link", tmp_path / "back")
    with pytest.raises(NotFound):
        await box.stat_file("/workspace/none")


async def test_a_sandbox_that_is_not_started_or_not_here_says_so() -> None:
    box = AsyncOpenReward().sandbox(SETTINGS)
    with pytest.raises(RuntimeError, match="Sandbox not started"):
        await box.run("true")
    await box.start()
    await box.stop()
    await box.stop()
    with pytest.raises(RuntimeError, match="not started"):
        await box.run("true")
    with pytest.raises(SandboxUnavailable, match=r"(?s)image localhost:1/other:1: .*--host-root"):
        await Hosting().open(SETTINGS.model_copy(update={"image": "localhost:1/other:1"}))


def test_a_client_that_names_a_folder_of_this_machine_as_its_image_gets_nothing_of_it() -> None:
    assert Hosting(host_root=True).spec(SETTINGS.model_copy(update={"image": "/root"})).image is None
    for path in ("/", "/root", "./src", ".."):
        with pytest.raises(BadRequest, match="not an image name; pass --image"):
            Hosting().spec(SETTINGS.model_copy(update={"image": path}))


async def test_an_image_is_the_folder_that_the_operator_names(public: Path) -> None:
    build(public)
    (public / "etc" / "motd").write_text("welcome")
    (public / "bin" / "bash").symlink_to("sh")
    hosting = Hosting({SETTINGS.image: str(public)})
    async with AsyncSandboxesAPI(SETTINGS, hosting, 60) as box:
        assert tuple(await box.run("cat /etc/motd; pwd", sanitise=False)) == ("welcome/workspace", 0)


async def test_programs_start_in_the_working_folder_of_the_image(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(public / "cache"))
    build(public / "root")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(public / "root", ".")
    layers = [packed.getvalue(), layer(entry("project"), link("bin/bash", "sh"))]
    image = MadeImage(layers, {"WorkingDir": "/project"}, compress=bytes)
    hosting = Hosting({SETTINGS.image: str(in_archive(public / "x.tar", docker_files({"a:1": image})))})
    async with AsyncSandboxesAPI(SETTINGS, hosting, 60) as box:
        assert tuple(await box.run("pwd; touch mine && echo made")) == ("/project\nmade", 0)


def test_sync_code_has_the_same_sandbox(tmp_path: Path) -> None:
    with OpenReward().sandbox(SETTINGS) as box:
        assert tuple(box.run("echo hi; pwd")) == ("hi\n/workspace", 0)
        (tmp_path / "file").write_text("content")
        box.upload(tmp_path / "file", "/workspace/file")
        assert box.download("/workspace/file") == b"content"
        assert box.sid
    with pytest.raises(RuntimeError):
        box.run("true")


async def test_what_only_the_platform_has_is_refused_by_name() -> None:
    for client in (AsyncOpenReward(), OpenReward()):
        for name in ("environments", "rollout"):
            with pytest.raises(NotOffered, match=name):
                getattr(client, name)
        with pytest.raises(NotOffered, match="secrets"):
            client.sandbox(SETTINGS, secrets={"OPENAI_API_KEY": "x"})


def test_settings_are_checked_as_the_sdk_checks_them() -> None:
    base = SETTINGS.model_dump()
    with pytest.raises(ValueError, match="exclusive"):
        SandboxSettings(**{**base, "network": SandboxNetworkPolicy(), "block_network": True})
    with pytest.raises(ValueError, match="machine_size"):
        SandboxSettings(**{**base, "machine_size": "3:5"})
    env = SandboxSettings(**{**base, "env": {"OPENAI_API_KEY": "k", "Other": "o"}}).env
    assert env == {"OPENAI_API_KEY": "k", "openai_api_key": "k", "Other": "o"}


async def test_a_sandbox_has_the_size_of_its_machine(box: AsyncSandboxesAPI) -> None:
    spec = Hosting(host_root=True).spec(SETTINGS.model_copy(update={"machine_size": "0.5:2"}))
    assert (spec.cpus, spec.memory, spec.disk) == (0.5, 2 * 2**30, 2**30)
    sandbox = box._box
    assert sandbox is not None
    group = sandbox.cell.launched.cgroup
    if group is None:
        pytest.skip("this process may not make control groups")
    told = [
        file.read_text()
        for each in group.folders
        for file in (each / "cpu.cfs_quota_us", each / "cpu.max")
        if file.exists()
    ]
    assert told in (["100000\n"], ["100000 100000\n"])


async def test_the_root_can_be_changed_and_data_is_mounted_read_only(public: Path) -> None:
    (public / "data" / "split").mkdir(parents=True)
    (public / "data" / "split" / "task").write_text("content")
    (public / "data" / "out").symlink_to(public)
    hosting = Hosting(host_root=True, data=public / "data")

    def asked(only_dir: str | None, mount_path: str = "/orwd_data/") -> SandboxSettings:
        bucket = SandboxBucketConfig(mount_path=mount_path, only_dir=only_dir)
        return SETTINGS.model_copy(update={"bucket_config": bucket})

    async with AsyncSandboxesAPI(asked("/split"), hosting, 60) as box:
        told = await box.run(
            "cat /orwd_data/task; pwd; mkdir -p /home/ubuntu /data; echo x > /etc/made; id -u"
        )
        assert tuple(told) == ("content/workspace\n0", 0)
        assert (await box.run("touch /orwd_data/new")).return_code == 1
    for only_dir in ("..", "out", "none", "split/task", "split:rw"):
        with pytest.raises(BadRequest, match="there is no folder"):
            hosting.spec(asked(only_dir))
    with pytest.raises(BadRequest, match="/proc"):
        hosting.spec(asked(None, "/proc/data"))


async def test_a_new_policy_cuts_the_connections_of_the_old_one() -> None:
    closed = {"network": SandboxNetworkPolicy(), "block_network": False}
    async with AsyncOpenReward().sandbox(SETTINGS.model_copy(update=closed)) as box:
        egress = box._started.cell.egress
        held = await box._started.spawn(["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/3128; cat <&3"])
        await until(lambda: egress._tasks, "the proxy has a connection")
        tasks = set(egress._tasks)
        await box.set_network(SandboxNetworkPolicy())
        assert [task.cancelling() for task in tasks] == [1]
        assert await held.wait() == 0
    async with AsyncOpenReward().sandbox(SETTINGS) as box:
        with pytest.raises(BadRequest, match="created without network="):
            await box.set_network(SandboxNetworkPolicy())
