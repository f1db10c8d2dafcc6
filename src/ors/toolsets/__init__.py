"""Tools that work in a sandbox: list them in `Environment.toolsets`, and derive from `SandboxEnvironment`."""

from ors.toolsets.bash import Bash
from ors.toolsets.environment import SandboxEnvironment
from ors.toolsets.files import Files
from ors.toolsets.python import Python
from ors.toolsets.submit import Submit

__all__ = ["Bash", "Files", "Python", "SandboxEnvironment", "Submit"]
