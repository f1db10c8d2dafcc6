"""SandboxEnvironment, whose episodes have a sandbox each, and the base of tools that work in it."""

from typing import Any, ClassVar, Self

from ors.environment import Copier, Environment, Toolset, tool
from ors.errors import InvalidEnvironment, SandboxLimit
from ors.sandbox import Pool, Sandbox, SandboxSpec, open_sandbox
from ors.toolsets.lasting import Lasting
from ors.types import TextBlock, ToolOutput

FORKED = "this is a fork with a new program: folder, variables and jobs were not copied"


class SandboxEnvironment(Environment):
    """An environment whose episodes have a sandbox each: `self.box`.

    A subclass that defines `setup` or `teardown` calls `await super().setup()` or `await super().teardown()`.
    """

    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec()
    """The kind of sandbox, or a pool to take it from."""
    box: Sandbox
    """The sandbox of this episode."""

    async def setup(self) -> None:
        """Opens the sandbox."""
        kind = self.sandbox
        self.box = await (kind.take() if isinstance(kind, Pool) else open_sandbox(kind))

    async def teardown(self) -> None:
        """Ends the sandbox, and everything in it."""
        if hasattr(self, "box"):
            await self.box.close()

    async def grade(self) -> float:
        """The reward of the work in the sandbox; the tool `submit` asks for it."""
        raise InvalidEnvironment(f"{type(self).__name__} has the tool submit, but no method grade()")

    async def fork(self) -> Self:
        """A copy of this episode, with a sandbox that has the same files. Programs are not copied.

        Raises:
            TypeError: an attribute cannot be copied; the message names it.
        """
        (made,) = await self._forks(1)
        return made

    async def _forks(self, count: int) -> list[Self]:
        """Many copies, whose files are read once."""
        # The server makes the toolsets of the copies.
        toolsets = self.__dict__.get("_toolset_instances", {})
        made: list[Self] = [
            Copier({id(self.box): self.box, id(toolsets): {}}).copy(self) for _ in range(count)
        ]
        for copy, box in zip(made, await self.box.fork(count), strict=True):
            copy.box = box
        return made

    fork.together = _forks  # type: ignore[attr-defined]


def box_of(env: Any) -> Sandbox:
    box: Sandbox | None = getattr(env, "box", None)
    if box is None:
        how = "derive it from SandboxEnvironment, and call its setup()"
        raise InvalidEnvironment(f"{type(env).__name__} has no sandbox: {how}")
    return box


class SandboxTools:
    """Tools that work in the sandbox of their environment, `self._box`. A toolset need not be a `Toolset`."""

    _program: Lasting | None = None

    def __init__(self, env: Any) -> None:
        self.env = env
        self._box = box_of(env)

    def fork(self, env: Any) -> Self:
        """The same tools for a forked sandbox. Programs are not copied, but start anew, and say so."""
        made = type(self)(env)
        if self._program and made._program and (self._program.process or self._program.note):
            made._program.note = FORKED
        return made


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
