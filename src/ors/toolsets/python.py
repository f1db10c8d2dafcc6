"""Python: a session of Python that lasts."""

import base64
import json
from importlib.resources import files
from typing import Annotated, Any, Self

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
FIGURE = "/tmp/figure-%d-%d.png"
PNG = b"\x89PNG"


class Python(SandboxTools):
    """The tool `python`: a session in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        program = files("ors.toolsets").joinpath("python_session.py").read_text(encoding="utf-8")
        self._session = Lasting(self._box, ["python3", "-u", "-c", program], {"MPLBACKEND": "Agg"})

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
        number = 0

        def request(given: int) -> bytes:
            nonlocal number
            number = given
            return json.dumps([number, code, FIGURE]).encode() + b"\n"

        reply = await self._session.ask(request, timeout, self._interrupt)
        ended = "the session has ended; the next call gets a new one, without its variables"
        lost = self._session.news("this fork has a new session: variables and imports were not copied")
        text = reply.text(lost, ended if reply.report is None else "")
        figures = await self._figures(number, reply.report[0] if reply.report else 0)
        return ToolOutput(blocks=[TextBlock(text=text), *figures])

    def fork(self, env: Any) -> Self:
        """A new session for a forked sandbox; it says so."""
        made = super().fork(env)
        made._session.forked(self._session)
        return made

    async def _interrupt(self) -> None:
        if self._session.process is not None:
            self._session.process.kill(INTERRUPT)

    async def _figures(self, number: int, count: int) -> Blocks:
        blocks: Blocks = []
        for each in range(min(count, MOST_FIGURES)):
            try:
                data = await self._box.read_file(FIGURE % (number, each), LARGEST_FIGURE)
            except (OSError, SandboxLimit):
                continue  # the agent's code has removed it, or made it very large
            if data.startswith(PNG):
                blocks.append(ImageBlock(data=base64.b64encode(data).decode(), mimeType="image/png"))
        return blocks
