"""Python: a session of Python that lasts."""

import base64
import json
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from ors.environment import tool
from ors.errors import SandboxLimit
from ors.toolsets.environment import SandboxTools
from ors.toolsets.lasting import NOT_STARTED, Lasting, ProgramReply
from ors.types import Blocks, ImageBlock, TextBlock, ToolOutput

LONGEST_TIME = 600.0
INTERRUPT = 2
LARGEST_FIGURE = 4 * 2**20
MOST_FIGURES = 8
PROGRAM = "/tmp/.ors-python.py"
PNG = b"\x89PNG"


class Python(SandboxTools):
    """The tool `python`: a session in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._session = Lasting(self._box, ["python3", "-u", PROGRAM], {"MPLBACKEND": "Agg"})

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
        if self._session.process is None:
            text = files("ors.toolsets").joinpath("python_session.py").read_bytes()
            try:
                await self._box.write_file(PROGRAM, text)
                await self._session.start()
            except (OSError, SandboxLimit):  # the agent's programs have filled /tmp, or taken the path
                return ToolOutput(blocks=[TextBlock(text=NOT_STARTED)])
        reply = await self._session.ask(
            lambda mark: json.dumps([mark, code, "/tmp"]).encode() + b"\n", timeout, self._interrupt
        )
        return ToolOutput(blocks=[TextBlock(text=_text(reply)), *await self._figures(reply)])

    async def _interrupt(self) -> None:
        if self._session.process is not None:
            self._session.process.kill(INTERRUPT)

    async def _figures(self, reply: ProgramReply) -> Blocks:
        blocks: Blocks = []
        for path in _paths(reply.tail)[:MOST_FIGURES]:
            try:
                data = await self._box.read_file(path, LARGEST_FIGURE)
            except (OSError, SandboxLimit):
                continue  # the agent's code has removed it, or made it very large
            if data.startswith(PNG):
                blocks.append(ImageBlock(data=base64.b64encode(data).decode(), mimeType="image/png"))
        return blocks


def _paths(tail: str | None) -> list[str]:
    # The agent's code can print this line itself, with anything in it.
    try:
        listed = json.loads(tail or "[]")
    except ValueError:
        return []
    return [path for path in listed if isinstance(path, str)] if isinstance(listed, list) else []


def _text(reply: ProgramReply) -> str:
    notes = [reply.stopped] if reply.stopped else []
    if reply.tail is None:
        notes.append("the session has ended; the next call gets a new one, without its variables")
    note = f"[{'; '.join(notes)}]" if notes else ""
    return "\n".join(part for part in (reply.output.strip("\n"), note) if part) or "[no output]"
