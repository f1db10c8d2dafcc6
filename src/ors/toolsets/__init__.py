"""Tools that work in a sandbox: list them in `Environment.toolsets`, and derive from `SandboxEnvironment`."""

from ors.toolsets.environment import SandboxEnvironment, Submit
from ors.toolsets.files import Files
from ors.toolsets.programs import Bash, Python

__all__ = ["Bash", "Files", "Python", "SandboxEnvironment", "Submit"]
