"""Bash and Python: a shell and a session of Python that last for an episode."""

import base64
import contextlib
import json
import re
import shlex
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from ors.environment import tool
from ors.errors import SandboxLimit
from ors.toolsets.environment import Lasting, ProgramReply, SandboxTools
from ors.types import Blocks, ImageBlock, TextBlock, ToolOutput

Seconds = Annotated[float, Field(description="Seconds until it is stopped.", gt=0, le=600)]
START_SECONDS = 20.0
# With job control every command has a process group of its own, so it can be stopped without the shell.
# The shell prints what it says itself (`set -x` and `set -v` of its own lines) where it reports.
BEGIN = "set -m; exec 9>&1 1>&3 2>&3 3>&-\n"
# Without a terminal vim waits for ever, as the only editor; `vim -c ... -c wq` and `vim -es` go on working.
NO_VIM = 'autocmd VimEnter * echo "vim needs a terminal, and there is none" | cquit'
INTERRUPT = 2
LARGEST_FIGURE = 4 * 2**20
MOST_FIGURES = 8
FIGURE = "/tmp/.ors-figure-%d.png"
PNG = b"\x89PNG"


class Bash(SandboxTools):
    """The tool `bash`: a shell in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        command = ["bash", "--noprofile", "--norc"]
        self._program = self._shell = Lasting(self._box, command, {"VIMINIT": NO_VIM})
        self._pid = 0

    @tool
    async def bash(
        self,
        command: Annotated[str, Field(description="One or more lines for the shell.")],
        timeout: Seconds = 60.0,
    ) -> ToolOutput:
        """Run a command in a bash shell and see what it prints.

        The shell lasts: its folder, variables and background jobs are there for the next command.
        A command cannot read input, and has no terminal. Long output is cut in the middle.
        """
        if self._shell.process is None:
            await self._shell.start()
            reply = await self._ask(":", START_SECONDS, BEGIN)
        if self._shell.process is not None:
            reply = await self._ask(command, timeout)
        code = reply.exit_code if reply.report is None else reply.report[-1]
        ended = "the shell has ended; the next command gets a new one" if reply.report is None else ""
        status = f"exit code {code}" if code and not reply.stopped else ""
        note, self._shell.note = self._shell.note, ""
        return ToolOutput(reply.text(note, ended, status), metadata={"exit_code": code})

    async def _ask(self, command: str, timeout: float, begin: str = "") -> ProgramReply:
        reply = await self._shell.ask(partial(_request, begin, command), timeout, self._interrupt)
        self._pid = reply.report[0] if reply.report else 0
        return reply

    async def _interrupt(self) -> None:
        """Kills the command that runs: the children of the shell that are no background jobs."""
        jobs = re.findall(rb"(?m)^\d+$", self._shell.reported)
        with contextlib.suppress(OSError, SandboxLimit):
            children = await self._box.read_file(f"/proc/{self._pid}/task/{self._pid}/children")
            groups = [f"-{pid.decode()}" for pid in children.split() if pid not in jobs]
            await self._box.exec(["sh", "-c", 'kill -9 "$@"', "sh", *groups])


def _request(begin: str, command: str, number: int) -> bytes:
    """Lines that run a command, and report the shell's pid and the command's status.

    The report is the complaint of the shell about a wrong expression, since that can neither be redefined,
    as `printf` can, nor end the shell under `set -e`. Whatever a command does to descriptors 0, 1, 2 and 9
    is undone at its end.
    """
    run = f"\\builtin eval {shlex.quote(command)} </dev/null >&9 2>&9 9>&-"
    report = f"if (( {number} $$ $? )); then :; fi"
    return f"{begin}\\builtin jobs -p\n{run}\n{report}\n".encode(errors="surrogatepass")


class Python(SandboxTools):
    """The tool `python`: a session in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        program = files("ors.toolsets").joinpath("python_session.py").read_text(encoding="utf-8")
        command = ["python3", "-u", "-c", program]
        self._program = self._session = Lasting(self._box, command, {"MPLBACKEND": "Agg"})

    @tool
    async def python(
        self,
        code: Annotated[str, Field(description="Python code, of one or more lines.")],
        timeout: Seconds = 60.0,
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
