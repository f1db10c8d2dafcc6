"""Runs the `startup` and `shutdown` hooks of environments, once in a process."""

import asyncio
import logging
from collections.abc import Iterable
from inspect import getattr_static

from ors._authoring.tools import call
from ors.environment import Environment
from ors.errors import StartupFailed
from ors.server.episodes.author_code import AuthorCode, OutOfTime, within
from ors.server.episodes.environments import ServedEnvironment
from ors.server.episodes.error_text import author_line, message, trace

log = logging.getLogger("ors.server")


class ProcessHooks:
    """The hooks of all environments of a server: started in their order, and shut down in reverse."""

    def __init__(self, environments: Iterable[ServedEnvironment], code: AuthorCode) -> None:
        self._environments = list(environments)
        self._code = code
        self._starting: asyncio.Task[None] | None = None
        self._started: list[ServedEnvironment] = []

    async def start(self) -> None:
        """Runs every `startup`, unless that has been done.

        Raises:
            StartupFailed: one of them raised; what had been started is shut down.
        """
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        await self._starting

    async def _start(self) -> None:
        try:
            for environment in self._environments:
                if _has(environment.cls, "startup"):
                    await self._run_startup(environment)
                self._started.append(environment)
        except BaseException:
            await self.stop()
            raise

    async def _run_startup(self, environment: ServedEnvironment) -> None:
        try:
            await within(None, call(environment.cls.startup, spawn=self._code.threads.run))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit too, which says that the environment cannot be served
            log.debug("environment %s: startup failed\n%s", environment.name, trace(error))
            words = f"{environment.cls.__name__}.startup failed: {type(error).__name__}: {message(error)}"
            raise StartupFailed(words + author_line(error, environment.cls)) from error

    async def stop(self) -> None:
        """Runs the `shutdown` of every environment that has started. Never raises; logs errors."""
        self._starting = None
        while self._started:
            environment = self._started.pop()
            if _has(environment.cls, "shutdown"):
                await self._run_shutdown(environment)

    async def _run_shutdown(self, environment: ServedEnvironment) -> None:
        seconds = environment.limits.teardown_seconds
        try:
            await within(seconds, call(environment.cls.shutdown, spawn=self._code.threads.run))
        except asyncio.CancelledError:
            raise
        except OutOfTime:
            log.error("environment %s: shutdown did not end within %g s", environment.name, seconds)
        except BaseException as error:
            log.error("environment %s: shutdown failed\n%s", environment.name, trace(error))


def _has(cls: type[Environment], name: str) -> bool:
    # A tool or an instance method of that name is the author's own.
    raw = getattr_static(cls, name)
    is_hook = isinstance(raw, classmethod | staticmethod) and not getattr(raw, "_env_tool", False)
    return is_hook and raw is not getattr_static(Environment, name)
