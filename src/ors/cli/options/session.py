"""Options that choose the session of a command."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ors import JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.options.shared import api_key, environment, gathered, images, secrets, task_choice, traceback
from ors.cli.targets.connect import chosen, completed, connected, opened
from ors.cli.targets.resolve import as_url
from ors.client import Environment, Session
from ors.errors import SessionLost


@dataclass(frozen=True)
class Choice:
    """The chosen session: a new one on a task, or an open one."""

    where: str
    env: str | None
    api_key: str | None
    split: str | None
    index: int
    task: JSONObject | None
    secret: Sequence[tuple[str, str]]
    session: str | None = None
    traceback: bool = False

    @contextmanager
    def opened(self, *, keep: bool = False) -> Iterator[Session]:
        """Yields the open session, and ends it afterwards unless `keep` is true."""
        with connected(self.where, self.api_key, traceback=self.traceback) as client:
            env = chosen(client, self.env)
            if self.session is not None:
                made = _attached(env, self.session)
            else:
                local = as_url(self.where) is None
                secrets = completed(env.name, env.required_secrets(), dict(self.secret), local=local)
                made = opened(env, self.split, self.index, self.task, secrets)
            if not keep:
                with made:
                    yield made
            else:
                yield made.start()


def _attached(env: Environment, sid: str) -> Session:
    try:
        return env.attach(sid).start()
    except SessionLost as error:
        raise WrongUsage(f"{sid!r} is not an open session: {error}") from None


def opening(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--images` and the options that choose a session, passed to the command as one `choice`."""
    command = gathered(choice=Choice)(command)
    for option in (api_key, traceback, images, secrets, task_choice, environment):
        command = option(command)
    return command
