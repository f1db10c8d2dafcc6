"""An environment whose episodes take agents into their sandbox, and grade the files that they leave there."""

import os
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from ors import ToolOutput, tool
from ors.errors import SandboxLimit
from ors.sandbox import Allow, Pool, SandboxSpec
from ors.toolsets import SandboxEnvironment, Submit

RIGHT = 0.78125


def sandbox(folder: str, commands: str = "") -> SandboxSpec:
    """A sandbox that takes agents of a folder, with their commands in a folder below it."""
    path = f"{Path(folder, commands)}:/usr/bin:/bin"
    spec = SandboxSpec(backend="bwrap", agents=True, read_only=(folder,), env={"PATH": path})
    return replace(spec, memory=4 * 2**30, processes=256)


class Workshop(SandboxEnvironment):
    """Writes a word into a file."""

    sandbox: ClassVar[SandboxSpec | Pool] = sandbox(os.environ.get("AGENTS", "/usr/bin"), "node_modules/.bin")
    toolsets = [Submit]
    tasks = {"train": [{"word": "fig"}, {"word": "pear"}]}
    private_fields = ["word"]

    async def setup(self) -> None:
        await super().setup()
        await self.box.write_file("wanted.txt", str(self.task_spec["word"]).encode())

    def get_prompt(self) -> str:
        return "Copy /work/wanted.txt to /work/word.txt, then submit."

    async def grade(self) -> float:
        try:
            found = await self.box.read_file("word.txt")
        except (OSError, SandboxLimit):
            return 0.0
        return RIGHT * (found.decode().strip() == self.task_spec["word"])

    @tool
    async def hint(self) -> ToolOutput:
        """Get a hint."""
        return ToolOutput("It is a word.")


class Closed(Workshop):
    """The same, but takes no agents."""

    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec(backend="bwrap", network=Allow("127.0.0.1:1"))
