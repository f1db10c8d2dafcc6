"""What people who watch are shown of a sandbox."""

import pytest

from ors.sandbox import SandboxSpec, open_sandbox
from ors.sandbox.inside.usage import MOST_FILES
from ors.sandbox.spec import view

SPEC = SandboxSpec(backend="bwrap")


async def test_processes_places_and_files_are_seen() -> None:
    async with await open_sandbox(SPEC) as box:
        await box.exec("mkdir -p deep/er; printf 12345 > deep/er/file; ln -s /etc link; mkfifo pipe")
        await box.write_file("/tmp/not\nutf8-ü", b"")
        shell = await box.spawn("echo ready; read line; exit")
        await shell.read()
        seen = await box.look()
        await shell.write(b"\n", end=True)
        await shell.wait()
        after = await box.look()
    assert [each.command for each in seen.processes] == ["/bin/sh -c echo ready; read line; exit"]
    assert after.processes == ()
    assert 0 < seen.memory < seen.memory_limit == SPEC.memory
    assert {place.path: place.size for place in seen.places}["/work"] == SPEC.disk
    found = {each.path: (each.kind, each.size) for each in seen.files}
    assert found["/work/deep/er/file"] == ("file", 5)
    assert [found[f"/work/{name}"][0] for name in ("deep", "link", "pipe")] == ["folder", "link", "other"]
    assert "/tmp/not\nutf8-ü" in found


async def test_a_look_has_a_bounded_length_and_passes_closed_folders() -> None:
    async with await open_sandbox(SPEC) as box:
        await box.exec(
            "mkdir closed; chmod 0 closed; seq 1 3000 | xargs touch; for n in $(seq 30); do sleep 60 & done"
        )
        seen = await box.look()
        assert len(seen.files) == MOST_FILES
        assert len(seen.processes) == 30


@pytest.mark.parametrize(
    "answer",
    [
        b"process\0001\0",
        b"process\0001\0001\0R\0-5\0000\0sh\0",
        b"process\0001\0001\0R\0005\000nan\0sh\0",
        b"entry\0file\09007199254740993\0/work\0",
        b"surprise\0",
        b"\xff\0",
    ],
)
def test_an_answer_that_no_agent_gives_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError):
        view(answer, "bwrap", SPEC, None)
