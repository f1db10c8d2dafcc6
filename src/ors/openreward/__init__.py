"""The names of the package `openreward`, for environments that were written for it.

`ors run` installs `Names` as an import hook: in that process alone, `import openreward` finds them. Nothing
here can be imported as `openreward` otherwise.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "0.1.167"
"""The release of openreward whose names these are."""


def _at(home: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), home)


_TYPES = _at(
    "ors.types",
    "Blocks CreateSession ImageBlock JSONObject JSONValue ListToolsOutput RunToolError RunToolOutput "
    "RunToolSuccess Split TerminalToolSpec TextBlock ToolCall ToolOutput ToolSpec",
)
_AUTHORING = _at(
    "ors.openreward.environments", "Environment Server Toolset download_text terminal tool upload_text"
)
_SANDBOXES = {
    **_at("ors.openreward.sandboxes", "AsyncSandboxesAPI RunResult SandboxesAPI"),
    **_at(
        "ors.openreward.hosting",
        "SandboxBucketConfig SandboxEgressRule SandboxHostAlias SandboxNetworkPolicy SandboxSettings "
        "SandboxSidecarContainer hf_model_rules",
    ),
}
_TRANSFERS = {
    **_at(
        "ors.openreward.sandboxes",
        "FileTooLargeError FileTransferError FileTransferResult PodTerminatedError",
    ),
    "MachineSize": "ors.openreward.hosting",
}
_BLOCKS = {**_at("ors.types", "ImageBlock TextBlock"), "ToolCallError": "ors.errors"}
MODULES: Mapping[str, Mapping[str, str]] = {
    "openreward": {**_SANDBOXES, **_at("ors.openreward.sandboxes", "AsyncOpenReward OpenReward")},
    "openreward.environments": {**_AUTHORING, **_TYPES},
    "openreward.environments.environment": _AUTHORING,
    "openreward.environments.server": _AUTHORING,
    "openreward.environments.toolset": _AUTHORING,
    "openreward.environments.types": {
        **_TYPES,
        **_at("ors.types", "GetTask GetTaskRange ListTasks NumTasks SplitType"),
    },
    "openreward.toolsets": {
        **_at("ors.openreward.toolsets", "CLIToolset ClaudeCodeToolset CodexToolset Toolset WebToolset"),
        "ExcelToolset": "ors.openreward.spreadsheets",
    },
    "openreward.api": {},
    "openreward.api.environments": {},
    "openreward.api.environments.types": _BLOCKS,
    "openreward.api.errors": {"ToolCallError": "ors.errors"},
    "openreward.api.sandboxes": {**_SANDBOXES, **_TRANSFERS},
    "openreward.api.sandboxes.types": {**_SANDBOXES, **_TRANSFERS},
}
"""For each module the modules of ours that its names come from."""


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
        homes = MODULES[module.__name__]

        def found(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if f"{module.__name__}.{name}" in MODULES:
                return import_module(f"{module.__name__}.{name}")
            if name not in homes:
                raise NotOffered(f"{module.__name__}.{name}")
            return getattr(import_module(homes[name]), name)

        vars(module).update(__getattr__=found, __all__=sorted(homes), __version__=VERSION)
