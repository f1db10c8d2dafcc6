"""The names of the package `openreward`, for environments that were written for it.

`ors run` installs `Names` as an import hook: in that process alone, `import openreward` finds them. Nothing
here can be imported as `openreward` otherwise.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "0.1.167"
"""The release of openreward whose names these are."""


HOMES = {
    "ors.types": "Blocks CreateSession GetTask GetTaskRange ImageBlock JSONObject JSONValue ListTasks "
    "ListToolsOutput NumTasks RunToolError RunToolOutput RunToolSuccess Split SplitType TerminalToolSpec "
    "TextBlock ToolCall ToolOutput ToolSpec",
    "ors.errors": "ToolCallError",
    "ors.openreward.environments": "Environment Server Toolset download_text terminal tool upload_text",
    "ors.openreward.sandboxes": "AsyncOpenReward AsyncSandboxesAPI FileTooLargeError FileTransferError "
    "FileTransferResult OpenReward PodTerminatedError RunResult SandboxesAPI",
    "ors.openreward.hosting": "MachineSize SandboxBucketConfig SandboxEgressRule SandboxHostAlias "
    "SandboxNetworkPolicy SandboxSettings SandboxSidecarContainer",
    "ors.openreward.toolsets": "CLIToolset ClaudeCodeToolset CodexToolset ExcelToolset WebToolset",
}
NAMES = {name: home for home, names in HOMES.items() for name in names.split()}
"""The names that are offered, each with the module of ours that it comes from."""
MODULES = {
    "openreward",
    *(f"openreward.{name}" for name in ("environments", "toolsets", "api")),
    *(f"openreward.environments.{name}" for name in ("environment", "server", "toolset", "types")),
    *(f"openreward.api.{name}" for name in ("environments", "errors", "sandboxes")),
    *(f"openreward.api.{name}.types" for name in ("environments", "sandboxes")),
}
"""The modules that are found. Each has all names."""


class NotOffered(ImportError):
    """A name of openreward that has no counterpart here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not offered by ors; only the real openreward has it")


class Names(MetaPathFinder, Loader):
    """The import hook: modules of openreward whose names are ours, and that refuse all others by name."""

    def install(self) -> None:
        """Makes every import of openreward in this process find these modules."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "openreward":
            return None
        if fullname not in MODULES:
            raise NotOffered(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        def found(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if f"{module.__name__}.{name}" in MODULES:
                return import_module(f"{module.__name__}.{name}")
            if name not in NAMES:
                raise NotOffered(f"{module.__name__}.{name}")
            return getattr(import_module(NAMES[name]), name)

        vars(module).update(__getattr__=found, __all__=sorted(NAMES), __version__=VERSION)
