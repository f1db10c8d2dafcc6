"""Submit: the tool that ends an episode with its grade."""

from ors.environment import Toolset, tool
from ors.errors import SandboxLimit
from ors.types import TextBlock, ToolOutput


class Submit(Toolset):
    """The tool `submit`: asks the environment's `grade()` for the reward.

    Work that is over a limit of the sandbox, such as too many files, earns 0: that is the agent's doing.
    """

    @tool
    async def submit(self) -> ToolOutput:
        """Submit your work. It is graded, and the episode ends."""
        try:
            reward, text = float(await self.env.grade()), "Submitted."
        except SandboxLimit as limit:
            if limit.reason == "waiting":  # for a place in a pool
                raise
            reward, text = 0.0, f"Submitted, but it cannot be graded: {limit}"
        return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=True)
