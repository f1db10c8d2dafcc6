"""Bash: a shell that lasts."""

import contextlib
import shlex
from typing import Annotated, Any

from pydantic import Field

from ors.environment import tool
from ors.errors import SandboxLimit
from ors.toolsets.environment import SandboxTools
from ors.toolsets.lasting import NOT_STARTED, Lasting, ProgramReply
from ors.types import TextBlock, ToolOutput

LONGEST_TIME = 600.0
START_SECONDS = 20.0
# With job control every command has a process group of its own, so it can be stopped without the shell.
BEGIN = b"set -m; exec 2>&1\n"


class Bash(SandboxTools):
    """The tool `bash`: a shell in the sandbox that lasts for the episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._shell = Lasting(self._box, ["bash", "--noprofile", "--norc"])
        self._pid, self._jobs = 0, set[int]()

    @tool
    async def bash(
        self,
        command: Annotated[str, Field(description="One or more lines for the shell.")],
        timeout: Annotated[
            float, Field(description="Seconds until the command is stopped.", gt=0, le=LONGEST_TIME)
        ] = 60.0,
    ) -> ToolOutput:
        """Run a command in a bash shell and see what it prints.

        The shell lasts: its folder, variables and background jobs are there for the next command. A command
        cannot read input. Long output is cut in the middle.
        """
        if self._shell.process is None:
            with contextlib.suppress(SandboxLimit):
                await self._shell.start(BEGIN)
                await self._ask(":", START_SECONDS)
        if self._shell.process is None:
            return ToolOutput(blocks=[TextBlock(text=NOT_STARTED)], metadata={"exit_code": None})
        reply, code = await self._ask(command, timeout)
        notes = [reply.stopped] if reply.stopped else []
        if reply.tail is None:
            notes.append("the shell has ended; the next command gets a new one, in /work")
        notes += [f"exit code {code}"] if code and not reply.stopped else []
        note = f"[{'; '.join(notes)}]" if notes else ""
        text = "\n".join(part for part in (reply.output.strip("\n"), note) if part)
        return ToolOutput(blocks=[TextBlock(text=text or "[no output]")], metadata={"exit_code": code})

    async def _ask(self, command: str, timeout: float) -> tuple[ProgramReply, int | None]:
        """Runs a command; notes the shell's pid and its background jobs."""
        reply = await self._shell.ask(lambda mark: _request(command, mark), timeout, self._interrupt)
        if reply.tail is None:
            return reply, None
        self._pid, code, *jobs = (int(word) for word in reply.tail.split())
        self._jobs = set(jobs)
        return reply, code

    async def _interrupt(self) -> None:
        """Kills the command that runs: the children of the shell that are no background jobs."""
        with contextlib.suppress(OSError, SandboxLimit):
            children = await self._box.read_file(f"/proc/{self._pid}/task/{self._pid}/children")
            groups = [f"-{pid}" for pid in children.decode().split() if int(pid) not in self._jobs]
            await self._box.exec(["sh", "-c", 'kill -9 "$@"', "sh", *groups])


def _request(command: str, mark: str) -> bytes:
    run = f"eval {shlex.quote(command)} </dev/null"
    tell = f"""printf '\\n{mark} %s %s %s\\n' $$ $? "$(jobs -p | tr '\\n' ' ')" """
    return f"{run}; {tell}\n".encode()
