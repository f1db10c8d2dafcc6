"""Python: a session of Python that lasts."""

import base64
import json
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from ors.environment import tool
from ors.errors import SandboxLimit
from ors.toolsets.environment import SandboxTools
from ors.toolsets.lasting import Lasting
from ors.types import Blocks, ImageBlock, TextBlock, ToolOutput

LONGEST_TIME = 600.0
INTERRUPT = 2
LARGEST_FIGURE = 4 * 2**20
MOST_FIGURES = 8
FIGURE = "/tmp/.ors-figure-%d.png"
PNG = b"\x89PNG"


class Python(SandboxTools):
    """The tool `python`: a session in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        program = files("ors.toolsets").joinpath("python_session.py").read_text(encoding="utf-8")
        self._program = self._session = Lasting(
            self._box, ["python3", "-u", "-c", program], {"MPLBACKEND": "Agg"}
        )

    @tool
    async def python(
        self,
        code: Annotated[str, Field(description="Python code, of one or more lines.")],
        timeout: Annotated[
            float, Field(description="Seconds until the code is stopped.", gt=0, le=LONGEST_TIME)
        ] = 60.0,
    ) -> ToolOutput:
        """Run Python code, and see what it prints and the value of its last expression.

        The session lasts: variables and imports are there for the next call. Figures of matplotlib are shown.
        Long output is cut in the middle.
        """
        await self._session.start()
        reply = await self._session.ask(
            lambda number: json.dumps([number, code, FIGURE]).encode() + b"\n", timeout, self._interrupt
        )
        ended = "the session has ended; the next call gets a new one, without its variables"
        note, self._session.note = self._session.note, ""
        text = reply.text(note, ended if reply.report is None else "")
        return ToolOutput(blocks=[TextBlock(text=text), *await self._figures(*(reply.report or [0])[:1])])

    async def _interrupt(self) -> None:
        if self._session.process is not None:
            self._session.process.kill(INTERRUPT)

    async def _figures(self, count: int) -> Blocks:
        blocks: Blocks = []
        for each in range(min(count, MOST_FIGURES)):
            try:
                data = await self._box.read_file(FIGURE % each, LARGEST_FIGURE)
            except (OSError, SandboxLimit):
                continue  # the agent's code has removed it, or made it very large
            if data.startswith(PNG):
                blocks.append(ImageBlock(data=base64.b64encode(data).decode(), mimeType="image/png"))
        return blocks
