"""SandboxEnvironment: an environment whose episodes have a sandbox each."""

import copy
from typing import Any, ClassVar, Self

from ors.environment import Environment
from ors.errors import InvalidEnvironment
from ors.sandbox import Pool, Sandbox, SandboxSpec, open_sandbox


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
        """A copy of this episode, with a sandbox that has the same files. Programs are not copied."""
        (box,) = await self.box.fork()
        other = copy.copy(self)
        # Tools hold programs of the old sandbox. They start new ones.
        state = {
            name: value for name, value in self.__dict__.items() if name not in ("box", "_toolset_instances")
        }
        other.__dict__.clear()
        other.__dict__.update(copy.deepcopy(state), box=box)
        return other


def box_of(env: Any) -> Sandbox:
    """The sandbox of an environment.

    Raises:
        InvalidEnvironment: it has none.
    """
    box = getattr(env, "box", None)
    if box is None:
        raise InvalidEnvironment(
            f"{type(env).__name__} has no sandbox: derive it from SandboxEnvironment, and call its setup()"
        )
    return box  # type: ignore[no-any-return]
