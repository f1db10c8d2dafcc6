"""`ors run`: runs a file that was written for openreward or ors-sdk, unchanged."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ors import Limits
from ors.cli.commands.serve import Serving, alone, by_others, serving_flags
from ors.cli.errors import Unreachable, WrongUsage, clean
from ors.cli.options.hosting import HostingFlags
from ors.cli.options.listening import Access
from ors.cli.options.serving import Inherited, Workers, check_processes
from ors.cli.options.shared import TARGET, Command, given, options, typed
from ors.cli.targets.program import DATA, Program, Sought, has_data, with_data
from ors.errors import ORSError
from ors.openreward import Names
from ors.openreward.sandboxes import AsyncOpenReward
from ors.server import LAUNCH, Server, is_loopback
from ors.server.app import App
from ors.server.episodes.environments import ServedEnvironment
from ors.server.sessions.api_keys import Keys

CHOOSE = (
    "The real openreward is installed too: pass --openreward ours to run on ors, "
    "or --openreward installed to run the file on the real one"
)


@dataclass(frozen=True)
class Running(Serving):
    sought: Sought

    def started(self, server: Server, slot: int = 0) -> None:
        if slot == 0:
            server.extend(self._look_for_tasks, ())
        else:  # the first worker says it for all
            self.sought.stop()

    def _look_for_tasks(self, app: App, environments: Mapping[str, ServedEnvironment]) -> None:
        # Not by a request: another worker might get it, and only the one that lists tasks sees the paths.
        task = asyncio.create_task(self._say_what_lacks(environments.values()))
        app.tasks.add(task)
        task.add_done_callback(app.tasks.discard)

    async def _say_what_lacks(self, environments: Iterable[ServedEnvironment]) -> None:
        for env in environments:
            if lacks := await self._lacks(env):
                click.echo(lacks, err=True)
        self.sought.stop()

    async def _lacks(self, env: ServedEnvironment) -> str:
        """What to say of an environment without any task."""
        try:
            counts = [await env.num_tasks(split.name) for split in env.splits]
        except ORSError as error:  # the banner and the log say what is wrong
            hint = self.sought.hint(str(error))
            return hint and f"{env.name}: {clean(str(error))}{hint}"
        return "" if any(counts) else f"{env.name} has 0 tasks in all splits{self.sought.told()}"


@dataclass(frozen=True)
class Launcher:
    """Serves what a program would: options of the command line win over its arguments."""

    serving: Running
    inherited: Inherited
    workers: Workers
    limits: Limits
    return_errors: str
    launched: list[str] = field(default_factory=list)

    def __call__(self, classes: Sequence[Any], options: dict[str, Any], address: dict[str, Any]) -> None:
        self.launched.extend(cls.__name__ for cls in classes)
        flags = self.serving.access
        file = {"insecure", "ssl_certfile", "ssl_keyfile"}
        access = replace(flags, **{name: getattr(flags, name) or address[name] for name in file})
        keys = self.serving.keys or [*Keys(options["api_keys"]).by_name.values()]
        open_to_all = not (keys or access.insecure or is_loopback(address["host"]))
        host = self.serving.host if given("host") or open_to_all else address["host"]
        port = self.serving.port if given("port") else address["port"]
        serving = replace(self.serving, host=host, port=port, access=access, keys=keys)
        how = {**options, **serving.options(), "limits": self._limits(options["limits"])}
        for name, value in (("return_errors", self.return_errors), ("slot", self.workers.slot)):
            how[name] = value if given(name) else options[name]
        how["observers"] = [*options["observers"], *how["observers"]]
        for name in ("cors_origins", "inspector"):
            how[name] = how[name] or options[name]
        serving.check(how["return_errors"], alone=True)
        alone(serving, self.inherited, classes, how)

    def _limits(self, file: Limits) -> Limits:
        return replace(
            file,
            **{each.name: getattr(self.limits, each.name) for each in fields(Limits) if given(each.name)},
        )


@click.command(
    cls=Command,
    examples=["ors run server.py --port 8000", "ors run server.py --data data", "ors run -m package"],
)
@click.argument("program", type=TARGET, metavar="FILE|MODULE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]")
@click.option("-m", "is_module", is_flag=True, help="Run a module, as `python -m` does.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Folder that the program finds as /orwd_data. Needs bubblewrap.",
)
@click.option(
    "--openreward",
    type=click.Choice(["ours", "installed"]),
    help="What `import openreward` means, if the real one is installed: ors, or the real one.",
)
@serving_flags
@options("Sandboxes", "hosting", HostingFlags)
def run(
    program: str,
    arguments: Sequence[str],
    is_module: bool,
    data: str | None,
    openreward: str | None,
    hosting: HostingFlags,
    **options: Any,
) -> None:
    """Run a file written for openreward or ors-sdk, as `python FILE` would, and serve what it serves.

    In this process alone, `import openreward` finds the names of ors. Options win over what the file says.
    """
    if openreward is None and find_spec("openreward") is not None:
        raise WrongUsage(CHOOSE)
    options["inherited"].take()
    if data is not None and not has_data(data):
        raise click.exceptions.Exit(with_data(data, options["access"].api_key))
    code = Program(program, is_module, arguments, Sought())
    if openreward == "installed":
        _refuse_flags()
        code.run()
        return
    Names().install()
    AsyncOpenReward.hosting = hosting.hosting(Path(DATA) if Path(DATA).is_dir() else None)
    _serve(code, **options)


def _refuse_flags() -> None:
    own = {"program", "arguments", "is_module", "data", "openreward"}
    for name in click.get_current_context().params.keys() - own:
        if typed(name):
            flag = name.replace("reloading", "reload").replace("as_json", "json").replace("_", "-")
            raise WrongUsage(f"--{flag} has no effect on the real openreward: remove it")


def _serve(
    code: Program,
    host: str,
    port: int,
    reloading: bool,
    return_errors: str,
    inherited: Inherited,
    workers: Workers,
    access: Access,
    limits: Limits,
    **shown: Any,
) -> None:
    check_processes(workers, reloading)
    access.check_certificate()
    keys = access.all_keys(inherited.keys)
    serving = Running([code.name], (), host, port, access, keys, sought=code.sought, **shown)
    serving.check(return_errors, alone=not workers.supervised)
    by_others(serving, inherited, workers, limits, reloading)
    launcher = Launcher(serving, inherited, workers, limits, return_errors)
    LAUNCH.set(launcher)
    code.sought.start()
    code.run()
    if not launcher.launched:
        raise Unreachable(f"{code.name} has ended without calling run() of a Server")
