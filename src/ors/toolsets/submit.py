"""Submit: the tool that ends an episode with its grade."""

from ors.environment import Toolset, tool
from ors.types import TextBlock, ToolOutput


class Submit(Toolset):
    """The tool `submit`: asks the environment's `grade()` for the reward."""

    @tool
    async def submit(self) -> ToolOutput:
        """Submit your work. It is graded, and the episode ends."""
        reward = float(await self.env.grade())
        return ToolOutput(blocks=[TextBlock(text="Submitted.")], reward=reward, finished=True)
