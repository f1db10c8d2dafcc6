"""An environment with a sandbox and a shell."""

from typing import ClassVar

from ors import JSONObject, TextBlock
from ors.sandbox import Pool, SandboxSpec
from ors.toolsets import Bash, SandboxEnvironment


class Workshop(SandboxEnvironment):
    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec(backend="bwrap")
    toolsets = [Bash]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Work.")]
